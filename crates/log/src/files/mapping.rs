//! The maps of a store's files: the one place in this crate where unsafe code stands.
//!
//! Bytes of a map may be borrowed for as long as nothing stores to them. No type proves that of a file that
//! other processes map, too. These rules of the store do, each kept by the module that is named:
//!
//! 1. Only the process that has the store locked changes its files (`open`). It writes a segment by one
//!    `RegionWriter`, and stores nothing in front of the end that it published (`writer`). What recovery
//!    rewrites there keeps its value, and it lets go of its own maps before (`recover`).
//! 2. Where the batches of a segment end is published in the control file behind the stores, and read in
//!    front of the loads (`control`). A segment in front of the one that holds that end is written no more.
//! 3. A compacted segment, a settled file and a checkpoint are written under another name and take their own
//!    when all is there (`working`). Nothing stores to them again.
//! 4. No file of a store changes its length, and its name may go while it is mapped, which keeps it.
//!
//! A program that does otherwise to these files breaks every reader of them, as it does with any database
//! that maps its files. *Checked by* the tests of stores that are looked at while another process writes
//! them, of attached processes, and of damage.

use crate::final_end::FinalEnd;
use crate::format::SegmentHeader;
use std::io;
use std::ops::Range;
use thalweg_sync::region::{Final, Region, RegionWriter};
use thalweg_sys::disk::File;

/// The first `length` bytes of a segment's file, for the process that has the store locked. `end` is where
/// the batches found in it end, or 0 for a file that becomes a segment now.
pub(crate) fn for_writing(file: &File, length: u32, end: u32) -> io::Result<RegionWriter> {
    let map = file.map(length as usize, true)?;
    // SAFETY: by rule 1 no other process stores to the file, and each segment is mapped for writing
    // once: when it is begun, or when the store is opened.
    Ok(unsafe { Region::writable(map, end) })
}

/// The first `length` bytes of a segment's file that another process may be writing, up to the end of its
/// header, `header_bytes`, which was read whole.
pub(crate) fn for_following(file: &File, length: u32, header_bytes: u32) -> io::Result<Region> {
    let map = file.map(length as usize, false)?;
    // SAFETY: the header's checksum held, so all of it had been stored, and it is stored once (rule 1).
    Ok(unsafe { Region::follow(map, header_bytes.min(length)) })
}

/// Moves the mark of a segment that another process may be writing to `end`: where the store's published
/// end lies in it, or the end of the file if the published end lies in a later segment or if the segment was
/// compacted.
#[inline]
pub(crate) fn follow_to(region: &Region, end: u32) {
    // SAFETY: by rule 2 everything in front of the published end is there for a thread that has loaded it,
    // and final. By rules 2 and 3 so is all of an earlier segment and of a compacted one.
    unsafe { region.advance(end) }
}

/// The `length` bytes of a segment's file as they may be looked at by a caller that is not a reader: those
/// that are final by `end`. The rest is mapped and not shown.
pub(crate) fn for_looking(
    file: &File,
    header: &SegmentHeader,
    length: u32,
    end: FinalEnd,
) -> io::Result<Region> {
    let map = file.map(length as usize, false)?;
    // SAFETY: a `FinalEnd` is the end that the writer published (rule 2), or all there is for a caller that
    // has the store locked itself and lets go of the map before it writes (rule 1). A header that says that
    // its segment was compacted was read from this very file (rule 3).
    Ok(unsafe { Region::sealed(map, end.bytes_of(header, length)) })
}

/// All `length` bytes of a file that is written whole before it gets its name: of a compacted segment or of
/// what is settled of one.
pub(crate) fn of_whole_file(file: &File, length: u32) -> io::Result<Region> {
    let map = file.map(length as usize, false)?;
    // SAFETY: by rule 3 nothing stores to it again.
    Ok(unsafe { Region::sealed(map, length) })
}

/// All of a checkpoint, which may be longer than a segment.
pub(crate) fn of_checkpoint(file: &File, length: usize) -> io::Result<Final> {
    let map = file.map(length, false)?;
    // SAFETY: by rule 3 nothing stores to it again.
    Ok(unsafe { Final::new(map) })
}

/// Brings in pages of a region that its owner has not read before, waiting for the disk. What the disk does
/// not give is zeros from then on.
pub(crate) fn bring_in_unread(region: &Region, range: Range<u32>) {
    // SAFETY: each owner of a region remembers how far it has read: a segment moves its mark under the lock
    // of its damage, a settled file looks at each block under a lock, and a segment's file that is looked
    // through keeps the end of what it brought in. Each leaves out the pages that it has read some of.
    unsafe { region.bring_in(range) };
}
