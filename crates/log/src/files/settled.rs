//! A segment's payload once more, each log's bytes together.
//!
//! ```text
//! payload    a log's bytes in the order of their offsets, one log behind the other
//! ranges     log 8 | offset 8 | byte 4 | length 4 | bounds 4 | 0 4           in the order of logs and offsets
//! bounds     4 each: where a record begins, counted from its range's first byte
//! checksums  4 each: of every 64 KiB of payload
//! end        magic 8 | version 4 | segment 4 | store id 8 | link of the segment's last batch 8 | payload bytes 4 | ranges 4 |
//!            bounds 4 | checksum of ranges, bounds and checksums 4 | 0 12 | checksum of the end 4
//! ```
//!
//! Purpose: reads of history that the kernel can send by itself. Records of one log in a busy store lie far
//! from each other in their segment, so each is copied, and each brings its neighbours' pages in from a cold
//! disk; here they are one range of a file. A *bound* is noted where a record begins that is 4 KiB or more
//! behind the last bound, so that a read of any length can end where a record does. A range begins at a
//! bound.
//!
//! Ownership: a file beside its segment's, made and removed by housekeeping
//! ([`settle`](crate::keeping::settle)). The segment is the truth and has everything; this file only repeats
//! it. So it may be missing, or be removed at any moment, and damage in it costs nothing: reads go back to
//! the segment, and the file is made anew.
//!
//! Invariants: the file is final once it has its name. Its tables are verified before the first look-up, and
//! each 64 KiB of payload before it is first served, once per process. *Checked by* the tests below, those of
//! settling, the flips test, the fuzz targets and the crash simulation.

#[cfg(any(test, fuzzing))]
pub(crate) mod forged;
#[cfg(test)]
mod tests;
mod writing;

pub(crate) use writing::Writing;

use crate::format::{FORMAT_VERSION, Link, SegmentHeader, word32, word64};
use crate::mapping;
use crate::{LogId, Offset};
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use thalweg_sync::marks::Marks;
use thalweg_sync::region::Region;
use thalweg_sys::disk::{Disk, File};

const MAGIC: [u8; 8] = *b"THALWEGs";
const PREFIX: &str = "settled-";
const RANGE_BYTES: u32 = 32;
const END_BYTES: u32 = 64;
/// Bytes of payload that one checksum covers.
const BLOCK_BYTES: u32 = 64 << 10;
/// Least bytes between two bounds.
const BOUND_BYTES: u32 = if cfg!(any(test, fuzzing)) { 64 } else { 4 << 10 };

pub(crate) fn file_name(number: u32) -> String {
    format!("{PREFIX}{number:010}")
}

pub(crate) fn number_of(name: &str) -> Option<u32> {
    let number = name.strip_prefix(PREFIX)?.parse().ok()?;
    (file_name(number) == name).then_some(number)
}

/// The last 64 bytes of the file, which describe the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct End {
    segment: u32,
    store_id: u64,
    /// Link of the segment's last batch, and so of all that is in it.
    link: Link,
    payload: u32,
    ranges: u32,
    bounds: u32,
    checksum: u32,
}

impl End {
    fn encode(&self) -> [u8; END_BYTES as usize] {
        let mut bytes = [0; END_BYTES as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.segment.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.store_id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.link.encode());
        let words = [self.payload, self.ranges, self.bounds, self.checksum];
        for (place, word) in bytes[32..48].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<End> {
        let whole = bytes.len() == END_BYTES as usize && bytes[..8] == MAGIC;
        if !whole || word32(bytes, 8) != FORMAT_VERSION || crc32c::crc32c(&bytes[..60]) != word32(bytes, 60) {
            return None;
        }
        Some(End {
            segment: word32(bytes, 12),
            store_id: word64(bytes, 16),
            link: Link { length: word32(bytes, 24), checksum: word32(bytes, 28) },
            payload: word32(bytes, 32),
            ranges: word32(bytes, 36),
            bounds: word32(bytes, 40),
            checksum: word32(bytes, 44),
        })
    }

    /// Whether it is of the segment that `next` follows on from.
    fn is_of(&self, next: &SegmentHeader) -> bool {
        let named = (self.segment.wrapping_add(1), self.store_id, self.link);
        named == (next.number, next.store_id, next.previous) && !next.after_damage
    }

    fn blocks(&self) -> u32 {
        self.payload.div_ceil(BLOCK_BYTES)
    }

    /// Bytes of ranges, bounds and checksums; `None` where no file can be as large.
    fn told_bytes(&self) -> Option<u32> {
        let bounds = self.bounds.checked_add(self.blocks())?.checked_mul(4)?;
        self.ranges.checked_mul(RANGE_BYTES)?.checked_add(bounds)
    }

    fn file_bytes(&self) -> Option<u32> {
        self.payload.checked_add(self.told_bytes()?)?.checked_add(END_BYTES)
    }
}

/// Offsets of one log that lie together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SettledRange {
    log: LogId,
    offset: Offset,
    byte: u32,
    length: u32,
    /// Index of its first bound among all.
    bounds: u32,
}

impl SettledRange {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.log.to_le_bytes());
        into.extend_from_slice(&self.offset.to_le_bytes());
        for word in [self.byte, self.length, self.bounds, 0] {
            into.extend_from_slice(&word.to_le_bytes());
        }
    }

    fn decode(bytes: &[u8]) -> SettledRange {
        SettledRange {
            log: word64(bytes, 0),
            offset: word64(bytes, 8),
            byte: word32(bytes, 16),
            length: word32(bytes, 20),
            bounds: word32(bytes, 24),
        }
    }

    fn end(&self) -> Offset {
        self.offset.saturating_add(self.length.into())
    }
}

/// How a log goes on from an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// In these bytes of the file. `all`: they reach up to the cut or to the end of what lies together; else
    /// up to a bound, and the read has to end there.
    Together { bytes: Range<u32>, all: bool },
    /// Record by record from the segment, up to this offset, where a bound or another range follows.
    Apart(Offset),
}

/// The payload of a segment, each log's bytes together.
#[derive(Debug)]
pub(crate) struct Settled {
    end: End,
    file: File,
    region: Arc<Region>,
    /// Whether the tables are as they were written, once that was checked.
    tells: OnceLock<bool>,
    /// Blocks that were verified.
    looked: Marks,
    /// Held while one is: what a reader was lent is not brought in once more.
    looking: Mutex<()>,
    /// Set once a block, or a look-up, was found wrong.
    harmed: OnceLock<()>,
}

impl Settled {
    /// Opens the file that should be of the segment in front of `next`; `None` if it is not.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn open(disk: &Disk, path: &Path, next: &SegmentHeader) -> io::Result<Option<Settled>> {
        let file = disk.open_read_only(path)?;
        let Ok(length) = u32::try_from(file.length()?) else { return Ok(None) };
        let Some(at) = length.checked_sub(END_BYTES) else { return Ok(None) };
        let mut bytes = [0; END_BYTES as usize];
        file.read_at(&mut bytes, at.into())?;
        match End::decode(&bytes).filter(|end| end.is_of(next) && end.file_bytes() == Some(length)) {
            Some(end) => Settled::map(file, end).map(Some),
            None => Ok(None),
        }
    }

    fn map(file: File, end: End) -> io::Result<Settled> {
        let length = end.file_bytes().ok_or(io::ErrorKind::InvalidData)?;
        let region = Arc::new(mapping::of_whole_file(&file, length)?);
        let (tells, looked, looking) = (OnceLock::new(), Marks::new(end.blocks()), Mutex::default());
        Ok(Settled { end, file, region, tells, looked, looking, harmed: OnceLock::new() })
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    pub(crate) fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.file.descriptor()
    }

    /// Bytes of the file.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.region.capacity().into()
    }

    /// Whether nothing is known to be wrong with it.
    pub(crate) fn is_sound(&self) -> bool {
        self.harmed.get().is_none() && self.tells.get() != Some(&false)
    }

    /// The tables: ranges, bounds and checksums.
    fn told(&self) -> &[u8] {
        self.region.bytes(self.end.payload..self.region.capacity() - END_BYTES)
    }

    fn tells(&self) -> bool {
        *self.tells.get_or_init(|| {
            mapping::bring_in_unread(&self.region, self.end.payload..self.region.capacity());
            let told = self.told();
            crc32c::crc32c(told) == self.end.checksum && makes_sense(&self.end, told)
        })
    }

    /// Whether a look-up would neither verify anything nor wait for the disk.
    pub(crate) fn tells_at_once(&self) -> bool {
        self.tells.get().is_some() && self.is_in_memory(self.end.payload..self.region.capacity())
    }

    /// Whether reading a range would neither verify anything nor wait for the disk.
    pub(crate) fn is_warm(&self, range: Range<u32>) -> bool {
        self.looked.has_all(blocks(&range)) && self.is_in_memory(range)
    }

    fn is_in_memory(&self, range: Range<u32>) -> bool {
        self.region.residency(range.end).has(range.start as usize..range.end as usize)
    }

    /// Brings in and verifies the tables and a range, waiting for the disk.
    pub(crate) fn warm(&self, range: Range<u32>) {
        if self.tells() {
            self.region.touch(self.end.payload..self.region.capacity());
            self.verify(range.clone());
            self.region.touch(range);
        }
    }

    /// Verifies a range, looking at each block once. `false`: it is damaged, and nothing is read from this
    /// file any more.
    pub(crate) fn verify(&self, range: Range<u32>) -> bool {
        let mut unseen = blocks(&range).filter(|block| !self.looked.has(*block));
        let stands = unseen.all(|block| {
            let _one_at_a_time = self.looking.lock();
            let stands = self.looked.has(block) || self.tells() && self.stands(block);
            if stands {
                self.looked.set(block);
            }
            stands
        });
        if !stands {
            let _ = self.harmed.set(());
        }
        stands
    }

    /// Counts the tables and every block as verified: they were just written.
    fn trusted(self) -> Settled {
        let _ = self.tells.set(true);
        (0..self.end.blocks()).for_each(|block| self.looked.set(block));
        self
    }

    fn stands(&self, block: u32) -> bool {
        let from = block * BLOCK_BYTES;
        let range = from..self.end.payload.min(from + BLOCK_BYTES);
        // The page that the tables begin in was brought in with them.
        let page = u32::try_from(thalweg_sys::machine::page_bytes()).unwrap_or(u32::MAX);
        mapping::bring_in_unread(&self.region, from..range.end.min(self.end.payload / page * page));
        let bytes = self.region.bytes(range);
        let told = self.told();
        let at = told.len() - (self.end.blocks() - block) as usize * 4;
        crc32c::crc32c(bytes) == word32(told, at)
    }

    /// Whether all of it is as it was written.
    pub(crate) fn is_whole(&self) -> bool {
        self.tells() && self.verify(0..self.end.payload)
    }

    /// How to read a log on from `from`: to `cut` if that is at most `to`, else to the last bound at or in
    /// front of `to`. `None`: the file does not hold `from`, or no bound lies between the two. Complexity:
    /// two bisections.
    pub(crate) fn way(&self, log: LogId, from: Offset, cut: Offset, to: Offset) -> Option<Way> {
        if !self.is_sound() || !self.tells() || cut <= from {
            return None;
        }
        let way = self.told_way(log, from, cut, to)?;
        // The pages may have been read from the disk again since they were verified, with other contents.
        let leads_on = match &way {
            Way::Together { bytes, .. } => bytes.start < bytes.end && bytes.end <= self.end.payload,
            Way::Apart(bound) => *bound > from,
        };
        if !leads_on {
            let _ = self.harmed.set(());
        }
        leads_on.then_some(way)
    }

    fn told_way(&self, log: LogId, from: Offset, cut: Offset, to: Offset) -> Option<Way> {
        let (index, range) = self.find(log, from)?;
        let (bounds, count) = self.bounds(index, &range);
        let at = (from - range.offset) as u32;
        let behind = first(count, |bound| bounds(bound) > at);
        if behind == 0 || bounds(behind - 1) != at {
            let next = if behind < count { bounds(behind) } else { range.length };
            return Some(Way::Apart(range.offset.saturating_add(next.into())));
        }
        let stop = range.end().min(cut);
        let byte = |offset: u32| range.byte.saturating_add(offset);
        if stop <= to {
            let bytes = byte(at)..byte((stop - range.offset) as u32);
            return Some(Way::Together { bytes, all: true });
        }
        let room = u32::try_from(to.saturating_sub(range.offset)).unwrap_or(u32::MAX);
        let last = bounds(first(count, |bound| bounds(bound) > room).saturating_sub(1));
        (last > at).then(|| Way::Together { bytes: byte(at)..byte(last), all: false })
    }

    /// The range that holds an offset of a log, and its index.
    fn find(&self, log: LogId, offset: Offset) -> Option<(u32, SettledRange)> {
        let behind = first(self.end.ranges, |index| {
            let range = self.range(index);
            (range.log, range.offset) > (log, offset)
        });
        let index = behind.checked_sub(1)?;
        let range = self.range(index);
        let holds = range.log == log && (range.offset..range.end()).contains(&offset);
        holds.then_some((index, range))
    }

    fn range(&self, index: u32) -> SettledRange {
        range(self.told(), index)
    }

    /// The bounds of a range, by number, and how many there are.
    fn bounds(&self, index: u32, range: &SettledRange) -> (impl Fn(u32) -> u32, u32) {
        let told = &self.told()[(self.end.ranges * RANGE_BYTES) as usize..];
        let behind = if index + 1 < self.end.ranges { self.range(index + 1).bounds } else { self.end.bounds };
        let first = range.bounds;
        let bound = move |bound: u32| {
            let at = (first as usize + bound as usize) * 4;
            told.get(at..at + 4).map_or(u32::MAX, |word| word32(word, 0))
        };
        (bound, behind.saturating_sub(first))
    }
}

fn blocks(range: &Range<u32>) -> Range<u32> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}

fn range(told: &[u8], index: u32) -> SettledRange {
    SettledRange::decode(&told[(index * RANGE_BYTES) as usize..])
}

/// The first index for which `holds`, given that it holds for all behind that; `count` if there is none.
fn first(count: u32, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// Whether no look-up can lead out of the file: ranges are in order and within the payload, and each has
/// bounds that begin at 0 and grow.
fn makes_sense(end: &End, told: &[u8]) -> bool {
    let bound = |index: u32| word32(&told[(end.ranges * RANGE_BYTES) as usize..], index as usize * 4);
    // The lower bounds of the next range.
    let mut next = SettledRange::default();
    for index in 0..end.ranges {
        let one = range(told, index);
        let behind = if index + 1 < end.ranges { range(told, index + 1).bounds } else { end.bounds };
        let within = one.byte.checked_add(one.length).is_some_and(|last| last <= end.payload);
        let whole = one.length > 0 && one.offset.checked_add(one.length.into()).is_some();
        let follows = (one.log, one.offset) >= (next.log, next.offset) && one.byte >= next.byte;
        let bounded = one.bounds == next.bounds && one.bounds < behind && behind <= end.bounds;
        if !(within && whole && follows && bounded) {
            return false;
        }
        let grow = (one.bounds + 1..behind).all(|index| bound(index) > bound(index - 1));
        if bound(one.bounds) != 0 || bound(behind - 1) >= one.length || !grow {
            return false;
        }
        next = SettledRange {
            log: one.log,
            offset: one.end(),
            byte: one.byte + one.length,
            length: 0,
            bounds: behind,
        };
    }
    next.bounds == end.bounds
}
