//! Answers of other threads, on their way to the reactor.
//!
//! Any thread pushes under one short lock; the reactor swaps the whole batch out. Payloads lie one behind the
//! other in one buffer, so that an answer allocates nothing in the steady state; a large one is copied
//! outside the lock and moved. The taker is woken once per batch, by the thread that pushes first.
//!
//! *Invariants*: pieces of one call are taken in the order in which they were pushed; every call that left
//! the reactor's hands pushes exactly one end. *Bound*: an end per call in flight, and items as far as credit
//! goes.

use parking_lot::Mutex;
use std::convert::Infallible;
use std::fmt;
use thalweg_reactor::{Handle, Key};
use thalweg_wire::frame::FrameKind;

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
    /// The server's own number of the call, never reused; an id may be.
    pub(crate) serial: u64,
}

/// One frame of an answer.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) place: Place,
    /// An item or an end.
    pub(crate) kind: FrameKind,
    /// The fault code of an end, or 0.
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
}

/// What waits to be taken. The taker is told of answers and of a notification separately, once before it
/// takes them.
#[derive(Debug, Default)]
struct Waiting {
    batch: Batch,
    /// The handler is to be told, by a [`Notifier`](crate::Notifier).
    notified: bool,
    /// The taker is gone: what is pushed from here on is dropped.
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
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }
}

/// What takes the answers, and how a thread that answers wakes it.
pub(crate) enum Taker {
    /// A server's own reactor.
    Server(Handle<Infallible>),
    /// Whatever has a [`Local`](crate::Local).
    Local(Box<dyn Fn() + Send + Sync>),
}

impl Taker {
    fn tell(&self) {
        match self {
            Self::Server(reactor) => reactor.nudge(),
            Self::Local(wake) => wake(),
        }
    }
}

impl fmt::Debug for Taker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Taker")
    }
}

/// The queue, shared by the taker and every thread that answers.
#[derive(Debug)]
pub(crate) struct Answers {
    waiting: Mutex<Waiting>,
    taker: Taker,
    error_tag: String,
}

impl Answers {
    pub(crate) fn new(taker: Taker, error_tag: &str) -> Self {
        Self { waiting: Mutex::default(), taker, error_tag: error_tag.to_owned() }
    }

    /// The tag of the service's error.
    pub(crate) fn error_tag(&self) -> &str {
        &self.error_tag
    }

    pub(crate) fn push(&self, place: Place, kind: FrameKind, fault: u16, frame: &[u8]) {
        let own = (frame.len() > SHARED_BYTES_MAX).then(|| frame.to_vec());
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            return;
        }
        let batch = &mut waiting.batch;
        let payload = match own {
            Some(bytes) => Payload::Own(bytes),
            None => {
                let start = batch.bytes.len();
                batch.bytes.extend_from_slice(frame);
                Payload::Shared { start, length: frame.len() }
            }
        };
        let first = batch.pieces.is_empty();
        batch.pieces.push(Piece { place, kind, fault, payload });
        drop(waiting);
        if first {
            self.taker.tell();
        }
    }

    /// Has [`Handler::notified`](crate::Handler::notified) called once, however often this is called before.
    pub(crate) fn notify(&self) {
        let mut waiting = self.waiting.lock();
        let first = !waiting.closed && !std::mem::replace(&mut waiting.notified, true);
        drop(waiting);
        if first {
            self.taker.tell();
        }
    }

    /// Whether [`Answers::notify`] was called since the last time.
    pub(crate) fn take_notified(&self) -> bool {
        std::mem::take(&mut self.waiting.lock().notified)
    }

    /// Takes everything, leaving the (empty) batch that is given.
    pub(crate) fn take(&self, into: &mut Batch) {
        debug_assert!(into.pieces.is_empty(), "the last batch was dealt with");
        std::mem::swap(&mut self.waiting.lock().batch, into);
    }

    /// The taker is going: what waits, and whatever comes later, is dropped.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.batch.clear();
        waiting.closed = true;
    }
}
