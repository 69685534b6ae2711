//! The one writer: copies batches into the active segment, chained, and publishes them.
//!
//! Behind one lock, held for a header checksum and a copy. What is checksummed beforehand is the body,
//! which does not depend on the place. How it gets into the file the [`tip`](crate::tip) knows. Where the active segment is full the next one takes over: the spare
//! that the committer prepared, or one made on the spot with reserved blocks.
//!
//! Invariants: a batch never spans segments; `written` moves only over whole batches; what a group took
//! with it is synced before anything in it is acknowledged; no commit in `os` or `memory` mode makes a system call of
//! its own but the one in thousands that prepares a stretch or a segment.

use crate::ahead::{Ahead, stretch_bytes};
use crate::committer::Lead;
use crate::control::Control;
use crate::error::CommitError;
use crate::extents::Extent;
use crate::format::{
    self, BATCH_HEADER_BYTES, BatchHeader, Kind, Link, SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES,
    SegmentHeader, Stamp,
};
use crate::log::{Log, Seen};
use crate::open::{Durability, Options};
use crate::reserve::Reserve;
use crate::segment::Segment;
use crate::spare::{Spare, Why};
use crate::times::{Span, Times};
use crate::tip::{Due, Tip};
use crate::view::Segments;
use crate::{LogId, Offset, Position, Time, position};
use smallvec::SmallVec;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use thalweg_sys::disk::Disk;

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
const ENCODED_BYTES_KEPT: usize = 256 << 10;

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
    times: Option<Span>,
}

impl Entries {
    /// Adds an entry.
    pub(crate) fn push(&mut self, stamp: Stamp, flags: u8, payload: &[u8]) -> Result<(), CommitError> {
        if payload.is_empty() {
            return Err(CommitError::EmptyEntry);
        }
        let (size, limit) = (payload.len() as u64, u64::from(SEGMENT_BYTES_MAX));
        let length = u32::try_from(size).ok().filter(|_| size < limit);
        let length = length.ok_or(CommitError::TooLarge { size, limit })?;
        self.bytes.extend_from_slice(&format::frame_header(Kind::Data, flags, stamp, length));
        self.bytes.extend_from_slice(payload);
        let padding = payload.len().next_multiple_of(8) - payload.len();
        self.bytes.extend_from_slice(&[0; 8][..padding]);
        self.count += 1;
        self.entries += 1;
        self.times.get_or_insert(Span::of(stamp.time)).note(stamp.time);
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
    pub(crate) times: Span,
    /// Frames that are entries, whose time counts.
    pub(crate) entries: u64,
    pub(crate) body_bytes: u64,
    pub(crate) body_checksum: u32,
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

/// A commit that waits for its group: what becomes visible then, and who is told.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) log: Arc<Log>,
    pub(crate) seen: Seen,
}

impl Pending {
    /// Payload up to an offset, and nothing else.
    pub(crate) fn payload(log: &Arc<Log>, tail: Offset) -> Pending {
        Pending { log: log.clone(), seen: Seen::payload(tail) }
    }
}

pub(crate) struct Writer {
    pub(crate) disk: Disk,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) options: Options,
    pub(crate) active: Arc<Segment>,
    pub(crate) tip: Tip,
    pub(crate) link: Link,
    /// Of all entries.
    pub(crate) times: Times,
    /// Pages of the active segment that are there, in `os` mode.
    pub(crate) ahead: Ahead,
    pub(crate) spare: Option<Spare>,
    pub(crate) reserve: Reserve,
    /// The segment whose spare is being filled, or could not be.
    pub(crate) spare_begun: u32,
    /// Segments with bytes that no sync has covered, the active one excepted.
    pub(crate) unsynced: Vec<Arc<Segment>>,
    /// A segment was created since the directory was last synced.
    pub(crate) directory_changed: bool,
    pub(crate) pending: Vec<Pending>,
    /// Watchers with a commit in `pending`.
    pub(crate) waiting: u32,
    /// Who makes what is written durable.
    pub(crate) lead: Lead,
    pub(crate) failure: Option<String>,
    pub(crate) closed: bool,
    /// The next segment is to be as small as a store's first.
    pub(crate) emptied: bool,
    /// Time of the first entry in the active segment, 0 while there is none.
    pub(crate) begun: Time,
    /// Since when housekeeping has seen entries in a segment.
    pub(crate) aging: Option<(u32, Time)>,
    /// What lies before was retired.
    pub(crate) retained_to: Position,
    pub(crate) tally: Tally,
    /// Payload bytes per segment that some log still needs.
    pub(crate) live_bytes: std::collections::BTreeMap<u32, u64>,
    /// Of the active segment, payload bytes that were let go.
    pub(crate) gone_bytes: u64,
    pub(crate) scratch: Vec<u8>,
}

/// What was done since the store was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Segments begun.
    pub(crate) rotations: u64,
    /// Purges that somebody asked for.
    pub(crate) purges: u64,
    /// Payload bytes let go.
    pub(crate) purged_bytes: u64,
    /// Bytes of segments removed.
    pub(crate) freed_bytes: u64,
    /// Batches written, and the bytes they took.
    pub(crate) batches: u64,
    pub(crate) batch_bytes: u64,
    /// Of the batches, those that a group has taken to be synced.
    pub(crate) batches_taken: u64,
    /// Entries written.
    pub(crate) entries: u64,
    /// Batches refused by the disk.
    pub(crate) failures: u64,
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
            times: Span::of(time),
            entries,
            body_bytes: 0,
            body_checksum: 0,
        };
        batch.sum();
        batch
    }

    fn sum(&mut self) {
        let (mut bytes, mut checksum) = (0, 0);
        self.pieces(|piece| {
            bytes += piece.len() as u64;
            checksum = crc32c::crc32c_append(checksum, piece);
        });
        (self.body_bytes, self.body_checksum) = (bytes, checksum);
    }

    /// Entries that are encoded one behind the other: one checksum and one copy for all of them.
    pub(crate) fn of_entries(
        entries: &'a Entries,
        touched: SmallVec<[(LogId, Offset); 1]>,
    ) -> PlannedBatch<'a> {
        let (encoded, count) = (&entries.bytes[..], entries.count);
        let (body_bytes, body_checksum) = (encoded.len() as u64, crc32c::crc32c(encoded));
        let frames = SmallVec::new();
        PlannedBatch {
            frames,
            encoded,
            beside: entries.beside,
            count,
            touched,
            times: entries.times.unwrap_or(Span::of(0)),
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

    /// Leaves out what it says of places where it is larger than a batch may be: that can wait for one that has room for it.
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
    fn lets_go(&self) -> bool {
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

impl Writer {
    /// End of the last batch.
    pub(crate) fn written(&self) -> Position {
        position(self.active.header.number, self.tip.end())
    }

    /// Writes one batch, and publishes it unless it is due later.
    pub(crate) fn append(
        &mut self,
        batch: &PlannedBatch<'_>,
        due: Due,
        control: &Control,
        segments: &Segments,
    ) -> Result<Placed, CommitError> {
        if self.closed {
            return Err(CommitError::Closed);
        }
        if let Some(why) = &self.failure {
            return Err(CommitError::Failed(why.clone()));
        }
        let limit = self.options.batch_bytes_max();
        let (size, too_large) = (batch.bytes(), |size| CommitError::TooLarge { size, limit });
        let length = u32::try_from(size).ok().filter(|_| size <= limit).ok_or_else(|| too_large(size))?;
        let logs = batch.touched.len();
        let touched = u16::try_from(logs);
        let touched = touched.map_err(|_| CommitError::TooManyLogs { logs, limit: usize::from(u16::MAX) })?;
        if length > self.tip.remaining() {
            let why = if batch.lets_go() { Why::ToLetGo } else { Why::ToGrow };
            self.rotate(length, why, control, segments).inspect_err(|_| self.tally.failures += 1)?;
        }
        self.bring_in(length);
        if batch.entries > 0 {
            self.tally.entries += batch.entries;
            self.note_times(&batch.times, control);
        }
        self.tally.batches += 1;
        self.tally.batch_bytes += size;
        let start = self.written();
        self.place(batch, (length, touched), control.durable(), due);
        let end = self.written();
        control.set_taken(end);
        self.show(control);
        Ok(Placed { start, end, bytes: length })
    }

    /// Keeps what searches by time rely on: known before the entry is visible.
    fn note_times(&mut self, span: &Span, control: &Control) {
        if self.begun == 0 {
            self.begun = span.first;
        }
        let before = self.times.lateness;
        self.times.join(span);
        if self.times.lateness > before {
            control.set_lateness(self.times.lateness);
        }
    }

    fn place(
        &mut self,
        batch: &PlannedBatch<'_>,
        (length, touched): (u32, u16),
        durable: Position,
        due: Due,
    ) {
        let header = BatchHeader {
            length,
            header_checksum: 0,
            body_checksum: batch.body_checksum,
            previous: self.link,
            durable,
            time: batch.times.latest(),
            frames: batch.count,
            touched,
        };
        let checksum = header.encode(&batch.touched, &mut self.scratch);
        self.link = Link { length, checksum };
        self.tip.put(&self.scratch, batch, due, &self.active);
    }

    /// Brings what is staged into the file.
    pub(crate) fn flush(&mut self, control: &Control) {
        self.tip.flush(&self.active);
        self.show(control);
    }

    /// Says how far the file goes.
    fn show(&self, control: &Control) {
        let end = position(self.active.header.number, self.tip.published());
        control.set_written(end);
        if self.options.durability != Durability::Sync {
            control.set_visible(end);
        }
    }

    fn rotate(
        &mut self,
        needed: u32,
        why: Why,
        control: &Control,
        segments: &Segments,
    ) -> Result<(), CommitError> {
        self.flush(control);
        let number = self.active.header.number + 1;
        let refused = |error: io::Error| CommitError::no_segment(&error);
        let (previous, latest) = (self.link, self.times.latest);
        let header = |capacity| SegmentHeader {
            number,
            store_id: control.store_id,
            previous,
            capacity,
            latest,
            ..SegmentHeader::default()
        };
        self.ahead.settle();
        let mut ahead = Ahead::default();
        let (segment, region) = match &self.directory {
            None => Segment::in_memory(header(self.next_capacity(needed))).map_err(refused)?,
            Some(_) => {
                let fits = |spare: &Spare| spare.capacity - SEGMENT_HEADER_BYTES >= needed;
                let spare = match self.spare.take() {
                    Some(spare) if spare.number == number && fits(&spare) => spare,
                    unfit => {
                        self.discard(unfit);
                        self.prepare_on_the_spot(number, needed, why).map_err(refused)?
                    }
                };
                self.directory_changed = true;
                if self.options.durability == Durability::Os {
                    // Before anything is stored through a map: the first fault on a page that is not there has the
                    // kernel read ahead, and what it reads is the zeros that nobody has written.
                    let first = stretch_bytes(spare.capacity);
                    let brought = spare.file.write_zeros(first.into(), 0);
                    ahead = Ahead::of(brought.map_or(spare.capacity, |()| first));
                }
                Segment::activate(header(spare.capacity), spare.file).map_err(refused)?
            }
        };
        let segment = Arc::new(segment);
        segments.add(segment.clone());
        control.bump_segments();
        let sealed = std::mem::replace(&mut self.active, segment);
        self.tip.move_to(region);
        (self.ahead, self.begun, self.gone_bytes) = (ahead, 0, 0);
        self.tally.rotations += 1;
        match self.options.durability {
            Durability::Sync => self.unsynced.push(sealed),
            Durability::Os => {
                sealed.release();
                self.unsynced.push(sealed);
            }
            // Nothing to sync, and nothing must keep a segment that no log needs.
            Durability::Memory => {}
        }
        Ok(())
    }

    /// Seals the active segment, unless nothing is in it.
    pub(crate) fn begin_next(
        &mut self,
        why: Why,
        control: &Control,
        segments: &Segments,
    ) -> Result<(), CommitError> {
        if self.closed {
            return Err(CommitError::Closed);
        }
        if let Some(why) = &self.failure {
            return Err(CommitError::Failed(why.clone()));
        }
        if self.tip.end() <= SEGMENT_HEADER_BYTES {
            return Ok(());
        }
        self.rotate(0, why, control, segments)
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
