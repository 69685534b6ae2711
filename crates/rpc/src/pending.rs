//! A body from its first call to its last answer.
//!
//! *Invariant*: answers leave in the order of their calls, whatever order they come in. A body is over when
//! each of its calls that has an id was answered, by its handler or by the deadline. A body whose calls are
//! all answered at once allocates nothing but its output.

use std::time::Instant;
use thalweg_reactor::{Ordered, Sequence};
use thalweg_service::CallId;

/// One body, and the answers to its calls so far.
#[derive(Debug)]
pub(crate) struct PendingBody {
    is_batch: bool,
    order: Ordered<Vec<u8>>,
    /// Answers whose turn has come, each with a comma behind it.
    output: Vec<u8>,
    /// Bytes of answers whose turn has not come.
    kept_bytes: usize,
    /// Bytes that these answers take in memory.
    kept_room: usize,
    /// Calls whose answers are awaited: the index of the service, and the call's name there.
    pub(crate) awaited: Vec<(usize, CallId)>,
}

/// Room for the answers of most bodies.
const OUTPUT_BYTES: usize = 240;

impl PendingBody {
    /// A body of so many calls. `output` is memory for their answers.
    pub(crate) fn new(is_batch: bool, calls: usize, mut output: Vec<u8>) -> Self {
        output.reserve(OUTPUT_BYTES.saturating_mul(calls.min(64)));
        if is_batch {
            output.push(b'[');
        }
        Self { is_batch, order: Ordered::new(), output, kept_bytes: 0, kept_room: 0, awaited: Vec::new() }
    }

    /// An answer that is there at once: written in place, unless others are before it.
    #[inline]
    pub(crate) fn answer(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.order.pending() == 0 {
            write(&mut self.output);
            return self.output.push(b',');
        }
        let mut answer = Vec::new();
        write(&mut answer);
        answer.push(b',');
        answer.shrink_to_fit();
        let sequence = self.order.expect();
        self.keep(sequence, answer);
    }

    fn keep(&mut self, sequence: Sequence, answer: Vec<u8>) {
        self.kept_bytes += answer.len();
        self.kept_room += room(&answer);
        self.order.complete(sequence, answer);
    }

    /// The place of an answer that is awaited.
    pub(crate) fn expect(&mut self) -> Sequence {
        self.order.expect()
    }

    /// An answer that was awaited.
    pub(crate) fn complete(
        &mut self,
        sequence: Sequence,
        call: (usize, CallId),
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.awaited.retain(|awaited| *awaited != call);
        let mut answer = Vec::new();
        write(&mut answer);
        answer.push(b',');
        if !self.awaited.is_empty() {
            answer.shrink_to_fit();
        }
        self.keep(sequence, answer);
        while let Some(answer) = self.order.pop() {
            self.kept_bytes -= answer.len();
            self.kept_room -= room(&answer);
            self.output.extend_from_slice(&answer);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.order.pending() == 0
    }

    /// Bytes of answers so far, those included whose turn has not come.
    pub(crate) fn bytes(&self) -> usize {
        self.output.len() + self.kept_bytes
    }

    /// Bytes of memory that it takes, without the calls that are awaited.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.output.capacity() + self.kept_room
    }

    /// All of the answers; `None` if nothing was asked that has one.
    pub(crate) fn finish(mut self) -> Option<Vec<u8>> {
        match self.output.pop() {
            Some(b',') if self.is_batch => self.output.push(b']'),
            Some(b',') => {}
            // The bracket of a batch without answers, or not even that.
            _ => return None,
        }
        Some(self.output)
    }
}

/// Bytes of memory that an answer takes until its turn comes.
fn room(answer: &Vec<u8>) -> usize {
    size_of_val(answer) + answer.capacity()
}

/// A call whose answer is awaited.
#[derive(Debug)]
pub(crate) struct PendingCall {
    /// The name of its body, and its place in the order of answers; a notification has none.
    pub(crate) seat: Option<(u64, Sequence)>,
    /// As it is to be echoed.
    pub(crate) id: Box<str>,
    pub(crate) method: usize,
    pub(crate) items: Items,
    /// Its deadline; `None` for one too far in the future for the clock.
    pub(crate) until: Option<Instant>,
}

impl PendingCall {
    /// What it takes.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of_val(self) + self.id.len() + self.items.bytes.capacity()
    }
}

/// The items of a stream, as far as they came.
#[derive(Debug, Default)]
pub(crate) struct Items {
    /// Each followed by a comma.
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: usize,
    /// There were more than are collected, or one that fits no schema.
    pub(crate) broken: Option<StreamFailure>,
}

impl Items {
    /// There is no answer in them, and there are no more of them.
    pub(crate) fn break_off(&mut self, why: StreamFailure) {
        *self = Self { bytes: Vec::new(), count: self.count, broken: Some(why) };
    }
}

/// Why what came of a stream is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamFailure {
    /// More than are collected.
    TooMany,
    /// More than there is room for beside what else waits.
    NoRoom,
    /// An item that does not fit the schema.
    Unfit(String),
}
