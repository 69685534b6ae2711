//! What a foreign loop watches of a client, and what a client with several connections waits for: an epoll with its
//! sockets and a timer for its deadlines. Made when it is first needed, so that a client that only waits for one call after
//! the other has nothing but its socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use thalweg_sys::clock;
use thalweg_sys::epoll::{Epoll, Watch as Interest, wait_readable};
use thalweg_sys::event::TimerFd;

const SOCKET: u64 = 0;
const TIMER: u64 = 1;

#[derive(Debug)]
pub(crate) struct Watch {
    epoll: Epoll,
    timer: TimerFd,
    set: Option<Instant>,
}

impl Watch {
    pub(crate) fn new() -> io::Result<Self> {
        let (epoll, timer) = (Epoll::new()?, TimerFd::new()?);
        epoll.add(timer.as_fd(), TIMER, Interest { readable: true, ..Interest::default() })?;
        Ok(Self { epoll, timer, set: None })
    }

    /// Watches a socket; for writing too, if that is what it waits for.
    pub(crate) fn follow(
        &self,
        socket: BorrowedFd<'_>,
        before: Option<bool>,
        writing: bool,
    ) -> io::Result<()> {
        let wanted = Interest { readable: true, writable: writing, ..Interest::default() };
        match before {
            Some(same) if same == writing => Ok(()),
            Some(_) => self.epoll.modify(socket, SOCKET, wanted),
            None => self.epoll.add(socket, SOCKET, wanted),
        }
    }

    /// Is readable from then on.
    pub(crate) fn due(&mut self, at: Option<Instant>) -> io::Result<()> {
        let has_passed = self.set.is_some_and(|set| set <= Instant::now());
        if self.set == at && !has_passed {
            return Ok(());
        }
        let left_ns = at.map(|at| at.saturating_duration_since(Instant::now()).as_nanos().max(1));
        let due_ns =
            left_ns.map(|left| clock::monotonic_ns().saturating_add(u64::try_from(left).unwrap_or(u64::MAX)));
        self.timer.set(due_ns)?;
        self.set = at;
        Ok(())
    }

    /// Waits until there is something to do, at most so long; `due` is when there is, whatever comes. `false`: there is not; a
    /// signal ends a wait too.
    pub(crate) fn wait(&mut self, due: Option<Instant>, left: Option<Duration>) -> io::Result<bool> {
        // A moment that has passed was told of, and would be for ever.
        if self.set.is_some_and(|set| set <= Instant::now()) {
            self.due(due)?;
        }
        // Rounded up, so that what is waited for has come when the wait ends.
        let left_ms = left.map_or(u32::MAX >> 1, |left| {
            u32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX >> 1)
        });
        wait_readable(self.epoll.as_fd(), left_ms)
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
