//! What a foreign loop watches of a client: one descriptor, readable when a turn has something to do.
//!
//! A client has one connection and one moment at which it has to look at the clock, so it needs an epoll and a timer, and
//! of a reactor nothing else. Nobody ever waits in the epoll itself: it is level-triggered and asked by whoever watches.
//! It is made when it is first asked for, so that a client that only blocks has one descriptor.

use super::ways::Ways;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;
use thalweg_sys::epoll::{Epoll, Watch as Interest};
use thalweg_sys::event::Alarm;

const INPUT: u64 = 0;
const ALARM: u64 = 1;
const OUTPUT: u64 = 2;
const READ: Interest = Interest { readable: true, writable: false, edge: false, exclusive: false };
const WRITE: Interest = Interest { readable: false, writable: true, ..READ };

#[derive(Debug)]
pub(crate) struct Watch {
    epoll: Epoll,
    alarm: Alarm,
    /// What the way in is watched for, which may be the way out too.
    input: Option<Interest>,
    /// Whether a way out of its own is watched.
    output: bool,
}

impl Watch {
    pub(crate) fn new() -> io::Result<Self> {
        let (epoll, alarm) = (Epoll::new()?, Alarm::new()?);
        epoll.add(alarm.as_fd(), ALARM, READ)?;
        Ok(Self { epoll, alarm, input: None, output: false })
    }

    /// Stops to watch a connection that is about to be closed.
    pub(crate) fn leave(&mut self, ways: &Ways) {
        // What the kernel dropped already is left as well.
        if self.input.take().is_some() {
            let _ = self.epoll.delete(ways.input());
        }
        if let Some(output) = ways.output()
            && std::mem::take(&mut self.output)
        {
            let _ = self.epoll.delete(output);
        }
    }

    /// Watches a connection, for room to write too if that is wanted.
    pub(crate) fn follow(&mut self, ways: &Ways, writable: bool) -> io::Result<()> {
        let Some(output) = ways.output() else {
            return self.follow_input(ways.input(), Interest { writable, ..READ });
        };
        self.follow_input(ways.input(), READ)?;
        if writable != self.output {
            // A pipe whose reader is gone says so whatever is asked of it, so it is watched only while it matters.
            if writable {
                self.epoll.add(output, OUTPUT, WRITE)?
            } else {
                self.epoll.delete(output)?
            }
            self.output = writable;
        }
        Ok(())
    }

    fn follow_input(&mut self, input: BorrowedFd<'_>, wanted: Interest) -> io::Result<()> {
        match self.input {
            Some(watched) if watched == wanted => return Ok(()),
            Some(_) => self.epoll.modify(input, INPUT, wanted)?,
            None => self.epoll.add(input, INPUT, wanted)?,
        }
        self.input = Some(wanted);
        Ok(())
    }

    /// Is readable from then on, or a moment before.
    pub(crate) fn due(&mut self, at: Option<Instant>) -> io::Result<()> {
        self.alarm.due(at)
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
