//! Which process sent what lies unread at a Unix socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Who sent the next byte, if one is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeekedSender {
    /// Nothing lies there yet.
    Empty,
    /// A process; 0 when it lives where this process cannot see it (another container).
    Process(u32),
    /// Nobody is at the other end any more.
    HungUp,
}

/// Has the kernel note, of what is sent to this end from now on, who sends it (`SO_PASSCRED`); or no more.
///
/// # Errors
/// For a socket that is no Unix socket.
pub fn set_pass_credentials(socket: BorrowedFd<'_>, passes: bool) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_passcred(socket, passes)?)
}

/// Who sent the next byte, as the kernel saw it: the byte stays where it is. Never waits.
///
/// # Errors
/// `ConnectionReset` and the like; `InvalidData` for what was sent while nobody took notes
/// ([`set_pass_credentials`]).
pub fn peek_sender(socket: BorrowedFd<'_>) -> io::Result<PeekedSender> {
    // Not by the library's wrapper, whose process numbers are never 0. Words, so that what the kernel writes
    // is aligned; there is no room for a descriptor beside them, and the kernel closes one for which there is
    // none.
    let (mut byte, mut control) = ([0_u8; 1], [0_usize; 4]);
    let mut bytes = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    // SAFETY: plain numbers and pointers, of which zeros are some.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut bytes, 1);
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    let count = loop {
        // SAFETY: the kernel writes to what the message points to, all of which outlives the call, and no
        // further than it says.
        let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        if count >= 0 {
            break count;
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => return Ok(PeekedSender::Empty),
            _ => return Err(error),
        }
    };
    if count == 0 {
        return Ok(PeekedSender::HungUp);
    }
    // SAFETY: the kernel has filled in a message with its first header, or said that there is none.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() };
    match header {
        Some(header)
            if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) =>
        {
            // SAFETY: behind a header of this type stand credentials, for which there is room.
            let credentials = unsafe { libc::CMSG_DATA(header).cast::<libc::ucred>().read_unaligned() };
            Ok(PeekedSender::Process(credentials.pid.unsigned_abs()))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "nobody noted who sent it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{pair, receive, send};
    use crate::{bell, handover};
    use std::os::fd::AsFd;
    use std::process::{Command, Stdio};

    #[test]
    fn whoever_sends_is_known_by_the_kernels_word() {
        let (ours, theirs) = pair().unwrap();
        set_pass_credentials(ours.as_fd(), true).unwrap();
        assert_eq!(peek_sender(ours.as_fd()).unwrap(), PeekedSender::Empty);
        let output = Stdio::from(theirs.try_clone().unwrap());
        let mut other = Command::new("sh").args(["-c", "echo 1"]).stdout(output).spawn().unwrap();
        assert!(other.wait().unwrap().success());
        send(theirs.as_fd(), b"2").unwrap();
        drop(theirs);
        for (said, process) in [(&b"1\n"[..], other.id()), (b"2", std::process::id())] {
            assert_eq!(peek_sender(ours.as_fd()).unwrap(), PeekedSender::Process(process));
            let mut into = Vec::with_capacity(said.len());
            receive(ours.as_fd(), &mut into, 8).unwrap();
            assert_eq!(into, said);
        }
        assert_eq!(peek_sender(ours.as_fd()).unwrap(), PeekedSender::HungUp);
    }

    #[test]
    fn what_comes_beside_it_stays_there_and_without_notes_nobody_is_known() {
        let ((ours, theirs), (kept, given)) = (pair().unwrap(), pair().unwrap());
        set_pass_credentials(ours.as_fd(), true).unwrap();
        handover::send(theirs.as_fd(), b"x", given.as_fd()).unwrap();
        drop(given);
        assert_eq!(peek_sender(ours.as_fd()).unwrap(), PeekedSender::Process(std::process::id()));
        assert_eq!(bell::drain(kept.as_fd()).unwrap(), bell::DrainOutcome::Empty, "it is still there");
        set_pass_credentials(ours.as_fd(), false).unwrap();
        assert_eq!(peek_sender(ours.as_fd()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let (_, beside) = handover::receive(ours.as_fd(), &mut Vec::with_capacity(8)).unwrap();
        assert!(beside.is_some());
        assert!(set_pass_credentials(tempfile::tempfile().unwrap().as_fd(), true).is_err());
    }
}
