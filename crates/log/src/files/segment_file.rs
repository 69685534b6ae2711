//! A segment's file, for callers that look through all of it: recovery, verification, parsing, backups.
//!
//! Purpose: one place that maps such a file and knows what may be wrong with it. In a store that is in use
//! the segment may have been compacted since its header was read, so the header is read once more. Bytes are
//! brought in before they are looked at, so that an unreadable sector is damage like any other, and no
//! signal. What is not [final](crate::final_end) is left out, or copied. Owns its map. *Checked by* the tests
//! of damage, with files that are cut short under their maps, and of stores that are looked at in use.

use crate::Position;
use crate::final_end::FinalEnd;
use crate::format::{Link, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::mapping;
use crate::runs::Runs;
use crate::scan::{self, Scan, Unseen};
use crate::segment;
use std::io;
use std::path::Path;
use std::sync::Arc;
use thalweg_sync::region::{Published, Region};
use thalweg_sys::disk::{Disk, File};

/// Bytes copied at a time; a whole number of pages.
const COPIED_BYTES: u32 = 64 << 10;
/// What of a copy is zeros where the disk does not give it.
const SECTOR_BYTES: usize = 4096;

/// A segment's file, as far as it is there and may be looked at.
#[derive(Clone, Debug)]
pub(crate) struct SegmentFile {
    header: SegmentHeader,
    region: Arc<Region>,
    held: u32,
    /// Where the end is of what walks brought in.
    brought: Arc<Published>,
}

impl SegmentFile {
    /// The file of a segment whose header was read.
    pub(crate) fn open(
        disk: &Disk,
        directory: &Path,
        header: &SegmentHeader,
        end: FinalEnd,
    ) -> io::Result<SegmentFile> {
        let file = disk.open_read_only(&directory.join(segment::file_name(header.number)))?;
        let length = header.capacity.min(u32::try_from(file.length()?).unwrap_or(u32::MAX));
        SegmentFile::map(&file, header, length, end)
    }

    /// The same of an open file of `held` bytes.
    pub(crate) fn map(
        file: &File,
        read: &SegmentHeader,
        held: u32,
        end: FinalEnd,
    ) -> io::Result<SegmentFile> {
        // Read, not mapped: how much may be looked at through a map depends on it.
        let mut now = [0; SEGMENT_HEADER_BYTES as usize];
        let header = file.read_at(&mut now, 0).ok().and_then(|()| SegmentHeader::decode(&now).ok());
        let header = header.unwrap_or(*read);
        let final_bytes = end.bytes_of(&header, held);
        let region = if end.copies() && final_bytes < held {
            copied(file, held)?
        } else {
            Arc::new(mapping::for_looking(file, &header, held, end)?)
        };
        mapping::bring_in_unread(&region, 0..SEGMENT_HEADER_BYTES.min(final_bytes));
        if let Some(table) = header.table_at() {
            mapping::bring_in_unread(&region, table..held);
        }
        let brought = Arc::new(Published::new(SEGMENT_HEADER_BYTES.min(final_bytes)));
        Ok(SegmentFile { header, region, held, brought })
    }

    /// Its header as it is now.
    pub(crate) fn header(&self) -> &SegmentHeader {
        &self.header
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Bytes that may be looked at.
    pub(crate) fn length(&self) -> u32 {
        self.region.published()
    }

    /// Bytes that are there.
    pub(crate) fn held(&self) -> u32 {
        self.held
    }

    /// All of them, from the header on.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.region.bytes(0..self.length())
    }

    /// The bytes of its batches, from the segment's first byte on, and the table that says where they stood.
    pub(crate) fn batches(&self) -> (&[u8], Runs<'_>) {
        Runs::split(&self.header, self.bytes())
    }

    /// A walk over its batches from a byte on, at which no earlier walk began or behind it.
    pub(crate) fn scan(&self, at: u32, link: Option<Link>) -> Scan<'_> {
        Scan::through(&self.header, self.batches(), at, link).over(self.unseen(at))
    }

    /// What a walk from a byte on has to bring in before it looks.
    fn unseen(&self, at: u32) -> Unseen<'_> {
        // Pages that an earlier walk has read some of, or the table, are left out: they were brought in, and
        // somebody may hold what was read of them.
        let page = u32::try_from(thalweg_sys::machine::page_bytes()).unwrap_or(u32::MAX);
        let from = self.brought.bytes().checked_next_multiple_of(page).unwrap_or(u32::MAX);
        let end =
            self.header.table_at().map_or(self.length(), |table| self.length().min(table / page * page));
        Unseen::new(&self.region, at.max(from)..end).kept_in(&self.brought)
    }

    /// The highest `durable` in any header that stands behind a place; 0 if none does.
    pub(crate) fn attested_durable(&self, behind: u32) -> Position {
        let (_, runs) = self.batches();
        scan::attested_durable(self.scan(runs.byte_of(behind), None), runs)
    }
}

/// A copy of a file, in memory of its own. What the disk does not give of it is zeros.
///
/// Only of what a crash left behind the final end, so mostly of one segment, and of one at a time. It takes
/// what is not zeros there, 1 GiB at most. Not piece by piece: a walk borrows bytes of one range, and a
/// caller of `parse` keeps payload of it for as long as it likes.
fn copied(file: &File, length: u32) -> io::Result<Arc<Region>> {
    let mut copy = Region::in_memory(length as usize)?;
    let mut chunk = vec![0; COPIED_BYTES.min(length) as usize];
    while copy.remaining() > 0 {
        let chunk = &mut chunk[..COPIED_BYTES.min(copy.remaining()) as usize];
        let at = u64::from(copy.filled());
        if file.read_at(chunk, at).is_err() {
            for (index, sector) in chunk.chunks_mut(SECTOR_BYTES).enumerate() {
                if file.read_at(sector, at + (index * SECTOR_BYTES) as u64).is_err() {
                    sector.fill(0);
                }
            }
        }
        // Pages of zeros take no memory as long as nothing stores to them.
        if chunk.iter().all(|byte| *byte == 0) {
            copy.pass(chunk.len() as u32);
        } else {
            copy.write(chunk);
        }
    }
    copy.publish();
    Ok(copy.region().clone())
}

/// Bytes from one on up to the last that is not zero.
pub(crate) fn used_bytes(bytes: &[u8], from: u32) -> u32 {
    let rest = bytes.get(from as usize..).unwrap_or_default();
    rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u32 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, Options, Store};

    /// Whether a file backs the page at an address of this process.
    fn is_of_a_file(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let [start, end] = [start, end].map(|hex| usize::from_str_radix(hex, 16).unwrap());
            (start..end).contains(&address)
        });
        line.unwrap().contains("segment-")
    }

    /// The caller of `parse` still holds the payload that an earlier walk read there.
    #[test]
    fn a_walk_puts_no_zeros_into_a_page_that_an_earlier_one_read() {
        let (directory, page) = (tempfile::tempdir().unwrap(), thalweg_sys::machine::page_bytes());
        let options = Options { durability: Durability::Os, ..Options::default() };
        let store = Store::open(&Disk::Real, directory.path(), options).unwrap().0;
        let log = store.log(b"a").unwrap();
        store.append(&log, &vec![7; page + page / 2], 1).unwrap();
        store.close().unwrap();
        let path = directory.path().join(segment::file_name(1));
        let header = segment::read_header(&Disk::Real, &path).unwrap().unwrap().unwrap();
        let file = SegmentFile::open(&Disk::Real, directory.path(), &header, FinalEnd::of_own()).unwrap();
        let end = file.scan(SEGMENT_HEADER_BYTES, Some(header.previous)).each(|_| {}).at;
        // The disk has lost the second page since.
        std::fs::File::options().write(true).open(&path).unwrap().set_len(page as u64).unwrap();
        file.unseen(end).reach(end + 1);
        assert!(is_of_a_file(file.region().start().as_ptr().addr() + page));
    }
}
