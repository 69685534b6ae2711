//! Answers of other threads, on their way to the reactor.
//!
//! Any thread pushes under one short lock; the reactor swaps the whole batch out. Payloads lie one behind the other
//! in one buffer, so that an answer allocates nothing in the steady state; a large one is copied outside the lock and
//! moved. Whoever takes them is told once per batch, by whoever pushes first.
//!
//! *Invariants*: pieces of one call are taken in the order in which they were pushed; every call that left the
//! reactor's hands pushes exactly one end. *Bound*: an end per call in flight, and items as far as credit goes.

use crate::server::collector::Message;
use parking_lot::Mutex;
use std::fmt;
use thalweg_reactor::{Handle, Key};
use thalweg_wire::frame::Kind;

/// Larger payloads are copied outside the lock.
const SHARED_BYTES_MAX: usize = 16 * 1024;
/// A buffer that a burst made larger than this is freed.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Which call: where its answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The connection.
    pub(crate) key: Key,
    /// The client's name for the call; on plain connections the serial.
    pub(crate) id: u64,
    /// Our own name for the call, never used again: an id may be.
    pub(crate) serial: u64,
}

/// One frame of an answer.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) place: Place,
    /// An item or an end.
    pub(crate) kind: Kind,
    /// Of an end.
    pub(crate) fault: u16,
    payload: Payload,
}

#[derive(Debug)]
enum Payload {
    Shared { start: usize, length: usize },
    Own(Vec<u8>),
}

/// What was answered since the reactor last looked.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) pieces: Vec<Piece>,
    bytes: Vec<u8>,
    /// Somebody rang for the handler, where that goes this way.
    pub(crate) rung: bool,
    /// The reactor is gone: nobody takes anything any more.
    closed: bool,
}

impl Batch {
    pub(crate) fn payload<'a>(&'a self, piece: &'a Piece) -> &'a [u8] {
        match &piece.payload {
            Payload::Shared { start, length } => self.bytes.get(*start..start + length).unwrap_or_default(),
            Payload::Own(bytes) => bytes,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.rung = false;
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }
}

/// Whoever takes the answers, as those who answer reach it.
pub(crate) enum Taker {
    /// A server's own reactor.
    Server(Handle<Message>),
    /// Whatever has a [`Local`](crate::Local).
    Local(Box<dyn Fn() + Send + Sync>),
}

impl Taker {
    fn tell(&self) {
        match self {
            // The mailbox carries nothing but this one message, which is posted again only after a take.
            Self::Server(reactor) => drop(reactor.post(Message::Answers)),
            Self::Local(wake) => wake(),
        }
    }
}

impl fmt::Debug for Taker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Taker")
    }
}

/// The queue, shared by the reactor and everybody who answers.
#[derive(Debug)]
pub(crate) struct Answers {
    batch: Mutex<Batch>,
    taker: Taker,
    error_tag: String,
}

impl Answers {
    pub(crate) fn new(taker: Taker, error_tag: &str) -> Self {
        Self { batch: Mutex::default(), taker, error_tag: error_tag.to_owned() }
    }

    /// The tag of the service's error.
    pub(crate) fn error_tag(&self) -> &str {
        &self.error_tag
    }

    pub(crate) fn push(&self, place: Place, kind: Kind, fault: u16, frame: &[u8]) {
        let own = (frame.len() > SHARED_BYTES_MAX).then(|| frame.to_vec());
        let mut batch = self.batch.lock();
        if batch.closed {
            return;
        }
        let payload = match own {
            Some(bytes) => Payload::Own(bytes),
            None => {
                let start = batch.bytes.len();
                batch.bytes.extend_from_slice(frame);
                Payload::Shared { start, length: frame.len() }
            }
        };
        let first = batch.pieces.is_empty() && !batch.rung;
        batch.pieces.push(Piece { place, kind, fault, payload });
        drop(batch);
        if first {
            self.taker.tell();
        }
    }

    /// Has the handler told, once however often it is asked for before the next take.
    pub(crate) fn ring(&self) {
        let mut batch = self.batch.lock();
        if batch.closed || std::mem::replace(&mut batch.rung, true) {
            return;
        }
        let first = batch.pieces.is_empty();
        drop(batch);
        if first {
            self.taker.tell();
        }
    }

    /// Takes everything, leaving the (empty) batch that is given.
    pub(crate) fn take(&self, into: &mut Batch) {
        debug_assert!(into.pieces.is_empty(), "the last batch was dealt with");
        std::mem::swap(&mut *self.batch.lock(), into);
    }

    /// Nobody takes answers any more.
    pub(crate) fn close(&self) {
        let mut batch = self.batch.lock();
        batch.clear();
        batch.closed = true;
    }
}
