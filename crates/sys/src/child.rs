//! Another program, started and ended: in a process group of its own, killed with its parent, its end
//! readable as a descriptor.
//!
//! A child leads a group. The processes it started end with it: what is left of the group when the leader is
//! gone is killed before the leader is reaped, so that the group's number cannot have become somebody else's.
//! Where something else reaped it, as the kernel does for a process that ignores `SIGCHLD`, nobody can tell
//! how it ended, and whoever has its number by then is left alone.

use crate::event::EventFd;
use crate::fork::SigchldGuard;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpgid, getpid, getppid, kill_process,
    kill_process_group, pidfd_open, set_parent_process_death_signal, waitid,
};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What to start, and with what.
#[derive(Debug, Default)]
pub struct Program {
    /// The program: a path, or a name to be looked for as the shell does.
    pub name: OsString,
    /// What it is told.
    pub arguments: Vec<OsString>,
    /// Variables it gets beside those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs; else where this process does.
    pub directory: Option<PathBuf>,
    /// Where its output and its errors are appended; else they go where those of this process go.
    pub log: Option<PathBuf>,
    /// What become its standard input and output: a socket twice, or two pipes' ends.
    pub standard: Option<(OwnedFd, OwnedFd)>,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal of this number.
    Signal(i32),
    /// Nobody knows how, because something else reaped it: this process ignores `SIGCHLD`, or waits elsewhere
    /// for all its children.
    Unknown,
}

/// A child that was started and not reaped.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    /// Readable once it ended.
    descriptor: OwnedFd,
    exit: Option<Exit>,
}

impl Child {
    /// Starts a program. It is killed when the *thread* that starts it ends, which is when the process does
    /// if that is its first one.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, what the kernel says: of the program, or, with its path in front, of
    /// the directory or the log.
    pub fn start(program: Program) -> io::Result<Self> {
        let mut command = Command::new(&program.name);
        command.args(&program.arguments).envs(program.environment).process_group(0);
        if let Some(directory) = &program.directory {
            // The kernel would say of the program what is wrong with this.
            std::fs::metadata(directory.join(".")).map_err(|error| about(directory, &error))?;
            command.current_dir(directory);
        }
        if let Some(log) = &program.log {
            let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(log);
            let log = opened.map_err(|error| about(log, &error))?;
            command.stdout(log.try_clone()?).stderr(log).stdin(Stdio::null());
        }
        if let Some((input, output)) = program.standard {
            command.stdin(input).stdout(output);
        }
        let parent = getpid();
        let follow = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // A parent that ended before it could be followed is gone for good.
            if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
        };
        // SAFETY: between fork and exec the closure makes two system calls on values it owns, allocates
        // nothing and takes no lock.
        unsafe { command.pre_exec(follow) };
        // The standard library waits for the process that could not become the program, and panics where the
        // kernel has reaped it.
        let sigchld = SigchldGuard::begin();
        let mut process = command.spawn()?;
        drop(sigchld);
        let id = Pid::from_child(&process);
        match pidfd_open(id, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(Self { process, descriptor, exit: None }),
            // It was short-lived, and is reaped already. What it started ends with it, unless its number is
            // another's by now: see `signal`.
            Err(Errno::SRCH) => {
                if getpgid(Some(id)) == Err(Errno::SRCH) {
                    let _ = kill_process_group(id, Signal::KILL);
                }
                let ended = EventFd::new()?;
                ended.signal()?;
                Ok(Self { process, descriptor: ended.into(), exit: Some(Exit::Unknown) })
            }
            Err(error) => {
                let _ = process.kill().and_then(|()| process.wait());
                Err(error.into())
            }
        }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Asks the child and its group to end.
    ///
    /// # Errors
    /// None in practice; one that ended already is no error.
    pub fn terminate(&mut self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Ends the child and its group.
    ///
    /// # Errors
    /// None in practice; one that ended already is no error.
    pub fn kill(&mut self) -> io::Result<()> {
        self.signal(Signal::KILL)
    }

    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        let leader = Pid::from_child(&self.process);
        // No process gets a number that a group has: one that has it now came when nobody was left.
        let is_anothers = |reaped| reaped && getpgid(Some(leader)) != Err(Errno::SRCH);
        if self.exit.is_some() || is_anothers(self.was_reaped()) {
            return Ok(());
        }
        let told = |outcome| match outcome {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(io::Error::from(error)),
        };
        told(kill_process_group(leader, signal))?;
        // It may have gone to another group; nobody else gets its number before it was waited for.
        match getpgid(Some(leader)) {
            Ok(group) if group != leader => told(kill_process(leader, signal)),
            _ => Ok(()),
        }
    }

    /// Whether something else than this is known to have reaped it, so that its number may be another
    /// process's. Where the kernel does not say (an old one, or a filter of its calls) nothing else has.
    fn was_reaped(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::PidFd(self.descriptor.as_fd()), look).err() == Some(Errno::CHILD)
    }

    /// How it ended, if it did within this time.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Option<Exit>> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        while self.exit.is_none() {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if crate::socket::wait(self.descriptor.as_fd(), false, left)?.readable {
                let was_reaped = self.was_reaped();
                self.kill()?;
                self.exit = Some(if was_reaped { Exit::Unknown } else { reap(&mut self.process)? });
            } else if left == Some(Duration::ZERO) {
                break;
            }
        }
        Ok(self.exit)
    }
}

impl AsFd for Child {
    /// Readable once it ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Takes the end of a process that has ended, unless somebody else takes it first.
fn reap(process: &mut std::process::Child) -> io::Result<Exit> {
    match process.wait() {
        Ok(status) => {
            let by_signal = status.signal().map_or(Exit::Unknown, Exit::Signal);
            Ok(status.code().map_or(by_signal, Exit::Code))
        }
        Err(error) if Errno::from_io_error(&error) == Some(Errno::CHILD) => Ok(Exit::Unknown),
        Err(error) => Err(error),
    }
}

/// Puts the file's path in front of the kernel's error. What it makes has no code of the system's, by which
/// callers tell it from an error about the program.
fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// How long a log is now; 0 where there is none.
pub fn log_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// The end of a log without the blanks behind it, at most so many bytes and none before a place: from the
/// beginning of a line, where one begins there.
///
/// # Errors
/// What the file system says.
pub fn log_tail(path: &Path, from: u64, bytes_max: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let start = from.max(length.saturating_sub(bytes_max));
    // Whether a line begins there, the byte in front of it says.
    let in_front = u64::from(start > from);
    file.seek(SeekFrom::Start(start - in_front))?;
    let mut tail = Vec::new();
    file.take(in_front + bytes_max).read_to_end(&mut tail)?;
    // Of a line that began before, only its end is there.
    let said = tail.trim_ascii_end();
    let line_end = said.iter().position(|byte| *byte == b'\n').filter(|_| in_front > 0);
    let line = line_end.map_or(in_front as usize, |at| at + 1);
    Ok(String::from_utf8_lossy(said.get(line..).unwrap_or_default()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program { name: "sh".into(), arguments: vec!["-c".into(), script.into()], ..Program::default() }
    }

    #[test]
    fn a_child_says_how_it_ended() {
        let mut child = Child::start(shell("exit 7")).unwrap();
        assert_eq!(child.wait(None).unwrap(), Some(Exit::Code(7)));
        assert_eq!(child.wait(None).unwrap(), Some(Exit::Code(7)), "and says so again");
        let mut child = Child::start(shell("kill -9 $$")).unwrap();
        assert_eq!(child.wait(None).unwrap(), Some(Exit::Signal(9)));
        child.kill().unwrap();
        let missing = Program { name: "/nonexistent/program".into(), ..Program::default() };
        assert_eq!(Child::start(missing).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_directory_or_a_log_that_is_not_there_is_named() {
        let place = PathBuf::from("/nonexistent/place");
        let directory = Some(place.clone());
        for program in [Program { directory, ..shell("true") }, Program { log: Some(place), ..shell("true") }]
        {
            let error = Child::start(program).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            assert!(error.to_string().starts_with("/nonexistent/place: "), "{error}");
            assert!(error.raw_os_error().is_none());
        }
        let file = Program { directory: Some("/proc/self/comm".into()), ..shell("true") };
        let error = Child::start(file).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
        assert!(error.to_string().starts_with("/proc/self/comm: "), "{error}");
    }

    #[test]
    fn a_child_is_asked_to_end_before_it_is_made_to() {
        let mut child = Child::start(shell("trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done"));
        let child = child.as_mut().unwrap();
        assert_eq!(child.wait(Some(Duration::from_millis(50))).unwrap(), None);
        child.terminate().unwrap();
        assert!(matches!(child.wait(None).unwrap(), Some(Exit::Code(3) | Exit::Signal(15))));
    }

    const ROLE: &str = "THALWEG_CHILD_ROLE";

    /// What a child does; nothing in the test program itself.
    #[test]
    fn a_child_plays_its_role() {
        let Some(role) = std::env::var_os(ROLE) else { return };
        if role == "ignores" {
            let missing = Program { name: "/nonexistent/program".into(), ..Program::default() };
            println!("{:?}", Child::start(missing).map_err(|error| error.kind()));
            let (theirs, ours) = std::io::pipe().unwrap();
            let standard = Some((theirs.into(), std::fs::File::create("/dev/null").unwrap().into()));
            // It ends only when it is started: while it starts, its end is not taken from this process.
            let started = Child::start(Program { standard, ..shell("read line; exit 7") });
            drop(ours);
            println!("{:?}", started.and_then(|mut child| child.wait(None)));
            return;
        }
        rustix::process::setpgid(None, Some(getpgid(getppid()).unwrap())).unwrap();
        println!("gone to another group");
        std::thread::sleep(Duration::from_secs(1_000));
    }

    #[test]
    fn where_the_kernel_reaps_it_nobody_knows_how_it_ended_and_that_is_said() {
        let mut command = Command::new("env");
        command.arg("--ignore-signal=CHLD").arg(std::env::current_exe().unwrap());
        command.args(["--exact", "child::tests::a_child_plays_its_role", "--nocapture"]);
        let said = String::from_utf8(command.env(ROLE, "ignores").output().unwrap().stdout).unwrap();
        assert!(said.contains("Err(NotFound)") && said.contains("Ok(Some(Unknown))"), "{said}");
    }

    #[test]
    fn one_that_was_reaped_elsewhere_takes_its_group_along_and_nobody_who_has_its_number() {
        let (ours, theirs) = crate::socket::pair().unwrap();
        let program =
            Program { standard: Some((theirs.try_clone().unwrap(), theirs)), ..shell("sleep 1000 & exit 0") };
        let mut gone = Child::start(program).unwrap();
        gone.process.wait().unwrap();
        gone.kill().unwrap();
        assert!(crate::socket::wait(ours.as_fd(), false, Some(Duration::from_secs(60))).unwrap().readable);
        assert_eq!(gone.wait(None).unwrap(), Some(Exit::Unknown));
        assert_eq!(gone.wait(None).unwrap(), Some(Exit::Unknown), "and says so again");
        // As if this one had got the number of the other.
        let mut other = Child::start(shell("sleep 1000")).unwrap();
        std::mem::swap(&mut gone.descriptor, &mut other.descriptor);
        other.kill().unwrap();
        std::mem::swap(&mut gone.descriptor, &mut other.descriptor);
        assert_eq!(other.wait(Some(Duration::from_millis(50))).unwrap(), None);
        other.kill().unwrap();
        assert_eq!(other.wait(None).unwrap(), Some(Exit::Signal(9)));
    }

    #[test]
    fn where_the_kernel_does_not_say_whether_it_was_reaped_it_is_ended_all_the_same() {
        let mut child = Child::start(shell("sleep 1000")).unwrap();
        // As if the kernel, or who filters its calls, refused to look at this.
        let refused = File::open("/dev/null").unwrap();
        let descriptor = std::mem::replace(&mut child.descriptor, refused.into());
        child.kill().unwrap();
        assert_eq!(child.wait(None).unwrap(), Some(Exit::Signal(9)));
        child.descriptor = descriptor;
        assert!(crate::socket::wait(child.as_fd(), false, Some(Duration::ZERO)).unwrap().readable);
    }

    #[test]
    fn one_that_went_to_another_group_is_ended_too() {
        let (ours, theirs) = crate::socket::pair().unwrap();
        let program = Program {
            name: std::env::current_exe().unwrap().into(),
            arguments: ["--exact", "child::tests::a_child_plays_its_role", "--nocapture"]
                .map(OsString::from)
                .to_vec(),
            environment: vec![(ROLE.into(), "goes".into())],
            standard: Some((theirs.try_clone().unwrap(), theirs)),
            ..Program::default()
        };
        let mut child = Child::start(program).unwrap();
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains("gone to another group") {
            assert!(
                crate::socket::wait(ours.as_fd(), false, Some(Duration::from_secs(60))).unwrap().readable
            );
            said.reserve(1_000);
            assert_ne!(crate::socket::receive(ours.as_fd(), &mut said, 1_000).unwrap(), Some(0));
        }
        child.kill().unwrap();
        assert_eq!(child.wait(Some(Duration::from_secs(60))).unwrap(), Some(Exit::Signal(9)));
    }

    #[test]
    fn whoever_a_child_started_ends_with_it() {
        let (ours, theirs) = crate::socket::pair().unwrap();
        // The sleeper keeps the socket open, which is its standard output.
        let program =
            Program { standard: Some((theirs.try_clone().unwrap(), theirs)), ..shell("sleep 1000 & exit 0") };
        let mut child = Child::start(program).unwrap();
        assert_eq!(child.wait(None).unwrap(), Some(Exit::Code(0)));
        assert!(crate::socket::wait(ours.as_fd(), false, Some(Duration::from_secs(60))).unwrap().readable);
    }

    #[test]
    fn a_log_is_appended_to_and_its_end_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        assert_eq!(log_bytes(&log), 0);
        for script in ["echo first", "echo second >&2; echo third"] {
            let mut child = Child::start(Program { log: Some(log.clone()), ..shell(script) }).unwrap();
            child.wait(None).unwrap();
        }
        assert_eq!(log_bytes(&log), 19);
        assert_eq!(log_tail(&log, 6, 1_000).unwrap(), "second\nthird");
        // Behind the rest of a line whose beginning is left out.
        for bytes_max in [6, 8] {
            assert_eq!(log_tail(&log, 0, bytes_max).unwrap(), "third");
        }
        assert_eq!(log_tail(&log, 13, 6).unwrap(), "third");
        // Of a line that is longer than that, its end.
        assert_eq!(log_tail(&log, 0, 3).unwrap(), "rd");
    }
}
