//! A connection's slot in the reactor's slab, kept small: most clients are idle most of the time.

use crate::server::connection::busy::Busy;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use thalweg_reactor::Key;
use thalweg_transport::{ReadOutcome, SharedEnd, Wanted, WriteOutcome};

/// What a slot holds.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A listener; its index among the server's.
    Listener(usize),
    /// A client.
    Client(Client),
    /// Standard output, where the answers of the client on standard input go.
    Outlet(Key),
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    /// While bytes or calls are in flight.
    pub(crate) busy: Option<Box<Busy>>,
    /// Once it went over to shared memory.
    pub(crate) ring: Option<Box<Ring>>,
    pub(crate) phase: Phase,
    /// It said nothing in time, and loses its place when another client waits for one.
    pub(crate) overdue: bool,
    /// Its listener offers nothing but shared memory.
    pub(crate) shared_only: bool,
    /// Its answers leave through another slot.
    pub(crate) outlet: Option<Box<Key>>,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has not begun.
    Fresh,
    /// Frames with lengths, answers in order.
    Plain,
    /// Frames with headers, answers as they come.
    Multiplexed,
}

/// A client's rings.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) end: SharedEnd,
    /// It is looked at every turn; else it rings.
    pub(crate) polled: bool,
    /// The turn in which it last brought something.
    pub(crate) active: u64,
    /// Its requests are not wanted now.
    pub(crate) paused: bool,
    /// Answers wait for room.
    pub(crate) blocked: bool,
}

impl Ring {
    /// Whether a look would find something to do.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        (!self.paused && self.end.pending()) || (self.blocked && self.end.has_space())
    }

    /// From here on the peer rings for what is wanted; `false`: it is there already.
    pub(crate) fn prepare_to_sleep(&mut self) -> bool {
        let wanted = match (self.paused, self.blocked) {
            (false, blocked) => Wanted::beside_unsent(blocked),
            (true, true) => Wanted::Space,
            // Only this server ends the pause, and the code that ends it reads the ring.
            (true, false) => return true,
        };
        self.end.prepare_to_sleep(wanted)
    }
}

impl Client {
    pub(crate) const fn new(shared_only: bool) -> Self {
        Self { busy: None, ring: None, phase: Phase::Fresh, overdue: false, shared_only, outlet: None }
    }

    /// Bytes in, from rings or socket.
    #[inline]
    pub(crate) fn read(&mut self, socket: BorrowedFd<'_>, into: &mut Vec<u8>) -> io::Result<ReadOutcome> {
        match &mut self.ring {
            Some(ring) => {
                ring.end.read(into).map_err(|broken| io::Error::new(io::ErrorKind::InvalidData, broken))
            }
            None if self.outlet.is_some() => thalweg_transport::read_any(socket, into),
            None => thalweg_transport::read(socket, into),
        }
    }

    /// Bytes out, to rings or socket.
    #[inline]
    pub(crate) fn write(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<WriteOutcome> {
        match &mut self.ring {
            Some(ring) => ring
                .end
                .write_gathered(&[IoSlice::new(bytes)])
                .map_err(|broken| io::Error::new(io::ErrorKind::InvalidData, broken)),
            None => thalweg_transport::write(socket, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_client_is_small() {
        assert!(thalweg_reactor::slot_bytes::<Entry>() <= 96, "{}", thalweg_reactor::slot_bytes::<Entry>());
    }
}
