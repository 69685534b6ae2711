//! Segments: fixed-size files (or memory) that hold consecutive batches.
//!
//! A segment's blocks are allocated before it is mapped and it never changes size; its mapped bytes are
//! immutable once published. A file whose header is still zero is a spare, prepared ahead. Checksums are
//! verified once per process: what lies from `trusted_from` on was written or replayed by this process,
//! `verified` says how far the rest has been looked at, and spans found damaged are remembered, so that
//! they cost only the logs that lie in them.

use crate::error::{Damage, ReadError};
use crate::format::{BadHeader, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::scan::{Scan, Step};
use crate::{Position, position};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use thalweg_sync::region::{Published, Region, RegionWriter};
use thalweg_sys::disk::{Disk, File, Map};

const PREFIX: &str = "segment-";
/// Bytes verified under the lock at a time.
const VERIFY_STEP_BYTES: u32 = 1 << 20;

pub(crate) fn file_name(number: u32) -> String {
    format!("{PREFIX}{number:010}")
}

pub(crate) fn number_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX).filter(|digits| digits.len() == 10)?.parse().ok()
}

/// One segment, readable up to its published mark.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    file: Option<File>,
    region: Arc<Region>,
    trusted_from: u32,
    verified: Published,
    damage: Mutex<Vec<(Range<u32>, Damage)>>,
}

impl Segment {
    /// A segment in memory and its writer.
    pub(crate) fn in_memory(header: SegmentHeader) -> io::Result<(Segment, RegionWriter)> {
        Ok(Segment::begin(header, None, Map::anonymous(header.capacity as usize)?))
    }

    /// Makes an allocated file the next segment.
    pub(crate) fn activate(header: SegmentHeader, file: File) -> io::Result<(Segment, RegionWriter)> {
        let map = file.map(header.capacity as usize, true)?;
        Ok(Segment::begin(header, Some(file), map))
    }

    fn begin(header: SegmentHeader, file: Option<File>, map: Map) -> (Segment, RegionWriter) {
        let mut writer = Region::writable(map, 0);
        writer.write(&header.encode());
        writer.publish();
        (Segment::of(header, file, writer.region().clone(), SEGMENT_HEADER_BYTES), writer)
    }

    /// Takes a segment found on disk: its bytes up to `end` are final, and replayed from `trusted_from` on.
    pub(crate) fn resume(
        header: SegmentHeader,
        file: File,
        end: u32,
        trusted_from: u32,
    ) -> io::Result<(Segment, RegionWriter)> {
        let length = header.capacity.min(u32::try_from(file.length()?).unwrap_or(u32::MAX));
        let map = file.map(length as usize, true)?;
        let writer = Region::writable(map, end.min(length));
        Ok((Segment::of(header, Some(file), writer.region().clone(), trusted_from), writer))
    }

    fn of(header: SegmentHeader, file: Option<File>, region: Arc<Region>, trusted_from: u32) -> Segment {
        let verified = Published::new(SEGMENT_HEADER_BYTES);
        Segment { header, file, region, trusted_from, verified, damage: Mutex::default() }
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Lets go of the pages of a segment that is seldom read from now on.
    pub(crate) fn release(&self) {
        self.region.release();
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_data)
    }

    /// Makes sure that the batches in a range match their checksums, looking at each once per process.
    pub(crate) fn verify(&self, range: Range<u32>) -> Result<(), ReadError> {
        if range.end > self.region.published() {
            let (from, to) =
                (position(self.header.number, range.start), position(self.header.number, range.end));
            let damage = Damage { file: file_name(self.header.number), from, to, logs: None };
            return Err(ReadError::Damaged(Box::new(damage)));
        }
        if range.start >= self.trusted_from {
            return Ok(());
        }
        let to = range.end.min(self.trusted_from);
        while self.verified.bytes() < to {
            self.verify_next();
        }
        let damage = self.damage.lock();
        let hit = damage.iter().find(|(span, _)| span.start < range.end && range.start < span.end);
        hit.map_or(Ok(()), |(_, damage)| Err(ReadError::Damaged(Box::new(damage.clone()))))
    }

    /// Whether reading a range would neither verify anything nor wait for the disk.
    pub(crate) fn is_warm(&self, range: Range<u32>) -> bool {
        if range.end > self.region.published() {
            // Not there at all: the read says so without waiting.
            return true;
        }
        let verified =
            range.start >= self.trusted_from || self.verified.bytes() >= range.end.min(self.trusted_from);
        verified && self.region.is_resident(range)
    }

    /// Brings a range into memory and verifies it, waiting for the disk.
    pub(crate) fn warm(&self, range: Range<u32>) {
        // Whatever is damaged is reported by the read that follows.
        if self.verify(range.clone()).is_err() {
            return;
        }
        let bytes = self.region.bytes(range);
        std::hint::black_box(bytes.iter().step_by(4096).fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
    }

    /// Verifies one run of batches that stand, and whatever damage follows it.
    fn verify_next(&self) {
        let mut damage = self.damage.lock();
        let start = self.verified.bytes();
        let bytes = self.region.bytes(0..self.trusted_from);
        let link = (start == SEGMENT_HEADER_BYTES).then_some(self.header.previous);
        let mut scan = Scan::new(bytes, start, link);
        let stop = loop {
            match scan.step() {
                Step::Batch(batch) if batch.end() >= self.trusted_from => {
                    return self.verified.publish(batch.end());
                }
                Step::Batch(batch) if batch.end() - start > VERIFY_STEP_BYTES => {
                    return self.verified.publish(batch.end());
                }
                Step::Batch(_) => {}
                Step::Stop(stop) => break stop,
            }
        };
        // Zeros at the end of a sealed segment are no damage: nothing was ever there to be read.
        let end = stop.resumes_at.unwrap_or(self.trusted_from);
        let from: Position = position(self.header.number, stop.at);
        let to = position(self.header.number, end);
        damage
            .push((stop.at..end, Damage { file: file_name(self.header.number), from, to, logs: stop.logs }));
        self.verified.publish(end);
    }
}

/// The header of a file that may be a segment; `None` for a spare.
pub(crate) fn read_header(disk: &Disk, path: &Path) -> io::Result<Option<Result<SegmentHeader, BadHeader>>> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
    match disk.open_read_only(path)?.read_at(&mut bytes, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    Ok((bytes != [0; SEGMENT_HEADER_BYTES as usize]).then(|| SegmentHeader::decode(&bytes)))
}

/// The store's segments by number.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    table: RwLock<BTreeMap<u32, Arc<Segment>>>,
}

impl Segments {
    pub(crate) fn find(&self, number: u32) -> Option<Arc<Segment>> {
        self.table.read().get(&number).cloned()
    }

    pub(crate) fn add(&self, segment: Arc<Segment>) {
        self.table.write().insert(segment.header.number, segment);
    }

    pub(crate) fn remove(&self, number: u32) {
        self.table.write().remove(&number);
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.table.read().keys().copied().collect()
    }

    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.table.read().values().map(|segment| u64::from(segment.header.capacity)).sum()
    }
}
