//! A connection that is up: its socket, and the shared memory it may have led to.
//!
//! Ownership: owns both directions and this side's end of the rings. While answers come fast either looks for
//! a moment before it sleeps: a socket link in the read itself ([`thalweg_sys::socket::receive_waiting`]), so
//! that a call costs one write and one read; a shared one on the socket, over which nothing but bells comes.

use super::duplex::Duplex;
use crate::error::Error;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use thalweg_sync::patience::{ALONE_NS, Pace, Patience, QUICK_NS};
use thalweg_sys::{clock, socket};
use thalweg_transport::{
    Broken, DrainOutcome, PeerWait, ReadOutcome, SharedEnd, WaitOutcome, Wanted, WriteOutcome, drain_bell,
    ring_bell,
};
use thalweg_wire::fault::Fault;

#[derive(Debug)]
pub(crate) struct Link {
    duplex: Duplex,
    shared: Option<SharedEnd>,
    /// The peer is gone; what it wrote into shared memory is still to be read.
    ended: bool,
    spin: bool,
    /// How long waits for the socket took.
    pace: Pace,
    /// When a wait began that has looked, and has not slept yet.
    looked_ns: Option<u64>,
}

impl Link {
    /// Over a connected socket alone, or pipes.
    ///
    /// # Errors
    /// None in practice.
    pub(crate) fn over(duplex: Duplex, spin: bool) -> io::Result<Self> {
        if let Some(socket) = duplex.as_socket() {
            socket::block(socket)?;
            socket::set_receive_patience(socket, None)?;
        }
        let pace = Pace::new(QUICK_NS);
        Ok(Self { duplex, shared: None, ended: false, spin, pace, looked_ns: None })
    }

    /// Over shared memory that came by this socket.
    pub(crate) fn shared(duplex: Duplex, end: SharedEnd, spin: bool) -> Self {
        let pace = Pace::new(QUICK_NS);
        Self { duplex, shared: Some(end), ended: false, spin, pace, looked_ns: None }
    }

    pub(crate) fn duplex(&self) -> &Duplex {
        &self.duplex
    }

    pub(crate) const fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether the peer is known to be gone, although what it wrote is still to be read.
    pub(crate) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Bytes that were written, and that a peer that is gone never read. None over a socket, where nobody
    /// knows, and none while the peer may still read them.
    pub(crate) fn unread_bytes(&self) -> u64 {
        self.shared.as_ref().filter(|_| self.ended).map_or(0, SharedEnd::unread_bytes)
    }

    /// Writes what can be written now.
    pub(crate) fn write(&mut self, pieces: &[IoSlice<'_>]) -> Result<WriteOutcome, Error> {
        let Some(end) = &mut self.shared else {
            return self.duplex.write(pieces).map_err(gone);
        };
        let written = end.write_gathered(pieces).map_err(broken)?;
        ring(end, self.duplex.input());
        Ok(written)
    }

    /// Reads what is there.
    pub(crate) fn read(&mut self, into: &mut Vec<u8>) -> Result<ReadOutcome, Error> {
        let Some(end) = &mut self.shared else {
            return self.duplex.read(into).map_err(gone);
        };
        match end.read(into).map_err(broken)? {
            ReadOutcome::WouldBlock if self.ended => Ok(ReadOutcome::End),
            ReadOutcome::WouldBlock => Ok(ReadOutcome::WouldBlock),
            read => {
                ring(end, self.duplex.input());
                Ok(read)
            }
        }
    }

    /// Whether a wait would look before it slept, or make way for its peer.
    pub(crate) fn looks(&self) -> bool {
        self.shared.as_ref().map_or(self.spin && self.pace.is_quick(), |end| end.looks(self.spin))
    }

    /// The first half of a wait, which never sleeps: reads what is there or comes while it looks, if that is
    /// worth it. The wait that follows sleeps at once.
    pub(crate) fn read_looking(
        &mut self,
        into: &mut Vec<u8>,
        wanted: Wanted,
        until: Option<Instant>,
    ) -> Result<ReadOutcome, Error> {
        let Some(end) = &mut self.shared else {
            let (quick, began_ns) = (self.spin && self.pace.is_quick(), clock::monotonic_ns());
            let looks = quick && !wanted.space() && until.is_none();
            let Some(socket) = self.duplex.as_socket().filter(|_| looks) else {
                return Ok(ReadOutcome::WouldBlock);
            };
            let came = look(socket, into).map_err(gone)?;
            match came {
                Some(_) => self.pace.record(clock::monotonic_ns().saturating_sub(began_ns)),
                None => self.looked_ns = Some(began_ns),
            }
            return Ok(read_of(came));
        };
        if !end.pending() {
            let (socket, spin) = (self.duplex.input(), self.spin);
            self.looked_ns = PeerWait { end, socket, wanted, deadline: until, spin }.look();
            if self.looked_ns.is_some() {
                return Ok(ReadOutcome::WouldBlock);
            }
        }
        self.read(into)
    }

    /// Reads what is there or comes until then; also comes back when there is room to write, if that is
    /// wanted, and when a signal came. [`ReadOutcome::WouldBlock`]: nothing was read.
    pub(crate) fn read_waiting(
        &mut self,
        into: &mut Vec<u8>,
        wanted: Wanted,
        until: Option<Instant>,
    ) -> Result<ReadOutcome, Error> {
        let looked_ns = self.looked_ns.take();
        let Some(end) = &mut self.shared else {
            if let Some(socket) = self.duplex.as_socket()
                && until.is_none()
                && !wanted.space()
            {
                let began_ns = looked_ns.unwrap_or_else(clock::monotonic_ns);
                let looks = looked_ns.is_none() && self.spin && self.pace.is_quick();
                let came = if looks { look(socket, into).map_err(gone)? } else { None };
                let read = match came {
                    Some(count) => Ok(Some(count)),
                    None => socket::receive_waiting(socket, into),
                };
                self.pace.record(clock::monotonic_ns().saturating_sub(began_ns));
                return read.map(read_of).map_err(gone);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let left = left.unwrap_or(socket::SLEEP_MAX).min(socket::SLEEP_MAX);
            return if self.duplex.wait(wanted, Some(left))? {
                self.read(into)
            } else {
                Ok(ReadOutcome::WouldBlock)
            };
        };
        if !end.pending() {
            let (socket, spin) = (self.duplex.input(), self.spin);
            let mut wait = PeerWait { end, socket, wanted, deadline: until, spin };
            let waited = match looked_ns.or_else(|| wait.look()) {
                None => WaitOutcome::Ready,
                Some(began_ns) => wait.sleep(began_ns).map_err(gone)?,
            };
            match waited {
                WaitOutcome::Ready => {}
                WaitOutcome::TimedOut | WaitOutcome::Interrupted => return Ok(ReadOutcome::WouldBlock),
                WaitOutcome::Ended => self.ended = true,
            }
        }
        self.read(into)
    }

    /// Marks this side as up after a foreign loop watched it, and drains the bells.
    pub(crate) fn stir(&mut self) -> Result<(), Error> {
        if let Some(end) = &mut self.shared {
            end.wake_up();
            if drain_bell(self.duplex.input()).map_err(gone)? == DrainOutcome::HungUp {
                self.ended = true;
            }
        }
        Ok(())
    }

    /// Marks this side as asleep before a foreign loop watches it. `false`: something came meanwhile.
    pub(crate) fn settle(&mut self, wanted: Wanted) -> bool {
        self.shared.as_mut().is_none_or(|end| self.ended || end.prepare_to_sleep(wanted))
    }
}

/// Looks for a moment whether something comes, which costs less than to sleep and be woken on another
/// processor.
fn look(socket: BorrowedFd<'_>, into: &mut Vec<u8>) -> io::Result<Option<usize>> {
    let mut patience = Patience::for_peer(ALONE_NS);
    loop {
        let room = into.capacity() - into.len();
        let came = socket::receive(socket, into, room)?;
        if came.is_some() || !patience.lasts() {
            return Ok(came);
        }
    }
}

fn ring(end: &mut SharedEnd, socket: BorrowedFd<'_>) {
    if end.bell_wanted() {
        // A peer that is gone is found out by reading.
        let _ = ring_bell(socket);
    }
}

fn read_of(count: Option<usize>) -> ReadOutcome {
    match count {
        None => ReadOutcome::WouldBlock,
        Some(0) => ReadOutcome::End,
        Some(count) => ReadOutcome::Bytes(count),
    }
}

fn gone(error: io::Error) -> Error {
    Error::system(Fault::Disconnected, "", error)
}

fn broken(broken: Broken) -> Error {
    Error::new(Fault::BrokenPeer, broken.to_string())
}

/// Sleeps until then, or for as long as a thread may without looking again.
pub(crate) fn sleep_until(at: Instant, until: Option<Instant>) {
    let at = until.map_or(at, |until| at.min(until));
    std::thread::sleep(at.saturating_duration_since(Instant::now()).min(Duration::from_secs(1)));
}
