//! What a foreign loop watches of a client, and what a client with several connections waits for: an epoll with its
//! sockets and a timer for its deadlines. Made when it is first needed, so that a client that only waits for one call after
//! the other has nothing but its socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use thalweg_sys::epoll::{Epoll, Watch as Interest, wait_readable};
use thalweg_sys::event::Alarm;

const SOCKET: u64 = 0;
const ALARM: u64 = 1;

#[derive(Debug)]
pub(crate) struct Watch {
    epoll: Epoll,
    alarm: Alarm,
}

impl Watch {
    pub(crate) fn new() -> io::Result<Self> {
        let (epoll, alarm) = (Epoll::new()?, Alarm::new()?);
        epoll.add(alarm.as_fd(), ALARM, Interest { readable: true, ..Interest::default() })?;
        Ok(Self { epoll, alarm })
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

    /// Is readable from then on, or a moment before.
    pub(crate) fn due(&mut self, at: Option<Instant>) -> io::Result<()> {
        self.alarm.due(at)
    }

    /// Waits until there is something to do, at most so long; `due` is when there is, whatever comes. `false`: there is not; a
    /// signal ends a wait too.
    pub(crate) fn wait(&mut self, due: Option<Instant>, left: Option<Duration>) -> io::Result<bool> {
        // A moment that has passed was told of, and would be for ever.
        if self.alarm.has_passed() {
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
