//! Reading a log's visible payload through its extents.
//!
//! Large pieces are borrowed from the map (the region lives as long as the bytes do), small ones are
//! gathered into one buffer: a piece costs a reference count, a copy costs its length.

use crate::error::ReadError;
use crate::extents::Extent;
use crate::fork::{Span, Spans, spans};
use crate::format::{self, BatchHeader, Kind};
use crate::log::{Inner, Log, Phase};
use crate::places::{Reach, Unfolded, said_in};
use crate::scan::{Batch, Scan, Step, Stop};
use crate::segment::{Segment, file_name};
use crate::store::{Shared, Store};
use crate::view::View;
use crate::{Offset, segment_of};
use bytes::Bytes;
use smallvec::SmallVec;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use thalweg_sync::region::Region;
use thalweg_sys::disk::Residency;
use thalweg_sys::hint;

/// Pieces shorter than this are copied together.
const BORROW_BYTES_MIN: u32 = 4096;

/// Of pieces of so many bytes or more it is said which file holds them.
pub const LENT_BYTES_MIN: usize = 64 << 10;

/// So many extents ahead of the one that is read memory is asked for.
const AHEAD: usize = 4;
/// And so much of each: what follows the processor fetches by itself.
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
    /// It begins inside a record, not where one does.
    pub inside: bool,
}

/// Bytes of payload: borrowed from a map, or copied together where they are few.
#[derive(Clone, Debug, Default)]
pub struct ReadPiece {
    /// The bytes.
    pub bytes: Bytes,
    /// The segment's file and where they begin in it, for whoever has the kernel send them from there: of
    /// [`LENT_BYTES_MIN`] or more that are borrowed.
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

/// Published bytes that keep their map.
pub(crate) struct Slice {
    pub(crate) region: Arc<Region>,
    pub(crate) range: Range<u32>,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self.region.bytes(self.range.clone())
    }
}

/// Joins small slices, keeps large ones as they are.
#[derive(Default)]
struct Gather {
    pieces: SmallVec<[ReadPiece; 3]>,
    small: Vec<u8>,
    bytes: usize,
    /// The first byte is not the first of its record.
    inside: bool,
}

impl Gather {
    fn add(&mut self, segment: &Segment, range: Range<u32>) {
        let region = segment.region();
        self.bytes += range.len();
        if range.len() < BORROW_BYTES_MIN as usize {
            self.small.extend_from_slice(region.bytes(range));
            return;
        }
        self.flush();
        let lent = if range.len() < LENT_BYTES_MIN { None } else { segment.descriptor() };
        let file = lent.map(|file| (file, range.start.into()));
        let bytes = Bytes::from_owner(Slice { region: region.clone(), range });
        self.pieces.push(ReadPiece { bytes, file });
    }

    fn flush(&mut self) {
        if !self.small.is_empty() {
            let bytes = std::mem::take(&mut self.small).into();
            self.pieces.push(ReadPiece { bytes, file: None });
        }
    }
}

/// What has to be brought into memory before a read that does not wait. To be run where waiting is fine.
pub struct Warming {
    spans: SmallVec<[(Arc<Segment>, Range<u32>); 4]>,
    shared: Arc<Shared>,
}

impl Warming {
    /// Reads and verifies, waiting for the disk.
    pub fn run(self) {
        for (segment, range) in self.spans {
            // What is damaged the read that follows says; whom it harms is found out here.
            if let Err(ReadError::Damaged(damage)) = segment.warm(range) {
                self.shared.note_harm(&damage);
            }
        }
    }
}

/// Looks for what is not in memory, or not verified, among ranges of segments; best in their order.
struct Probe<'v> {
    view: &'v View,
    segment: Option<(&'v Arc<Segment>, Residency<'v>)>,
    spans: SmallVec<[(Arc<Segment>, Range<u32>); 4]>,
}

impl<'v> Probe<'v> {
    fn new(view: &'v View) -> Self {
        Self { view, segment: None, spans: SmallVec::new() }
    }

    /// Notes a range of places that is cold. What is not there at all the read complains of, without waiting.
    fn look(&mut self, number: u32, places: Range<u32>) {
        if self.segment.as_ref().is_none_or(|(segment, _)| segment.header.number != number) {
            let of = |segment: &'v Arc<Segment>| (segment, segment.residency(segment.region().published()));
            self.segment = self.view.find(number).map(of);
        }
        if let Some((segment, residency)) = &mut self.segment
            && let Some(range) = segment.runs().bytes_of(places)
        {
            let there = range.end <= segment.region().published();
            if there && !segment.is_warm(range.clone(), residency) {
                self.spans.push((Arc::clone(segment), range));
            }
        }
    }

    fn found(self, shared: &Arc<Shared>) -> Option<Warming> {
        (!self.spans.is_empty()).then(|| Warming { spans: self.spans, shared: shared.clone() })
    }
}

impl Store {
    /// What a read of the same bytes would have to wait for; `None` when it would not. Whoever has brought it in asks again: what
    /// says where more lies may have been part of it. The segment being written is always warm.
    pub fn cold(&self, log: &Log, from: Offset, limit: usize) -> Option<Warming> {
        let to = from.saturating_add(limit.max(1) as u64);
        let found = {
            let inner = log.lock();
            let to = to.min(inner.tail_visible);
            self::spans(log, &inner, from, to, inner.tail_visible).unwrap_or_default()
        };
        let (view, limit) = (self.shared.segments.latest(), self.shared.control.written());
        let (newest, reach) = (segment_of(limit), Reach { view: &view, limit });
        let sealed = |extent: &Extent| segment_of(extent.position) != newest;
        let mut said = Probe::new(&view);
        for (_, extent) in in_order(&found).filter(|(_, extent)| sealed(extent) && extent.is_folded()) {
            let (number, places) = said_in(extent);
            let there = view.find(number).map_or(0, |segment| segment.places_end());
            if number != newest && places.start < there {
                said.look(number, places.start..places.end.min(there));
            }
        }
        if let Some(warming) = said.found(&self.shared) {
            // Until it is known where the rest lies there is nothing more to look at.
            return Some(warming);
        }
        let mut probe = Probe::new(&view);
        for (span, extent) in in_order(&found).filter(|(_, extent)| sealed(extent)) {
            let to = to.min(span.cut);
            // Where nobody says, the read looks everywhere.
            let told = extent.is_folded().then(|| reach.told(span.log, extent)).flatten();
            let each = told.map_or_else(|| Unfolded::itself(*extent), Unfolded::Told);
            for one in each.filter(|one| one.holds(from, to)) {
                probe.look(segment_of(one.position), one.bytes());
            }
        }
        probe.found(&self.shared)
    }

    /// Visible payload from an offset: at most about `limit` bytes, whole records, at least one if there is
    /// one. An offset inside a record begins inside it; a record inside which a fork branches off ends
    /// there. Complexity: a search of the log's extents, and of those of the ancestors that hold some of
    /// it, then the frames read.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(&self, log: &Log, from: Offset, limit: usize) -> Result<Read, ReadError> {
        let view = |inner: &Inner| {
            (inner.phase == Phase::Live).then_some((inner.tail_visible, inner.closed_visible))
        };
        self.noted(self.read_view(log, from, limit, false, view))
    }

    /// What is left of one record from an offset on, in the staged view: for whoever has to decide on
    /// what the next commit will be judged by. Nothing at the staged end.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn record(&self, log: &Log, from: Offset) -> Result<Read, ReadError> {
        let view = |inner: &Inner| (!inner.deleting).then_some((inner.tail, inner.closed));
        self.noted(self.read_view(log, from, 1, true, view))
    }

    /// Has damage that a read came upon known.
    fn noted(&self, read: Result<Read, ReadError>) -> Result<Read, ReadError> {
        if let Err(ReadError::Damaged(damage)) = &read {
            self.shared.note_harm(damage);
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
        let (spans, to, tail, closed) = {
            let inner = log.lock();
            let (tail, closed) = view(&inner).ok_or(ReadError::Deleted)?;
            if let Some(damage) = inner.damage() {
                return Err(ReadError::Damaged(Box::new(damage.clone())));
            }
            if from > tail {
                return Err(ReadError::PastEnd { from, tail });
            }
            if from < inner.first_visible {
                return Err(ReadError::Purged { from, first: inner.first_visible });
            }
            let to = from.saturating_add(limit.max(1) as u64).min(tail);
            (spans(log, &inner, from, to, tail)?, to, tail, closed)
        };
        // What was just seen of a log may be in no file yet.
        if staged {
            self.shared.flush_staged();
        }
        let view = self.shared.segments.latest();
        // Deleted or purged meanwhile, and its segments gone with it.
        let gone = |error| {
            let inner = log.lock();
            match inner.first_visible {
                _ if inner.is_gone() => ReadError::Deleted,
                first if from < first => ReadError::Purged { from, first },
                _ => error,
            }
        };
        let reach = Reach { view: &view, limit: self.shared.control.written() };
        let mut gather =
            Gather { small: Vec::with_capacity(limit.min(small_bytes(&spans))), ..Gather::default() };
        let mut next = from;
        let mut ahead = in_order(&spans).skip(AHEAD);
        'read: for (span, extent) in in_order(&spans) {
            if let Some((_, extent)) = ahead.next() {
                fetch(&view, extent);
            }
            let unfolded = reach.unfold(span.log, extent).map_err(gone)?;
            let mut ahead = unfolded.clone().skip(AHEAD);
            let to = to.min(span.cut);
            for extent in unfolded {
                if let Some(extent) = ahead.next() {
                    fetch(&view, &extent);
                }
                if !extent.holds(from, to) {
                    continue;
                }
                if !read_extent(reach, (span, &extent), limit, &mut next, &mut gather).map_err(gone)? {
                    break 'read;
                }
                if next < extent.end().min(to) {
                    return Err(gone(nothing_holds(next, &extent)));
                }
            }
        }
        gather.flush();
        Ok(Read { pieces: gather.pieces, next, at_tail: next == tail, closed, inside: gather.inside })
    }
}

/// An extent ends before it should.
fn nothing_holds(offset: Offset, extent: &Extent) -> ReadError {
    let why = format!("nothing holds offset {offset} there");
    ReadError::Io { file: file_name(segment_of(extent.position)), why }
}

/// What the copy buffer may come to need.
fn small_bytes(spans: &Spans) -> usize {
    let extents = spans.iter().flat_map(|span| &span.extents);
    extents.map(|extent| extent.length as usize).sum::<usize>().min(64 << 10)
}

/// The extents of a read, the first one first.
fn in_order(spans: &Spans) -> impl Iterator<Item = (&Span, &Extent)> {
    spans.iter().rev().flat_map(|span| span.extents.iter().map(move |extent| (span, extent)))
}

/// Has the processor fetch an extent that is read soon, or what says where it lies: records of one log lie far from each other
/// among others'.
fn fetch(view: &View, extent: &Extent) {
    let (number, places) =
        if extent.is_folded() { said_in(extent) } else { (segment_of(extent.position), extent.bytes()) };
    if let Some(segment) = view.find(number)
        && let Some(range) = segment.runs().bytes_of(places)
    {
        let bytes = segment.region().bytes(0..segment.region().published());
        hint::prefetch_run(bytes, range.start as usize..range.end as usize, FETCHED_BYTES_MAX);
    }
}

/// Gathers from one extent what lies below the cut. `false` when the limit is reached.
fn read_extent(
    reach: Reach<'_>,
    (span, extent): (&Span, &Extent),
    limit: usize,
    next: &mut Offset,
    gather: &mut Gather,
) -> Result<bool, ReadError> {
    let number = segment_of(extent.position);
    let segment = reach.segment(number)?;
    let Range { start, mut end } = segment.bytes_of(extent)?;
    if extent.end_position() > reach.limit {
        // Its last batches were staged when this read began.
        end = end.min(segment.end(reach.limit).max(start));
    }
    segment.verify(start..end)?;
    let bytes = segment.region().bytes(0..end);
    let mut at = start;
    while at < end {
        let rest = &bytes[at as usize..];
        let header = BatchHeader::claimed(rest).filter(|header| header.touched > 0);
        let body_of = |header: &BatchHeader| rest.get(header.body_start() as usize..header.length as usize);
        let Some((header, body)) = header.and_then(|header| Some((header, body_of(&header)?))) else {
            return Err(ReadError::Io { file: file_name(number), why: format!("no batch at byte {at}") });
        };
        let body_at = at + header.body_start();
        for frame in format::frames(body) {
            let end = (frame.offset + frame.payload.len() as u64).min(span.cut);
            if frame.log != span.log || frame.kind != Kind::Data || end <= *next {
                continue;
            }
            if frame.offset > *next {
                let why = format!("the bytes from {next} on are not where they should be, at byte {at}");
                return Err(ReadError::Io { file: file_name(number), why });
            }
            let length = usize::try_from(end - *next).unwrap_or(usize::MAX);
            if gather.bytes > 0 && gather.bytes + length > limit {
                return Ok(false);
            }
            gather.inside |= gather.bytes == 0 && frame.offset < *next;
            let byte = |offset: Offset| u32::try_from(offset - frame.offset).unwrap_or(0);
            let payload_at = body_at + frame.payload_at;
            gather.add(segment, payload_at + byte(*next)..payload_at + byte(end));
            *next = end;
        }
        at += header.length;
    }
    Ok(true)
}

/// Walks every batch of a segment, for tools.
pub(crate) fn walk(mut scan: Scan<'_>, mut visit: impl FnMut(&Batch<'_>)) -> Stop {
    loop {
        match scan.step() {
            Step::Batch(batch) => visit(&batch),
            Step::Stop(stop) => return stop,
        }
    }
}
