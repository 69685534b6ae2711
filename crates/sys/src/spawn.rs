//! Starting programs: `posix_spawn`, and a descriptor that tells of their end.
//!
//! The parent's memory is neither copied nor locked, no handler of a fork runs, and a program that cannot be started is
//! an error here, not the exit of a child.

use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
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
    /// `name=value`, or what this process has.
    pub environment: Option<&'a [CString]>,
    /// Where it runs, if not here.
    pub directory: Option<&'a CStr>,
    /// What it has for standard input, output and error, if not what this process has.
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

/// Starts a program.
///
/// # Errors
/// `NotFound` when none of the paths is there, what the kernel says of the one that is, or of the directory; out of
/// processes or descriptors. Nothing was started then, but for the last, when the program runs without a descriptor
/// that tells of its end: it is ended.
pub fn spawn(program: &Program<'_>) -> io::Result<Started> {
    let prepared = Prepared::new(program)?;
    let mut refusal = io::Error::from_raw_os_error(libc::ENOENT);
    for path in program.paths {
        match prepared.start(path) {
            Ok(process) => return watch(process),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {}
            Err(error) if refusal.raw_os_error() == Some(libc::ENOENT) => refusal = error,
            Err(_) => {}
        }
    }
    Err(refusal)
}

fn watch(process: i32) -> io::Result<Started> {
    let opened = Pid::from_raw(process).ok_or(rustix::io::Errno::SRCH);
    match opened.and_then(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        Ok(end) => Ok(Started { process, end }),
        Err(error) => {
            // SAFETY: numbers only; the child is ours and was not collected yet, so the number names nobody else.
            unsafe {
                libc::kill(process, libc::SIGKILL);
                libc::waitpid(process, std::ptr::null_mut(), 0);
            }
            Err(error.into())
        }
    }
}

/// Everything about a program but its path, as the C library wants it.
struct Prepared {
    actions: libc::posix_spawn_file_actions_t,
    attributes: libc::posix_spawnattr_t,
    arguments: Vec<*mut libc::c_char>,
    environment: Option<Vec<*mut libc::c_char>>,
}

/// What the C library answers: zero, or the number of an error.
fn check(answer: libc::c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(answer)) }
}

fn pointers(strings: &[CString]) -> Vec<*mut libc::c_char> {
    let addresses = strings.iter().map(|string| string.as_ptr().cast_mut());
    addresses.chain([std::ptr::null_mut()]).collect()
}

impl Prepared {
    /// The program's strings must outlive what is made here.
    fn new(program: &Program<'_>) -> io::Result<Self> {
        let mut actions = std::mem::MaybeUninit::uninit();
        let mut attributes = std::mem::MaybeUninit::uninit();
        // SAFETY: each call initialises the object it is given, or fails.
        unsafe {
            check(libc::posix_spawn_file_actions_init(actions.as_mut_ptr()))?;
            check(libc::posix_spawnattr_init(attributes.as_mut_ptr()))?;
        }
        // SAFETY: both were initialised just above.
        let (actions, attributes) = unsafe { (actions.assume_init(), attributes.assume_init()) };
        let arguments = pointers(program.arguments);
        let environment = program.environment.map(pointers);
        let mut prepared = Self { actions, attributes, arguments, environment };
        prepared.set_actions(program)?;
        prepared.set_attributes(program)?;
        Ok(prepared)
    }

    fn set_actions(&mut self, program: &Program<'_>) -> io::Result<()> {
        for (target, source) in program.standard.iter().enumerate() {
            if let Some(source) = *source {
                // SAFETY: the actions are initialised; the numbers are judged in the child.
                check(unsafe {
                    libc::posix_spawn_file_actions_adddup2(&mut self.actions, source, target as RawFd)
                })?;
            }
        }
        if program.closes_others {
            // SAFETY: as above.
            check(unsafe { libc::posix_spawn_file_actions_addclosefrom_np(&mut self.actions, 3) })?;
        }
        if let Some(directory) = program.directory {
            // SAFETY: as above; the path is copied.
            check(unsafe {
                libc::posix_spawn_file_actions_addchdir_np(&mut self.actions, directory.as_ptr())
            })?;
        }
        Ok(())
    }

    fn set_attributes(&mut self, program: &Program<'_>) -> io::Result<()> {
        let mut flags: libc::c_int = 0;
        if program.default_signals {
            let mut signals = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
            flags |= libc::POSIX_SPAWN_SETSIGDEF;
            // SAFETY: the set is initialised by the first call and copied by the last; the attributes are initialised.
            check(unsafe {
                libc::sigemptyset(signals.as_mut_ptr());
                libc::sigaddset(signals.as_mut_ptr(), libc::SIGPIPE);
                libc::sigaddset(signals.as_mut_ptr(), libc::SIGXFSZ);
                libc::posix_spawnattr_setsigdefault(&mut self.attributes, signals.as_ptr())
            })?;
        }
        if program.new_session {
            flags |= libc::c_int::from(libc::POSIX_SPAWN_SETSID);
        }
        if let Some(group) = program.process_group {
            flags |= libc::POSIX_SPAWN_SETPGROUP;
            // SAFETY: the attributes are initialised.
            check(unsafe { libc::posix_spawnattr_setpgroup(&mut self.attributes, group) })?;
        }
        let flags = libc::c_short::try_from(flags).map_err(io::Error::other)?;
        // SAFETY: the attributes are initialised.
        check(unsafe { libc::posix_spawnattr_setflags(&mut self.attributes, flags) })
    }

    fn start(&self, path: &CStr) -> io::Result<i32> {
        unsafe extern "C" {
            static environ: *const *mut libc::c_char;
        }
        let mut process = 0;
        // SAFETY: actions and attributes are initialised; both lists end with a null and point to strings that live
        // through the call, which copies what it needs; `environ` is read as the C library itself reads it.
        check(unsafe {
            let environment = match &self.environment {
                Some(list) => list.as_ptr(),
                None => environ,
            };
            libc::posix_spawn(
                &mut process,
                path.as_ptr(),
                &self.actions,
                &self.attributes,
                self.arguments.as_ptr(),
                environment,
            )
        })?;
        Ok(process)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // SAFETY: both were initialised in `new` and are not used again.
        unsafe {
            libc::posix_spawn_file_actions_destroy(&mut self.actions);
            libc::posix_spawnattr_destroy(&mut self.attributes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::wait_readable;
    use std::os::fd::AsRawFd;

    fn strings(words: &[&str]) -> Vec<CString> {
        words.iter().map(|word| CString::new(*word).unwrap()).collect()
    }

    /// What `sh -c script` writes to standard output, and how it ended.
    fn said(script: &str, change: impl FnOnce(&mut Program<'_>)) -> (String, i32) {
        let (paths, arguments) = (strings(&["/nowhere/sh", "/bin/sh"]), strings(&["sh", "-c", script]));
        let (ours, theirs) = crate::socket::pair().unwrap();
        let mut program = Program {
            paths: &paths,
            arguments: &arguments,
            environment: None,
            directory: None,
            standard: [None, Some(theirs.as_raw_fd()), None],
            closes_others: true,
            default_signals: true,
            new_session: false,
            process_group: None,
        };
        change(&mut program);
        let started = spawn(&program).unwrap();
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
        assert_eq!(said("echo $WORD $HOME", |program| program.environment = Some(given)).0, "given\n");
        let session = "read p c s r g session rest < /proc/self/stat; test $$ = $session || echo other";
        assert_eq!(said(session, |_| {}).0, "other\n");
    }

    #[test]
    fn what_cannot_be_started_says_why() {
        let arguments = strings(&["x"]);
        let refused = |path: &str| {
            let paths = strings(&[path]);
            let program = Program {
                paths: &paths,
                arguments: &arguments,
                environment: None,
                directory: None,
                standard: [None; 3],
                closes_others: true,
                default_signals: true,
                new_session: true,
                process_group: None,
            };
            spawn(&program).unwrap_err().kind()
        };
        assert_eq!(refused("/nowhere/at/all"), io::ErrorKind::NotFound);
        assert_eq!(refused("/etc/passwd"), io::ErrorKind::PermissionDenied);
    }
}
