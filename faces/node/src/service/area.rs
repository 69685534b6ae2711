//! How frames come over: many in one call, laid out in an area that JavaScript owns. Numbers are
//! little-endian.
//!
//! ```text
//! out     length 4 | what 4 | slot 4 | first 4 | second 4 | payload | zeros to a multiple of 4
//! in      length 4 | what 4 | slot 4 | first 4 | second 4 | payload | zeros to a multiple of 4
//! ```
//!
//! A slot names a call within one isolate: JavaScript chooses it for a client's calls, this side for a
//! server's. What the words mean is said where they are used (`client.rs`, `server.rs`).
//! `lib/service/area.js` is the other half.

use std::ops::Range;

pub(crate) const HEADER_BYTES: usize = 20;

/// One record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) what: u32,
    pub(crate) slot: u32,
    pub(crate) first: u32,
    pub(crate) second: u32,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

/// The record at a byte, where its payload lies, and where the next one begins; `None` at the end.
pub(crate) fn read(area: &[u8], at: usize) -> Option<(Record, Range<usize>, usize)> {
    let length = word(area, at)? as usize;
    let record = Record {
        what: word(area, at + 4)?,
        slot: word(area, at + 8)?,
        first: word(area, at + 12)?,
        second: word(area, at + 16)?,
    };
    let start = at + HEADER_BYTES;
    let end = start.checked_add(length).filter(|end| *end <= area.len())?;
    Some((record, start..end, end.next_multiple_of(4)))
}

/// Writes over the first word of the record at a byte: what became of it.
pub(crate) fn note(area: &mut [u8], at: usize, value: u32) {
    if let Some(place) = area.get_mut(at + 12..at + 16) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

/// What is filled with records for JavaScript. What no longer fits is kept, and comes first the next time.
#[derive(Debug, Default)]
pub(crate) struct Spill {
    bytes: Vec<u8>,
}

/// An area being filled.
#[derive(Debug)]
pub(crate) struct AreaWriter<'a> {
    area: &'a mut [u8],
    at: usize,
    spill: &'a mut Spill,
}

impl Spill {
    /// Begins to fill an area from a byte on, with what was kept. `None` when that does not fit: the area has
    /// to have [`Self::bytes`] more.
    pub(crate) fn fill<'a>(&'a mut self, area: &'a mut [u8], from: usize) -> Option<AreaWriter<'a>> {
        let place = area.get_mut(from..from + self.bytes.len())?;
        place.copy_from_slice(&self.bytes);
        let at = from + self.bytes.len();
        self.bytes = Vec::new();
        Some(AreaWriter { area, at, spill: self })
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl AreaWriter<'_> {
    /// Puts a record in; `false` when it was the last one that may come now.
    pub(crate) fn put(&mut self, record: Record, payload: &[u8]) -> bool {
        let (start, padded) = (self.at + HEADER_BYTES, payload.len().next_multiple_of(4));
        let words = [payload.len() as u32, record.what, record.slot, record.first, record.second];
        if let Some(place) = self.area.get_mut(self.at..start + padded) {
            for (word, place) in words.iter().zip(place.chunks_exact_mut(4)) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            place[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
            self.at = start + padded;
            return true;
        }
        // Behind what did not fit before: several records may come too late.
        let end = self.spill.bytes.len() + HEADER_BYTES + padded;
        for word in words {
            self.spill.bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.spill.bytes.extend_from_slice(payload);
        self.spill.bytes.resize(end, 0);
        false
    }

    /// Where it is filled up to.
    pub(crate) const fn end(&self) -> usize {
        self.at
    }
}
