//! What a foreign loop watches of a client: one descriptor, readable when a turn has something to do.
//!
//! A client has one connection and one moment at which it has to look at the clock, so it needs an epoll and a timer, and
//! of a reactor nothing else. Nobody ever waits in the epoll itself: it is level-triggered and asked by whoever watches.
//! It is made when it is first asked for, so that a client that only blocks has one descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;
use thalweg_sys::clock;
use thalweg_sys::epoll::{Epoll, Watch as Interest};
use thalweg_sys::event::TimerFd;

const SOCKET: u64 = 0;
const TIMER: u64 = 1;
const READ: Interest = Interest { readable: true, writable: false, edge: false, exclusive: false };

#[derive(Debug)]
pub(crate) struct Watch {
    epoll: Epoll,
    timer: TimerFd,
    /// When the timer is due, if it is set.
    set: Option<Instant>,
    /// Whether a socket is watched, and what for.
    socket: Option<Interest>,
}

impl Watch {
    pub(crate) fn new() -> io::Result<Self> {
        let (epoll, timer) = (Epoll::new()?, TimerFd::new()?);
        epoll.add(timer.as_fd(), TIMER, READ)?;
        Ok(Self { epoll, timer, set: None, socket: None })
    }

    /// Stops to watch a socket that is about to be closed.
    pub(crate) fn leave(&mut self, socket: BorrowedFd<'_>) {
        if self.socket.take().is_some() {
            // One that the kernel dropped already is left as well.
            let _ = self.epoll.delete(socket);
        }
    }

    /// Watches a socket.
    pub(crate) fn follow(&mut self, socket: BorrowedFd<'_>, writable: bool) -> io::Result<()> {
        let wanted = Interest { writable, ..READ };
        match self.socket {
            Some(watched) if watched == wanted => return Ok(()),
            Some(_) => self.epoll.modify(socket, SOCKET, wanted)?,
            None => self.epoll.add(socket, SOCKET, wanted)?,
        }
        self.socket = Some(wanted);
        Ok(())
    }

    /// Is readable from then on. A timer that is set for earlier is left alone while it lies ahead: its owner then looks,
    /// finds nothing, and sets it anew, which is rarer than setting it for every call.
    pub(crate) fn due(&mut self, at: Option<Instant>) -> io::Result<()> {
        let now = Instant::now();
        if let Some(set) = self.set
            && set > now
            && at.is_none_or(|at| set <= at)
        {
            return Ok(());
        }
        if self.set != at {
            let left = at.map(|at| at.saturating_duration_since(now).as_nanos());
            let due_ns =
                left.map(|left| clock::monotonic_ns() + u64::try_from(left).unwrap_or(u64::MAX >> 1));
            self.timer.set(due_ns)?;
            self.set = at;
        }
        Ok(())
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
