//! What a connection needs while bytes or calls are in flight, and only then.
//!
//! *Ownership*: a connection's slot owns its box while it is busy, and its buffers own memory while bytes are
//! in them: a client that only waits for an answer has a box without any. The server keeps a few idle boxes
//! and buffers, last used first, so that a steady load runs on warm memory and an idle client costs its slot
//! and nothing else.

use crate::server::connection::in_flight::InFlight;
use crate::server::connection::input::{Input, READ_BYTES};
use std::collections::VecDeque;
use thalweg_reactor::Ordered;
use thalweg_transport::Unsent;

/// Buffers larger than this are freed with their burst.
const KEPT_BYTES_MAX: usize = 256 * 1024;
/// Idle boxes kept, and idle buffers.
const IDLE_MAX: usize = 64;

/// No deadline.
pub(crate) const NEVER_MS: u64 = u64::MAX;

/// How far the end of a connection has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Both sides may send.
    #[default]
    Open,
    /// The client sends nothing more, and takes what it is still owed.
    HalfClosed,
    /// Nothing more is read, and the connection ends once everything is sent.
    Closing,
    /// The client is gone, and left bytes behind that it was sent.
    Reset,
}

/// A connection's state while it is busy.
#[derive(Debug)]
pub(crate) struct Busy {
    pub(crate) input: Input,
    pub(crate) output: Unsent,
    /// Calls that began and were not answered at once.
    pub(crate) in_flight: InFlight,
    /// Plain connections: whose turn it is.
    pub(crate) order: Ordered<Vec<u8>>,
    /// The serials of the calls in that order.
    pub(crate) turns: VecDeque<u64>,
    /// Bytes of answers that wait for their turn.
    pub(crate) waiting_bytes: usize,
    /// When the timer is due, in the reactor's milliseconds.
    pub(crate) timer_ms: u64,
    pub(crate) stage: Stage,
    /// Begins no call: too much is in flight or unsent.
    pub(crate) paused: bool,
    /// Bytes of the request that it did not begin.
    pub(crate) next_bytes: usize,
    /// Is among those whose input is to be dealt with again.
    pub(crate) relieved: bool,
    /// Bytes up to which it is read from while it is paused, to hear what concerns calls in flight.
    pub(crate) ahead_bytes_max: usize,
    /// Streams were told to wait until what is unsent has left.
    pub(crate) congested: bool,
    /// Is among those to be flushed at the end of the turn.
    pub(crate) dirty: bool,
}

impl Busy {
    fn new() -> Self {
        Self {
            input: Input::default(),
            output: Unsent::default(),
            in_flight: InFlight::default(),
            order: Ordered::new(),
            turns: VecDeque::new(),
            waiting_bytes: 0,
            timer_ms: NEVER_MS,
            stage: Stage::Open,
            paused: false,
            next_bytes: 0,
            relieved: false,
            ahead_bytes_max: 0,
            congested: false,
            dirty: false,
        }
    }

    /// Calls that count against the connection's bound: one that was answered out of its turn does until that
    /// comes.
    pub(crate) fn calls(&self) -> usize {
        self.in_flight.len().max(self.order.pending()) + self.in_flight.abandoned()
    }

    /// Bytes of answers that count against the connection's bound.
    pub(crate) fn answered_bytes(&self) -> usize {
        self.output.len() + self.waiting_bytes
    }

    /// Nothing is in flight in either direction.
    pub(crate) fn is_idle(&self) -> bool {
        self.has_answered_all()
            && self.input.is_empty()
            && self.in_flight.abandoned() == 0
            && self.stage == Stage::Open
    }

    /// Nothing is owed to the client.
    pub(crate) fn has_answered_all(&self) -> bool {
        self.output.is_empty() && self.has_ended_all()
    }

    /// Every call of the client has ended, and what ended it is in the output.
    pub(crate) fn has_ended_all(&self) -> bool {
        self.in_flight.len() == 0 && self.order.pending() == 0
    }
}

/// Idle boxes and buffers.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    #[allow(clippy::vec_box, reason = "the boxes move between here and the slots")]
    idle: Vec<Box<Busy>>,
    buffers: Vec<Vec<u8>>,
}

impl Spare {
    #[inline]
    pub(crate) fn take(&mut self) -> Box<Busy> {
        self.idle.pop().unwrap_or_else(|| Box::new(Busy::new()))
    }

    /// Gives a box what it needs to read and to answer.
    #[inline]
    pub(crate) fn equip(&mut self, busy: &mut Busy) {
        busy.output.make_way();
        for buffer in [busy.input.buffer(), busy.output.buffer()] {
            if buffer.capacity() == 0 {
                *buffer = self.buffers.pop().unwrap_or_else(|| Vec::with_capacity(READ_BYTES));
            }
        }
    }

    /// Takes the buffers that a box has no use for now.
    #[inline]
    pub(crate) fn strip(&mut self, busy: &mut Busy) {
        for buffer in [busy.input.buffer(), busy.output.buffer()] {
            if !buffer.is_empty() || buffer.capacity() == 0 {
                continue;
            }
            let buffer = std::mem::take(buffer);
            let fits = (READ_BYTES / 2..=KEPT_BYTES_MAX).contains(&buffer.capacity());
            if fits && self.buffers.len() < IDLE_MAX {
                self.buffers.push(buffer);
            }
        }
    }

    #[inline]
    pub(crate) fn give(&mut self, mut busy: Box<Busy>) {
        busy.input.clear();
        busy.output.clear();
        self.strip(&mut busy);
        if self.idle.len() >= IDLE_MAX || busy.in_flight.is_large() {
            return;
        }
        busy.order = Ordered::new();
        busy.turns.clear();
        busy.in_flight.clear();
        (busy.waiting_bytes, busy.next_bytes, busy.timer_ms) = (0, 0, NEVER_MS);
        (busy.stage, busy.ahead_bytes_max) = (Stage::Open, 0);
        (busy.paused, busy.relieved, busy.congested, busy.dirty) = (false, false, false, false);
        self.idle.push(busy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_that_waits_has_no_buffers_and_one_with_bytes_keeps_them() {
        let mut spare = Spare::default();
        let mut busy = spare.take();
        spare.equip(&mut busy);
        let address = busy.input.buffer().as_ptr();
        busy.output.buffer().push(1);
        busy.input.room().extend_from_slice(b"ab");
        busy.input.consume(2);
        busy.input.dealt_with();
        spare.strip(&mut busy);
        assert_eq!((busy.input.buffer().capacity(), busy.output.buffer().len()), (0, 1));
        let mut other = spare.take();
        spare.equip(&mut other);
        assert!([other.input.buffer().as_ptr(), other.output.buffer().as_ptr()].contains(&address));
        spare.give(other);
        busy.output.sent(1);
        busy.output.buffer().reserve(KEPT_BYTES_MAX + 1);
        spare.give(busy);
        assert!(spare.buffers.iter().all(|buffer| buffer.is_empty() && buffer.capacity() <= KEPT_BYTES_MAX));
        assert_eq!((spare.buffers.len(), spare.idle.len()), (2, 2));
    }
}
