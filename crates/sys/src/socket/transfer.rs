//! Bytes through a stream socket, both ways.

use crate::again::unless_it_would_wait;
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, SendFlags, sockopt};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Pieces one gathered write may have; more are refused by the kernel (`UIO_MAXIOV`).
pub const PIECES_MAX: usize = 1_024;

/// How long a thread sleeps that also looks after signals: one that comes between the look for it and the
/// sleep interrupts nothing, and is noticed after this long.
pub const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Reads what is there into the vector's spare room, at most `limit` bytes, and lengthens the vector by
/// it. `None` when nothing is there yet, `Some(0)` at the end of the stream.
///
/// # Errors
/// `ConnectionReset` and the like; `InvalidInput` if there is no spare room, which would look like the
/// end of the stream.
pub fn receive(socket: BorrowedFd<'_>, into: &mut Vec<u8>, limit: usize) -> io::Result<Option<usize>> {
    let length = into.len();
    let spare = into.spare_capacity_mut();
    let room = spare.len().min(limit);
    if room == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no room to receive into"));
    }
    let taken = unless_it_would_wait(|| {
        let ((filled, _), _) = net::recv(socket, &mut spare[..room], RecvFlags::DONTWAIT)?;
        Ok(filled.len())
    })?;
    if let Some(count) = taken {
        // SAFETY: the kernel wrote `count` bytes behind `length`, inside the capacity.
        unsafe { into.set_len(length + count) };
    }
    Ok(taken)
}

/// Lets [`receive_waiting`] wait on a socket. Everything else here goes on not to block.
///
/// # Errors
/// None in practice.
pub fn block(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(socket, false)?)
}

/// Lets [`receive_waiting`] wait so long and no longer; without a limit, for [`SLEEP_MAX`], which is also the
/// most.
///
/// # Errors
/// None in practice.
pub fn set_receive_patience(socket: BorrowedFd<'_>, patience: Option<Duration>) -> io::Result<()> {
    // The kernel takes zero for no limit.
    let patience = patience.unwrap_or(SLEEP_MAX).clamp(Duration::from_micros(1), SLEEP_MAX);
    Ok(sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, Some(patience))?)
}

/// Waits until something is there and reads it, in one system call: for a thread with one connection, whose
/// socket went through [`block`]. Otherwise as [`receive`], `None` when a signal interrupted the wait or
/// [`set_receive_patience`] ended it.
///
/// # Errors
/// As [`receive`].
pub fn receive_waiting(socket: BorrowedFd<'_>, into: &mut Vec<u8>) -> io::Result<Option<usize>> {
    let length = into.len();
    let spare = into.spare_capacity_mut();
    if spare.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no room to receive into"));
    }
    match net::recv(socket, spare, RecvFlags::empty()) {
        Ok(((filled, _), _)) => {
            let count = filled.len();
            // SAFETY: the kernel wrote `count` bytes behind `length`, inside the capacity.
            unsafe { into.set_len(length + count) };
            Ok(Some(count))
        }
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes bytes; how many were taken, `None` when none can be now.
///
/// # Errors
/// `BrokenPipe`, `ConnectionReset`; never a signal.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<Option<usize>> {
    unless_it_would_wait(|| net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT))
}

/// Writes pieces one after the other in one system call; how many bytes were taken, `None` when none can
/// be now. Pieces past [`PIECES_MAX`] wait for the next call.
///
/// # Errors
/// `BrokenPipe`, `ConnectionReset`; never a signal.
pub fn send_gathered(socket: BorrowedFd<'_>, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
    let pieces = &pieces[..pieces.len().min(PIECES_MAX)];
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    unless_it_would_wait(|| net::sendmsg(socket, pieces, &mut SendAncillaryBuffer::default(), flags))
}

/// Has the kernel send bytes of a file, without a copy, to a socket that does not block. How many were taken,
/// `None` when none can be now. Towards a peer that is gone it raises `SIGPIPE`, which the caller has to
/// ignore ([`ignore_broken_pipes`](crate::signal::ignore_broken_pipes)).
///
/// # Errors
/// `BrokenPipe`, `ConnectionReset`; what the file system says; `Unsupported` when the file ends before.
/// Nothing was taken then.
pub fn send_file(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    at: u64,
    length: usize,
) -> io::Result<Option<usize>> {
    use rustix::io::Errno;
    unless_it_would_wait(|| {
        let mut at = at;
        match rustix::fs::sendfile(socket, file, Some(&mut at), length) {
            Ok(0) if length > 0 => Err(Errno::OPNOTSUPP),
            sent => sent,
        }
    })
}

/// Bytes that were written to a stream socket and that its peer's side has not taken yet, what the kernel
/// keeps beside them included.
///
/// # Errors
/// For what is no such socket.
pub fn queued_bytes(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one number to bytes, which outlives the call. (SIOCOUTQ is another name of
    // this one.)
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u32::try_from(bytes).unwrap_or(0))
}

/// Says that nothing more will be written; the peer reads the end of the stream, and may still send.
///
/// # Errors
/// `NotConnected` when the peer is gone already.
pub fn shutdown_write(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(net::shutdown(socket, net::Shutdown::Write)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{
        accept, close_abruptly, connect_tcp, is_local, listen_tcp, local_address, pair, set_send_buffer, wait,
    };
    use std::os::fd::AsFd;

    #[test]
    fn an_abrupt_close_resets_and_patience_ends() {
        let listener = listen_tcp("127.0.0.1:0".parse().unwrap(), false, 8).unwrap();
        let client = connect_tcp(local_address(listener.as_fd()).unwrap()).unwrap();
        wait(listener.as_fd(), false, None).unwrap();
        let server = accept(listener.as_fd()).unwrap().unwrap();
        block(server.as_fd()).unwrap();
        let mut into = Vec::with_capacity(8);
        set_receive_patience(server.as_fd(), Some(Duration::ZERO)).unwrap();
        assert_eq!(receive_waiting(server.as_fd(), &mut into).unwrap(), None);
        set_receive_patience(server.as_fd(), None).unwrap();
        assert_eq!(
            receive_waiting(server.as_fd(), &mut into).unwrap(),
            None,
            "a signal may have come before the sleep"
        );
        close_abruptly(client.as_fd()).unwrap();
        drop(client);
        let error = receive_waiting(server.as_fd(), &mut into).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn what_is_received_never_passes_room_or_limit() {
        let (ours, theirs) = pair().unwrap();
        assert_eq!(send(ours.as_fd(), b"0123456789").unwrap(), Some(10));
        let mut buffer = Vec::with_capacity(8);
        assert_eq!(receive(theirs.as_fd(), &mut buffer, 3).unwrap(), Some(3));
        assert_eq!(receive(theirs.as_fd(), &mut buffer, usize::MAX).unwrap(), Some(5));
        assert_eq!(buffer, b"01234567");
        assert!(receive(theirs.as_fd(), &mut buffer, usize::MAX).is_err(), "no room is not the end");
        buffer.clear();
        assert_eq!(receive(theirs.as_fd(), &mut buffer, usize::MAX).unwrap(), Some(2));
        assert_eq!(receive(theirs.as_fd(), &mut buffer, usize::MAX).unwrap(), None);
    }

    #[test]
    fn a_file_is_sent_from_wherever_it_is_asked_to_be() {
        use std::io::Write;
        let (ours, theirs) = pair().unwrap();
        let path = std::env::temp_dir().join(format!("thalweg-send-file-{}", std::process::id()));
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(b"0123456789").unwrap();
        assert_eq!(send_file(ours.as_fd(), file.as_fd(), 3, 4).unwrap(), Some(4));
        assert_eq!(send_file(ours.as_fd(), file.as_fd(), 8, 9).unwrap(), Some(2), "as much as there is");
        let mut buffer = Vec::with_capacity(16);
        assert_eq!(receive(theirs.as_fd(), &mut buffer, 16).unwrap(), Some(6));
        assert_eq!(buffer, b"345689");
        let unsupported =
            |sent: io::Result<Option<usize>>| sent.unwrap_err().kind() == io::ErrorKind::Unsupported;
        assert!(unsupported(send_file(ours.as_fd(), file.as_fd(), 10, 1)), "nothing is there");
        assert!(send_file(ours.as_fd(), theirs.as_fd(), 0, 1).is_err(), "a socket is no file");
        set_send_buffer(ours.as_fd(), 4_096).unwrap();
        file.write_all(&[0; 1 << 16]).unwrap();
        while send_file(ours.as_fd(), file.as_fd(), 0, 1 << 16).unwrap().is_some() {}
        drop(theirs);
        assert!(send_file(ours.as_fd(), file.as_fd(), 0, 1).is_err(), "nobody is there");
    }

    #[test]
    fn who_is_on_this_machine_is_local() {
        let (ours, _theirs) = pair().unwrap();
        assert!(is_local(ours.as_fd()));
        let listener = listen_tcp("127.0.0.1:0".parse().unwrap(), false, 8).unwrap();
        let client = std::net::TcpStream::connect(local_address(listener.as_fd()).unwrap()).unwrap();
        assert!(is_local(client.as_fd()));
        assert!(is_local(accept(listener.as_fd()).unwrap().unwrap().as_fd()));
    }

    #[test]
    fn a_small_send_buffer_fills_sooner() {
        let fill = |bytes: Option<usize>| {
            let (ours, _theirs) = pair().unwrap();
            bytes.into_iter().for_each(|bytes| set_send_buffer(ours.as_fd(), bytes).unwrap());
            let mut sent = 0;
            while let Some(count) = send(ours.as_fd(), &[0; 512]).unwrap() {
                sent += count;
            }
            sent
        };
        let (small, usual) = (fill(Some(4_096)), fill(None));
        assert!(small < usual, "{small} bytes with a small buffer, {usual} without");
    }

    #[test]
    fn what_the_peer_has_not_taken_is_counted() {
        let (ours, theirs) = pair().unwrap();
        assert_eq!(queued_bytes(ours.as_fd()).unwrap(), 0);
        for _ in 0..2 {
            send(ours.as_fd(), &[7; 3_000]).unwrap();
        }
        let both = queued_bytes(ours.as_fd()).unwrap();
        assert!(both >= 6_000, "{both}");
        let mut into = Vec::with_capacity(3_000);
        receive(theirs.as_fd(), &mut into, usize::MAX).unwrap();
        let one = queued_bytes(ours.as_fd()).unwrap();
        assert!((3_000..both).contains(&one), "{one} of {both}");
        assert!(queued_bytes(tempfile::tempfile().unwrap().as_fd()).is_err());
    }

    #[test]
    fn a_blocking_socket_waits_only_where_it_is_asked_to() {
        let (ours, theirs) = pair().unwrap();
        block(ours.as_fd()).unwrap();
        let mut buffer = Vec::with_capacity(8);
        assert_eq!(receive(ours.as_fd(), &mut buffer, 8).unwrap(), None, "reading does not wait");
        let piece = [0; 4_096];
        while send(ours.as_fd(), &piece).unwrap().is_some() {}
        assert_eq!(
            send_gathered(ours.as_fd(), &[IoSlice::new(&piece), IoSlice::new(b"x")]).unwrap(),
            None,
            "nor does writing to one that is full"
        );
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                send(theirs.as_fd(), b"late").unwrap();
            });
            assert_eq!(receive_waiting(ours.as_fd(), &mut buffer).unwrap(), Some(4));
        });
        assert_eq!(buffer, b"late");
        drop(theirs);
        assert_eq!(receive_waiting(ours.as_fd(), &mut buffer).ok().flatten().unwrap_or(0), 0);
    }
}
