//! A process that goes on twice, and one that looks after others' children.

use rustix::io::Errno;
use rustix::process::{
    Pid, WaitOptions, getpgid, getpid, set_child_subreaper, setpgid, setsid, waitpgid, waitpid,
};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a copy ends with that could not be made whole.
const TORN: i32 = 101;

/// Goes on in a second process, a copy of this one: `true` there, `false` here. The copy has `standard_input`
/// as such and as what it is here, output and errors as this process has, and nothing else that descriptors
/// stand for: a value of this process that stands for one leads nowhere in it, and may be dropped. It is
/// no child of this process: one that adopts orphans ([`adopt_orphans`]) is told of its end.
///
/// # Errors
/// `WouldBlock` when there are too many processes, out of memory or descriptors; `Unsupported` while this
/// process has other threads, whose locks nobody would ever open in the copy. Nothing was begun then.
pub fn branch(standard_input: BorrowedFd<'_>) -> io::Result<bool> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        let words = format!("{threads} threads run in this process, and only one would in its copy");
        return Err(io::Error::new(io::ErrorKind::Unsupported, words));
    }
    let (descriptors, nowhere) = (descriptors()?, File::options().read(true).write(true).open("/dev/null")?);
    // What is not written yet would be written twice. Where it cannot be, nobody reads it.
    let _ = io::stdout().flush();
    // The program that started this one may have left `SIGCHLD` ignored, and then there would be no child to
    // wait for.
    let _sigchld = SigchldGuard::begin();
    // SAFETY: this is the only thread, so no lock is held that the copy would wait for.
    let between = unsafe { libc::fork() };
    match between {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: in a copy with one thread, as above; what is in between ends here, without running what
        // runs at exit.
        0 => unsafe {
            match libc::fork() {
                0 => {
                    leave(&descriptors, standard_input.as_raw_fd(), nowhere.as_raw_fd());
                    Ok(true)
                }
                -1 => libc::_exit(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN)),
                _ => libc::_exit(0),
            }
        },
        between => await_between(between).map(|()| false),
    }
}

/// While it lives the ends of children can be waited for, and behind it as before: in a copy as well. Nothing
/// is changed where they can be anyway, for an end that somebody is still to hear of would be forgotten with
/// the change. Where it is changed, a child of another thread that ends meanwhile waits to be asked for.
pub(crate) struct SigchldGuard(Option<(libc::sigaction, MutexGuard<'static, ()>)>);

/// Locked while the change lasts: another thread would take it for what was there before, and lose it.
static CHANGED: Mutex<()> = Mutex::new(());

impl SigchldGuard {
    pub(crate) fn begin() -> Self {
        let changed = CHANGED.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: records of numbers, for which zeroes are a value: the usual action, which takes no handler
        // away that stays away.
        unsafe {
            let usual: libc::sigaction = std::mem::zeroed();
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut before);
            if before.sa_sigaction != libc::SIG_IGN && before.sa_flags & libc::SA_NOCLDWAIT == 0 {
                return Self(None);
            }
            libc::sigaction(libc::SIGCHLD, &raw const usual, std::ptr::null_mut());
            Self(Some((before, changed)))
        }
    }
}

impl Drop for SigchldGuard {
    fn drop(&mut self) {
        if let Some((before, _)) = &self.0 {
            // SAFETY: what was there before.
            unsafe { libc::sigaction(libc::SIGCHLD, before, std::ptr::null_mut()) };
        }
    }
}

/// Stops ignoring `SIGCHLD`, in this process and in those that it starts, so that the ends of children can be
/// waited for. The program that started it may have left that signal ignored.
pub fn stop_ignoring_sigchld() {
    SigchldGuard::begin().0 = None;
}

/// Waits for what is in between; an error where it has made no copy.
fn await_between(between: libc::pid_t) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: waits for a child of this process, and writes to a local.
    while unsafe { libc::waitpid(between, &raw mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match libc::WEXITSTATUS(status) {
        0 if libc::WIFEXITED(status) => Ok(()),
        code => Err(io::Error::from_raw_os_error(if code == 0 { libc::EAGAIN } else { code })),
    }
}

/// Those that are open here, and some that were for a moment.
fn descriptors() -> io::Result<Vec<RawFd>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    Ok(numbers)
}

/// Lets go of what descriptors stand for, but for input, output and errors. Their numbers stay taken until
/// their owners close them: otherwise a number that is used again would be closed by its earlier owner.
///
/// # Safety
/// In a process of one thread that was just forked.
unsafe fn leave(descriptors: &[RawFd], standard_input: RawFd, nowhere: RawFd) {
    // SAFETY: numbers of descriptors alone. What owns one of them still does, though it leads nowhere.
    unsafe {
        let mut is_whole = libc::dup2(standard_input, 0) == 0;
        for descriptor in
            descriptors.iter().copied().filter(|of| *of > 2 && ![standard_input, nowhere].contains(of))
        {
            let is_open = libc::fcntl(descriptor, libc::F_GETFD) >= 0;
            is_whole &= !is_open || libc::dup3(nowhere, descriptor, libc::O_CLOEXEC) == descriptor;
        }
        if !is_whole {
            libc::_exit(TORN);
        }
    }
}

/// From here on children of this process's children become its own when their parent ends.
///
/// # Errors
/// None in practice.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(out, "ended with {code}"),
            Self::Signal(signal) => write!(out, "was ended by signal {signal}"),
        }
    }
}

/// Waits until a child ends, and says which, and how; `None` when there is none. Its number is its own until
/// it is released ([`release`]): until then the same one is said again.
///
/// # Errors
/// None in practice.
pub fn await_any_child() -> io::Result<Option<(u32, ExitStatus)>> {
    loop {
        // SAFETY: plain numbers, of which zeros are some.
        let mut ended: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: waits for a child of this process, and writes to a local.
        if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut ended, libc::WEXITED | libc::WNOWAIT) } == 0 {
            // SAFETY: the kernel has filled in what it says of a child.
            let (process, status) = unsafe { (ended.si_pid().unsigned_abs(), ended.si_status()) };
            let is_code = ended.si_code == libc::CLD_EXITED;
            return Ok(Some((
                process,
                if is_code { ExitStatus::Code(status) } else { ExitStatus::Signal(status) },
            )));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ECHILD) => return Ok(None),
            Some(libc::EINTR) => {}
            _ => return Err(error),
        }
    }
}

/// Whether a process is a child of this one, whose number is not released ([`release`]): it may have ended.
///
/// # Errors
/// None in practice.
pub fn is_child(process: u32) -> io::Result<bool> {
    // SAFETY: plain numbers, of which zeros are some.
    let mut known: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: looks for a child of this process, without waiting, and writes to a local.
    if unsafe { libc::waitid(libc::P_PID, process, &raw mut known, flags) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ECHILD) { Ok(false) } else { Err(error) }
}

/// Lets the system use the number of a child that has ended for somebody else.
pub fn release(process: u32) {
    if let Ok(pid) = pid(process) {
        // It has ended, so nothing is waited for; one that is no child was released before.
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

/// Ends a child by force. One that is gone and was not waited for is left as it is.
///
/// # Errors
/// There is no such process, or it is somebody else's.
pub fn kill(process: u32) -> io::Result<()> {
    Ok(rustix::process::kill_process(pid(process)?, rustix::process::Signal::KILL)?)
}

/// Has a child lead a group of its own, unless it leads one already; whether it does. The system allows it
/// for one in this process's session that has executed no other program since it was forked. What the child
/// started before stays where it was.
///
/// # Errors
/// There is no such process, or it is no child of this one.
pub fn lead_group(child: u32) -> io::Result<bool> {
    let child = pid(child)?;
    if getpgid(Some(child))? == child {
        return Ok(true);
    }
    match setpgid(Some(child), Some(child)) {
        Err(Errno::PERM | Errno::ACCESS) => Ok(false),
        outcome => Ok(outcome.map(|()| true)?),
    }
}

/// Has this process lead a session of its own, and a group in it: no terminal is its own any more, so none
/// signals or stops it.
///
/// # Errors
/// It leads a group already. One that was just forked does not.
pub fn lead_session() -> io::Result<()> {
    Ok(setsid().map(drop)?)
}

/// Ends by force every process of the group that a child leads. The child may have ended.
///
/// # Errors
/// It is no child of this process, or its number was released ([`release`]): the number may be that of
/// another process's group by now. It leads no group; or the whole group is somebody else's.
pub fn kill_group(leader: u32) -> io::Result<()> {
    if !is_child(leader)? {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(rustix::process::kill_process_group(pid(leader)?, rustix::process::Signal::KILL)?)
}

/// Waits for every child of this process in a group, and for those that become its children meanwhile
/// ([`adopt_orphans`]), until there is none. It may take as long as they run.
pub fn await_group(leader: u32) {
    let Ok(group) = pid(leader) else { return };
    while let Ok(_) | Err(Errno::INTR) = waitpgid(group, WaitOptions::empty()) {}
}

fn pid(process: u32) -> io::Result<Pid> {
    i32::try_from(process).ok().and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
