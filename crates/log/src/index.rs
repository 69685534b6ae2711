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
//! Keys only grow, so they are found by interpolation, and within a bounded number of steps by bisection.
//!
//! The index is a pure function of the segment's published bytes. Nobody owns it: whoever needs more of it
//! extends it, and two who do so at once store the same words. Word 0 is stored last and only grows, so an
//! entry that it counts has been stored; word 1 may be ahead of it by what a rival has done meanwhile, which
//! makes some keys larger than need be. A search asks only that the key it begins at is below the time,
//! so a larger one makes it begin earlier and never too late. Checked by the property tests below.

use crate::Time;
use crate::format::{self, BATCH_HEADER_BYTES, BATCH_MAGIC, Kind, SEGMENT_HEADER_BYTES, TOUCHED_BYTES};
use crate::format::{word16, word32, word64};
use std::io;
use thalweg_sync::words::Words;
use thalweg_sys::disk::Map;

/// Bytes of segment per entry.
pub(crate) const BLOCK_BYTES: u32 = 1024;
/// First word of the entries.
pub(crate) const ENTRIES: usize = 8;
const MARK: usize = 0;
const RUNNING: usize = 1;
const NONE: u64 = 255;
const KEY_MAX: u64 = (1 << 56) - 1;
/// Interpolation gives way to bisection after so many steps.
const GUESSES: u32 = 6;

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

/// What stands at a byte where a header stands, or `None` where the segment ends. The bytes are verified.
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

impl TimeIndex {
    pub(crate) fn new(capacity: u32) -> io::Result<TimeIndex> {
        let words = ENTRIES + capacity.div_ceil(BLOCK_BYTES) as usize;
        Ok(TimeIndex { words: Words::new(Map::anonymous(words * 8)?) })
    }

    fn mark(&self) -> (u32, u32) {
        let mark = self.words.load(MARK);
        if mark == 0 { (0, SEGMENT_HEADER_BYTES) } else { ((mark >> 32) as u32, mark as u32) }
    }

    /// Byte up to which the segment is indexed; a batch begins there.
    pub(crate) fn indexed(&self) -> u32 {
        self.mark().1
    }

    fn entry(&self, block: u32) -> (Time, u64) {
        let word = self.words.load(ENTRIES + block as usize);
        (word >> 8, word & 0xff)
    }

    /// Where the walk of a block begins; `None` when no header starts in it.
    pub(crate) fn start(&self, block: u32) -> Option<u32> {
        if block >= self.mark().0 {
            return None;
        }
        let (_, start) = self.entry(block);
        (start != NONE).then(|| block * BLOCK_BYTES + start as u32 * 8)
    }

    /// Blocks with an entry.
    pub(crate) fn blocks(&self) -> u32 {
        self.mark().0
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
            self.words.store(ENTRIES + empty as usize, running << 8 | NONE);
        }
        if block >= blocks {
            let start = u64::from(at % BLOCK_BYTES / 8);
            self.words.store(ENTRIES + block as usize, running << 8 | start);
        }
        blocks.max(block + 1)
    }

    /// Byte from which to look for the first entry at or after a time: before it, every entry is older.
    /// Complexity: a few words where times grow evenly, and at most a bisection.
    pub(crate) fn seek(&self, time: Time) -> u32 {
        let (blocks, _) = self.mark();
        if blocks == 0 || self.entry(0).0 >= time.min(KEY_MAX) {
            return SEGMENT_HEADER_BYTES;
        }
        let time = time.min(KEY_MAX);
        // The last block whose key is below the time: low's is, high's is not.
        let (mut low, mut high) = (0, blocks);
        let mut low_key = self.entry(0).0;
        let mut high_key = self.entry(blocks - 1).0;
        if high_key < time {
            (low, low_key) = (blocks - 1, high_key);
        } else {
            high = blocks - 1;
        }
        let mut guesses = 0;
        while high - low > 1 {
            let middle = if guesses < GUESSES && high_key > low_key {
                guesses += 1;
                let share = (time - low_key) as f64 / (high_key - low_key) as f64;
                (low + (share * f64::from(high - low)) as u32).clamp(low + 1, high - 1)
            } else {
                low + (high - low) / 2
            };
            let key = self.entry(middle).0;
            if key < time { (low, low_key) = (middle, key) } else { (high, high_key) = (middle, key) }
        }
        // Of blocks in which nothing starts the key is the next one's, so the last below is one with a start.
        self.start(low).unwrap_or(SEGMENT_HEADER_BYTES)
    }
}
