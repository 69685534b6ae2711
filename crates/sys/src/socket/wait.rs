//! Waiting for descriptors, for threads outside a reactor.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What a descriptor is ready for. An error and a hang-up count as both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// A read will not block.
    pub readable: bool,
    /// A write will not block.
    pub writable: bool,
}

/// Waits until a descriptor can be read, or written if that is wanted, or until the time is over; a signal
/// ends the wait too.
///
/// # Errors
/// Only for a broken descriptor.
pub fn wait(descriptor: BorrowedFd<'_>, for_writing: bool, timeout: Option<Duration>) -> io::Result<Ready> {
    let timeout = timeout.map(timespec);
    let wanted = if for_writing { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let mut list = [PollFd::new(&descriptor, wanted)];
    match poll(&mut list, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let found = list[0].revents();
    let ended = found.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
    Ok(Ready {
        readable: ended || found.contains(PollFlags::IN),
        writable: ended || found.contains(PollFlags::OUT),
    })
}

/// Waits until one of two descriptors can be read, or until the time is over; a signal ends the wait too.
///
/// # Errors
/// Only for a broken descriptor.
pub fn wait_either(one: BorrowedFd<'_>, other: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()> {
    let mut list = [PollFd::new(&one, PollFlags::IN), PollFd::new(&other, PollFlags::IN)];
    match poll(&mut list, timeout.map(timespec).as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits until one descriptor can be read or another be written, or until the time is over; a signal ends the
/// wait too. Whether the one can be read.
///
/// # Errors
/// Only for a broken descriptor.
pub fn wait_in_or_out(
    input: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let mut list = [PollFd::new(&input, PollFlags::IN), PollFd::new(&output, PollFlags::OUT)];
    match poll(&mut list, timeout.map(timespec).as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!list[0].revents().is_empty()),
        Err(error) => Err(error.into()),
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{pair, send};
    use std::os::fd::AsFd;

    #[test]
    fn a_wait_says_what_came_and_ends_with_its_time() {
        let (ours, theirs) = pair().unwrap();
        let none = Ready::default();
        assert_eq!(wait(ours.as_fd(), false, Some(Duration::from_millis(2))).unwrap(), none);
        assert_eq!(wait(ours.as_fd(), true, None).unwrap(), Ready { readable: false, writable: true });
        send(theirs.as_fd(), b"x").unwrap();
        assert_eq!(wait(ours.as_fd(), false, None).unwrap(), Ready { readable: true, writable: false });
        drop(theirs);
        assert_eq!(wait(ours.as_fd(), true, None).unwrap(), Ready { readable: true, writable: true });
    }
}
