//! Both directions of a connection: one socket, or a pipe each.
//!
//! Ownership: owns its descriptors. A pipe goes one way and hangs up for each way on its own, so it is read,
//! written, waited for and watched by itself; everything else about a connection is the same. Memory is never
//! handed over by a pipe.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use thalweg_sys::{socket, standard};
use thalweg_transport::{ReadOutcome, Wanted, WriteOutcome, read, read_any, write_any, write_gathered};

#[derive(Debug)]
pub(crate) struct Duplex {
    input: OwnedFd,
    /// Where bytes go if not back by the same socket.
    output: Option<OwnedFd>,
}

impl Duplex {
    /// Both by a connected socket.
    pub(crate) const fn socket(socket: OwnedFd) -> Self {
        Self { input: socket, output: None }
    }

    /// By a pipe each, or whatever else can be read and written without an end. They are not blocked by their
    /// other users.
    ///
    /// # Errors
    /// Out of descriptors; no `/proc`.
    pub(crate) fn pipes(input: BorrowedFd<'_>, output: BorrowedFd<'_>) -> io::Result<Self> {
        let (input, output) = standard::pair(input, output)?;
        Ok(Self { input, output: Some(output) })
    }

    /// What this process was given: a socket for both, or two pipes.
    ///
    /// # Errors
    /// Out of descriptors; no `/proc`; one of the two is closed.
    pub(crate) fn standard() -> io::Result<Self> {
        if let Ok(socket) = socket::standard_input() {
            return Ok(Self::socket(socket));
        }
        let (input, output) = standard::descriptors()?;
        Ok(Self { input, output: Some(output) })
    }

    pub(crate) fn input(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    pub(crate) fn output(&self) -> Option<BorrowedFd<'_>> {
        self.output.as_ref().map(AsFd::as_fd)
    }

    /// The socket, if it is one.
    pub(crate) fn as_socket(&self) -> Option<BorrowedFd<'_>> {
        self.output.is_none().then(|| self.input.as_fd())
    }

    pub(crate) fn read(&self, into: &mut Vec<u8>) -> io::Result<ReadOutcome> {
        if self.output.is_some() { read_any(self.input(), into) } else { read(self.input(), into) }
    }

    pub(crate) fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<WriteOutcome> {
        let Some(output) = &self.output else { return write_gathered(self.input(), pieces) };
        let mut taken = 0;
        for piece in pieces {
            let count = match write_any(output.as_fd(), piece) {
                Ok(WriteOutcome::Bytes(count)) => count,
                // What a first piece met is told by the next write.
                _ if taken > 0 => break,
                otherwise => return otherwise,
            };
            taken += count;
            if count < piece.len() {
                break;
            }
        }
        Ok(WriteOutcome::Bytes(taken))
    }

    /// Waits until there is something to read, or room to write if that is wanted too; a signal ends the wait
    /// too. Whether there is something to read.
    pub(crate) fn wait(&self, wanted: Wanted, left: Option<Duration>) -> io::Result<bool> {
        match &self.output {
            Some(output) if wanted.space() => socket::wait_in_or_out(self.input(), output.as_fd(), left),
            _ => Ok(socket::wait(self.input(), wanted.space(), left)?.readable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn a_pair_of_pipes_is_a_connection_like_any_other() {
        let (input, mut far_writer) = io::pipe().unwrap();
        let (mut far_reader, output) = io::pipe().unwrap();
        let duplex = Duplex::pipes(input.as_fd(), output.as_fd()).unwrap();
        drop((input, output));
        let mut bytes = Vec::with_capacity(64);
        assert_eq!(duplex.read(&mut bytes).unwrap(), ReadOutcome::WouldBlock);
        assert!(!duplex.wait(Wanted::BytesOrSpace, None).unwrap(), "there is room, and nothing to read");
        let pieces = [IoSlice::new(b"one "), IoSlice::new(b"two")];
        assert_eq!(duplex.write(&pieces).unwrap(), WriteOutcome::Bytes(7));
        let mut came = [0; 7];
        far_reader.read_exact(&mut came).unwrap();
        assert_eq!(&came, b"one two");
        far_writer.write_all(b"back").unwrap();
        assert!(duplex.wait(Wanted::Bytes, None).unwrap());
        assert_eq!(duplex.read(&mut bytes).unwrap(), ReadOutcome::Bytes(4));
        // A full pipe takes a part, then nothing.
        let large = vec![7; 1 << 20];
        let WriteOutcome::Bytes(part) = duplex.write(&[IoSlice::new(b"head"), IoSlice::new(&large)]).unwrap()
        else {
            panic!("an empty pipe took nothing");
        };
        assert!(part < large.len());
        assert_eq!(
            duplex.write(&[IoSlice::new(b"x"), IoSlice::new(b"y")]).unwrap(),
            WriteOutcome::WouldBlock
        );
        drop((far_reader, far_writer));
        assert_eq!(duplex.read(&mut bytes).unwrap(), ReadOutcome::End);
        assert_eq!(duplex.write(&pieces).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
