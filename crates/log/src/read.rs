//! Reading a log's visible payload through its extents.
//!
//! Large pieces are borrowed from the map (the region lives as long as the bytes do), small ones are
//! gathered into one buffer: a piece costs a reference count, a copy costs its length.

use crate::error::ReadError;
use crate::extents::Extent;
use crate::format::{self, BatchHeader, Kind};
use crate::log::{Log, Phase};
use crate::scan::{Scan, Step};
use crate::segment::{Segment, file_name};
use crate::store::{Shared, Store};
use crate::{LogId, Offset, byte_of, segment_of};
use bytes::Bytes;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use thalweg_sync::region::Region;

/// Pieces shorter than this are copied together.
const BORROW_BYTES_MIN: u32 = 4096;

/// Part of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Payload in order.
    pub pieces: SmallVec<[Bytes; 3]>,
    /// Offset after it.
    pub next: Offset,
    /// Nothing visible follows.
    pub at_tail: bool,
    /// The log is visibly closed.
    pub closed: bool,
}

struct Slice {
    region: Arc<Region>,
    range: Range<u32>,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self.region.bytes(self.range.clone())
    }
}

/// Joins small slices, keeps large ones as they are.
#[derive(Default)]
struct Gather {
    pieces: SmallVec<[Bytes; 3]>,
    small: Vec<u8>,
    bytes: usize,
}

impl Gather {
    fn add(&mut self, region: &Arc<Region>, range: Range<u32>) {
        self.bytes += range.len();
        if range.len() < BORROW_BYTES_MIN as usize {
            self.small.extend_from_slice(region.bytes(range));
            return;
        }
        self.flush();
        self.pieces.push(Bytes::from_owner(Slice { region: region.clone(), range }));
    }

    fn flush(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(std::mem::take(&mut self.small).into());
        }
    }
}

/// What has to be brought into memory before a read that does not wait. To be run where waiting is fine.
pub struct Warming {
    spans: SmallVec<[(Arc<Segment>, Range<u32>); 4]>,
}

impl Warming {
    /// Reads and verifies, waiting for the disk.
    pub fn run(self) {
        for (segment, range) in self.spans {
            segment.warm(range);
        }
    }
}

impl Store {
    /// What a read of the same bytes would have to wait for; `None` when it would not. The segment being
    /// written is always warm.
    pub fn cold(&self, log: &Log, from: Offset, limit: usize) -> Option<Warming> {
        let newest = segment_of(self.shared.control.written());
        let extents: SmallVec<[Extent; 8]> = {
            let inner = log.lock();
            let to = from.saturating_add(limit.max(1) as u64).min(inner.tail_visible);
            let covering = inner.extents.covering(from, to);
            covering.iter().filter(|extent| segment_of(extent.position) != newest).copied().collect()
        };
        let mut spans = SmallVec::new();
        for extent in extents {
            let start = byte_of(extent.position);
            let range = start..start + extent.span;
            match self.shared.segments.find(segment_of(extent.position)) {
                Some(segment) if !segment.is_warm(range.clone()) => spans.push((segment, range)),
                _ => {}
            }
        }
        (!spans.is_empty()).then_some(Warming { spans })
    }

    /// Visible payload from an offset: at most about `limit` bytes, whole records, at least one if there is
    /// one. An offset inside a record begins inside it. Complexity: a search of the log's extents, then
    /// the frames read.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(&self, log: &Log, from: Offset, limit: usize) -> Result<Read, ReadError> {
        let (extents, tail, closed) = {
            let inner = log.lock();
            if inner.phase != Phase::Live {
                return Err(ReadError::Deleted);
            }
            if let Some(damage) = &inner.damage {
                return Err(ReadError::Damaged(damage.clone()));
            }
            let tail = inner.tail_visible;
            if from > tail {
                return Err(ReadError::PastEnd { from, tail });
            }
            let to = from.saturating_add(limit.max(1) as u64).min(tail);
            let extents: SmallVec<[Extent; 8]> = inner.extents.covering(from, to).into();
            (extents, tail, inner.closed_visible)
        };
        let mut gather =
            Gather { small: Vec::with_capacity(limit.min(small_bytes(&extents))), ..Gather::default() };
        let mut next = from;
        for extent in &extents {
            if !self.shared.read_extent(log.id(), extent, tail, limit, &mut next, &mut gather)? {
                break;
            }
        }
        gather.flush();
        Ok(Read { pieces: gather.pieces, next, at_tail: next == tail, closed })
    }
}

/// What the copy buffer may come to need.
fn small_bytes(extents: &[Extent]) -> usize {
    extents.iter().map(|extent| extent.length as usize).sum::<usize>().min(64 << 10)
}

impl Shared {
    /// Gathers from one extent. `false` when the limit or the tail is reached.
    fn read_extent(
        &self,
        log: LogId,
        extent: &Extent,
        tail: Offset,
        limit: usize,
        next: &mut Offset,
        gather: &mut Gather,
    ) -> Result<bool, ReadError> {
        let number = segment_of(extent.position);
        let missing = || ReadError::Io { file: file_name(number), why: "the segment is missing".into() };
        let segment: Arc<Segment> = self.segments.find(number).ok_or_else(missing)?;
        let start = byte_of(extent.position);
        segment.verify(start..start + extent.span)?;
        let bytes = segment.region().bytes(0..start + extent.span);
        let mut at = start;
        while at < start + extent.span {
            let Some(header) = BatchHeader::decode(&bytes[at as usize..]) else {
                return Err(ReadError::Io { file: file_name(number), why: format!("no batch at byte {at}") });
            };
            let body_at = at + header.body_start();
            let body = &bytes[body_at as usize..(at + header.length) as usize];
            for frame in format::frames(body) {
                let end = frame.offset + frame.payload.len() as u64;
                if frame.log != log || frame.kind != Kind::Data || end <= *next {
                    continue;
                }
                if *next >= tail || (gather.bytes > 0 && gather.bytes + frame.payload.len() > limit) {
                    return Ok(false);
                }
                let skip = u32::try_from(*next - frame.offset).unwrap_or(0);
                let payload_at = body_at + frame.payload_at;
                let payload_end = payload_at + u32::try_from(frame.payload.len()).unwrap_or(0);
                gather.add(segment.region(), payload_at + skip..payload_end);
                *next = end;
            }
            at += header.length;
        }
        Ok(true)
    }
}

/// Walks every batch of a segment, for tools.
pub(crate) fn walk(
    bytes: &[u8],
    at: u32,
    link: Option<format::Link>,
    mut visit: impl FnMut(&crate::scan::Batch<'_>),
) -> crate::scan::Stop {
    let mut scan = Scan::new(bytes, at, link);
    loop {
        match scan.step() {
            Step::Batch(batch) => visit(&batch),
            Step::Stop(stop) => return stop,
        }
    }
}
