//! Bytes in and out of a connected socket.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use thalweg_sys::{socket, standard};

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// So many bytes were appended. Fewer than there was room for means that no more is there now, and a
    /// second read would only find [`ReadOutcome::WouldBlock`].
    Bytes(usize),
    /// The peer sends nothing more.
    End,
    /// Nothing is there yet.
    WouldBlock,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// So many bytes were taken. Fewer than offered means that the socket is full now.
    Bytes(usize),
    /// The socket is full.
    WouldBlock,
}

impl From<Option<usize>> for WriteOutcome {
    fn from(count: Option<usize>) -> Self {
        count.map_or(Self::WouldBlock, Self::Bytes)
    }
}

/// Reads into a vector's spare room, which it never grows: the caller decides what a connection may hold.
///
/// # Errors
/// `ConnectionReset` and the like; `InvalidInput` when there is no spare room.
pub fn read(socket: BorrowedFd<'_>, into: &mut Vec<u8>) -> io::Result<ReadOutcome> {
    Ok(match socket::receive(socket, into, usize::MAX)? {
        None => ReadOutcome::WouldBlock,
        Some(0) => ReadOutcome::End,
        Some(count) => ReadOutcome::Bytes(count),
    })
}

/// Writes one piece. Nothing to write is nothing written, without a system call.
///
/// # Errors
/// `BrokenPipe`, `ConnectionReset`.
pub fn write(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<WriteOutcome> {
    if bytes.is_empty() {
        return Ok(WriteOutcome::Bytes(0));
    }
    socket::send(socket, bytes).map(WriteOutcome::from)
}

/// Writes pieces one after the other with one system call, without joining them by a copy. Pieces past
/// the kernel's bound ([`socket::PIECES_MAX`]) are left, as if the socket were full after the others.
///
/// # Errors
/// `BrokenPipe`, `ConnectionReset`.
pub fn write_gathered(socket: BorrowedFd<'_>, pieces: &[IoSlice<'_>]) -> io::Result<WriteOutcome> {
    match pieces {
        [] => Ok(WriteOutcome::Bytes(0)),
        [only] => write(socket, only),
        _ => socket::send_gathered(socket, pieces).map(WriteOutcome::from),
    }
}

/// Writes bytes that a file holds as well from `at` on: the kernel takes them from there where it can,
/// without a copy, and where it cannot, or may not, they are copied. The caller has to ignore `SIGPIPE`.
///
/// # Errors
/// `BrokenPipe`, `ConnectionReset`.
pub fn write_held(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    (file, at): (BorrowedFd<'_>, u64),
) -> io::Result<WriteOutcome> {
    match socket::send_file(socket, file, at, bytes.len()) {
        Ok(sent) => Ok(WriteOutcome::from(sent)),
        // A peer that is gone is gone then, too.
        Err(_) => write(socket, bytes),
    }
}

/// As [`read`], for what [`crate::standard_streams`] gave, which need not be sockets.
///
/// # Errors
/// What the kernel says; `InvalidInput` when there is no spare room.
pub fn read_any(descriptor: BorrowedFd<'_>, into: &mut Vec<u8>) -> io::Result<ReadOutcome> {
    Ok(match standard::read(descriptor, into)? {
        None => ReadOutcome::WouldBlock,
        Some(0) => ReadOutcome::End,
        Some(count) => ReadOutcome::Bytes(count),
    })
}

/// As [`write()`], for what [`crate::standard_streams`] gave.
///
/// # Errors
/// `BrokenPipe` and the like.
pub fn write_any(descriptor: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<WriteOutcome> {
    standard::write(descriptor, bytes).map(WriteOutcome::from)
}

/// Says that nothing more will be written, once everything written before has been sent. The peer may
/// still send.
///
/// # Errors
/// `NotConnected` when the peer is gone already.
pub fn shutdown_write(socket: BorrowedFd<'_>) -> io::Result<()> {
    socket::shutdown_write(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn bytes_arrive_in_order_and_the_end_is_told_from_nothing_yet() {
        let (ours, theirs) = socket::pair().unwrap();
        let mut buffer = Vec::with_capacity(8);
        assert_eq!(read(theirs.as_fd(), &mut buffer).unwrap(), ReadOutcome::WouldBlock);
        let pieces = [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two three")];
        assert_eq!(write_gathered(ours.as_fd(), &pieces).unwrap(), WriteOutcome::Bytes(13));
        assert_eq!(read(theirs.as_fd(), &mut buffer).unwrap(), ReadOutcome::Bytes(8));
        assert_eq!(buffer, b"one two ");
        assert_eq!(buffer.capacity(), 8, "the buffer is never grown");
        assert_eq!(read(theirs.as_fd(), &mut buffer).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        buffer.clear();
        assert_eq!(read(theirs.as_fd(), &mut buffer).unwrap(), ReadOutcome::Bytes(5));
        assert_eq!(write(ours.as_fd(), b"").unwrap(), WriteOutcome::Bytes(0));
        shutdown_write(ours.as_fd()).unwrap();
        buffer.clear();
        assert_eq!(read(theirs.as_fd(), &mut buffer).unwrap(), ReadOutcome::End);
        assert_eq!(write(theirs.as_fd(), b"still open").unwrap(), WriteOutcome::Bytes(10));
        assert_eq!(read(ours.as_fd(), &mut buffer).unwrap(), ReadOutcome::Bytes(8));
    }

    #[test]
    fn a_full_socket_says_so_and_takes_the_rest_later() {
        let (ours, theirs) = socket::pair().unwrap();
        let piece = vec![7_u8; 64 * 1024];
        let mut sent = 0;
        let pieces = [IoSlice::new(&piece), IoSlice::new(&piece)];
        while let WriteOutcome::Bytes(count) = write_gathered(ours.as_fd(), &pieces).unwrap() {
            sent += count;
        }
        assert!(sent > 0);
        let mut buffer = Vec::with_capacity(sent);
        while buffer.len() < sent {
            assert!(matches!(read(theirs.as_fd(), &mut buffer).unwrap(), ReadOutcome::Bytes(_)));
        }
        assert!(buffer.iter().all(|byte| *byte == 7));
        assert!(matches!(write(ours.as_fd(), &piece).unwrap(), WriteOutcome::Bytes(_)));
    }

    #[test]
    fn pieces_past_the_bound_of_one_call_are_left_for_the_next() {
        let (ours, theirs) = socket::pair().unwrap();
        let pieces = vec![IoSlice::new(b"x"); socket::PIECES_MAX + 10];
        assert_eq!(write_gathered(ours.as_fd(), &pieces).unwrap(), WriteOutcome::Bytes(socket::PIECES_MAX));
        let mut buffer = Vec::with_capacity(2 * socket::PIECES_MAX);
        assert_eq!(read(theirs.as_fd(), &mut buffer).unwrap(), ReadOutcome::Bytes(socket::PIECES_MAX));
    }

    #[test]
    fn a_gone_peer_is_an_error_not_a_signal() {
        let (ours, theirs) = socket::pair().unwrap();
        drop(theirs);
        assert_eq!(write(ours.as_fd(), b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let pieces = [IoSlice::new(b"x"), IoSlice::new(b"y")];
        assert_eq!(write_gathered(ours.as_fd(), &pieces).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
