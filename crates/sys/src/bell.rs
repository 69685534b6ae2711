//! A Unix socket on which nothing travels but wakes: one byte each, which one does not matter.
//!
//! A waker that finds the socket full has nothing to add: wakes lie there that were not read yet.

use crate::again::unless_it_would_wait;
use crate::socket::wait;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What [`drain`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainOutcome {
    /// The peer rang, once or more.
    Rung,
    /// It did not.
    Empty,
    /// It is gone, or will never ring again.
    HungUp,
}

/// Rings. Never waits.
///
/// # Errors
/// `BrokenPipe`, `ConnectionReset`; never a signal.
pub fn ring(socket: BorrowedFd<'_>) -> io::Result<()> {
    unless_it_would_wait(|| send(socket, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT)).map(drop)
}

/// Takes away bells that were rung, all of them unless there are more than anybody rings who follows the
/// rules: one call of the kernel, so that no peer can keep us here. An end behind bells is heard by the next
/// call.
///
/// # Errors
/// What the kernel says of a broken descriptor. A connection that was reset is an end.
pub fn drain(socket: BorrowedFd<'_>) -> io::Result<DrainOutcome> {
    let mut bells = [0_u8; 1024];
    let heard = unless_it_would_wait(|| match recv(socket, &mut bells[..], RecvFlags::DONTWAIT) {
        Ok((0, _)) | Err(Errno::CONNRESET) => Ok(DrainOutcome::HungUp),
        heard => heard.map(|_| DrainOutcome::Rung),
    })?;
    Ok(heard.unwrap_or(DrainOutcome::Empty))
}

/// Sleeps until there is something to hear, the end included, or the time is over; `None` is for ever. May
/// end early.
///
/// # Errors
/// What the kernel says of a broken descriptor.
pub fn listen(socket: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()> {
    wait(socket, false, timeout).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{pair, shutdown_write};
    use std::os::fd::AsFd;

    #[test]
    fn bells_are_heard_once_however_many_and_then_the_end() {
        let (ours, theirs) = pair().unwrap();
        assert_eq!(drain(theirs.as_fd()).unwrap(), DrainOutcome::Empty);
        for count in [1, 3, 200] {
            (0..count).for_each(|_| ring(ours.as_fd()).unwrap());
            listen(theirs.as_fd(), None).unwrap();
            assert_eq!(drain(theirs.as_fd()).unwrap(), DrainOutcome::Rung);
            assert_eq!(drain(theirs.as_fd()).unwrap(), DrainOutcome::Empty);
        }
        ring(ours.as_fd()).unwrap();
        drop(ours);
        assert_eq!(drain(theirs.as_fd()).unwrap(), DrainOutcome::Rung);
        listen(theirs.as_fd(), None).unwrap();
        assert_eq!(drain(theirs.as_fd()).unwrap(), DrainOutcome::HungUp);
        assert_eq!(ring(theirs.as_fd()).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    /// However many bytes a peer sends that does not follow the rules, a call takes some and comes back.
    #[test]
    fn a_peer_that_rings_without_end_is_heard_piece_by_piece() {
        let (ours, theirs) = pair().unwrap();
        crate::socket::send(ours.as_fd(), &[7; 5_000]).unwrap();
        shutdown_write(ours.as_fd()).unwrap();
        let heard: Vec<_> = (0..6).map(|_| drain(theirs.as_fd()).unwrap()).collect();
        assert_eq!(heard, [[DrainOutcome::Rung; 5].as_slice(), &[DrainOutcome::HungUp]].concat());
    }

    /// Also on a socket that would wait, and on one whose peer went without listening.
    #[test]
    fn a_full_socket_never_waits_and_loses_nothing() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        (0..10_000).for_each(|_| ring(ours.as_fd()).unwrap());
        assert_eq!(drain(theirs.as_fd()).unwrap(), DrainOutcome::Rung);
        while drain(theirs.as_fd()).unwrap() == DrainOutcome::Rung {}
        ring(ours.as_fd()).unwrap();
        assert_eq!(drain(theirs.as_fd()).unwrap(), DrainOutcome::Rung);
        ring(ours.as_fd()).unwrap();
        ring(theirs.as_fd()).unwrap();
        drop(theirs);
        // The child of another test may hold the other end, too, until it has become its program.
        let mut heard = Vec::new();
        while heard.last() != Some(&DrainOutcome::HungUp) && heard.len() < 1_000 {
            listen(ours.as_fd(), Some(std::time::Duration::from_millis(10))).unwrap();
            heard.push(drain(ours.as_fd()).unwrap());
        }
        assert_eq!(heard.last(), Some(&DrainOutcome::HungUp), "{heard:?}");
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
