//! A Unix socket on which nothing travels but wakes: one byte each, which one does not matter.
//!
//! Whoever finds the socket full has nothing to add: wakes lie there that nobody has heard yet.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What was to be heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The peer rang, once or more.
    Bells,
    /// Nothing.
    Nothing,
    /// The peer is gone, or will never ring again.
    End,
}

/// Rings. Never waits.
///
/// # Errors
/// `BrokenPipe`, `ConnectionReset`; never a signal.
pub fn ring(socket: BorrowedFd<'_>) -> io::Result<()> {
    loop {
        match send(socket, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) | Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Takes the bells away that were rung. Never waits. An end behind bells is heard by the next call.
///
/// # Errors
/// What the kernel says of a broken descriptor. A connection that was reset is an end.
pub fn hush(socket: BorrowedFd<'_>) -> io::Result<Heard> {
    let mut bells = [0_u8; 256];
    let mut heard = Heard::Nothing;
    loop {
        match recv(socket, &mut bells[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) if heard == Heard::Nothing => return Ok(Heard::End),
            Ok((0, _)) | Err(Errno::AGAIN) => return Ok(heard),
            Ok((count, _)) if count < bells.len() => return Ok(Heard::Bells),
            Ok(_) => heard = Heard::Bells,
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(Heard::End),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sleeps until there is something to hear, the end included, or the time is over; `None` is for ever. May end
/// early.
///
/// # Errors
/// What the kernel says of a broken descriptor.
pub fn listen(socket: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()> {
    // A time that no clock counts is none.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut [PollFd::new(&socket, PollFlags::IN)], timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{pair, shutdown_write};
    use std::os::fd::AsFd;

    #[test]
    fn bells_are_heard_once_however_many_and_then_the_end() {
        let (ours, theirs) = pair().unwrap();
        assert_eq!(hush(theirs.as_fd()).unwrap(), Heard::Nothing);
        for count in [1, 3, 255, 256, 257] {
            (0..count).for_each(|_| ring(ours.as_fd()).unwrap());
            listen(theirs.as_fd(), None).unwrap();
            assert_eq!(hush(theirs.as_fd()).unwrap(), Heard::Bells);
            assert_eq!(hush(theirs.as_fd()).unwrap(), Heard::Nothing);
        }
        ring(ours.as_fd()).unwrap();
        drop(ours);
        assert_eq!(hush(theirs.as_fd()).unwrap(), Heard::Bells);
        listen(theirs.as_fd(), None).unwrap();
        assert_eq!(hush(theirs.as_fd()).unwrap(), Heard::End);
        assert_eq!(ring(theirs.as_fd()).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    /// 512 bells are read in two full pieces, so that the end is met in the same call.
    #[test]
    fn the_end_behind_many_bells_is_not_mistaken_for_silence() {
        let (ours, theirs) = pair().unwrap();
        (0..256).for_each(|_| ring(ours.as_fd()).unwrap());
        shutdown_write(ours.as_fd()).unwrap();
        assert_eq!(hush(theirs.as_fd()).unwrap(), Heard::Bells);
        assert_eq!(hush(theirs.as_fd()).unwrap(), Heard::End);
    }

    /// Also on a socket that would wait, and on one whose peer went without reading.
    #[test]
    fn a_full_socket_never_waits_and_loses_nothing() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        (0..10_000).for_each(|_| ring(ours.as_fd()).unwrap());
        assert_eq!(hush(theirs.as_fd()).unwrap(), Heard::Bells);
        assert_eq!(hush(theirs.as_fd()).unwrap(), Heard::Nothing);
        ring(ours.as_fd()).unwrap();
        ring(theirs.as_fd()).unwrap();
        drop(theirs);
        assert_eq!(hush(ours.as_fd()).unwrap(), Heard::Bells);
        assert_eq!(hush(ours.as_fd()).unwrap(), Heard::End);
    }

    #[test]
    fn listening_ends_with_its_time() {
        let (_ours, theirs) = pair().unwrap();
        let began = std::time::Instant::now();
        listen(theirs.as_fd(), Some(Duration::from_micros(1_500))).unwrap();
        assert!(began.elapsed() >= Duration::from_micros(1_500));
        listen(theirs.as_fd(), Some(Duration::ZERO)).unwrap();
    }
}
