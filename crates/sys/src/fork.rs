//! A process that goes on twice, and one that looks after others' children.

use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, setsid, wait};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a child that panicked ends with.
const PANICKED: i32 = 101;

/// Goes on in a second process, a copy of this one, which runs `child`, ends with the code that it answers, and never comes
/// back from here. It has `standard_input` as such, output and errors as this process has, and no other descriptor: those
/// that values of this process stand for are closed in it, so such values must not be used there, and are never dropped.
/// It is nobody's here: whoever adopts orphans ([`adopt_orphans`]) hears of its end.
///
/// # Errors
/// `WouldBlock` when there are too many processes, out of memory; `Unsupported` while this process has other threads, whose
/// locks nobody would ever open in the copy. Nothing was begun then.
pub fn branch(standard_input: OwnedFd, child: impl FnOnce() -> i32) -> io::Result<()> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        let words = format!("{threads} threads run in this process, and only one would in its copy");
        return Err(io::Error::new(io::ErrorKind::Unsupported, words));
    }
    // SAFETY: this is the only thread, so no lock is held that the copy would wait for.
    let between = unsafe { libc::fork() };
    match between {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: in a copy with one thread, as above; what is in between ends here, without running what runs at exit.
        0 => unsafe {
            match libc::fork() {
                0 => go_on(&standard_input, child),
                -1 => libc::_exit(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN)),
                _ => libc::_exit(0),
            }
        },
        between => {
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
    }
}

/// # Safety
/// In a process of one thread that was just forked.
unsafe fn go_on(standard_input: &OwnedFd, child: impl FnOnce() -> i32) -> ! {
    // SAFETY: numbers of descriptors alone; from here on nobody uses a value that stands for one of the closed.
    unsafe {
        if libc::dup2(standard_input.as_raw_fd(), 0) < 0
            || libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) != 0
        {
            libc::_exit(PANICKED);
        }
    }
    // The copy shares nothing with its parent that a panic could leave half done.
    std::process::exit(catch_unwind(AssertUnwindSafe(child)).unwrap_or(PANICKED))
}

/// From here on children of this process's children become its own when their parent ends.
///
/// # Errors
/// None in practice.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Waits until a child ends, and says which; `None` when there is none.
///
/// # Errors
/// None in practice.
pub fn await_any_child() -> io::Result<Option<u32>> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((child, status))) if status.exited() || status.signaled() => {
                return Ok(Some(child.as_raw_nonzero().get().unsigned_abs()));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CHILD) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Ends a child by force. One that is gone and was not waited for is left as it is.
///
/// # Errors
/// There is no such process, or it is somebody else's.
pub fn kill(process: u32) -> io::Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::kill_process(pid, rustix::process::Signal::KILL)?)
}

/// Leaves the group and the terminal that this process was started in, whose signals do not reach it any more.
///
/// # Errors
/// It leads a group already.
pub fn leave_group() -> io::Result<()> {
    Ok(setsid().map(drop)?)
}
