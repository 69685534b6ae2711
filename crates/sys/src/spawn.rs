//! Starting programs, and a descriptor that tells of their end.
//!
//! `beside` starts them by one call of the kernel, `library` by the C library's means where that call is not
//! to be had. The parent's memory is neither copied nor locked, no handler of a fork runs, and a program that
//! cannot be started is an error here, not the exit of a child.

mod beside;
mod library;

use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};

/// What to start, and what of this process it is to have.
#[derive(Debug)]
pub struct Program<'a> {
    /// Where it may lie; the first that is there is started.
    pub paths: &'a [CString],
    /// Its arguments, its own name first.
    pub arguments: &'a [CString],
    /// `name=value` each; see [`own_environment`].
    pub environment: &'a [CString],
    /// Where it runs, if not here.
    pub directory: Option<&'a CStr>,
    /// What it has for standard input, output and error, if not what this process has. This process's own
    /// three may be among them, in any order.
    pub standard: [Option<RawFd>; 3],
    /// Nothing else that is open here is open there.
    pub closes_others: bool,
    /// `SIGPIPE` and `SIGXFSZ`, which many programs ignore for themselves, end it again.
    pub default_signals: bool,
    /// It leads a session of its own.
    pub new_session: bool,
    /// The process group it joins; zero, one of its own.
    pub process_group: Option<i32>,
}

/// A program that was started. The caller collects its exit status.
#[derive(Debug)]
pub struct Started {
    /// Its process.
    pub process: i32,
    /// Readable once it ended.
    pub end: OwnedFd,
}

impl Started {
    /// Collects how it ended: its exit status, negative for a signal. Waits for the end.
    ///
    /// # Errors
    /// Somebody else collected it.
    pub fn ended(self) -> io::Result<i32> {
        loop {
            match waitid(WaitId::PidFd(self.end.as_fd()), WaitIdOptions::EXITED) {
                Ok(Some(status)) => {
                    let by_signal = status.terminating_signal().map(|signal| -signal);
                    return Ok(status.exit_status().or(by_signal).unwrap_or(0));
                }
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// What of a program's start was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A process, and the descriptor of its end.
    Process,
    /// Its session, or the process group that it was to join.
    Group,
    /// Its standard input, output or error.
    Standard,
    /// The directory that it was to run in.
    Directory,
    /// The program itself: there is none, or it may not be run.
    Program,
}

/// Why a program was not started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start a program: {error}")]
pub struct Refused {
    /// What was refused. The C library does not say, so where it starts programs this is what the error and
    /// the directory suggest.
    pub step: Step,
    /// What the system said.
    #[source]
    pub error: io::Error,
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        refused.error
    }
}

impl Refused {
    fn at(step: Step) -> impl Fn(io::Error) -> Self {
        move |error| Self { step, error }
    }
}

/// Starts a program.
///
/// # Errors
/// `NotFound` when none of the paths is there, what the kernel says of the one that is, or of the directory;
/// out of processes or descriptors. Nothing was started then, but for the last, when the program runs without
/// a descriptor that tells of its end: it is ended.
pub fn spawn(program: &Program<'_>) -> Result<Started, Refused> {
    let (paths, arguments) = (pointers(program.paths), pointers(program.arguments));
    let paths = &paths[..program.paths.len()];
    let environment = pointers(program.environment);
    match beside::start(program, paths, arguments.as_ptr(), environment.as_ptr()) {
        Some(started) => started,
        None => library::start(program, arguments.as_ptr(), environment.as_ptr()),
    }
}

/// Whether a descriptor could be gone before it comes to its place, because another came into its own.
fn takes_aside(number: RawFd, target: RawFd) -> bool {
    (0..3).contains(&number) && number != target
}

/// Where strings lie, and a null.
fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}

/// A copy of what this process has for its environment, read as the C library itself reads it. Nobody may
/// change it meanwhile: where an interpreter's lock guards it, the caller holds that.
pub fn own_environment() -> Vec<CString> {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    let mut copied = Vec::new();
    // SAFETY: a word that is there before `main`, and null or a list of strings that a null ends; nobody
    // changes them meanwhile, as far as the process keeps what the C library demands of it.
    unsafe {
        let mut next = environ;
        while !next.is_null() && !(*next).is_null() {
            copied.push(CStr::from_ptr(*next).to_owned());
            next = next.add(1);
        }
    }
    copied
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::wait_readable;
    use std::os::fd::AsRawFd;

    /// A program with nothing but paths and arguments, and neither descriptors nor signal handlers of ours.
    fn plain<'a>(paths: &'a [CString], arguments: &'a [CString]) -> Program<'a> {
        Program {
            paths,
            arguments,
            environment: &[],
            directory: None,
            standard: [None; 3],
            closes_others: true,
            default_signals: true,
            new_session: false,
            process_group: None,
        }
    }

    fn strings(words: &[&str]) -> Vec<CString> {
        words.iter().map(|word| CString::new(*word).unwrap()).collect()
    }

    /// What `sh -c script` writes to standard output, and how it ended.
    fn said(script: &str, change: impl FnOnce(&mut Program<'_>)) -> (String, i32) {
        said_by(spawn, script, change)
    }

    /// The same, however it is started.
    fn said_by(
        start: impl FnOnce(&Program<'_>) -> Result<Started, Refused>,
        script: &str,
        change: impl FnOnce(&mut Program<'_>),
    ) -> (String, i32) {
        let (paths, arguments) = (strings(&["/nowhere/sh", "/bin/sh"]), strings(&["sh", "-c", script]));
        let (ours, theirs) = crate::socket::pair().unwrap();
        let environment = own_environment();
        let standard = [None, Some(theirs.as_raw_fd()), None];
        let mut program = Program { environment: &environment, standard, ..plain(&paths, &arguments) };
        change(&mut program);
        let started = start(&program).unwrap();
        drop(theirs);
        assert!(wait_readable(started.end.as_fd(), 10_000).unwrap());
        let status = started.ended().unwrap();
        let mut output = Vec::with_capacity(4_096);
        while crate::socket::receive(ours.as_fd(), &mut output, 1_024).unwrap_or(None).unwrap_or(0) > 0 {}
        (String::from_utf8(output).unwrap(), status)
    }

    #[test]
    fn a_program_has_what_it_was_given_and_nothing_else() {
        assert_eq!(said("echo hello; exit 3", |_| {}), ("hello\n".to_owned(), 3));
        assert_eq!(said("kill -KILL $$", |_| {}).1, -libc::SIGKILL);
        assert_eq!(said("pwd", |program| program.directory = Some(c"/proc")).0, "/proc\n");
        let given: &'static [CString] = strings(&["WORD=given"]).leak();
        assert_eq!(said("echo $WORD $HOME", |program| program.environment = given).0, "given\n");
        assert_eq!(std::env::var("PATH").map(|path| path + "\n"), Ok(said("echo $PATH", |_| {}).0));
        let session = "read p c s r g session rest < /proc/self/stat; test $$ = $session || echo other";
        assert_eq!(said(session, |_| {}).0, "other\n");
    }

    /// Starts as on a kernel that does not know the call.
    fn by_library(program: &Program<'_>) -> Result<Started, Refused> {
        library::start(program, pointers(program.arguments).as_ptr(), pointers(program.environment).as_ptr())
    }

    #[test]
    fn both_ways_leave_a_program_the_same_signals_processors_and_descriptors() {
        let script = "while read name rest; do case $name in Sig[BC]*|Cpus_allowed:) echo $name $rest;; esac; done \
            < /proc/self/status; echo /proc/self/fd/*";
        let (ours, theirs) = (said(script, |_| {}), said_by(by_library, script, |_| {}));
        assert_eq!(ours, theirs);
        assert!(ours.0.lines().count() == 4 && ours.0.contains("Cpus_allowed:"), "{}", ours.0);
    }

    #[test]
    fn the_first_three_come_to_each_others_places() {
        let ours = [0, 1, 2].map(|number| std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap());
        for order in [[1, 0, 2], [0, 2, 1], [2, 1, 0], [1, 2, 0], [2, 0, 1], [1, 1, 0], [0, 1, 2]] {
            for start in [spawn, by_library] {
                let file = tempfile::NamedTempFile::new().unwrap();
                let script = format!(
                    "found=$(readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2); echo \"$found\" > {}",
                    file.path().display()
                );
                let standard = order.map(Some);
                assert_eq!(said_by(start, &script, |program| program.standard = standard).1, 0, "{order:?}");
                let found = std::fs::read_to_string(file.path()).unwrap();
                let wanted = order.map(|number| ours[number as usize].display().to_string());
                assert_eq!(found.lines().collect::<Vec<_>>(), wanted, "{order:?}");
            }
        }
    }

    #[test]
    fn a_signal_that_this_process_ignores_is_the_programs_again_if_that_is_asked() {
        let script =
            "while read name rest; do case $name in SigIgn*) echo $rest;; esac; done < /proc/self/status";
        let ignores_pipe = |asked| {
            let words = said(script, |program| program.default_signals = asked).0;
            u64::from_str_radix(words.trim(), 16).unwrap() >> (libc::SIGPIPE - 1) & 1 == 1
        };
        // Every Rust program begins with SIGPIPE ignored.
        assert_eq!([ignores_pipe(true), ignores_pipe(false)], [false, true]);
    }

    #[test]
    fn starting_leaves_this_thread_as_it_was() {
        let status = || {
            let words = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let kept =
                words.lines().filter(|line| line.starts_with("SigBlk") || line.starts_with("Cpus_allowed:"));
            kept.map(str::to_owned).collect::<Vec<_>>()
        };
        let before = status();
        assert_eq!(said("exit 0", |_| {}).1, 0);
        assert_eq!(status(), before);
        assert_eq!(before.len(), 2);
    }

    #[test]
    fn what_cannot_be_started_says_why() {
        let arguments = strings(&["x"]);
        let refused = |tried: &[&str]| {
            let paths = strings(tried);
            let program = Program { new_session: true, ..plain(&paths, &arguments) };
            let kinds = [spawn, by_library].map(|start| {
                let Refused { step, error } = start(&program).unwrap_err();
                assert_eq!(step, Step::Program, "{tried:?}: {error}");
                error.kind()
            });
            assert_eq!(kinds[0], kinds[1], "{tried:?}");
            kinds[0]
        };
        let (absent, inside, forbidden) = ("/nowhere/at/all", "/etc/passwd/x", "/etc/passwd");
        assert_eq!(refused(&[]), io::ErrorKind::NotFound);
        assert_eq!(refused(&[absent]), io::ErrorKind::NotFound);
        assert_eq!(refused(&[inside]), io::ErrorKind::NotADirectory);
        assert_eq!(refused(&[absent, inside]), io::ErrorKind::NotADirectory);
        assert_eq!(refused(&[inside, absent]), io::ErrorKind::NotFound);
        assert_eq!(refused(&[forbidden]), io::ErrorKind::PermissionDenied);
        assert_eq!(refused(&[inside, forbidden, absent]), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn what_is_refused_is_named() {
        let (paths, arguments) = (strings(&["/bin/true"]), strings(&["true"]));
        let refused = |change: fn(&mut Program<'_>)| {
            let mut program = plain(&paths, &arguments);
            change(&mut program);
            let found = [spawn, by_library].map(|start| {
                let Refused { step, error } = start(&program).unwrap_err();
                (step, error.raw_os_error())
            });
            assert_eq!(found[0], found[1]);
            found[0]
        };
        let group = |program: &mut Program<'_>| program.process_group = Some(i32::MAX);
        assert_eq!(refused(group), (Step::Group, Some(libc::EPERM)));
        // A session's leader is its group's for good.
        let leader =
            |program: &mut Program<'_>| (program.new_session, program.process_group) = (true, Some(1));
        assert_eq!(refused(leader), (Step::Group, Some(libc::EPERM)));
        let closed = |program: &mut Program<'_>| program.standard = [None, Some(i32::MAX), None];
        assert_eq!(refused(closed), (Step::Standard, Some(libc::EBADF)));
        let absent = |program: &mut Program<'_>| program.directory = Some(c"/nowhere");
        assert_eq!(refused(absent), (Step::Directory, Some(libc::ENOENT)));
        let file = |program: &mut Program<'_>| program.directory = Some(c"/etc/passwd");
        assert_eq!(refused(file), (Step::Directory, Some(libc::ENOTDIR)));
    }
}
