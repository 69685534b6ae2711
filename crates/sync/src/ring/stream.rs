//! The two halves of an end: what its side writes, and what it reads.
//!
//! Ownership: each half keeps its own word to itself and believes nobody else about it; of the peer's it
//! keeps what it last saw, so that it looks again only when that does not suffice.
//!
//! Invariants: `tail - head` is between 0 and the ring's bytes, as either half sees it; a peer's word that
//! would break that, or goes back, is [`Broken`] and changes nothing.

use super::copy::{self, WORD, load, store};
use super::{Orderings, Place};
use crate::primitives::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::io::IoSlice;
use std::ops::Range;

/// Which of the peer's words lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// How far it has written.
    Tail,
    /// How far it has read.
    Head,
}

/// The peer wrote what no peer that follows the rules writes. There is nothing to be done but to part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which word.
    pub word: Word,
    /// What it said.
    pub found: u64,
    /// The least that it could say.
    pub least: u64,
    /// The most that it could say.
    pub most: u64,
}

impl fmt::Display for Broken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Broken { word, found, least, most } = self;
        let claim = match word {
            Word::Tail => "to have written",
            Word::Head => "to have read",
        };
        write!(
            formatter,
            "the peer claims {claim} {found} bytes of a ring, where {least} to {most} are possible: close the connection"
        )
    }
}

impl std::error::Error for Broken {}

/// Checks a peer's word; it counts modulo 2^64.
#[inline]
fn checked(word: Word, found: u64, least: u64, most: u64) -> Result<u64, Broken> {
    if found.wrapping_sub(least) <= most.wrapping_sub(least) {
        return Ok(found);
    }
    Err(Broken { word, found, least, most })
}

#[inline]
fn ring_bytes<P: Place>(place: &P, ring: usize) -> u64 {
    size_of_val(place.bytes(ring)) as u64
}

/// The one or two runs of places that hold `count` bytes from `position` on.
#[inline]
fn runs(position: u64, count: usize, ring_bytes: u64) -> [Range<usize>; 2] {
    // The remainder is less than a ring's bytes, which an address counts.
    let at = (position & (ring_bytes - 1)) as usize;
    let first = count.min(ring_bytes as usize - at);
    [at..at + first, 0..count - first]
}

/// What this side writes.
#[derive(Debug)]
pub(super) struct Outgoing {
    ring: usize,
    tail: u64,
    /// The peer's word when it was last looked at.
    head: u64,
    /// The word that the tail lies in, as far as it was written.
    edge: u64,
}

impl Outgoing {
    pub(super) fn new(ring: usize) -> Outgoing {
        Outgoing { ring, tail: 0, head: 0, edge: 0 }
    }

    fn head_word<'a, P: Place>(&self, place: &'a P) -> &'a AtomicU64 {
        &place.header().rings[self.ring].head.0
    }

    /// Room for `wanted` bytes, or what there is.
    #[inline]
    fn room<P: Place, O: Orderings>(&mut self, place: &P, wanted: usize) -> Result<usize, Broken> {
        let ring_bytes = ring_bytes(place, self.ring);
        let room = |head: u64| (ring_bytes - self.tail.wrapping_sub(head)) as usize;
        if room(self.head) < wanted {
            let found = self.head_word(place).load(O::HEAD_SEEN);
            self.head = checked(Word::Head, found, self.head, self.tail)?;
        }
        Ok((ring_bytes - self.tail.wrapping_sub(self.head)) as usize)
    }

    #[inline]
    pub(super) fn write<P: Place, O: Orderings>(
        &mut self,
        place: &P,
        pieces: &[IoSlice<'_>],
    ) -> Result<usize, Broken> {
        let wanted = pieces.iter().fold(0, |sum: usize, piece| sum.saturating_add(piece.len()));
        let mut room = self.room::<P, O>(place, wanted)?;
        let before = self.tail;
        for piece in pieces {
            let taken = &piece[..piece.len().min(room)];
            room -= taken.len();
            self.put(place, taken, room);
        }
        if self.tail != before {
            place.header().rings[self.ring].tail.0.store(self.tail, O::TAIL_PUBLISHED);
        }
        Ok(self.tail.wrapping_sub(before) as usize)
    }

    /// Asks for the lines that the next write goes to.
    #[inline]
    pub(super) fn claim<P: Place>(&self, place: &P) {
        let at = (self.tail & (ring_bytes(place, self.ring) - 1)) as usize;
        copy::claim(place.bytes(self.ring), at);
        copy::claim(std::slice::from_ref(&place.header().rings[self.ring].tail.0), 0);
    }

    /// Copies bytes behind the tail, for which there is room, and for so many behind them.
    #[inline]
    fn put<P: Place>(&mut self, place: &P, bytes: &[u8], left: usize) {
        let mut rest = bytes;
        for run in runs(self.tail, bytes.len(), ring_bytes(place, self.ring)) {
            let (now, later) = rest.split_at(run.len());
            if !now.is_empty() {
                // The rest of the last word; where a run ends with the ring there is none.
                let pad = run.end.next_multiple_of(WORD) - run.end;
                let pads = pad <= left;
                place.writes(self.ring, run.start..run.end + if pads { pad } else { 0 });
                store(place.bytes(self.ring), run.start, now, &mut self.edge, pads);
            }
            rest = later;
        }
        self.tail = self.tail.wrapping_add(bytes.len() as u64);
    }

    /// Half of the ring is free, or the peer's word lies.
    #[inline]
    pub(super) fn has_space<P: Place>(&self, place: &P) -> bool {
        self.unread_bytes(place) <= ring_bytes(place, self.ring) / 2
    }

    /// Bytes that were written and the peer has not read; none where its word lies.
    #[inline]
    pub(super) fn unread_bytes<P: Place>(&self, place: &P) -> u64 {
        let unread = self.tail.wrapping_sub(self.head_word(place).load(Ordering::Relaxed));
        if unread <= ring_bytes(place, self.ring) { unread } else { 0 }
    }
}

/// What this side reads.
#[derive(Debug)]
pub(super) struct Incoming {
    ring: usize,
    head: u64,
    /// The peer's word when it was last looked at.
    tail: u64,
}

impl Incoming {
    pub(super) fn new(ring: usize) -> Incoming {
        Incoming { ring, head: 0, tail: 0 }
    }

    fn tail_word<'a, P: Place>(&self, place: &'a P) -> &'a AtomicU64 {
        &place.header().rings[self.ring].tail.0
    }

    /// Something is there that was not read.
    #[inline]
    pub(super) fn pending<P: Place>(&self, place: &P) -> bool {
        self.head != self.tail_word(place).load(Ordering::Relaxed)
    }

    /// Asks for the lines that the next bytes will be in.
    #[inline]
    pub(super) fn anticipate<P: Place>(&self, place: &P) {
        let at = (self.head & (ring_bytes(place, self.ring) - 1)) as usize;
        copy::anticipate(place.bytes(self.ring), at);
    }

    #[inline]
    pub(super) fn read<P: Place, O: Orderings>(
        &mut self,
        place: &P,
        into: &mut Vec<u8>,
    ) -> Result<usize, Broken> {
        let length = into.len();
        let spare = into.spare_capacity_mut();
        if (self.tail.wrapping_sub(self.head) as usize) < spare.len() {
            let most = self.head.wrapping_add(ring_bytes(place, self.ring));
            let found = self.tail_word(place).load(O::TAIL_SEEN);
            self.tail = checked(Word::Tail, found, self.tail, most)?;
        }
        let count = spare.len().min(self.tail.wrapping_sub(self.head) as usize);
        if count == 0 {
            return Ok(0);
        }
        let mut rest = &mut spare[..count];
        for run in runs(self.head, count, ring_bytes(place, self.ring)) {
            let (now, later) = rest.split_at_mut(run.len());
            if !now.is_empty() {
                place.reads(self.ring, run.clone());
                load(place.bytes(self.ring), run.start, now);
            }
            rest = later;
        }
        // SAFETY: the first `count` bytes of the spare room were just written.
        unsafe { into.set_len(length + count) };
        self.head = self.head.wrapping_add(count as u64);
        place.header().rings[self.ring].head.0.store(self.head, O::HEAD_PUBLISHED);
        Ok(count)
    }

    /// As far as we know the writer has half of its ring free: it may have more, if it has written less than
    /// its word says, and never less unless it has written since.
    #[inline]
    pub(super) fn has_freed_enough<P: Place>(&self, place: &P) -> bool {
        let unread = self.tail_word(place).load(Ordering::Relaxed).wrapping_sub(self.head);
        unread <= ring_bytes(place, self.ring) / 2
    }
}

#[cfg(not(loom))]
#[cfg(test)]
impl Outgoing {
    /// As if this many bytes had been written and read.
    pub(super) fn start_at(&mut self, count: u64) {
        (self.tail, self.head) = (count, count);
    }
}

#[cfg(not(loom))]
#[cfg(test)]
impl Incoming {
    /// As if this many bytes had been written and read.
    pub(super) fn start_at(&mut self, count: u64) {
        (self.tail, self.head) = (count, count);
    }
}
