//! Which process said what lies unread at a Unix socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Who said what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// Nothing lies there yet.
    Nobody,
    /// A process; 0 when it lives where this process cannot see it (another container).
    Process(u32),
    /// Nobody is at the other end any more.
    Gone,
}

/// Has the kernel note, of what is said to this end from now on, who says it; or no more.
///
/// # Errors
/// For a socket that is no Unix socket.
pub fn note_speakers(socket: BorrowedFd<'_>, is_noted: bool) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_passcred(socket, is_noted)?)
}

/// Who said the next byte, as the kernel saw it: the byte stays where it is. Never waits.
///
/// # Errors
/// `ConnectionReset` and the like; `InvalidData` for what was said while nobody took notes
/// ([`note_speakers`]).
pub fn speaker(socket: BorrowedFd<'_>) -> io::Result<Speaker> {
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
            io::ErrorKind::WouldBlock => return Ok(Speaker::Nobody),
            _ => return Err(error),
        }
    };
    if count == 0 {
        return Ok(Speaker::Gone);
    }
    // SAFETY: the kernel has filled in a message with its first header, or said that there is none.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() };
    match header {
        Some(header)
            if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) =>
        {
            // SAFETY: behind a header of this type stand credentials, for which there is room.
            let credentials = unsafe { libc::CMSG_DATA(header).cast::<libc::ucred>().read_unaligned() };
            Ok(Speaker::Process(credentials.pid.unsigned_abs()))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "nobody noted who said it")),
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
    fn whoever_speaks_is_known_by_the_kernels_word() {
        let (ours, theirs) = pair().unwrap();
        note_speakers(ours.as_fd(), true).unwrap();
        assert_eq!(speaker(ours.as_fd()).unwrap(), Speaker::Nobody);
        let output = Stdio::from(theirs.try_clone().unwrap());
        let mut other = Command::new("sh").args(["-c", "echo 1"]).stdout(output).spawn().unwrap();
        assert!(other.wait().unwrap().success());
        send(theirs.as_fd(), b"2").unwrap();
        drop(theirs);
        for (said, process) in [(&b"1\n"[..], other.id()), (b"2", std::process::id())] {
            assert_eq!(speaker(ours.as_fd()).unwrap(), Speaker::Process(process));
            let mut into = Vec::with_capacity(said.len());
            receive(ours.as_fd(), &mut into, 8).unwrap();
            assert_eq!(into, said);
        }
        assert_eq!(speaker(ours.as_fd()).unwrap(), Speaker::Gone);
    }

    #[test]
    fn what_comes_beside_it_stays_there_and_without_notes_nobody_is_known() {
        let ((ours, theirs), (kept, given)) = (pair().unwrap(), pair().unwrap());
        note_speakers(ours.as_fd(), true).unwrap();
        handover::send(theirs.as_fd(), b"x", given.as_fd()).unwrap();
        drop(given);
        assert_eq!(speaker(ours.as_fd()).unwrap(), Speaker::Process(std::process::id()));
        assert_eq!(bell::drain(kept.as_fd()).unwrap(), bell::Heard::Nothing, "it is still there");
        note_speakers(ours.as_fd(), false).unwrap();
        assert_eq!(speaker(ours.as_fd()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let (_, beside) = handover::receive(ours.as_fd(), &mut Vec::with_capacity(8)).unwrap();
        assert!(beside.is_some());
        assert!(note_speakers(tempfile::tempfile().unwrap().as_fd(), true).is_err());
    }
}
