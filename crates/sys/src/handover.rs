//! A descriptor handed over to another process, beside bytes on a Unix socket.
//!
//! Descriptors that come in are closed on exec, and unexpected ones are closed at once: otherwise any process
//! that can connect could fill our table.

use crate::again::unless_it_would_wait;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Writes bytes with a descriptor beside them; how many bytes were taken, `None` when none can be now. The
/// descriptor goes with the first byte, and so not at all with none.
///
/// # Errors
/// `BrokenPipe`, `ConnectionReset`, never a signal; `InvalidInput` without a byte.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<Option<usize>> {
    if bytes.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a descriptor goes with a byte"));
    }
    let descriptors = [descriptor];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    unless_it_would_wait(|| {
        let mut control = SendAncillaryBuffer::new(&mut room);
        // There is room for one.
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    })
}

/// Reads what is there into the vector's spare room, and the first descriptor that came beside it. `None`
/// when nothing is there yet, `Some(0)` at the end of the stream. What follows bytes with a descriptor is
/// left for the next call.
///
/// # Errors
/// `ConnectionReset` and the like; `InvalidInput` if there is no spare room.
pub fn receive(socket: BorrowedFd<'_>, into: &mut Vec<u8>) -> io::Result<(Option<usize>, Option<OwnedFd>)> {
    let length = into.len();
    if into.capacity() == length {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no room to receive into"));
    }
    into.resize(into.capacity(), 0);
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let outcome = unless_it_would_wait(|| {
        let bytes = &mut [IoSliceMut::new(&mut into[length..])];
        Ok(recvmsg(socket, bytes, &mut control, flags)?.bytes)
    });
    into.truncate(length + outcome.as_ref().map_or(0, |count| count.unwrap_or(0)));
    let count = outcome?;
    // The kernel has closed those for which there was no room, and dropping closes the rest.
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            for one in descriptors {
                descriptor.get_or_insert(one);
            }
        }
    }
    Ok((count, descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bell::{self, DrainOutcome};
    use crate::socket::{self, pair};
    use std::os::fd::AsFd;

    /// Sends several descriptors at once, as a peer may.
    fn send_many(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(20))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
        sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
    }

    #[test]
    fn a_descriptor_arrives_beside_its_bytes_and_is_closed_on_exec() {
        let ((ours, theirs), (kept, given)) = (pair().unwrap(), pair().unwrap());
        let mut into = Vec::with_capacity(64);
        assert!(matches!(receive(theirs.as_fd(), &mut into), Ok((None, None))));
        assert_eq!(socket::send(ours.as_fd(), b"before ").unwrap(), Some(7));
        assert_eq!(send(ours.as_fd(), b"welcome", given.as_fd()).unwrap(), Some(7));
        drop(given);
        assert_eq!(socket::send(ours.as_fd(), b"behind").unwrap(), Some(6));
        let mut arrived = None;
        while arrived.is_none() {
            let (count, descriptor) = receive(theirs.as_fd(), &mut into).unwrap();
            assert!(count > Some(0));
            arrived = descriptor;
        }
        assert_eq!(into, b"before welcome", "what is behind is left for the next call");
        let arrived = arrived.unwrap();
        let flags = rustix::io::fcntl_getfd(&arrived).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        bell::ring(arrived.as_fd()).unwrap();
        assert_eq!(bell::drain(kept.as_fd()).unwrap(), DrainOutcome::Rung);
        into.clear();
        let room = into.capacity();
        assert!(matches!(receive(theirs.as_fd(), &mut into), Ok((Some(6), None))));
        assert_eq!((&into[..], into.capacity()), (&b"behind"[..], room));
        drop(ours);
        assert!(matches!(receive(theirs.as_fd(), &mut into), Ok((Some(0), None))));
        assert_eq!(into, b"behind");
    }

    /// Closing shows at the other end of each.
    #[test]
    fn descriptors_that_nobody_expected_are_closed() {
        for count in [2, 3, 20] {
            let (ours, theirs) = pair().unwrap();
            let (kept, given): (Vec<_>, Vec<_>) = (0..count).map(|_| pair().unwrap()).unzip();
            let borrowed: Vec<_> = given.iter().map(AsFd::as_fd).collect();
            send_many(ours.as_fd(), b"x", &borrowed);
            drop(given);
            let (read, first) = receive(theirs.as_fd(), &mut Vec::with_capacity(8)).unwrap();
            assert!(read == Some(1) && first.is_some());
            let heard: Vec<_> = kept.iter().map(|end| bell::drain(end.as_fd()).unwrap()).collect();
            assert_eq!(
                (heard[0], heard[1..].iter().all(|heard| *heard == DrainOutcome::HungUp)),
                (DrainOutcome::Empty, true)
            );
        }
    }

    #[test]
    fn without_a_byte_or_room_for_one_nothing_is_handed_over() {
        let (ours, theirs) = pair().unwrap();
        let refused = send(ours.as_fd(), b"", theirs.as_fd()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        let refused = receive(theirs.as_fd(), &mut Vec::new()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_full_socket_takes_no_descriptor_and_a_gone_one_is_an_error() {
        let ((ours, theirs), (kept, given)) = (pair().unwrap(), pair().unwrap());
        while socket::send(ours.as_fd(), &[0; 4096]).unwrap().is_some() {}
        assert_eq!(send(ours.as_fd(), &[1; 4096], given.as_fd()).unwrap(), None);
        drop((given, theirs));
        assert_eq!(bell::drain(kept.as_fd()).unwrap(), DrainOutcome::HungUp);
        let gone = send(ours.as_fd(), b"x", kept.as_fd()).unwrap_err();
        assert!(matches!(gone.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset));
    }
}
