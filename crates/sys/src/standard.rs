//! Standard input and output as descriptors that never block, for a program that serves a peer behind them.

use crate::again::unless_it_would_wait;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Standard input and output, for a reactor to own.
///
/// A pipe is opened anew, so that not blocking remains a matter of ours alone; a socket cannot be, and is
/// told not to block, which it is for everybody who shares it. From here on a broken pipe is an error, in the
/// whole process, and never a signal.
///
/// # Errors
/// Out of descriptors; no `/proc`; one of the two is closed.
pub fn descriptors() -> io::Result<(OwnedFd, OwnedFd)> {
    pair(io::stdin().as_fd(), io::stdout().as_fd())
}

/// As [`descriptors`], for whatever is to be read from and written to instead.
///
/// # Errors
/// Out of descriptors; no `/proc`.
pub fn pair(input: BorrowedFd<'_>, output: BorrowedFd<'_>) -> io::Result<(OwnedFd, OwnedFd)> {
    crate::signal::ignore_broken_pipes();
    Ok((own(input, OFlags::RDONLY)?, own(output, OFlags::WRONLY)?))
}

fn own(descriptor: BorrowedFd<'_>, access: OFlags) -> io::Result<OwnedFd> {
    if FileType::from_raw_mode(fstat(descriptor)?.st_mode) == FileType::Socket {
        let socket = descriptor.try_clone_to_owned()?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        return Ok(socket);
    }
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    Ok(open(path, access | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?)
}

/// Reads what is there into the vector's spare room. `None` when nothing is there yet, `Some(0)` at the end.
///
/// # Errors
/// What the kernel says; `InvalidInput` without spare room, which would look like the end.
pub fn read(descriptor: BorrowedFd<'_>, into: &mut Vec<u8>) -> io::Result<Option<usize>> {
    let length = into.len();
    let spare = into.spare_capacity_mut();
    if spare.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no room to read into"));
    }
    let taken = unless_it_would_wait(|| Ok(rustix::io::read(descriptor, &mut *spare)?.0.len()))?;
    if let Some(count) = taken {
        // SAFETY: the kernel wrote `count` bytes behind `length`, inside the capacity.
        unsafe { into.set_len(length + count) };
    }
    Ok(taken)
}

/// Writes; `None` when there is no room.
///
/// # Errors
/// `BrokenPipe` and the like.
pub fn write(descriptor: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<Option<usize>> {
    unless_it_would_wait(|| rustix::io::write(descriptor, bytes))
}

/// Waits until nobody reads any more what is written there: the other end of a pipe or a socket is closed, or
/// a terminal is gone. Of anything else, such as a file, that never comes.
///
/// # Errors
/// What the kernel says.
pub fn wait_until_unread(output: BorrowedFd<'_>) -> io::Result<()> {
    // Errors and hang-ups are reported unasked.
    let mut watched = [PollFd::new(&output, PollFlags::empty())];
    loop {
        match poll(&mut watched, None) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_opened_anew_and_never_blocks() {
        let (reader, writer) = io::pipe().unwrap();
        let input = own(reader.as_fd(), OFlags::RDONLY).unwrap();
        let output = own(writer.as_fd(), OFlags::WRONLY).unwrap();
        let mut bytes = Vec::with_capacity(8);
        assert_eq!(read(input.as_fd(), &mut bytes).unwrap(), None);
        assert_eq!(write(output.as_fd(), b"abc").unwrap(), Some(3));
        assert_eq!(read(input.as_fd(), &mut bytes).unwrap(), Some(3));
        assert_eq!(bytes, b"abc");
        let piece = [0; 4096];
        while write(output.as_fd(), &piece).unwrap().is_some() {}
        let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK), "the one that was given is as it was");
        drop((writer, output));
        while read(input.as_fd(), &mut Vec::with_capacity(65_536)).unwrap() != Some(0) {}
    }

    #[test]
    fn who_writes_learns_that_nobody_reads_without_a_write() {
        let (reader, writer) = io::pipe().unwrap();
        let waiting = std::thread::spawn(move || wait_until_unread(writer.as_fd()));
        drop(reader);
        waiting.join().unwrap().unwrap();
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(theirs);
        wait_until_unread(ours.as_fd()).unwrap();
    }

    #[test]
    fn a_socket_is_shared_and_told_not_to_block() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let ours = own(ours.as_fd(), OFlags::RDONLY).unwrap();
        let mut bytes = Vec::with_capacity(8);
        assert_eq!(read(ours.as_fd(), &mut bytes).unwrap(), None);
        drop(theirs);
        assert_eq!(read(ours.as_fd(), &mut bytes).unwrap(), Some(0));
    }
}
