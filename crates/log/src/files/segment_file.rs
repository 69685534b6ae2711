//! A segment's file, for callers that look through all of it: recovery, verification, parsing, backups.
//!
//! Purpose: one place that maps such a file and knows what may be wrong with it. In a store that is in use
//! the segment may have been compacted since its header was read, so the header is read once more. Bytes are
//! brought in before they are looked at, so that an unreadable sector is damage like any other, and no
//! signal. Owns its map. *Checked by* the tests of damage, with files that are cut short under their maps.

use crate::Position;
use crate::format::{Link, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::runs::Runs;
use crate::scan::{self, Scan};
use crate::segment;
use std::io;
use std::path::Path;
use std::sync::Arc;
use thalweg_sync::region::Region;
use thalweg_sys::disk::{Disk, File};

/// A segment's file, mapped, as far as it is there.
#[derive(Clone, Debug)]
pub(crate) struct SegmentFile {
    header: SegmentHeader,
    region: Arc<Region>,
}

impl SegmentFile {
    /// The file of a segment whose header was read; bytes at or behind `bound` are left out.
    pub(crate) fn open(
        disk: &Disk,
        directory: &Path,
        header: &SegmentHeader,
        bound: u32,
    ) -> io::Result<SegmentFile> {
        let file = disk.open_read_only(&directory.join(segment::file_name(header.number)))?;
        let length = header.capacity.min(u32::try_from(file.length()?).unwrap_or(u32::MAX));
        SegmentFile::map(&file, header, length, bound)
    }

    /// The same of an open file of `length` bytes.
    pub(crate) fn map(
        file: &File,
        header: &SegmentHeader,
        length: u32,
        bound: u32,
    ) -> io::Result<SegmentFile> {
        let region = Region::sealed(file.map(length as usize, false)?, bound.min(length));
        region.bring_in(0..SEGMENT_HEADER_BYTES);
        let header = SegmentHeader::decode(region.bytes(0..region.published())).unwrap_or(*header);
        if let Some(table) = header.table_at() {
            region.bring_in(table..length);
        }
        Ok(SegmentFile { header, region: Arc::new(region) })
    }

    /// Its header as it is now.
    pub(crate) fn header(&self) -> &SegmentHeader {
        &self.header
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Bytes that are there.
    pub(crate) fn length(&self) -> u32 {
        self.region.published()
    }

    /// All of them, from the header on.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.region.bytes(0..self.length())
    }

    /// The bytes of its batches, from the segment's first byte on, and the table that says where they stood.
    pub(crate) fn batches(&self) -> (&[u8], Runs<'_>) {
        Runs::split(&self.header, self.bytes())
    }

    /// A walk over its batches from a byte on.
    pub(crate) fn scan(&self, at: u32, link: Option<Link>) -> Scan<'_> {
        let unseen = scan::Unseen::new(&self.region, at..self.length());
        Scan::through(&self.header, self.batches(), at, link).over(unseen)
    }

    /// The highest `durable` in any header that stands behind a place; 0 if none does.
    pub(crate) fn attested_durable(&self, behind: u32) -> Position {
        let (_, runs) = self.batches();
        scan::attested_durable(self.scan(runs.byte_of(behind), None), runs)
    }
}

/// Bytes from one on up to the last that is not zero.
pub(crate) fn used_bytes(bytes: &[u8], from: u32) -> u32 {
    let rest = bytes.get(from as usize..).unwrap_or_default();
    rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u32 + 1)
}
