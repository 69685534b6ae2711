//! A batch before it has a place: the frames of one commit, checksummed outside the writer's lock.
//!
//! Of a batch only the header depends on where it goes. What is encoded once is never encoded again: one
//! checksum and one copy are all that an entry's bytes see on their way into a segment.
//!
//! Invariants: entries lie behind everything that is said beside them; `count`, `entries`, `body_bytes` and
//! `body_checksum` are those of `frames` followed by `encoded`. *Checked by* the test below and by every
//! reader, which sums again.

use crate::checksum;
use crate::error::CommitError;
use crate::extents::Extent;
use crate::format::{self, BATCH_HEADER_BYTES, Kind, SEGMENT_BYTES_MAX, Stamp};
use crate::times::EntryTimes;
use crate::{LogId, Offset, Position, Time};
use smallvec::SmallVec;

/// A frame to be written: its header and up to two pieces of payload, padded to 8 bytes.
pub(crate) struct PlannedFrame<'a> {
    pub(crate) header: [u8; format::FRAME_HEADER_BYTES as usize],
    pub(crate) pieces: [&'a [u8]; 2],
    pub(crate) padding: usize,
}

impl PlannedFrame<'_> {
    fn is(&self, kind: Kind) -> bool {
        self.header[4] == kind as u8
    }
}

/// Room that a thread keeps for encoding.
pub(crate) const ENCODED_BYTES_KEPT: usize = 256 << 10;

/// Frames, encoded one behind the other: entries and what is said beside them.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    bytes: Vec<u8>,
    /// Frames, and how many of them are entries.
    count: u32,
    entries: u32,
    /// Bytes of the frames that are none, all of them in front.
    beside: usize,
    /// Of the entries, once there is one.
    times: Option<EntryTimes>,
}

impl Entries {
    /// Adds an entry.
    pub(crate) fn push(&mut self, stamp: Stamp, flags: u8, payload: &[u8]) -> Result<(), CommitError> {
        if payload.is_empty() {
            return Err(CommitError::EmptyEntry);
        }
        let (size, limit) = (payload.len() as u64, u64::from(SEGMENT_BYTES_MAX));
        let Some(length) = u32::try_from(size).ok().filter(|_| size < limit) else {
            return Err(CommitError::TooLarge { size, limit });
        };
        // Room for all of it at once, and for as much padding as there ever is.
        self.bytes.reserve(format::FRAME_HEADER_BYTES as usize + payload.len() + 8);
        self.bytes.extend_from_slice(&format::frame_header(Kind::Data, flags, stamp, length));
        self.bytes.extend_from_slice(payload);
        let end = self.bytes.len().next_multiple_of(8);
        self.bytes.extend_from_slice(&[0; 8]);
        self.bytes.truncate(end);
        self.count += 1;
        self.entries += 1;
        self.times.get_or_insert(EntryTimes::of(stamp.time)).note(stamp.time);
        Ok(())
    }

    /// Adds a frame that is no entry, in front of all entries; its payload is of whole words.
    pub(crate) fn push_beside(&mut self, kind: Kind, stamp: Stamp, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(&format::frame_header(kind, 0, stamp, length));
        self.bytes.extend_from_slice(payload);
        (self.count, self.beside) = (self.count + 1, self.bytes.len());
    }

    /// Forgets the entries and keeps the room, unless that is a lot.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(ENCODED_BYTES_KEPT);
        (self.count, self.entries, self.beside, self.times) = (0, 0, 0, None);
    }

    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.bytes.capacity()
    }
}

/// A batch to be written, its body already checksummed.
pub(crate) struct PlannedBatch<'a> {
    pub(crate) frames: SmallVec<[PlannedFrame<'a>; 4]>,
    /// More frames, encoded already.
    pub(crate) encoded: &'a [u8],
    /// Bytes of those that are no entries, all of them in front.
    pub(crate) beside: usize,
    pub(crate) count: u32,
    pub(crate) touched: SmallVec<[(LogId, Offset); 1]>,
    /// Of the whole batch, and of its entries if it has any.
    pub(crate) times: EntryTimes,
    /// Frames that are entries, whose time counts.
    pub(crate) entries: u64,
    pub(crate) body_bytes: u64,
    pub(crate) body_checksum: u32,
}

impl<'a> PlannedBatch<'a> {
    /// Checksums the frames, which do not depend on the place.
    pub(crate) fn of(
        frames: SmallVec<[PlannedFrame<'a>; 4]>,
        touched: SmallVec<[(LogId, Offset); 1]>,
        time: Time,
    ) -> PlannedBatch<'a> {
        let count = u32::try_from(frames.len()).unwrap_or(u32::MAX);
        let entries = frames.iter().filter(|frame| frame.is(Kind::Data)).count() as u64;
        let mut batch = PlannedBatch {
            frames,
            encoded: &[],
            beside: 0,
            count,
            touched,
            times: EntryTimes::of(time),
            entries,
            body_bytes: 0,
            body_checksum: 0,
        };
        batch.sum();
        batch
    }

    fn sum(&mut self) {
        let (mut bytes, mut sum) = (0, 0);
        self.pieces(|piece| {
            bytes += piece.len() as u64;
            sum = checksum::crc32c_append(sum, piece);
        });
        (self.body_bytes, self.body_checksum) = (bytes, sum);
    }

    /// Entries that are encoded one behind the other: one checksum and one copy for all of them.
    pub(crate) fn of_entries(
        entries: &'a Entries,
        touched: SmallVec<[(LogId, Offset); 1]>,
    ) -> PlannedBatch<'a> {
        let (encoded, count) = (&entries.bytes[..], entries.count);
        let (body_bytes, body_checksum) = (encoded.len() as u64, checksum::crc32c(encoded));
        let frames = SmallVec::new();
        PlannedBatch {
            frames,
            encoded,
            beside: entries.beside,
            count,
            touched,
            times: entries.times.unwrap_or(EntryTimes::of(0)),
            entries: entries.entries.into(),
            body_bytes,
            body_checksum,
        }
    }

    /// Whether it says where earlier entries lie.
    pub(crate) fn says_places(&self) -> bool {
        self.beside > 0 || self.frames.iter().any(|frame| frame.is(Kind::Places))
    }

    /// Of places that it was planned with, those that it says: all or, where they had no room, none.
    pub(crate) fn said<'p>(&self, places: &'p [u8]) -> &'p [u8] {
        if self.says_places() { places } else { &[] }
    }

    /// Leaves out what it says of places where it is larger than a batch may be: that can wait for one that
    /// has room for it.
    pub(crate) fn make_fit(&mut self, bytes_max: u64) {
        if self.bytes() > bytes_max && self.says_places() {
            self.leave_out_places();
        }
    }

    #[cold]
    fn leave_out_places(&mut self) {
        self.encoded = &self.encoded[std::mem::take(&mut self.beside)..];
        self.frames.retain(|frame| !frame.is(Kind::Places));
        let count = if self.encoded.is_empty() { self.frames.len() as u64 } else { self.entries };
        self.count = u32::try_from(count).unwrap_or(u32::MAX);
        self.sum();
    }

    /// Whether it says that something is not needed any more, and nothing else.
    pub(crate) fn lets_go(&self) -> bool {
        let gone = [Kind::Trim, Kind::Delete, Kind::Gone].map(|kind| kind as u8);
        let mut kinds = self
            .frames
            .iter()
            .map(|frame| frame.header[4])
            .filter(|kind| *kind != Kind::Places as u8)
            .peekable();
        self.encoded.is_empty() && kinds.peek().is_some() && kinds.all(|kind| gone.contains(&kind))
    }

    /// What follows the header, piece by piece.
    pub(crate) fn pieces(&self, mut each: impl FnMut(&[u8])) {
        for frame in &self.frames {
            let padding = &[0; 8][..frame.padding];
            [&frame.header[..], frame.pieces[0], frame.pieces[1], padding].into_iter().for_each(&mut each);
        }
        each(self.encoded);
    }

    pub(crate) fn bytes(&self) -> u64 {
        u64::from(BATCH_HEADER_BYTES)
            + self.touched.len() as u64 * u64::from(format::TOUCHED_BYTES)
            + self.body_bytes
    }
}

/// Where a batch went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) start: Position,
    pub(crate) end: Position,
    pub(crate) bytes: u32,
}

impl Placed {
    /// Its payload of a log.
    pub(crate) fn extent(&self, offset: Offset, length: u32) -> Extent {
        Extent { position: self.start, offset, length, span: self.bytes, places: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FRAME_HEADER_BYTES;
    use smallvec::smallvec;

    fn seen_of(batch: &PlannedBatch<'_>) -> (Vec<u8>, u32, u64, u64, u32) {
        let mut bytes = Vec::new();
        batch.pieces(|piece| bytes.extend_from_slice(piece));
        (bytes, batch.count, batch.entries, batch.body_bytes, batch.body_checksum)
    }

    #[test]
    fn what_has_no_room_for_places_is_the_batch_without_them() {
        let (places, payload) = ([7; 16], [1; 24]);
        let stamp = |offset| Stamp { log: 1, offset, time: 9 };
        let encoded = |with: bool| {
            let mut entries = Entries::default();
            if with {
                entries.push_beside(Kind::Places, stamp(0), &places);
            }
            entries.push(stamp(0), 0, &payload).unwrap();
            entries.push(stamp(24), 0, &payload).unwrap();
            entries
        };
        let frame = |kind, payload: &'static [u8]| {
            let header = format::frame_header(kind, 0, stamp(0), payload.len() as u32);
            PlannedFrame { header, pieces: [payload, &[]], padding: 0 }
        };
        let planned = |with: bool| {
            let mut frames = SmallVec::new();
            if with {
                frames.push(frame(Kind::Places, &[7; 16]));
            }
            frames.push(frame(Kind::Data, &[1; 24]));
            frames.push(frame(Kind::Note, &[]));
            PlannedBatch::of(frames, smallvec![(1, 24)], 9)
        };
        let (with, without) = (encoded(true), encoded(false));
        let entries = |entries| PlannedBatch::of_entries(entries, smallvec![(1, 48)]);
        for (mut full, less) in [(entries(&with), entries(&without)), (planned(true), planned(false))] {
            full.make_fit(full.bytes());
            assert_eq!(full.said(&places), places, "there is room for all of it");
            assert_eq!(full.bytes(), less.bytes() + u64::from(FRAME_HEADER_BYTES) + 16);
            full.make_fit(full.bytes() - 1);
            assert!(full.said(&places).is_empty());
            assert_eq!(seen_of(&full), seen_of(&less));
            // There is no more to be left out.
            full.make_fit(0);
            assert_eq!(seen_of(&full), seen_of(&less));
        }
    }
}
