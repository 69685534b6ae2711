//! Many small writes, each to a socket of its own, by one system call.
//!
//! A ring of submissions (io_uring) used as a call with many arguments: every write is told not to wait, so
//! that each is done, taken or refused, when the call returns, and between two calls the kernel knows of
//! nothing of ours. So what is written is borrowed for the call alone. Readiness stays with epoll.
//!
//! Invariant: nothing is in the ring between calls; where a call fails in the middle the ring is broken and
//! used no more. *Checked by* the tests below.

use io_uring::{IoUring, Probe, opcode, types};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Writes that one call may take.
const ENTRIES: usize = 512;

/// The ring.
pub struct SendRing {
    ring: IoUring,
    broken: bool,
}

impl std::fmt::Debug for SendRing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SendRing").field("broken", &self.broken).finish_non_exhaustive()
    }
}

impl SendRing {
    /// Makes the ring: some 50 KiB of the kernel's memory.
    ///
    /// # Errors
    /// The kernel has no such thing, or does not let this process have it, as many containers do not.
    pub fn new() -> io::Result<SendRing> {
        // A child that forks has the maps, too, and can let go of its copy; not to hand them down would leave
        // it with places that are another map's by then.
        let ring = IoUring::new(ENTRIES as u32)?;
        // Older kernels have the ring and not this use of it.
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Send::CODE) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(SendRing { ring, broken: false })
    }

    /// Writes to each socket, none of which comes twice, what is beside it. How many bytes each took is put
    /// behind `taken`, in the same order: `None`, when it takes none now, or not in this way. One system call
    /// for each 512.
    ///
    /// # Errors
    /// The call failed; what was not done by then took nothing, and says so. Of a socket: `BrokenPipe`,
    /// `ConnectionReset`; never a signal.
    pub fn send(
        &mut self,
        sends: &[(BorrowedFd<'_>, &[u8])],
        taken: &mut Vec<io::Result<Option<usize>>>,
    ) -> io::Result<()> {
        for part in sends.chunks(ENTRIES) {
            let from = taken.len();
            taken.extend(part.iter().map(|_| Ok(None)));
            if self.broken {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.submit(part, &mut taken[from..]).inspect_err(|_| self.broken = true)?;
        }
        Ok(())
    }

    fn submit(
        &mut self,
        sends: &[(BorrowedFd<'_>, &[u8])],
        taken: &mut [io::Result<Option<usize>>],
    ) -> io::Result<()> {
        for (index, (socket, bytes)) in sends.iter().enumerate() {
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let send = opcode::Send::new(types::Fd(socket.as_raw_fd()), bytes.as_ptr(), length)
                .flags(libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
                .build()
                .user_data(index as u64);
            // SAFETY: socket and bytes are borrowed until this function returns. By then the write is done,
            // because it is told not to wait and every completion was seen; or the call failed, which it does
            // only if it submitted nothing, what earlier ones submitted was seen, and the ring, in which it
            // may still stand, is never submitted again.
            unsafe { self.ring.submission().push(&send) }.map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        let mut done = 0;
        while done < sends.len() {
            match self.ring.submit_and_wait(sends.len() - done) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for completed in self.ring.completion() {
                done += 1;
                if let Some(taken) = taken.get_mut(completed.user_data() as usize) {
                    *taken = outcome(completed.result());
                }
            }
        }
        Ok(())
    }
}

/// What a socket has to say; what the kernel has against the ring the socket will be asked in another way.
fn outcome(result: i32) -> io::Result<Option<usize>> {
    const AGAIN: [i32; 7] =
        [libc::EAGAIN, libc::EINTR, libc::EINVAL, libc::EOPNOTSUPP, libc::ENOSYS, libc::EPERM, libc::EACCES];
    match usize::try_from(result) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(_) if AGAIN.contains(&-result) => Ok(None),
        Err(_) => Err(io::Error::from_raw_os_error(-result)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    /// `None`, and a line of output, where the kernel forbids it and there is nothing to check.
    fn send_ring() -> Option<SendRing> {
        match SendRing::new() {
            Ok(send_ring) => Some(send_ring),
            Err(error) => {
                let refused = [libc::ENOSYS, libc::EPERM, libc::EACCES, libc::ENOMEM, libc::EINVAL];
                let known = error.raw_os_error().is_some_and(|code| refused.contains(&code));
                assert!(known || error.kind() == io::ErrorKind::Unsupported, "{error}");
                None
            }
        }
    }

    #[test]
    fn each_gets_its_own_and_says_what_it_took() {
        let Some(mut send_ring) = send_ring() else { return };
        let mut pairs: Vec<_> = (0..700).map(|_| UnixStream::pair().unwrap()).collect();
        let texts: Vec<String> = (0..pairs.len()).map(|n| format!("record {n}")).collect();
        // One is full, one has nobody at the other end.
        pairs[3].0.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut pairs[3].0, &[0; 65_536]).is_ok() {}
        let gone = pairs[5].1.try_clone().unwrap();
        gone.shutdown(std::net::Shutdown::Both).unwrap();
        for _ in 0..3 {
            let sends: Vec<_> =
                pairs.iter().zip(&texts).map(|((ours, _), text)| (ours.as_fd(), text.as_bytes())).collect();
            let mut taken = Vec::new();
            send_ring.send(&sends, &mut taken).unwrap();
            assert_eq!(taken.len(), pairs.len());
            for (index, taken) in taken.into_iter().enumerate() {
                match index {
                    3 => assert_eq!(taken.unwrap(), None),
                    5 => assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::BrokenPipe),
                    _ => assert_eq!(taken.unwrap(), Some(texts[index].len())),
                }
            }
        }
        for (index, (_, theirs)) in pairs.iter_mut().enumerate().filter(|(index, _)| ![3, 5].contains(index))
        {
            let mut got = vec![0; texts[index].len() * 3];
            theirs.read_exact(&mut got).unwrap();
            assert_eq!(got, texts[index].repeat(3).as_bytes());
        }
    }

    #[test]
    fn a_broken_ring_takes_nothing() {
        let Some(mut send_ring) = send_ring() else { return };
        send_ring.broken = true;
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut taken = Vec::new();
        assert!(send_ring.send(&[(ours.as_fd(), b"lost")], &mut taken).is_err());
        assert!(matches!(taken[..], [Ok(None)]));
        drop(ours);
        assert_eq!(theirs.read(&mut [0; 8]).unwrap(), 0);
    }
}
