//! Where in its file the batches lie that are left of a segment which was written anew.
//!
//! ```text
//! run   place 4 | byte 4 | bytes 4 | checksum 4              the segment's header counts them; in order
//! end   place 4 | link of the last batch 8 | checksum 4      where the segment ended, and what follows on from it
//! ```
//!
//! Purpose: files in proportion to what is live, and places that stay. A compacted segment
//! ([`compact`](crate::keeping::compact)) holds the batches that are still needed, side by side, and behind
//! them this table. Its *places* are the bytes of the segment as it was first written. Positions are made of
//! them, so whatever keeps a position (extents, checkpoints, forks, readers at work, another process) may
//! keep it for good. Its *bytes* are the file's. In a segment that was never compacted the two are the same,
//! and there is no table.
//!
//! Invariants: runs lie side by side, in the order of their places, and a batch lies wholly in one. Each
//! entry has a checksum of its own (CRC-32C), so a damaged one costs its own run only. Owns nothing: the
//! mapped table is searched in place, in a number of steps logarithmic in the runs. *Checked by* the tests
//! below, those of compaction, and the crash simulation.

use crate::format::{Link, SEGMENT_HEADER_BYTES, SegmentHeader, word32};
use std::ops::Range;

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: u32 = 16;
const CHECKED_BYTES: usize = 12;

/// Batches that follow each other in the segment as it was first written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Where they stood.
    pub(crate) place: u32,
    /// Where they are in the file.
    pub(crate) byte: u32,
    pub(crate) bytes: u32,
}

impl Run {
    /// The byte of the file at which it ends.
    pub(crate) fn end(&self) -> u32 {
        self.byte + self.bytes
    }

    /// The place at which it ended.
    pub(crate) fn end_place(&self) -> u32 {
        self.place + self.bytes
    }

    /// What is added, in wrapping arithmetic, to a byte of it for its place.
    pub(crate) fn shift(&self) -> u32 {
        self.place.wrapping_sub(self.byte)
    }

    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        entry([self.place, self.byte, self.bytes], into);
    }
}

/// Where a run of batches ends, and how its bytes and places differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunEnd {
    /// The byte of the file at which it ends.
    pub(crate) end: u32,
    /// What is added, in wrapping arithmetic, to a byte of it for its place.
    pub(crate) shift: u32,
}

/// Where a segment ended before it was written anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) place: u32,
    /// The link that the first batch of the next segment carries.
    pub(crate) link: Link,
}

impl End {
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        entry([self.place, self.link.length, self.link.checksum], into);
    }
}

fn entry(words: [u32; 3], into: &mut Vec<u8>) {
    let start = into.len();
    words.iter().for_each(|word| into.extend_from_slice(&word.to_le_bytes()));
    let checksum = crc32c::crc32c(&into[start..]);
    into.extend_from_slice(&checksum.to_le_bytes());
}

/// A segment's table; empty where places are bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Runs<'a> {
    table: &'a [u8],
    /// Entries that the header announces, without the end's; and how many of them the file holds.
    runs: usize,
    count: usize,
    /// Where the table begins, and so where batches end.
    at: u32,
    /// Every entry's checksum was found to hold, so that look-ups need not check it again.
    is_sound: bool,
}

impl<'a> Runs<'a> {
    /// The table in the bytes of a segment's file, all of them, and the batches in front of it.
    pub(crate) fn split(header: &SegmentHeader, bytes: &'a [u8]) -> (&'a [u8], Runs<'a>) {
        let Some(at) = header.table_at() else { return (bytes, Runs::default()) };
        let (batches, table) = bytes.split_at(bytes.len().min(at as usize));
        // A file that was cut short may lack some.
        let count = (header.runs as usize).min(table.len() / ENTRY_BYTES as usize);
        (batches, Runs { table, count, runs: header.runs as usize, at, is_sound: false })
    }

    /// Whether every entry stands, for a caller that looks up often.
    pub(crate) fn is_sound(&self) -> bool {
        self.end().is_some() && (0..self.runs).all(|index| self.get(index).is_some())
    }

    /// The same table, of which it is known whether it is sound.
    pub(crate) fn known(self, is_sound: bool) -> Runs<'a> {
        Runs { is_sound, ..self }
    }

    /// Whether places are bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs == 0
    }

    /// The runs that stand.
    pub(crate) fn iter(self) -> impl Iterator<Item = Run> + use<'a> {
        (0..self.count).filter_map(move |index| self.get(index))
    }

    /// Where the segment ended; `None` where that cannot be read.
    pub(crate) fn end(&self) -> Option<End> {
        let [place, length, checksum] = self.words(self.runs)?;
        Some(End { place, link: Link { length, checksum } })
    }

    /// The run in which a byte lies, or the next one whose entry stands.
    pub(crate) fn around(&self, byte: u32) -> Option<Run> {
        self.first(|run| run.end() > byte)
    }

    /// The byte at which lies what was written at a place; if that is gone, the byte of what came next.
    pub(crate) fn byte_of(&self, place: u32) -> u32 {
        if self.is_empty() {
            return place;
        }
        match self.first(|run| run.end_place() > place) {
            Some(run) => run.byte + place.saturating_sub(run.place),
            None => self.at,
        }
    }

    /// The place of a byte; if no run that stands holds it, the place of what comes next.
    pub(crate) fn place_of(&self, byte: u32) -> u32 {
        if self.is_empty() || byte < SEGMENT_HEADER_BYTES {
            return byte;
        }
        match self.around(byte) {
            Some(run) => run.place + byte.saturating_sub(run.byte),
            None => self.end().map_or(u32::MAX, |end| end.place),
        }
    }

    /// The bytes of what was written in a range of places, up to the end of the run that the range begins in;
    /// `None` if its beginning is gone.
    pub(crate) fn bytes_of(&self, places: Range<u32>) -> Option<Range<u32>> {
        if self.is_empty() {
            return Some(places);
        }
        let run = self.first(|run| run.end_place() > places.start).filter(|run| run.place <= places.start)?;
        let start = run.byte + (places.start - run.place);
        Some(start..run.end().min(start.saturating_add(places.end - places.start)))
    }

    /// The first run that stands for which `is_behind` holds; it must hold for all that follow such a run.
    fn first(&self, is_behind: impl Fn(&Run) -> bool) -> Option<Run> {
        let (mut low, mut high, mut found) = (0, self.count, None);
        while low < high {
            let middle = low + (high - low) / 2;
            // Entries that do not stand are judged by the next one that does.
            match (middle..high).find_map(|index| self.get(index).map(|run| (index, run))) {
                Some((index, run)) if !is_behind(&run) => low = index + 1,
                Some((_, run)) => (high, found) = (middle, Some(run)),
                None => high = middle,
            }
        }
        found
    }

    /// A run, if it stands and lies where one can.
    fn get(&self, index: usize) -> Option<Run> {
        let [place, byte, bytes] = self.words(index)?;
        let within = byte >= SEGMENT_HEADER_BYTES && byte.checked_add(bytes)? <= self.at;
        let whole = bytes > 0 && place >= byte && place.checked_add(bytes).is_some();
        (within && whole).then_some(Run { place, byte, bytes })
    }

    fn words(&self, index: usize) -> Option<[u32; 3]> {
        let at = index * ENTRY_BYTES as usize;
        let entry = self.table.get(at..at + ENTRY_BYTES as usize)?;
        let whole = self.is_sound || crc32c::crc32c(&entry[..CHECKED_BYTES]) == word32(entry, CHECKED_BYTES);
        whole.then(|| [word32(entry, 0), word32(entry, 4), word32(entry, 8)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAPACITY: u32 = 1 << 20;

    /// Runs of given lengths in bytes, each behind a gap of a given length, and the file they make.
    fn file(runs: &[(u32, u32)]) -> (Vec<Run>, SegmentHeader, Vec<u8>) {
        let (mut place, mut byte, mut made) = (SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES, Vec::new());
        for (gap, bytes) in runs {
            place += gap * 8;
            made.push(Run { place, byte, bytes: bytes * 8 });
            (place, byte) = (place + bytes * 8, byte + bytes * 8);
        }
        let mut bytes = vec![7; byte as usize];
        made.iter().for_each(|run| run.encode(&mut bytes));
        End { place, link: Link { length: 96, checksum: 5 } }.encode(&mut bytes);
        let (held, runs) = (bytes.len() as u32, made.len() as u32);
        let header = SegmentHeader { held, runs, capacity: CAPACITY, ..SegmentHeader::default() };
        (made, header, bytes)
    }

    fn some() -> impl Strategy<Value = Vec<(u32, u32)>> {
        proptest::collection::vec((0u32..50, 1u32..40), 1..40)
    }

    proptest! {
        #[test]
        fn every_byte_has_the_place_it_had_and_every_place_its_byte(spans in some()) {
            let (runs, header, bytes) = file(&spans);
            let (batches, table) = Runs::split(&header, &bytes);
            prop_assert_eq!(batches.len() as u32, runs.last().unwrap().end());
            prop_assert_eq!(table.iter().collect::<Vec<_>>(), runs.clone());
            for (byte, index) in runs.iter().zip(0..).flat_map(|(run, index)| (run.byte..run.end()).map(move |byte| (byte, index))) {
                let run: &Run = &runs[index];
                let place = byte.wrapping_add(run.shift());
                prop_assert_eq!((table.place_of(byte), table.byte_of(place)), (place, byte));
                prop_assert_eq!(table.around(byte), Some(*run));
                prop_assert_eq!(table.bytes_of(place..place + 1), Some(byte..byte + 1));
            }
            let behind = runs.last().unwrap();
            prop_assert_eq!(table.byte_of(behind.end_place()), behind.end());
            prop_assert_eq!(table.place_of(behind.end()), table.end().unwrap().place);
        }

        #[test]
        fn what_is_gone_leads_to_what_came_next(spans in some(), gap: prop::sample::Index) {
            let (runs, header, bytes) = file(&spans);
            let (_, table) = Runs::split(&header, &bytes);
            let index = gap.index(runs.len());
            let before = if index == 0 { SEGMENT_HEADER_BYTES } else { runs[index - 1].end_place() };
            for place in before..runs[index].place {
                prop_assert_eq!(table.byte_of(place), runs[index].byte);
                prop_assert_eq!(table.bytes_of(place..place + 8), None);
            }
        }

        #[test]
        fn a_damaged_entry_takes_its_run_and_no_other(spans in some(), hit: prop::sample::Index, bit in 0usize..128) {
            let (runs, header, mut bytes) = file(&spans);
            let index = hit.index(runs.len());
            let at = header.table_at().unwrap() as usize + index * ENTRY_BYTES as usize;
            bytes[at + bit / 8] ^= 1 << (bit % 8);
            let (_, table) = Runs::split(&header, &bytes);
            let left: Vec<Run> = runs.iter().enumerate().filter(|(one, _)| *one != index).map(|(_, run)| *run).collect();
            prop_assert_eq!(table.iter().collect::<Vec<_>>(), left.clone());
            for run in &left {
                prop_assert_eq!(table.byte_of(run.place), run.byte);
                prop_assert_eq!(table.place_of(run.end() - 1), run.end_place() - 1);
            }
            prop_assert_eq!(table.around(runs[index].byte), left.iter().find(|run| run.byte > runs[index].byte).copied());
        }

        #[test]
        fn garbage_leads_nowhere_that_harms(table in proptest::collection::vec(any::<u8>(), 0..200), runs in 0u32..9, asked: u32) {
            let mut bytes = vec![0; 128];
            bytes.extend_from_slice(&table);
            let header = SegmentHeader { held: bytes.len() as u32, runs, capacity: CAPACITY, ..SegmentHeader::default() };
            let (batches, table) = Runs::split(&header, &bytes);
            prop_assert!(table.is_empty() || table.byte_of(asked) as usize <= batches.len());
            let found = table.bytes_of(asked..asked.saturating_add(64));
            prop_assert!(table.is_empty() || found.is_none_or(|found| found.end as usize <= batches.len()));
            table.place_of(asked);
        }
    }
}
