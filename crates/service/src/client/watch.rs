//! What a foreign loop watches of a client: one descriptor, readable when a turn has something to do.
//!
//! A client has one connection and one moment at which it has to look at the clock, so it needs an epoll and
//! a timer, and of a reactor nothing else. It is made when it is first asked for, so that a client that only
//! blocks has one descriptor.

use super::duplex::Duplex;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;
use thalweg_sys::epoll::Watch as Interest;
use thalweg_sys::nested::Nested;
use thalweg_transport::Wanted;

#[derive(Debug)]
pub(crate) struct Watch {
    nested: Nested,
    /// What the input is watched for; for a socket, also what the output is.
    input: Option<Interest>,
    /// What a separate output is watched for.
    output: Option<Interest>,
}

impl Watch {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { nested: Nested::new()?, input: None, output: None })
    }

    /// Stops to watch a connection that is about to be closed.
    pub(crate) fn leave(&mut self, duplex: &Duplex) {
        // The kernel may have dropped the watch already.
        let _ = self.nested.watch(duplex.input(), self.input.take(), None);
        if let Some(output) = duplex.output() {
            let _ = self.nested.watch(output, self.output.take(), None);
        }
    }

    /// Watches a connection for what is wanted: something to read, room to write, or both.
    pub(crate) fn follow(&mut self, duplex: &Duplex, wanted: Wanted) -> io::Result<()> {
        let Some(output) = duplex.output() else {
            return self.follow_input(
                duplex,
                Some(match wanted {
                    Wanted::Bytes => Interest::READ,
                    Wanted::Space => Interest::WRITE,
                    Wanted::BytesOrSpace => Interest::BOTH,
                }),
            );
        };
        // A pipe whose other end is gone says so whatever is asked of it, so each is watched only while it
        // matters.
        self.follow_input(duplex, wanted.bytes().then_some(Interest::READ))?;
        let room = wanted.space().then_some(Interest::WRITE);
        self.nested.watch(output, self.output, room)?;
        self.output = room;
        Ok(())
    }

    fn follow_input(&mut self, duplex: &Duplex, wanted: Option<Interest>) -> io::Result<()> {
        self.nested.watch(duplex.input(), self.input, wanted)?;
        self.input = wanted;
        Ok(())
    }

    /// Makes the descriptor readable at `at`, or a moment before.
    pub(crate) fn due(&mut self, at: Option<Instant>) -> io::Result<()> {
        self.nested.due(at)
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.nested.as_fd()
    }
}
