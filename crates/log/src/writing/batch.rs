//! A batch before it has a place: the frames of one commit, checksummed outside the writer's lock.
//!
//! Of a batch only the header depends on where it goes, and of entries that are encoded before their logs are
//! locked only the logs' ends: they are *settled* then. What is encoded is never encoded again: one checksum
//! and one copy are all that an entry's bytes see on their way into a segment.
//!
//! Invariants: encoded entries lie behind everything that is said beside them; `count`, `entries`,
//! `body_bytes` and `body_checksum` are those of `frames` followed by `encoded`. *Checked by* the tests below
//! and by every reader, which sums again.

use crate::checksum;
use crate::error::CommitError;
use crate::extents::Extent;
use crate::format::{self, BATCH_HEADER_BYTES, FLAG_LAST, Kind, SEGMENT_BYTES_MAX, Stamp};
use crate::times::EntryTimes;
use crate::{LogId, Offset, Position, Time};
use smallvec::SmallVec;
use std::cell::Cell;

const FRAME_BYTES: usize = format::FRAME_HEADER_BYTES as usize;

/// A frame to be written: its header and up to two pieces of payload, padded to 8 bytes.
pub(crate) struct PlannedFrame<'a> {
    header: [u8; FRAME_BYTES],
    pieces: [&'a [u8]; 2],
    padding: usize,
}

/// The frames of a batch that are not encoded.
pub(crate) type PlannedFrames<'a> = SmallVec<[PlannedFrame<'a>; 4]>;

impl<'a> PlannedFrame<'a> {
    /// # Errors
    /// [`CommitError::TooLarge`]: no batch can hold it.
    pub(crate) fn of(
        kind: Kind,
        flags: u8,
        stamp: Stamp,
        pieces: [&'a [u8]; 2],
    ) -> Result<PlannedFrame<'a>, CommitError> {
        let size = pieces[0].len() as u64 + pieces[1].len() as u64;
        let limit = u64::from(u32::MAX >> 1);
        let length = u32::try_from(size)
            .ok()
            .filter(|_| size <= limit)
            .ok_or(CommitError::TooLarge { size, limit })?;
        let padding = usize::try_from(format::frame_bytes(size) - size).unwrap_or(0) - FRAME_BYTES;
        Ok(PlannedFrame { header: format::frame_header(kind, flags, stamp, length), pieces, padding })
    }

    fn is(&self, kind: Kind) -> bool {
        self.header[4] == kind as u8
    }
}

/// Room that a thread keeps for encoding.
const ENCODED_BYTES_KEPT: usize = 256 << 10;

thread_local! {
    /// The room in which a thread's entries are encoded, while nobody has it.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Entries, encoded one behind the other.
#[derive(Debug)]
pub(crate) struct Entries {
    bytes: Vec<u8>,
    count: u32,
    /// Once there is one.
    times: Option<EntryTimes>,
}

impl Entries {
    /// None yet, and this thread's room for them; dropped, they give it back.
    pub(crate) fn lent() -> Entries {
        // A thread that is ending has none any more.
        Entries { bytes: ROOM.try_with(Cell::take).unwrap_or_default(), count: 0, times: None }
    }

    /// The length of a payload that an entry may have.
    ///
    /// # Errors
    /// [`CommitError::EmptyEntry`]; [`CommitError::TooLarge`]: no segment can hold it.
    #[inline]
    pub(crate) fn check(payload: &[u8]) -> Result<u32, CommitError> {
        if payload.is_empty() {
            return Err(CommitError::EmptyEntry);
        }
        let (size, limit) = (payload.len() as u64, u64::from(SEGMENT_BYTES_MAX));
        u32::try_from(size).ok().filter(|_| size < limit).ok_or(CommitError::TooLarge { size, limit })
    }

    /// Adds an entry. Until it is [settled](Entries::settle), its log is the number of a part of the batch,
    /// and its offset counts from where that part begins.
    ///
    /// # Errors
    /// As [`Entries::check`]; then nothing was added.
    pub(crate) fn push(&mut self, stamp: Stamp, flags: u8, payload: &[u8]) -> Result<(), CommitError> {
        let length = Entries::check(payload)?;
        // Room for all of it at once, and for as much padding as there ever is.
        self.bytes.reserve(FRAME_BYTES + payload.len() + 8);
        self.bytes.extend_from_slice(&format::frame_header(Kind::Data, flags, stamp, length));
        self.bytes.extend_from_slice(payload);
        let end = self.bytes.len().next_multiple_of(8);
        self.bytes.extend_from_slice(&[0; 8]);
        self.bytes.truncate(end);
        self.count += 1;
        self.times.get_or_insert(EntryTimes::of(stamp.time)).note(stamp.time);
        Ok(())
    }

    /// Says of the entry that begins at a byte that it is the last one of its transaction in its log.
    pub(crate) fn mark_last(&mut self, at: usize) {
        if let Some(flags) = self.bytes.get_mut(at + 5) {
            *flags |= FLAG_LAST;
        }
    }

    /// Gives each entry its log and its offset there: those of its part.
    pub(crate) fn settle(&mut self, part: impl Fn(usize) -> (LogId, Offset)) {
        let mut rest = &mut self.bytes[..];
        while let Some((header, behind)) = rest.split_first_chunk_mut::<FRAME_BYTES>() {
            let number = usize::try_from(format::word64(header, 8)).unwrap_or(usize::MAX);
            let (log, first) = part(number);
            let offset = first + format::word64(header, 16);
            header[8..16].copy_from_slice(&log.to_le_bytes());
            header[16..24].copy_from_slice(&offset.to_le_bytes());
            rest =
                behind.get_mut(format::word32(header, 0).next_multiple_of(8) as usize..).unwrap_or_default();
        }
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn count(&self) -> usize {
        self.count as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Of a lot of room not all is kept: a thread may never append again.
impl Drop for Entries {
    fn drop(&mut self) {
        let mut room = std::mem::take(&mut self.bytes);
        if room.capacity() > 0 {
            room.clear();
            room.shrink_to(ENCODED_BYTES_KEPT);
            let _ = ROOM.try_with(|kept| kept.set(room));
        }
    }
}

/// A batch to be written, its body already checksummed.
pub(crate) struct PlannedBatch<'a> {
    frames: &'a [PlannedFrame<'a>],
    /// Frames that say where earlier entries lie are left out.
    without_places: bool,
    /// More frames behind them, entries, encoded already.
    encoded: &'a [u8],
    pub(crate) count: u32,
    /// The logs that it touches, and where they end behind it.
    pub(crate) touched: &'a [(LogId, Offset)],
    /// Of the whole batch, and of its entries if it has any.
    pub(crate) times: EntryTimes,
    /// Frames that are entries, whose time counts.
    pub(crate) entries: u64,
    body_bytes: u64,
    pub(crate) body_checksum: u32,
}

impl<'a> PlannedBatch<'a> {
    /// Checksums the frames, which do not depend on the place.
    pub(crate) fn of(
        frames: &'a [PlannedFrame<'a>],
        touched: &'a [(LogId, Offset)],
        time: Time,
    ) -> PlannedBatch<'a> {
        let entries = frames.iter().filter(|frame| frame.is(Kind::Data)).count();
        let mut batch = PlannedBatch {
            frames,
            without_places: false,
            encoded: &[],
            count: u32::try_from(frames.len()).unwrap_or(u32::MAX),
            touched,
            times: EntryTimes::of(time),
            entries: entries as u64,
            body_bytes: 0,
            body_checksum: 0,
        };
        batch.sum();
        batch
    }

    /// Entries that are encoded one behind the other: one checksum and one copy for all of them. `beside` is
    /// what is said beside them.
    #[inline]
    pub(crate) fn of_entries(
        beside: &'a [PlannedFrame<'a>],
        entries: &'a Entries,
        touched: &'a [(LogId, Offset)],
    ) -> PlannedBatch<'a> {
        let mut batch = PlannedBatch {
            frames: beside,
            without_places: false,
            encoded: &entries.bytes,
            count: u32::try_from(beside.len()).unwrap_or(u32::MAX).saturating_add(entries.count),
            touched,
            times: entries.times.unwrap_or(EntryTimes::of(0)),
            entries: entries.count.into(),
            body_bytes: 0,
            body_checksum: 0,
        };
        batch.sum();
        batch
    }

    #[inline]
    fn sum(&mut self) {
        let (mut bytes, mut sum) = (0, 0);
        self.pieces(|piece| {
            bytes += piece.len() as u64;
            sum = checksum::crc32c_append(sum, piece);
        });
        (self.body_bytes, self.body_checksum) = (bytes, sum);
    }

    /// The frames that are not encoded.
    #[inline]
    fn frames(&self) -> impl Iterator<Item = &PlannedFrame<'a>> {
        let without_places = self.without_places;
        self.frames.iter().filter(move |frame| !(without_places && frame.is(Kind::Places)))
    }

    /// Whether it says where earlier entries lie.
    #[inline]
    pub(crate) fn says_places(&self) -> bool {
        self.frames().any(|frame| frame.is(Kind::Places))
    }

    /// Of places that it was planned with, those that it says: all or, where they had no room, none.
    pub(crate) fn said<'p>(&self, places: &'p [u8]) -> &'p [u8] {
        if self.says_places() { places } else { &[] }
    }

    /// Leaves out what it says of places where it is larger than a batch may be: that can wait for one that
    /// has room for it.
    #[inline]
    pub(crate) fn make_fit(&mut self, bytes_max: u64) {
        if self.bytes() > bytes_max && self.says_places() {
            self.leave_out_places();
        }
    }

    #[cold]
    fn leave_out_places(&mut self) {
        let encoded = if self.encoded.is_empty() { 0 } else { self.entries };
        self.without_places = true;
        self.count = u32::try_from(self.frames().count() as u64 + encoded).unwrap_or(u32::MAX);
        self.sum();
    }

    /// Whether it says that something is not needed any more, and nothing else.
    pub(crate) fn lets_go(&self) -> bool {
        let gone = [Kind::Trim, Kind::Delete, Kind::Gone].map(|kind| kind as u8);
        let places = Kind::Places as u8;
        let mut kinds = self.frames().map(|frame| frame.header[4]).filter(|kind| *kind != places).peekable();
        self.encoded.is_empty() && kinds.peek().is_some() && kinds.all(|kind| gone.contains(&kind))
    }

    /// What follows the header, piece by piece.
    #[inline]
    pub(crate) fn pieces(&self, mut each: impl FnMut(&[u8])) {
        for frame in self.frames() {
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
    use crate::{Options, Store};
    use proptest::prelude::*;

    fn seen_of(batch: &PlannedBatch<'_>) -> (Vec<u8>, u32, u64, u64, u32) {
        let mut bytes = Vec::new();
        batch.pieces(|piece| bytes.extend_from_slice(piece));
        (bytes, batch.count, batch.entries, batch.body_bytes, batch.body_checksum)
    }

    #[test]
    fn what_has_no_room_for_places_is_the_batch_without_them() {
        let (places, payload) = ([7; 16], [1; 24]);
        let stamp = |offset| Stamp { log: 1, offset, time: 9 };
        let frame = |kind, payload| PlannedFrame::of(kind, 0, stamp(0), [payload, &[]]).unwrap();
        let data = || frame(Kind::Data, &payload);
        let note = || frame(Kind::Note, &[]);
        let said = [frame(Kind::Places, &places)];
        let (whole, less) = ([frame(Kind::Places, &places), data(), note()], [data(), note()]);
        let mut entries = Entries::lent();
        entries.push(stamp(0), 0, &payload).unwrap();
        entries.push(stamp(24), 0, &payload).unwrap();
        let encoded = |beside| PlannedBatch::of_entries(beside, &entries, &[(1, 48)]);
        let planned = |frames| PlannedBatch::of(frames, &[(1, 24)], 9);
        for (mut full, less) in [(encoded(&said), encoded(&[])), (planned(&whole), planned(&less))] {
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

    proptest! {
        /// Of several logs, whatever their lengths.
        #[test]
        fn entries_are_settled_as_they_would_have_been_encoded(
            entries in proptest::collection::vec((0..3_usize, 1..40_usize), 1..20), firsts in any::<[u32; 3]>(),
        ) {
            let encode = |part: &dyn Fn(usize) -> (LogId, Offset), last: &[bool]| {
                let (mut encoded, mut ends, mut starts) = (Entries::lent(), [0; 3], Vec::new());
                for ((number, length), last) in entries.iter().zip(last) {
                    let (log, first) = part(*number);
                    starts.push(encoded.bytes());
                    let stamp = Stamp { log, offset: first + ends[*number], time: 5 };
                    encoded.push(stamp, if *last { FLAG_LAST } else { 0 }, &vec![3; *length]).unwrap();
                    ends[*number] += *length as u64;
                }
                (encoded, starts)
            };
            let part = |number: usize| (u64::MAX - number as u64, firsts[number].into());
            let last: Vec<bool> = (0..entries.len()).map(|entry| entry % 3 == 1).collect();
            let (mut settled, starts) = encode(&|number| (number as u64, 0), &vec![false; entries.len()]);
            starts.iter().zip(&last).filter(|(_, last)| **last).for_each(|(at, _)| settled.mark_last(*at));
            settled.settle(part);
            let (wanted, _) = encode(&part, &last);
            prop_assert_eq!(&settled.bytes, &wanted.bytes);
            prop_assert_eq!(settled.count(), entries.len());
        }
    }

    /// Whether it was written or not.
    #[test]
    fn a_thread_keeps_some_of_the_room_that_a_large_write_took() {
        let options = Options { segment_bytes_min: 4096, segment_bytes_max: 1 << 20, ..Options::default() };
        let store = Store::memory(options).unwrap();
        let log = store.log(b"log").unwrap();
        let payload = vec![1; 3 * ENCODED_BYTES_KEPT];
        let room = || {
            let lent = Entries::lent();
            lent.bytes.capacity()
        };
        // Two are more than a batch may be.
        for count in [1, 2] {
            let mut transaction = store.transaction(0);
            (0..count).for_each(|_| transaction.append(&log, &payload).unwrap());
            assert_eq!(transaction.commit().is_ok(), count == 1);
            assert_eq!(room(), ENCODED_BYTES_KEPT, "kept behind a transaction of {count}");
            assert_eq!(store.append_all(&log, &vec![&payload[..]; count], 0).is_ok(), count == 1);
            drop(store.transaction(0));
            assert_eq!(room(), ENCODED_BYTES_KEPT, "kept behind {count} appended");
        }
    }
}
