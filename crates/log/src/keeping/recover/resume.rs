//! From what recovery found to a store that can be served and written.
//!
//! Purpose: the last step of opening. The segment that holds the end becomes the active one: later segments
//! go, the torn end is blanked, and what might not be on the disk is written again. Where a segment is
//! missing that should be there, its place is taken by one that says so to readers.

use super::{End, Recovery, is_missing};
use crate::format::{Link, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::open::{Contents, Tail};
use crate::segment::{self, Segment};
use crate::settled::{self, Settled};
use crate::view::Segments;
use crate::{place_of, position, segment_of};
use std::io;
use std::path::Path;
use std::sync::Arc;
use thalweg_sync::region::RegionWriter;
use thalweg_sys::disk::Disk;

impl Recovery {
    /// Opens every segment but the active one.
    fn sealed_segments(&self, active: u32) -> io::Result<Segments> {
        let (segments, mut sealed) = (Segments::default(), Vec::new());
        for (number, header) in self.headers.range(..active) {
            let file = self.disk.open(&self.directory.join(segment::file_name(*number)))?;
            // What a shortened file has lost is found missing by its readers.
            let length = header.file_bytes().min(u32::try_from(file.length()?).unwrap_or(u32::MAX));
            let untouched = (length, length);
            let (from, end) = self.replayed.get(number).copied().unwrap_or(untouched);
            let next = self.headers.get(&(number + 1));
            let segment = Segment::resume(*header, file, end, from)?.0.followed_by(next);
            self.take_settled(&segment, next);
            sealed.push(Arc::new(segment));
        }
        self.remove_stray_settled(active)?;
        let missing =
            self.missing.range(..active).map(|(number, damage)| (*number, damage.clone())).collect();
        Segment::stand_in(&mut sealed, &missing, self.times.latest)?;
        segments.set(sealed);
        Ok(segments)
    }

    /// Removes what is settled of segments that are gone for good.
    fn remove_stray_settled(&self, active: u32) -> io::Result<()> {
        for name in self.disk.names(&self.directory)? {
            let of = settled::number_of(&name);
            let stays = |number| {
                number < active && (self.headers.contains_key(&number) || is_missing(&self.missing, number))
            };
            if of.is_some_and(|number| !stays(number)) {
                let _ = self.disk.unlink(&self.directory.join(name));
            }
        }
        Ok(())
    }

    /// Has a segment read from what is settled of it, if that is there. What is not of it, or was begun by a
    /// program that is not this, goes.
    fn take_settled(&self, segment: &Segment, next: Option<&SegmentHeader>) {
        let path = self.directory.join(settled::file_name(segment.header.number));
        let opened = next.map_or(Ok(None), |next| Settled::open(&self.disk, &path, next));
        match opened {
            // More than the segment holds is of what it held before it was written anew.
            Ok(Some(settled)) if settled.held_bytes() <= segment.header.held_bytes() => {
                segment.settle(Arc::new(settled));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(_) | Err(_) => {
                let _ = self.disk.unlink(&path);
            }
        }
    }

    pub(crate) fn into_contents(
        self,
        segment: Segment,
        region: RegionWriter,
        link: Link,
    ) -> io::Result<Contents> {
        let active = segment.header.number;
        let segments = self.sealed_segments(active)?;
        let tail = Tail { active: Arc::new(segment), region, link, times: self.times };
        Ok(Contents { segments, catalogue: self.catalogue, tail, next_log: self.next_log })
    }
}

/// Makes the segment that holds the end the active one: later segments go, the torn end is blanked, and
/// what might not be on the disk is written again.
pub(crate) fn resume(disk: &Disk, directory: &Path, recovery: Recovery, end: End) -> io::Result<Contents> {
    let number = segment_of(end.at);
    let names = disk.names(directory)?;
    for later in names.iter().filter(|name| segment::number_of(name).is_some_and(|found| found > number)) {
        disk.unlink(&directory.join(later))?;
    }
    let header = recovery.headers[&number];
    let file = disk.open(&directory.join(segment::file_name(number)))?;
    rewrite(&file, header.capacity, place_of(end.at))?;
    file.sync_data()?;
    for (earlier, _) in recovery.headers.range(..number) {
        if position(*earlier, u32::MAX) >= recovery.control.durable() {
            let file = disk.open(&directory.join(segment::file_name(*earlier)))?;
            let length = u32::try_from(file.length()?).unwrap_or(u32::MAX);
            rewrite(&file, length.min(recovery.headers[earlier].capacity), u32::MAX)?;
            file.sync_data()?;
        }
    }
    disk.sync_directory(directory)?;
    let trusted_from = recovery.replayed.get(&number).map_or(SEGMENT_HEADER_BYTES, |(from, _)| *from);
    let (active, region) = Segment::resume(header, file, place_of(end.at), trusted_from)?;
    let segments = recovery.sealed_segments(number)?;
    let (catalogue, next_log, times) = (recovery.catalogue, recovery.next_log, recovery.times);
    let tail = Tail { active: Arc::new(active), region, link: end.link, times };
    Ok(Contents { catalogue, segments, tail, next_log })
}

/// Writes the bytes below `end` over themselves and blanks what is not blank behind.
fn rewrite(file: &thalweg_sys::disk::File, capacity: u32, end: u32) -> io::Result<()> {
    if end < SEGMENT_HEADER_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a segment cannot end within its header"));
    }
    let mut buffer = vec![0; 64 << 10];
    let mut at = 0;
    while at < capacity {
        let step = (buffer.len() as u32).min(capacity - at);
        let chunk = &mut buffer[..step as usize];
        file.read_at(chunk, at.into())?;
        let keep = (end.saturating_sub(at) as usize).min(chunk.len());
        let blank_already = chunk[keep..].iter().all(|byte| *byte == 0);
        chunk[keep..].fill(0);
        if keep > 0 || !blank_already {
            file.write_at(chunk, at.into())?;
        }
        at += step;
    }
    Ok(())
}
