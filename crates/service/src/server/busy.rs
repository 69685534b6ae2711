//! What a connection needs while bytes or calls are in flight, and only then.
//!
//! *Ownership*: a connection's slot owns its box while it is busy, and its buffers own memory while bytes are in them: a
//! client that only waits for an answer has a box without any. The server keeps a few idle boxes and buffers, last used
//! first, so that a steady load runs on warm memory and an idle client costs its slot and nothing else.

use crate::server::call::Call;
use crate::server::framing::Framing;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_reactor::{Ordered, Sequence};

/// Room for one read.
const READ_BYTES: usize = 64 * 1024;
/// Buffers larger than this are freed with their burst.
const KEPT_BYTES_MAX: usize = 256 * 1024;
/// Tables with room for more calls than this are freed with their burst.
const KEPT_CALLS_MAX: usize = 64;
/// Idle boxes kept, and idle buffers.
const IDLE_MAX: usize = 64;

/// No deadline.
pub(crate) const NEVER_MS: u64 = u64::MAX;

/// A connection's state while it is busy.
#[derive(Debug)]
pub(crate) struct Busy {
    pub(crate) input: Input,
    pub(crate) output: Output,
    /// Calls that began and were not answered at once.
    pub(crate) in_flight: InFlight,
    /// Plain connections: whose turn it is.
    pub(crate) order: Ordered<Vec<u8>>,
    /// The serials of the calls in that order.
    pub(crate) turns: VecDeque<u64>,
    /// Bytes of answers that wait for their turn.
    pub(crate) waiting_bytes: usize,
    /// Calls that ended for the client, by cancelling or a deadline, while their handlers go on.
    pub(crate) abandoned: u32,
    /// When the timer is due, in the reactor's milliseconds.
    pub(crate) timer_ms: u64,
    /// The peer sends nothing more.
    pub(crate) ended: bool,
    /// The peer is gone, and left bytes behind that it was sent.
    pub(crate) reset: bool,
    /// The connection ends once everything is sent; nothing more is read.
    pub(crate) closing: bool,
    /// Begins no call: too much is in flight or unsent.
    pub(crate) paused: bool,
    /// While it is paused it is read from until it has so much, for what is said about calls in flight.
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
            output: Output::default(),
            in_flight: InFlight::default(),
            order: Ordered::new(),
            turns: VecDeque::new(),
            waiting_bytes: 0,
            abandoned: 0,
            timer_ms: NEVER_MS,
            ended: false,
            reset: false,
            closing: false,
            paused: false,
            ahead_bytes_max: 0,
            congested: false,
            dirty: false,
        }
    }

    /// Calls that count against the connection's bound: one that was answered out of its turn does until that comes.
    pub(crate) fn calls(&self) -> usize {
        self.in_flight.len().max(self.order.pending()) + self.abandoned as usize
    }

    /// Bytes of answers that count against the connection's bound.
    pub(crate) fn answered_bytes(&self) -> usize {
        self.output.unsent().len() + self.waiting_bytes
    }

    /// Nothing is in flight in either direction.
    pub(crate) fn is_idle(&self) -> bool {
        self.has_answered_all()
            && self.input.is_empty()
            && self.abandoned == 0
            && !self.ended
            && !self.closing
    }

    /// Nothing is owed to the client.
    pub(crate) fn has_answered_all(&self) -> bool {
        self.output.is_empty() && self.in_flight.len() == 0 && self.order.pending() == 0
    }
}

/// Bytes that came and were not dealt with.
#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    /// What was dealt with.
    start: usize,
    /// What was looked through of the rest.
    ahead: usize,
    /// Bytes of the frame that it begins with, by the client's word.
    announced: usize,
    /// Bytes still to come that nobody wants: the rest of a frame that is too long.
    skip: usize,
    /// How much of the rest was there when the connection began to wait, and when that was, in the reactor's milliseconds.
    waited: usize,
    waits_since_ms: u64,
}

impl Input {
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.bytes.len() && self.skip == 0
    }

    /// What was not dealt with.
    #[inline]
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        self.ahead = self.ahead.saturating_sub(count);
        self.waited = self.waited.saturating_sub(count);
    }

    /// What is there waits from now on, unless something of it does already.
    pub(crate) fn wait(&mut self, now_ms: u64) {
        if self.waited == 0 {
            (self.waited, self.waits_since_ms) = (self.unread().len(), now_ms);
        }
    }

    /// Since when the next so many bytes have been there, as far as is known.
    pub(crate) fn since_ms(&self, count: usize, now_ms: u64) -> u64 {
        if count <= self.waited { self.waits_since_ms } else { now_ms }
    }

    /// What was not looked through.
    pub(crate) fn ahead(&self) -> &[u8] {
        &self.bytes[self.start + self.ahead..]
    }

    /// So much of it was looked through.
    pub(crate) fn pass_ahead(&mut self, count: usize) {
        self.ahead += count;
    }

    /// Replaces what comes next of it.
    pub(crate) fn rewrite_ahead(&mut self, bytes: &[u8]) {
        let start = self.start + self.ahead;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Passes over bytes, come or still to come.
    pub(crate) fn skip(&mut self, count: usize) {
        self.ahead = self.ahead.saturating_sub(count);
        self.skip += count;
        self.pass_over();
    }

    /// Forgets what was dealt with, if that is all there is.
    #[inline]
    pub(crate) fn dealt_with(&mut self) {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    fn pass_over(&mut self) {
        let now = self.skip.min(self.bytes.len() - self.start);
        self.start += now;
        self.skip -= now;
        self.waited = self.waited.saturating_sub(now);
    }

    /// What is there begins a frame of so many bytes.
    pub(crate) fn announce(&mut self, first_bytes: usize) {
        self.announced = first_bytes;
    }

    /// Room to read into. What was dealt with goes; a frame that is longer than there is room for gets room as its
    /// bytes come: up to five times as much as came, and never on its word alone.
    pub(crate) fn room(&mut self) -> &mut Vec<u8> {
        if self.start == self.bytes.len() {
            // (What is skipped is still to come.)
            self.bytes.clear();
        } else if self.start > 0 {
            self.bytes.drain(..self.start);
        }
        self.start = 0;
        let spare = self.bytes.capacity() - self.bytes.len();
        if spare < READ_BYTES / 2 {
            let came = self.bytes.len();
            let missing = self.announced.saturating_sub(came).min(4 * came);
            self.bytes.reserve(READ_BYTES.max(missing));
        }
        &mut self.bytes
    }

    /// After bytes were appended.
    pub(crate) fn grown(&mut self) {
        if self.skip > 0 {
            self.pass_over();
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        (self.start, self.ahead, self.announced, self.skip) = (0, 0, 0, 0);
        self.waited = 0;
    }
}

/// Bytes to be sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    sent: usize,
}

impl Output {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(crate) fn sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent >= self.bytes.len() {
            self.clear();
        } else if self.sent > self.bytes.len() / 2 {
            // Each byte is moved at most once per halving.
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
    }

    /// How long `bytes` are when so many of them are unsent.
    pub(crate) fn length_at(&self, unsent_bytes: usize) -> usize {
        self.sent.saturating_add(unsent_bytes)
    }
}

/// A call in flight.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) id: u64,
    pub(crate) serial: u64,
    pub(crate) call: Arc<Call>,
    /// On plain connections.
    pub(crate) turn: Option<Turn>,
    /// In the reactor's milliseconds.
    pub(crate) deadline_ms: u64,
}

/// A call's place in a plain connection's order.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) sequence: Sequence,
    /// What was answered before it came.
    pub(crate) answered: Vec<u8>,
}

impl Turn {
    /// Something is answered before the turn has come: how many bytes.
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
}

/// Ids are chosen by the client, and a table holds as many as one connection may have in flight, so that a client
/// can slow down nobody but itself, and that not by much.
#[inline]
fn hash(id: u64) -> u64 {
    let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

impl InFlight {
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    #[inline]
    pub(crate) fn find(&mut self, id: u64) -> Option<&mut Begun> {
        self.calls.find_mut(hash(id), |begun| begun.id == id)
    }

    /// The call, if it is still the one that was named so then.
    #[inline]
    pub(crate) fn find_very(&mut self, id: u64, serial: u64) -> Option<&mut Begun> {
        self.find(id).filter(|begun| begun.serial == serial)
    }

    pub(crate) fn insert(&mut self, begun: Begun) {
        self.calls.insert_unique(hash(begun.id), begun, |begun| hash(begun.id));
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: u64) -> Option<Begun> {
        match self.calls.entry(hash(id), |begun| begun.id == id, |begun| hash(begun.id)) {
            Entry::Occupied(entry) => Some(entry.remove().0),
            Entry::Vacant(_) => None,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Begun> {
        self.calls.iter()
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Begun> + '_ {
        self.calls.drain()
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
        for buffer in [&mut busy.input.bytes, &mut busy.output.bytes] {
            if buffer.capacity() == 0 {
                *buffer = self.buffers.pop().unwrap_or_else(|| Vec::with_capacity(READ_BYTES));
            }
        }
    }

    /// Takes the buffers that a box has no use for now.
    #[inline]
    pub(crate) fn strip(&mut self, busy: &mut Busy) {
        for buffer in [&mut busy.input.bytes, &mut busy.output.bytes] {
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
        if self.idle.len() >= IDLE_MAX || busy.in_flight.calls.capacity() > KEPT_CALLS_MAX {
            return;
        }
        busy.order = Ordered::new();
        busy.turns.clear();
        busy.in_flight.calls.clear();
        (busy.waiting_bytes, busy.abandoned, busy.timer_ms) = (0, 0, NEVER_MS);
        (busy.ended, busy.reset, busy.closing, busy.paused) = (false, false, false, false);
        (busy.ahead_bytes_max, busy.congested, busy.dirty) = (0, false, false);
        self.idle.push(busy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(input: &mut Input, bytes: &[u8]) {
        input.room().extend_from_slice(bytes);
        input.grown();
    }

    #[test]
    fn what_is_skipped_never_shows_however_it_comes() {
        let mut input = Input::default();
        arrive(&mut input, b"ab12");
        input.consume(2);
        input.skip(5);
        assert!(input.unread().is_empty() && !input.is_empty());
        arrive(&mut input, b"34");
        assert!(input.unread().is_empty());
        arrive(&mut input, b"5cd");
        assert_eq!(input.unread(), b"cd");
        input.consume(2);
        assert!(input.is_empty());
    }

    #[test]
    fn what_was_there_when_a_wait_began_has_waited_since_and_what_came_later_has_not() {
        let mut input = Input::default();
        arrive(&mut input, b"abcd");
        assert_eq!(input.since_ms(4, 7), 7, "nothing waits");
        input.wait(10);
        arrive(&mut input, b"ef");
        input.wait(20);
        assert_eq!([input.since_ms(4, 30), input.since_ms(5, 30)], [10, 30]);
        input.consume(3);
        assert_eq!([input.since_ms(1, 30), input.since_ms(2, 30)], [10, 30]);
        input.consume(1);
        input.wait(40);
        assert_eq!(input.since_ms(2, 50), 40, "another wait");
        input.skip(3);
        arrive(&mut input, b"ghi");
        assert_eq!(input.since_ms(2, 60), 60, "what waited was passed over");
    }

    #[test]
    fn room_grows_with_what_came_and_not_with_what_was_said() {
        let mut input = Input::default();
        input.room();
        input.announce(1 << 30);
        assert!(input.room().capacity() <= 2 * READ_BYTES, "nothing came yet");
        let (mut total, mut growths) = (0, 0);
        while total < 16 << 20 {
            let before = input.bytes.capacity();
            let room = input.room();
            growths += usize::from(room.capacity() > before);
            assert!(room.capacity() <= (6 * total).max(2 * READ_BYTES));
            let spare = room.capacity() - room.len();
            room.resize(room.len() + spare, 0);
            total += spare;
        }
        assert!(growths < 8, "{growths} times for sixteen mebibytes");
    }

    #[test]
    fn a_box_that_waits_has_no_buffers_and_one_with_bytes_keeps_them() {
        let mut spare = Spare::default();
        let mut busy = spare.take();
        spare.equip(&mut busy);
        let address = busy.input.bytes.as_ptr();
        busy.output.bytes.push(1);
        arrive(&mut busy.input, b"ab");
        busy.input.consume(2);
        busy.input.dealt_with();
        spare.strip(&mut busy);
        assert_eq!((busy.input.bytes.capacity(), busy.output.bytes.len()), (0, 1));
        let mut other = spare.take();
        spare.equip(&mut other);
        assert!([other.input.bytes.as_ptr(), other.output.bytes.as_ptr()].contains(&address));
        spare.give(other);
        busy.output.sent(1);
        busy.output.bytes.reserve(KEPT_BYTES_MAX + 1);
        spare.give(busy);
        assert!(spare.buffers.iter().all(|buffer| buffer.is_empty() && buffer.capacity() <= KEPT_BYTES_MAX));
        assert_eq!((spare.buffers.len(), spare.idle.len()), (2, 2));
    }

    #[test]
    fn output_leaves_in_pieces_and_whole() {
        let mut output = Output { bytes: b"abcdefgh".to_vec(), sent: 0 };
        output.sent(3);
        assert_eq!(output.unsent(), b"defgh");
        output.sent(3);
        assert_eq!(output.unsent(), b"gh");
        output.bytes.extend_from_slice(b"ij");
        assert_eq!(output.unsent(), b"ghij");
        output.sent(4);
        assert!(output.is_empty() && output.unsent().is_empty());
    }
}
