//! The time index of a segment: where to begin looking for a time, at the cost of a cache line.
//!
//! Purpose: queries by time, reading backwards, and finding a batch near an arbitrary byte. One u64 per 1 KiB
//! of segment (0.8 % of it), in private memory that costs nothing until it is touched:
//!
//! ```text
//! word 0    entries << 32 | byte up to which the segment is indexed           only grows
//! word 1    the largest time of any entry before that byte, or more           only grows
//! word 8+b  key << 8 | start        for block b, the bytes b*1024 .. (b+1)*1024
//!   key     the largest time of any entry before `start`, at most 2^56 - 1
//!   start   first batch or frame header in the block, in units of 8 bytes; 255 when none starts there, and
//!           then the key is that of the next block in which one does
//! ```
//!
//! Keys only grow, so they are found by interpolation: one guess, a look around it, else bisection.
//!
//! It has no owner: a thread that needs more of it extends it, and two may do so at once. Starts are a pure
//! function of the segment's published bytes. Keys are not: a thread that reads word 1 after another moved
//! it has larger ones. Invariants:
//!
//! - a key is at least the largest time of any entry before its start, so a search that begins at a key below
//!   its time begins early enough; one that is larger makes it begin earlier;
//! - an entry is claimed once, by a compare-exchange, and stays: keys are in the order in which threads came,
//!   and need not grow where several extended the index at once;
//! - word 0 moves up last, behind the entries that it counts, which every reader of it sees therefore.
//!
//! Checked by the property tests below, and by the models of words.

use crate::Time;
use crate::format::{self, BATCH_HEADER_BYTES, BATCH_MAGIC, Kind, SEGMENT_HEADER_BYTES, TOUCHED_BYTES};
use crate::format::{word16, word32, word64};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use thalweg_sync::words::Words;
use thalweg_sys::disk::Map;

/// Bytes of segment per entry.
pub(crate) const BLOCK_BYTES: u32 = 1024;
/// First word of the entries.
pub(crate) const ENTRIES: usize = 8;
const MARK: usize = 0;
const RUNNING: usize = 1;
pub(crate) const NONE: u64 = 255;
const KEY_MAX: u64 = (1 << 56) - 1;
/// Entries looked at around a guess.
const NEAR: u32 = 8;
/// A segment has less than two to the power of 31 bytes, so that a slope has bits to spare.
const SHIFT_MAX: u32 = 63;
/// Least bytes that are prefetched for a search.
const ABOUT_BYTES_MIN: usize = 256;

#[derive(Debug)]
pub(crate) struct TimeIndex {
    words: Words,
}

/// A batch or frame header met on a walk.
pub(crate) struct Met {
    /// Bytes to the next one.
    pub(crate) bytes: u32,
    /// The time, if it is an entry's.
    pub(crate) time: Option<Time>,
}

/// The header that stands at a byte, or `None` where the segment ends. The bytes are verified.
pub(crate) fn meet(bytes: &[u8], at: u32) -> Option<Met> {
    let head = bytes.get(at as usize..at as usize + format::FRAME_HEADER_BYTES as usize)?;
    let first = word32(head, 0);
    if first == BATCH_MAGIC {
        let touched = word16(bytes.get(at as usize + 44..at as usize + 46)?, 0);
        return Some(Met { bytes: BATCH_HEADER_BYTES + u32::from(touched) * TOUCHED_BYTES, time: None });
    }
    if word64(head, 0) == 0 {
        return None;
    }
    let bytes = u32::try_from(format::frame_bytes(first.into())).ok()?;
    let time = (head[4] == Kind::Data as u8).then(|| word64(head, 24));
    Some(Met { bytes, time })
}

/// What a search guesses from: the keys at both ends of an index, as of a value of word 0. Readers keep it,
/// so that the next search need not compute it again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    mark: u64,
    first: u32,
    last: u32,
    first_key: Time,
    last_key: Time,
    /// Bytes per microsecond, times two to the power of `shift`.
    slope: u64,
    shift: u32,
    /// The last guess missed, so searches bisect.
    uneven: bool,
}

impl Line {
    /// A line through the keys of two blocks.
    fn through(mark: u64, blocks: Range<u32>, keys: Range<Time>) -> Line {
        let bytes = u128::from(blocks.end - blocks.start) * u128::from(BLOCK_BYTES);
        let span = u128::from(keys.end.saturating_sub(keys.start).max(1));
        let (mut slope, mut shift) = ((bytes << SHIFT_MAX) / span, SHIFT_MAX);
        while slope > u128::from(u64::MAX) {
            (slope, shift) = (slope >> 1, shift - 1);
        }
        let (first, last) = (blocks.start, blocks.end);
        let (first_key, last_key) = (keys.start, keys.end);
        Line { mark, first, last, first_key, last_key, slope: slope as u64, shift, uneven: false }
    }

    /// The bytes of the segment that a search for these times is going to lead to if times grow evenly, the
    /// last time excluded: known before anything of the index was read. Empty if they do not grow evenly.
    #[inline]
    pub(crate) fn about(&self, since: Time, end: Time) -> Range<usize> {
        if self.uneven {
            return 0..0;
        }
        let start = self.guess(Bound::of(since)) as usize;
        start..(self.guess(Bound::of(end)) as usize).max(start.saturating_add(ABOUT_BYTES_MIN))
    }

    /// The byte that a time leads to.
    #[inline]
    fn guess(&self, bound: Bound) -> u64 {
        let scaled = u128::from(bound.0.saturating_sub(self.first_key)) * u128::from(self.slope);
        let ahead = scaled >> self.shift;
        (ahead as u64).saturating_add(u64::from(self.first) * u64::from(BLOCK_BYTES))
    }
}

/// A time that is searched for, in the form in which keys are compared with it.
#[derive(Clone, Copy)]
struct Bound(Time);

impl Bound {
    fn of(time: Time) -> Bound {
        Bound(time.min(KEY_MAX))
    }

    /// The same as a number: keys have 56 bits, so the sign of a difference tells.
    #[inline]
    fn ahead_by_sign(self, word: u64) -> u64 {
        (word >> 8).wrapping_sub(self.0) >> 63
    }

    /// Whether the key of a word is below it.
    #[inline]
    fn is_behind(self, word: u64) -> bool {
        word >> 8 < self.0
    }
}

impl TimeIndex {
    pub(crate) fn new(capacity: u32) -> io::Result<TimeIndex> {
        let words = ENTRIES + capacity.div_ceil(BLOCK_BYTES) as usize;
        Ok(TimeIndex { words: Words::new(Map::anonymous(words * 8)?) })
    }

    /// Where the words are mapped, and how many bytes.
    pub(crate) fn place(&self) -> (NonNull<u8>, usize) {
        self.words.place()
    }

    #[inline]
    fn mark(&self) -> (u32, u32) {
        let mark = self.words.load(MARK);
        if mark == 0 { (0, SEGMENT_HEADER_BYTES) } else { ((mark >> 32) as u32, mark as u32) }
    }

    /// Byte up to which the segment is indexed; a batch begins there.
    #[inline]
    pub(crate) fn indexed(&self) -> u32 {
        self.mark().1
    }

    #[inline]
    fn word(&self, block: u32) -> u64 {
        self.words.load(ENTRIES + block as usize)
    }

    /// Where the walk of a block begins; `None` when no header starts in it.
    pub(crate) fn start(&self, block: u32) -> Option<u32> {
        if block >= self.mark().0 {
            return None;
        }
        let start = self.word(block) & 0xff;
        (start != NONE).then(|| block * BLOCK_BYTES + start as u32 * 8)
    }

    /// Indexes the batches from `from`, where the index ends, to the end of `bytes`, which begin at the
    /// segment's first byte. `latest` is the largest time in earlier segments. Answers where it ends now.
    pub(crate) fn extend(&self, bytes: &[u8], from: u32, latest: Time) -> u32 {
        let (mut blocks, mut at) = self.mark();
        if at != from {
            return at;
        }
        let mut running = self.words.load(RUNNING).max(latest.min(KEY_MAX));
        while let Some(met) = meet(bytes, at) {
            blocks = self.note(blocks, at, running);
            running = running.max(met.time.unwrap_or(0).min(KEY_MAX));
            at = at.saturating_add(met.bytes);
        }
        let end = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.words.advance(RUNNING, running);
        self.words.advance(MARK, u64::from(blocks) << 32 | u64::from(end));
        end
    }

    /// Leaves a damaged span out.
    pub(crate) fn skip(&self, to: u32) -> u32 {
        let (blocks, _) = self.mark();
        self.words.advance(MARK, u64::from(blocks) << 32 | u64::from(to));
        to
    }

    /// Fills the entries up to the block of a header, if it is the first in its block.
    fn note(&self, blocks: u32, at: u32, running: Time) -> u32 {
        let block = at / BLOCK_BYTES;
        for empty in blocks..block {
            self.enter(empty, running, NONE);
        }
        if block >= blocks {
            self.enter(block, running, u64::from(at % BLOCK_BYTES / 8));
        }
        blocks.max(block + 1)
    }

    /// Stores the entry of a block, if there is none: what a thread that came first has stored stays.
    fn enter(&self, block: u32, running: Time, start: u64) {
        self.words.claim(ENTRIES + block as usize, running << 8 | start);
    }

    /// Byte from which to look for the first entry at or after a time: everything in front of it is older.
    /// `line` is what the caller's last search of this index left behind, or a default. Complexity: a cache
    /// line or two where times grow evenly, else a bisection.
    #[inline]
    pub(crate) fn seek(&self, time: Time, line: &mut Line) -> u32 {
        let mark = self.words.load(MARK);
        if line.mark != mark {
            *line = self.line(mark);
        }
        let bound = Bound::of(time);
        let (block, word) = if bound.0 > line.last_key {
            (line.last, self.word(line.last))
        } else if bound.0 > line.first_key {
            self.below(line, bound)
        } else {
            return SEGMENT_HEADER_BYTES;
        };
        // Of blocks in which nothing starts the key is the next one's, so the last below is one with a start.
        let start = word & 0xff;
        let at = if start == NONE { 0 } else { block * BLOCK_BYTES + start as u32 * 8 };
        at.max(SEGMENT_HEADER_BYTES)
    }

    /// Makes the line anew for a value of word 0.
    #[cold]
    fn line(&self, mark: u64) -> Line {
        let Some(last) = ((mark >> 32) as u32).checked_sub(1) else { return Line::default() };
        // The first key speaks of earlier segments, of which there may be none.
        let first = last.min(1);
        Line::through(mark, first..last, self.word(first) >> 8..self.word(last) >> 8)
    }

    /// The last block with a key below the bound, and its word; it lies behind the line's first and in front
    /// of its last.
    #[inline]
    fn below(&self, line: &mut Line, bound: Bound) -> (u32, u64) {
        let guess = (line.guess(bound) / u64::from(BLOCK_BYTES)).min(u64::from(line.last - 1)) as u32;
        let [here, next] = self.words.run(ENTRIES + guess as usize);
        if bound.is_behind(here) && !bound.is_behind(next) {
            line.uneven = false;
            return (guess, here);
        }
        let near = self.near(guess, line.last, bound);
        line.uneven = near.is_err();
        near.unwrap_or_else(|(low, high)| {
            let low = self.bisect(low, high, bound);
            (low, self.word(low))
        })
    }

    /// The last block with a key below the bound and its word, if it is near the guess; else the span to
    /// bisect: its lower end has a key below the bound, its upper end has not.
    #[cold]
    fn near(&self, guess: u32, last: u32, bound: Bound) -> Result<(u32, u64), (u32, u32)> {
        if last < NEAR {
            return Err((0, last));
        }
        let base = guess.saturating_sub(NEAR / 2).min(last + 1 - NEAR);
        let words: [u64; NEAR as usize] = self.words.run(ENTRIES + base as usize);
        // Counted without branches, because a branch on where the time lies could not be predicted.
        let below: u64 = words.iter().map(|word| bound.ahead_by_sign(*word)).sum();
        match (below as u32, words.get((below as usize).wrapping_sub(1))) {
            (0, _) => Err((0, base)),
            (NEAR, _) => Err((base + NEAR - 1, last)),
            (below, Some(word)) if bound.is_behind(*word) => Ok((base + below - 1, *word)),
            // Keys of threads that extended the index at once need not be in order.
            _ => Err((0, last)),
        }
    }

    #[cold]
    fn bisect(&self, mut low: u32, mut high: u32, bound: Bound) -> u32 {
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if bound.is_behind(self.word(middle)) { low = middle } else { high = middle }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Stamp, frame_header};
    use proptest::prelude::*;

    /// A segment's bytes: frames of one log with these times and payload lengths, and where each begins.
    fn segment(entries: &[(Time, u32)]) -> (Vec<u8>, Vec<u32>) {
        let (mut bytes, mut starts) = (vec![0; SEGMENT_HEADER_BYTES as usize], Vec::new());
        for (time, length) in entries {
            starts.push(u32::try_from(bytes.len()).unwrap());
            bytes.extend_from_slice(&frame_header(
                Kind::Data,
                0,
                Stamp { log: 1, offset: 0, time: *time },
                *length,
            ));
            bytes.resize((bytes.len() + *length as usize).next_multiple_of(8), 1);
        }
        (bytes, starts)
    }

    fn time() -> impl Strategy<Value = Time> {
        prop_oneof![8 => 0u64..5000, 1 => Just(u64::MAX), 1 => (1u64 << 56)..(1 << 57)]
    }

    proptest! {
        #[test]
        fn whatever_lies_before_the_place_found_is_older_and_the_place_is_near_the_first_that_is_not(
            entries in proptest::collection::vec((time(), 1u32..3000), 1..300),
            steps in proptest::collection::vec(any::<prop::sample::Index>(), 0..5), sought in time(), latest in 0u64..100,
        ) {
            let (bytes, starts) = segment(&entries);
            let index = TimeIndex::new(u32::try_from(bytes.len()).unwrap()).unwrap();
            let mut ends: Vec<u32> = steps.iter().map(|step| starts[step.index(starts.len())]).collect();
            ends.sort_unstable();
            ends.push(u32::try_from(bytes.len()).unwrap());
            for end in ends {
                index.extend(&bytes[..end as usize], index.indexed(), latest);
                prop_assert_eq!(index.indexed(), end);
            }
            let found = index.seek(sought, &mut Line::default());
            let first = entries.iter().position(|(time, _)| *time >= sought.min(KEY_MAX));
            let target = first.map_or(u32::MAX, |first| starts[first]);
            prop_assert!(found <= target);
            prop_assert!(found == SEGMENT_HEADER_BYTES || starts.contains(&found));
            // No block lies between, in front of the target, in which a header begins.
            let (from, to) = (found / BLOCK_BYTES, target / BLOCK_BYTES);
            let between = starts.iter().filter(|start| **start / BLOCK_BYTES > from && **start / BLOCK_BYTES < to);
            prop_assert!(first.is_none() || latest >= sought || between.count() == 0, "{found} for {target}");
        }

        #[test]
        fn rivals_who_extend_it_at_once_agree(
            entries in proptest::collection::vec((0u64..5000, 1u32..900), 50..200), sought in 0u64..5000,
        ) {
            let (bytes, _) = segment(&entries);
            let end = u32::try_from(bytes.len()).unwrap();
            let (shared, alone) = (TimeIndex::new(end).unwrap(), TimeIndex::new(end).unwrap());
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| shared.extend(&bytes, SEGMENT_HEADER_BYTES, 0));
                }
            });
            alone.extend(&bytes, SEGMENT_HEADER_BYTES, 0);
            prop_assert_eq!(shared.mark(), alone.mark());
            for block in 0..alone.mark().0 {
                prop_assert_eq!(shared.word(block), alone.word(block));
            }
            prop_assert_eq!(shared.seek(sought, &mut Line::default()), alone.seek(sought, &mut Line::default()));
        }
    }
}
