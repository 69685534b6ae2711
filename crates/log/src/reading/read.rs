//! Reading a log's visible payload: through its extents, and from what is settled.
//!
//! Pieces of [`BORROW_BYTES_MIN`] or more are borrowed from the map, which lives as long as they do, and cost
//! a reference count. Smaller ones are copied into one buffer and cost their length.

use crate::error::{CommitError, ReadError};
use crate::extents::Extent;
use crate::fork::{ReadParts, read_parts};
use crate::log::{Inner, Log, Phase};
use crate::places::{Unfolder, listing_of};
use crate::records::{each_record, nothing_holds};
use crate::route::{Leg, Route};
use crate::segment::{Segment, file_name};
use crate::slice::Slice;
use crate::store::Store;
use crate::view::View;
use crate::{LogId, Offset, segment_of};
use bytes::Bytes;
use smallvec::SmallVec;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use thalweg_sync::region::Region;
use thalweg_sys::hint;

/// Pieces of fewer bytes are copied together.
pub(crate) const BORROW_BYTES_MIN: u32 = 4096;

/// A borrowed piece of this many bytes or more comes with the file that holds it.
const LENT_BYTES_MIN: usize = 64 << 10;

/// Memory is fetched for the extent that lies this many ahead of the one being read.
const AHEAD: usize = 4;
/// Bytes fetched of each: the processor fetches what follows by itself.
const FETCHED_BYTES_MAX: usize = 512;

/// Part of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Payload in order.
    pub pieces: SmallVec<[ReadPiece; 3]>,
    /// Offset after it.
    pub next: Offset,
    /// Nothing visible follows.
    pub at_tail: bool,
    /// The log is visibly closed.
    pub closed: bool,
    /// It begins in the middle of a record.
    pub inside: bool,
}

/// Bytes of payload: borrowed from a map, or small pieces copied together.
#[derive(Clone, Debug, Default)]
pub struct ReadPiece {
    /// The bytes.
    pub bytes: Bytes,
    /// The segment's file and the byte at which they begin in it, so that a caller can have the kernel send
    /// them from there. Given of borrowed pieces of 64 KiB or more.
    pub file: Option<(Arc<OwnedFd>, u64)>,
}

impl PartialEq for ReadPiece {
    fn eq(&self, other: &ReadPiece) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for ReadPiece {}

impl std::ops::Deref for ReadPiece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::borrow::Borrow<[u8]> for ReadPiece {
    fn borrow(&self) -> &[u8] {
        &self.bytes
    }
}

/// Joins small slices, keeps large ones as they are.
#[derive(Default)]
struct Gather<'v> {
    pieces: SmallVec<[ReadPiece; 3]>,
    small: Vec<u8>,
    bytes: usize,
    /// The first byte is in the middle of its record.
    inside: bool,
    /// The segment last read, and the bytes copied out of it so far.
    copied: Option<(&'v Segment, u64)>,
    /// The newest segment. Copies out of it are of new entries and say nothing about reads of history.
    newest: u32,
}

impl<'v> Gather<'v> {
    /// Adds what lies in a segment.
    fn add(&mut self, segment: &'v Segment, range: Range<u32>) {
        let length = range.len();
        self.put(segment.region(), range, || segment.descriptor());
        if length < BORROW_BYTES_MIN as usize && segment.header.number < self.newest {
            match &mut self.copied {
                Some((same, copied)) if std::ptr::eq(*same, segment) => *copied += length as u64,
                _ => {
                    self.count();
                    self.copied = Some((segment, length as u64));
                }
            }
        }
    }

    /// Adds bytes of a mapped file.
    fn put(&mut self, region: &Arc<Region>, range: Range<u32>, file: impl Fn() -> Option<Arc<OwnedFd>>) {
        self.bytes += range.len();
        if range.len() < BORROW_BYTES_MIN as usize {
            self.small.extend_from_slice(region.bytes(range));
            return;
        }
        self.flush();
        let lent = if range.len() < LENT_BYTES_MIN { None } else { file() };
        let file = lent.map(|file| (file, range.start.into()));
        let bytes = Bytes::from_owner(Slice { region: region.clone(), range });
        self.pieces.push(ReadPiece { bytes, file });
    }

    /// Adds what was copied to the segment's count, by which housekeeping decides what to settle.
    fn count(&mut self) {
        if let Some((segment, bytes)) = self.copied.take() {
            segment.copied(bytes);
        }
    }

    /// What was gathered, and whether it begins in the middle of a record.
    fn finish(mut self) -> (SmallVec<[ReadPiece; 3]>, bool) {
        self.count();
        self.flush();
        (self.pieces, self.inside)
    }

    fn flush(&mut self) {
        if !self.small.is_empty() {
            let bytes = std::mem::take(&mut self.small).into();
            self.pieces.push(ReadPiece { bytes, file: None });
        }
    }
}

impl Store {
    /// Visible payload from an offset: at most about `limit` bytes, whole records, at least one if there is
    /// one. An offset inside a record begins inside it; a record inside which a fork branches off ends
    /// there. Complexity: a search of the log's extents, and of those of the ancestors that hold some of
    /// it, then the frames read.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(&self, log: &Log, from: Offset, limit: usize) -> Result<Read, ReadError> {
        let view =
            |inner: &Inner| inner.phase.is_visible().then_some((inner.tail_visible, inner.closed_visible));
        self.noted(self.read_view(log, from, limit, false, view))
    }

    /// The rest of one record from an offset on, in the staged view: for a caller that decides on what its
    /// next commit is judged by. Nothing at the staged end.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn record(&self, log: &Log, from: Offset) -> Result<Read, ReadError> {
        let view = |inner: &Inner| (!inner.phase.is_deleting()).then_some((inner.tail, inner.closed));
        self.noted(self.read_view(log, from, 1, true, view))
    }

    /// Notes the damage that a read came upon.
    fn noted(&self, read: Result<Read, ReadError>) -> Result<Read, ReadError> {
        if let Err(ReadError::Damaged(damage)) = &read {
            self.shared.note_damage_read(damage);
        }
        read
    }

    fn read_view(
        &self,
        log: &Log,
        from: Offset,
        limit: usize,
        staged: bool,
        view: impl FnOnce(&Inner) -> Option<(Offset, bool)>,
    ) -> Result<Read, ReadError> {
        let (parts, to, tail, closed) = {
            let inner = log.lock();
            self.shared.owns(&inner).map_err(|_| ReadError::OtherStore)?;
            let (tail, closed) = view(&inner).ok_or(ReadError::Deleted)?;
            if let Some(damage) = inner.damage() {
                return Err(ReadError::damaged(damage));
            }
            if from > tail {
                return Err(ReadError::PastEnd { from, tail });
            }
            if from < inner.first_visible {
                return Err(ReadError::Purged { from, first: inner.first_visible });
            }
            let to = from.saturating_add(limit.max(1) as u64).min(tail);
            (read_parts(log, &inner, from, to, tail)?, to, tail, closed)
        };
        // Staged batches may be in no file yet.
        if staged {
            let newest = segment_of(self.shared.control.staged_end());
            let failed =
                |error: CommitError| ReadError::Io { file: file_name(newest), why: error.to_string() };
            self.shared.flush_staged().map_err(failed)?;
        }
        let view = self.shared.segments.latest();
        // A failed read of a log that was deleted or purged meanwhile: its segments went with it.
        let gone = |error| {
            let inner = log.lock();
            match inner.first_visible {
                _ if inner.phase == Phase::Deleted => ReadError::Deleted,
                first if from < first => ReadError::Purged { from, first },
                _ => error,
            }
        };
        let unfolder = Unfolder { view: &view, limit: self.shared.control.file_end() };
        let small = Vec::with_capacity(limit.min(small_bytes(&parts)));
        let newest = view.all().last().map_or(0, |segment| segment.header.number);
        let gather = Gather { small, newest, ..Gather::default() };
        let mut reading = Reading { unfolder, to, limit, next: from, gather };
        reading.go(Route::new(&view, &parts, from, to)).map_err(gone)?;
        let Reading { next, gather, .. } = reading;
        let (pieces, inside) = gather.finish();
        Ok(Read { pieces, next, at_tail: next == tail, closed, inside })
    }
}

/// A read that is under way.
struct Reading<'v> {
    unfolder: Unfolder<'v>,
    to: Offset,
    limit: usize,
    next: Offset,
    gather: Gather<'v>,
}

impl<'v> Reading<'v> {
    /// Goes as far as the limit allows.
    fn go(&mut self, mut route: Route<'v>) -> Result<(), ReadError> {
        while let Some(leg) = route.next() {
            match leg {
                Leg::Together { settled, from, to, .. } if settled.verify(from..to) => {
                    self.gather.put(settled.region(), from..to, || settled.descriptor());
                    self.next += u64::from(to - from);
                }
                // What is settled is damaged. The same bytes are in the segment.
                Leg::Together { offset, .. } => route.again(offset),
                Leg::Among { log, extent, cut, .. } => {
                    if let Some(extent) = route.ahead(AHEAD) {
                        fetch(self.unfolder.view, extent);
                    }
                    if !self.among(log, extent, cut)? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads what an extent holds of a log. `false`: the limit is reached.
    fn among(&mut self, log: LogId, extent: &Extent, cut: Offset) -> Result<bool, ReadError> {
        let Reading { unfolder, limit, next, gather, .. } = self;
        let unfolded = unfolder.unfold(log, extent)?;
        let (mut ahead, to) = (unfolded.clone().skip(AHEAD), self.to.min(cut));
        for extent in unfolded {
            if let Some(extent) = ahead.next() {
                fetch(unfolder.view, &extent);
            }
            if !extent.holds(*next, to) {
                continue;
            }
            let whole = each_record(*unfolder, log, &extent, cut, next, |segment, record| {
                if gather.bytes > 0 && gather.bytes + record.range.len() > *limit {
                    return false;
                }
                gather.inside |= gather.bytes == 0 && record.inside;
                gather.add(segment, record.range);
                true
            })?;
            if !whole {
                return Ok(false);
            }
            if *next < extent.end().min(to) {
                return Err(nothing_holds(*next, &extent));
            }
        }
        Ok(true)
    }
}

/// An upper bound of what the copy buffer needs.
fn small_bytes(parts: &ReadParts) -> usize {
    let extents = parts.iter().flat_map(|part| &part.extents);
    extents.map(|extent| extent.length as usize).sum::<usize>().min(64 << 10)
}

/// Prefetches an extent that is read soon, or the frame that says where its parts lie. Records of one log in
/// a busy store lie far apart, so the processor cannot foresee them.
fn fetch(view: &View, extent: &Extent) {
    let (number, places) =
        if extent.is_folded() { listing_of(extent) } else { (segment_of(extent.position), extent.bytes()) };
    if let Some(segment) = view.find(number)
        && let Some(range) = segment.runs().bytes_of(places)
    {
        let bytes = segment.region().bytes(0..segment.region().published());
        hint::prefetch_run(bytes, range.start as usize..range.end as usize, FETCHED_BYTES_MAX);
    }
}
