//! The C library's `posix_spawn`, for a kernel that does not know the call that [`super::beside`] makes, or
//! whose guard forbids it.

use super::{Program, Refused, Started, Step, takes_aside};
use rustix::fs::{Access, access};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Starts the first of a program's paths that is there; the errors are those of [`super::beside`].
pub(super) fn start(
    program: &Program<'_>,
    arguments: *const *const libc::c_char,
    environment: *const *const libc::c_char,
) -> Result<Started, Refused> {
    let prepared = Prepared::new(program)?;
    let (mut refused, mut absent) = (None, io::Error::from_raw_os_error(libc::ENOENT));
    for path in program.paths {
        match prepared.start(path, arguments, environment) {
            Ok(process) => return watch(process).map_err(Refused::at(Step::Process)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {
                absent = error
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    let error = refused.unwrap_or(absent);
    Err(Refused { step: suggested(program, &error), error })
}

/// What was refused, as far as can be told: the C library has one error for everything.
fn suggested(program: &Program<'_>, error: &io::Error) -> Step {
    let may_enter = |directory: &CStr| {
        Path::new(OsStr::from_bytes(directory.to_bytes())).is_dir()
            && access(directory, Access::EXEC_OK).is_ok()
    };
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => Step::Process,
        Some(libc::EPERM) if program.process_group.is_some() => Step::Group,
        Some(libc::EBADF) => Step::Standard,
        _ if program.directory.is_some_and(|directory| !may_enter(directory)) => Step::Directory,
        _ => Step::Program,
    }
}

fn watch(process: i32) -> io::Result<Started> {
    let opened = Pid::from_raw(process).ok_or(rustix::io::Errno::SRCH);
    match opened.and_then(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        Ok(end) => Ok(Started { process, end }),
        Err(error) => {
            // SAFETY: numbers only; the child is ours and was not collected yet, so the number names nobody
            // else.
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
    /// Descriptors that stand for some of the first three, while those are put into each other's places.
    aside: Vec<OwnedFd>,
}

/// What the C library answers: zero, or the number of an error.
fn check(answer: libc::c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(answer)) }
}

impl Prepared {
    /// The program's strings must outlive what is made here.
    fn new(program: &Program<'_>) -> Result<Self, Refused> {
        let mut actions = std::mem::MaybeUninit::uninit();
        let mut attributes = std::mem::MaybeUninit::uninit();
        // SAFETY: each call initialises the object it is given, or fails.
        let made = unsafe {
            check(libc::posix_spawn_file_actions_init(actions.as_mut_ptr()))
                .and_then(|()| check(libc::posix_spawnattr_init(attributes.as_mut_ptr())))
        };
        made.map_err(Refused::at(Step::Process))?;
        // SAFETY: both were initialised just above.
        let (actions, attributes) = unsafe { (actions.assume_init(), attributes.assume_init()) };
        let mut prepared = Self { actions, attributes, aside: Vec::new() };
        prepared.set_actions(program).map_err(Refused::at(Step::Standard))?;
        prepared.set_attributes(program).map_err(Refused::at(Step::Process))?;
        Ok(prepared)
    }

    fn set_actions(&mut self, program: &Program<'_>) -> io::Result<()> {
        for (target, source) in (0..).zip(program.standard) {
            let Some(source) = source else { continue };
            let source = if takes_aside(source, target) { self.take_aside(source)? } else { source };
            // SAFETY: the actions are initialised; the numbers are judged in the child.
            check(unsafe { libc::posix_spawn_file_actions_adddup2(&mut self.actions, source, target) })?;
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

    /// Another number for one of the first three.
    fn take_aside(&mut self, number: RawFd) -> io::Result<RawFd> {
        // SAFETY: numbers only; one that is not open is refused.
        let aside = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
        if aside < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was made just now, and nobody else knows it.
        self.aside.push(unsafe { OwnedFd::from_raw_fd(aside) });
        Ok(aside)
    }

    fn set_attributes(&mut self, program: &Program<'_>) -> io::Result<()> {
        let mut flags: libc::c_int = 0;
        if program.default_signals {
            let mut signals = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
            flags |= libc::POSIX_SPAWN_SETSIGDEF;
            // SAFETY: the set is initialised by the first call and copied by the last; the attributes are
            // initialised.
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

    fn start(
        &self,
        path: &CStr,
        arguments: *const *const libc::c_char,
        environment: *const *const libc::c_char,
    ) -> io::Result<i32> {
        let mut process = 0;
        // SAFETY: actions and attributes are initialised; both lists end with a null and point to strings
        // that live through the call, which changes none of them.
        check(unsafe {
            libc::posix_spawn(
                &mut process,
                path.as_ptr(),
                &self.actions,
                &self.attributes,
                arguments.cast(),
                environment.cast(),
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
