//! Signals as a descriptor: asked to end, asked to reload, seen by the one loop that watches for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// A signal the program answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// `SIGTERM`: end in good order.
    Terminate,
    /// `SIGINT`: the same, from a keyboard.
    Interrupt,
    /// `SIGHUP`: the terminal went away, or reload.
    HangUp,
}

/// `SIGTERM`, `SIGINT` and `SIGHUP`, readable as a descriptor.
#[derive(Debug)]
pub struct Signals {
    descriptor: OwnedFd,
}

impl Signals {
    /// Blocks the three signals for the calling thread and those it starts afterwards, and opens the
    /// descriptor that reports them. To be called by the first thread before it starts another: a thread
    /// that does not block them would be ended by them.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn take() -> io::Result<Self> {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initialises the set it is given; the calls after it get that set and
        // constants; `signalfd` returns a descriptor nobody else owns, or -1, which is checked first.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let failure = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            if failure != 0 {
                return Err(io::Error::from_raw_os_error(failure));
            }
            let descriptor = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self { descriptor: OwnedFd::from_raw_fd(descriptor) })
        }
    }

    /// The next signal that arrived, if any.
    ///
    /// # Errors
    /// None in practice.
    pub fn next(&self) -> io::Result<Option<Signal>> {
        next_signal(self.descriptor.as_fd())
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The next signal that arrived on a descriptor made by [`Signals::take`], if any.
///
/// # Errors
/// Only for a descriptor that is something else.
pub fn next_signal(descriptor: BorrowedFd<'_>) -> io::Result<Option<Signal>> {
    let mut report = [0_u8; size_of::<libc::signalfd_siginfo>()];
    let count = match rustix::io::read(descriptor, &mut report) {
        Ok(count) => count,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if count < report.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a signal report was cut short"));
    }
    // `ssi_signo` is the first field of the report.
    let number = u32::from_ne_bytes([report[0], report[1], report[2], report[3]]);
    Ok(match i32::try_from(number) {
        Ok(libc::SIGTERM) => Some(Signal::Terminate),
        Ok(libc::SIGINT) => Some(Signal::Interrupt),
        Ok(libc::SIGHUP) => Some(Signal::HangUp),
        _ => None,
    })
}

/// A write to a socket whose peer is gone says so with an error, never by ending the process.
pub fn ignore_broken_pipes() {
    // SAFETY: `SIG_IGN` is a valid disposition for `SIGPIPE`, and installs no code of ours.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
}

/// A write that a file-size limit (`ulimit -f`) does not allow says so with an error, never by ending the
/// process.
pub fn ignore_full_files() {
    // SAFETY: `SIG_IGN` is a valid disposition for `SIGXFSZ`, and installs no code of ours.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Sends a signal to the process itself: for tests and for a program that ends as if asked to.
///
/// # Errors
/// None in practice.
pub fn raise(signal: Signal) -> io::Result<()> {
    let number = match signal {
        Signal::Terminate => libc::SIGTERM,
        Signal::Interrupt => libc::SIGINT,
        Signal::HangUp => libc::SIGHUP,
    };
    // SAFETY: `raise` takes a number and touches no memory of ours.
    if unsafe { libc::raise(number) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::wait_readable;

    #[test]
    fn a_raised_signal_is_read_from_the_descriptor_and_ends_nothing() {
        // `raise` goes to the calling thread, which is the one that blocked the signals.
        let signals = Signals::take().unwrap();
        assert_eq!(signals.next().unwrap(), None);
        for signal in [Signal::Terminate, Signal::Interrupt, Signal::HangUp] {
            raise(signal).unwrap();
            assert!(wait_readable(signals.as_fd(), 1_000).unwrap());
            assert_eq!(signals.next().unwrap(), Some(signal));
        }
        assert_eq!(signals.next().unwrap(), None);
    }

    #[test]
    fn a_write_to_a_gone_peer_is_an_error() {
        use std::io::Write;
        ignore_broken_pipes();
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(theirs);
        assert_eq!(ours.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
