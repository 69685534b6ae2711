//! Calls of a connection that began and were not answered at once, by id; and those that ended for the
//! client, by cancelling or a deadline, while their handlers go on, by serial. Both count against the
//! connection's bounds of calls and of bytes, because a handler keeps the request that it is to answer.

use crate::server::calls::call::Call;
use crate::server::calls::framing::Framing;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::sync::Arc;
use thalweg_reactor::Sequence;

/// A table with room for more calls than this is freed with its burst.
const KEPT_CALLS_MAX: usize = 64;

/// A call in flight.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) id: u64,
    pub(crate) serial: u64,
    pub(crate) call: Arc<Call>,
    /// On plain connections.
    pub(crate) turn: Option<Turn>,
    /// Some of its items have left.
    pub(crate) is_stream: bool,
    /// In the reactor's milliseconds.
    pub(crate) deadline_ms: u64,
    /// Of its request.
    pub(crate) bytes: u32,
}

/// A call whose client was told that it ended, and whose handler goes on.
#[derive(Debug)]
struct Abandoned {
    serial: u64,
    bytes: u32,
}

/// A call's place in a plain connection's order.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) sequence: Sequence,
    /// What was answered before it came.
    pub(crate) answered: Vec<u8>,
}

impl Turn {
    /// Keeps what is answered before the call's turn; returns its bytes.
    pub(crate) fn answer(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let before = self.answered.len();
        write(&mut self.answered);
        self.answered.len() - before
    }
}

impl Begun {
    pub(crate) fn framing(&self) -> Framing {
        if self.turn.is_some() { Framing::Plain } else { Framing::Multiplexed(self.id) }
    }
}

/// A connection's calls in flight, by id.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    calls: HashTable<Begun>,
    abandoned: HashTable<Abandoned>,
    /// Bytes of the requests of all of them.
    bytes: usize,
}

/// Clients choose the ids, so a client may cause collisions. They slow down only its own connection, and not
/// by much: a table holds no more ids than one connection may have calls in flight.
#[inline]
fn hash(id: u64) -> u64 {
    let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

impl InFlight {
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// How many calls ended for the client while their handlers go on.
    pub(crate) fn abandoned(&self) -> usize {
        self.abandoned.len()
    }

    /// Bytes of the requests of all of them.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(crate) fn find(&mut self, id: u64) -> Option<&mut Begun> {
        self.calls.find_mut(hash(id), |begun| begun.id == id)
    }

    /// The call with this id, unless it is a later one that reuses the id.
    #[inline]
    pub(crate) fn find_exact(&mut self, id: u64, serial: u64) -> Option<&mut Begun> {
        self.find(id).filter(|begun| begun.serial == serial)
    }

    pub(crate) fn insert(&mut self, begun: Begun) {
        self.bytes += begun.bytes as usize;
        self.calls.insert_unique(hash(begun.id), begun, |begun| hash(begun.id));
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: u64) -> Option<Begun> {
        match self.calls.entry(hash(id), |begun| begun.id == id, |begun| hash(begun.id)) {
            Entry::Occupied(entry) => {
                let begun = entry.remove().0;
                self.bytes -= begun.bytes as usize;
                Some(begun)
            }
            Entry::Vacant(_) => None,
        }
    }

    /// The call ends for its client alone: its request still counts. Returns the bytes of that.
    pub(crate) fn abandon(&mut self, id: u64) -> u64 {
        let Some(begun) = self.find(id) else { return 0 };
        let abandoned = Abandoned { serial: begun.serial, bytes: begun.bytes };
        let bytes = abandoned.bytes;
        self.bytes += bytes as usize;
        self.abandoned.insert_unique(hash(abandoned.serial), abandoned, |call| hash(call.serial));
        bytes.into()
    }

    /// The handler of an abandoned call ended it too. Returns the bytes of its request.
    pub(crate) fn forget(&mut self, serial: u64) -> u64 {
        let Ok(entry) = self.abandoned.find_entry(hash(serial), |call| call.serial == serial) else {
            return 0;
        };
        let bytes = entry.remove().0.bytes;
        self.bytes -= bytes as usize;
        bytes.into()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Begun> {
        self.calls.iter()
    }

    /// Whether it has room for more calls than are worth keeping.
    pub(crate) fn is_large(&self) -> bool {
        self.calls.capacity().max(self.abandoned.capacity()) > KEPT_CALLS_MAX
    }

    pub(crate) fn clear(&mut self) {
        self.calls.clear();
        self.abandoned.clear();
        self.bytes = 0;
    }

    /// Takes out every call; [`InFlight::clear`] comes next.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Begun> + '_ {
        self.calls.drain()
    }
}
