//! Segments: fixed-size files (or memory) that hold consecutive batches.
//!
//! A segment's blocks are allocated before it is mapped and it never changes size; its mapped bytes are
//! immutable once published. Of one that was written anew the places of its batches are not their bytes in
//! the file ([`runs`](crate::runs)): ranges here are of bytes, and positions are made of places. A file whose
//! header is still zero is a spare, prepared ahead. How far a segment is verified is said in [`verified`].
//! The time index is made by the reader that first searches the segment. Beside it may lie its payload once
//! more, each log's bytes together ([`settled`](crate::settled)).

use crate::error::{Damage, ReadError};
use crate::extents::Extent;
use crate::format::{BadHeader, Link, SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES, Seal, SegmentHeader};
use crate::index::{self, TimeIndex};
use crate::mapping;
use crate::runs::{RunEnd, Runs};
use crate::scan::Scan;
use crate::settled::Settled;
use crate::{Position, Time, position};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use thalweg_sync::meter::Meter;
use thalweg_sync::region::{Region, RegionWriter};
use thalweg_sys::disk::{Disk, File, Map, Residency};

mod verified;

pub(crate) use verified::Readable;
use verified::Verified;

const PREFIX: &str = "segment-";

/// A file of a higher number is no segment: there is always a next one.
pub(crate) const NUMBER_MAX: u32 = i32::MAX as u32;

pub(crate) fn file_name(number: u32) -> String {
    format!("{PREFIX}{number:010}")
}

/// The number of the segment behind one.
///
/// # Errors
/// It was the last.
pub(crate) fn next_number(number: u32) -> io::Result<u32> {
    let none_left =
        || io::Error::other("no number is left for another segment: copy the logs to a new store");
    number.checked_add(1).filter(|next| *next <= NUMBER_MAX).ok_or_else(none_left)
}

pub(crate) fn number_of(name: &str) -> Option<u32> {
    let number = name.strip_prefix(PREFIX)?.parse().ok()?;
    (number <= NUMBER_MAX && file_name(number) == name).then_some(number)
}

/// One segment, readable up to its published mark.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    /// That header's: each batch is sealed with it.
    pub(crate) seal: Seal,
    file: Option<Arc<File>>,
    region: Arc<Region>,
    /// Another process writes it.
    followed: bool,
    /// It is not there: nothing of it can be read, wherever in it one wants to begin.
    lost: bool,
    /// What the next segment's header says of this one's last batch, where that is known.
    successor: Option<Link>,
    /// Shared with the copies of this segment, which show the same bytes.
    verified: Arc<Verified>,
    index: OnceLock<TimeIndex>,
    /// Whether every entry of its table of runs stands.
    has_sound_table: OnceLock<bool>,
    /// Its payload once more, each log's bytes together.
    settled: OnceLock<Arc<Settled>>,
    /// Bytes that reads copied out of it a record at a time.
    copied: Meter<1>,
}

impl Segment {
    /// A segment in memory and its writer.
    pub(crate) fn in_memory(header: SegmentHeader) -> io::Result<(Segment, RegionWriter)> {
        Ok(Segment::begin(header, None, Region::in_memory(header.capacity as usize)?))
    }

    /// Makes an allocated file the next segment.
    pub(crate) fn activate(header: SegmentHeader, file: File) -> io::Result<(Segment, RegionWriter)> {
        let writer = mapping::for_writing(&file, header.capacity, 0)?;
        Ok(Segment::begin(header, Some(file), writer))
    }

    fn begin(header: SegmentHeader, file: Option<File>, mut writer: RegionWriter) -> (Segment, RegionWriter) {
        writer.write(&header.encode());
        writer.publish();
        let region = writer.region().clone();
        (Segment::of(header, file.map(Arc::new), region, SEGMENT_HEADER_BYTES), writer)
    }

    /// Takes a segment found on disk: its bytes up to `end` are final, and replayed from `trusted_from` on.
    pub(crate) fn resume(
        header: SegmentHeader,
        file: File,
        end: u32,
        trusted_from: u32,
    ) -> io::Result<(Segment, RegionWriter)> {
        let length = mapped_length(&header, &file)?;
        let end = if header.is_compacted() { length } else { end.min(length) };
        let writer = mapping::for_writing(&file, length, end)?;
        let region = writer.region().clone();
        Ok((Segment::of(header, Some(Arc::new(file)), region, trusted_from), writer))
    }

    /// Takes a segment that another process writes, or has written. Nothing of it is trusted.
    pub(crate) fn attach(header: SegmentHeader, file: File) -> io::Result<Segment> {
        let length = mapped_length(&header, &file)?;
        let region = mapping::for_following(&file, length, SEGMENT_HEADER_BYTES)?;
        // It may have been compacted since its header was read.
        let mut now = [0; SEGMENT_HEADER_BYTES as usize];
        file.read_at(&mut now, 0)?;
        let header = SegmentHeader::decode(&now).unwrap_or(header);
        if header.is_compacted() {
            mapping::follow_to(&region, region.capacity());
        }
        let trusted_from = u32::MAX;
        let followed = true;
        Ok(Segment { followed, ..Segment::of(header, Some(Arc::new(file)), Arc::new(region), trusted_from) })
    }

    /// Takes a segment that was just written anew from bytes that stood.
    pub(crate) fn compacted(header: SegmentHeader, file: File) -> io::Result<Segment> {
        let region = mapping::of_whole_file(&file, header.held)?;
        Ok(Segment::of(header, Some(Arc::new(file)), Arc::new(region), SEGMENT_HEADER_BYTES))
    }

    /// Fills the places of segments that should be there and are not, one for each hole. Times up to `latest`
    /// may lie in them.
    pub(crate) fn stand_in(
        segments: &mut Vec<Arc<Segment>>,
        missing: &BTreeMap<u32, Damage>,
        latest: Time,
    ) -> io::Result<()> {
        for (number, damage) in missing {
            let place = segments.partition_point(|segment| segment.header.number < *number);
            let next = segments.get(place).map(|next| next.header);
            if next.is_none_or(|next| next.number != *number) {
                let latest = next.map_or(latest, |next| next.latest);
                segments.insert(place, Arc::new(Segment::lost(*number, latest, damage.clone())?));
            }
        }
        Ok(())
    }

    /// Stands for a segment that should be there and is not: readers are told that it is damaged.
    fn lost(number: u32, latest: Time, damage: Damage) -> io::Result<Segment> {
        let capacity = 4096;
        let header =
            SegmentHeader { number, capacity, after_damage: true, latest, ..SegmentHeader::default() };
        let mut writer = Region::in_memory(capacity as usize)?;
        writer.pass(SEGMENT_HEADER_BYTES);
        writer.publish();
        let of = Segment::of(header, None, writer.region().clone(), u32::MAX);
        Ok(Segment { lost: true, verified: Arc::new(Verified::lost(damage)), ..of })
    }

    fn of(header: SegmentHeader, file: Option<Arc<File>>, region: Arc<Region>, trusted_from: u32) -> Segment {
        let (verified, successor, index) = (Arc::new(Verified::none(trusted_from)), None, OnceLock::new());
        let (followed, lost, has_sound_table) = (false, false, OnceLock::new());
        let (settled, copied) = (OnceLock::new(), Meter::new());
        Segment {
            seal: header.seal(),
            header,
            file,
            region,
            followed,
            lost,
            successor,
            verified,
            index,
            has_sound_table,
            settled,
            copied,
        }
    }

    /// Names the batch that the next segment follows on from.
    pub(crate) fn followed_by(mut self, next: Option<&SegmentHeader>) -> Segment {
        self.successor = next.filter(|next| !next.after_damage).map(|next| next.previous);
        self
    }

    /// The same segment without a time index: the one there is goes with the last reader of this one.
    pub(crate) fn without_index(&self) -> Segment {
        let same = self.alone();
        if let Some(settled) = self.settled_file() {
            same.settle(settled.clone());
        }
        same.copied(self.copied.read(0));
        same
    }

    /// The same segment without what is not the segment: its time index, and its payload each log's together.
    pub(crate) fn alone(&self) -> Segment {
        let Segment { followed, lost, successor, .. } = *self;
        let of = Segment::of(self.header, self.file.clone(), self.region.clone(), u32::MAX);
        Segment { followed, lost, successor, verified: self.verified.clone(), ..of }
    }

    /// Its payload once more, each log's bytes together, if that is there and nothing wrong with it is known.
    pub(crate) fn settled(&self) -> Option<&Arc<Settled>> {
        self.settled.get().filter(|settled| settled.is_sound())
    }

    /// The same, whatever is wrong with it.
    pub(crate) fn settled_file(&self) -> Option<&Arc<Settled>> {
        self.settled.get()
    }

    /// Bytes of that file.
    pub(crate) fn settled_bytes(&self) -> u64 {
        self.settled_file().map_or(0, |settled| settled.held_bytes())
    }

    /// Has it read from there from now on. Nothing, if there is one already.
    pub(crate) fn settle(&self, settled: Arc<Settled>) {
        let _ = self.settled.set(settled);
    }

    /// Notes that `bytes` more bytes were copied out of it, a record at a time.
    pub(crate) fn copied(&self, bytes: u64) {
        self.copied.add_shared(0, bytes);
    }

    /// Bytes that were.
    pub(crate) fn copied_bytes(&self) -> u64 {
        self.copied.read(0)
    }

    /// Begins to count them anew.
    pub(crate) fn count_anew(&self) {
        self.copied.set(0, 0);
    }

    /// Bytes of memory that the time index may take, if there is one.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.index.get().map_or(0, |index| index.place().1 as u64)
    }

    /// How far it may be read when the whole store may be read up to `limit`: everything, of a segment that
    /// is sealed. In a process that is attached this is where the mark of what is final moves.
    #[inline]
    pub(crate) fn end(&self, limit: Position) -> u32 {
        let newest = crate::segment_of(limit);
        if self.header.number > newest {
            return 0;
        }
        if self.lost {
            return SEGMENT_BYTES_MAX;
        }
        if self.header.is_compacted() {
            // Nothing is written to it any more; what another process says may still end within it.
            let end = self.batches_end();
            return if self.header.number == newest { self.byte_of(limit).min(end) } else { end };
        }
        let published = self.region.published();
        if self.header.number == newest {
            let end = crate::place_of(limit);
            if end > published {
                mapping::follow_to(&self.region, end);
            }
            return end.min(self.region.published());
        }
        if self.followed && published < self.region.capacity() {
            mapping::follow_to(&self.region, self.region.capacity());
        }
        self.region.published()
    }

    /// Where published batches end.
    fn batches_end(&self) -> u32 {
        let published = self.region.published();
        self.header.table_at().map_or(published, |table| table.min(published))
    }

    /// Published bytes of batches, from the segment's first byte on, and where they stood.
    pub(crate) fn batches(&self) -> (&[u8], Runs<'_>) {
        let (batches, runs) = Runs::split(&self.header, self.region.bytes(0..self.region.published()));
        let is_sound = self.header.is_compacted()
            && *self.has_sound_table.get_or_init(|| {
                mapping::bring_in_unread(&self.region, self.batches_end()..self.region.published());
                runs.is_sound()
            });
        (batches, runs.known(is_sound))
    }

    /// A walk over its batches up to a byte at most. What was not verified is verified first, so that all of
    /// it was there once.
    pub(crate) fn scan(&self, from: u32, to: u32, link: Option<Link>) -> Scan<'_> {
        self.look_up_to(to);
        self.walk(from, to, link)
    }

    fn walk(&self, from: u32, to: u32, link: Option<Link>) -> Scan<'_> {
        let (bytes, runs) = self.batches();
        let bytes = &bytes[..bytes.len().min(to as usize)];
        Scan::through(&self.header, (bytes, runs), from, link)
    }

    /// Where in the file what stood there is, none where places are bytes.
    pub(crate) fn runs(&self) -> Runs<'_> {
        if self.header.is_compacted() { self.batches().1 } else { Runs::default() }
    }

    /// The place at which published batches end.
    pub(crate) fn places_end(&self) -> u32 {
        self.runs().place_of(self.batches_end())
    }

    /// Where in the file the batches of an extent are.
    ///
    /// # Errors
    /// They are not there, because they are gone or because it is unknown where they are.
    pub(crate) fn bytes_of(&self, extent: &Extent) -> Result<Range<u32>, ReadError> {
        let places = extent.bytes();
        match self.runs().bytes_of(places.clone()) {
            Some(bytes) if bytes.len() == places.len() => return Ok(bytes),
            _ => {}
        }
        // In front of what comes next.
        let next = self.runs().byte_of(places.start);
        self.verify(next - 1..next)?;
        let (file, why) = (file_name(self.header.number), format!("no batch at byte {}", places.start));
        Err(ReadError::Io { file, why })
    }

    /// The position of a byte.
    pub(crate) fn position_of(&self, byte: u32) -> Position {
        position(self.header.number, self.runs().place_of(byte))
    }

    /// The byte of what stood at a position of this segment, or of what comes next, if that is gone.
    pub(crate) fn byte_of(&self, position: Position) -> u32 {
        self.runs().byte_of(crate::place_of(position))
    }

    /// The run of batches that a byte lies in, cut off at `end`.
    #[inline]
    pub(crate) fn run(&self, from: u32, end: u32) -> RunEnd {
        if self.header.is_compacted() { self.run_around(from, end) } else { RunEnd { end, shift: 0 } }
    }

    #[cold]
    fn run_around(&self, from: u32, end: u32) -> RunEnd {
        let runs = self.runs();
        match runs.around(from) {
            Some(run) => RunEnd { end: run.end().min(end), shift: run.shift() },
            None => RunEnd { end, shift: runs.place_of(from).wrapping_sub(from) },
        }
    }

    /// Whether it stands in for one that is missing.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// A map of its own for a caller that may store to it: that stays there. `None` of a segment in memory.
    pub(crate) fn map_apart(&self) -> io::Result<Option<Map>> {
        let length = self.region.capacity() as usize;
        self.file.as_ref().map(|file| file.map_apart(length)).transpose()
    }

    /// Time of the first entry, 0 when there is none.
    pub(crate) fn first_time(&self) -> Time {
        let (bytes, _) = self.batches();
        let mut at = SEGMENT_HEADER_BYTES;
        while let Some(met) = index::meet(bytes, at) {
            if let Some(time) = met.time {
                return time;
            }
            at = at.saturating_add(met.bytes);
        }
        0
    }

    /// Lets go of the pages of a segment that is seldom read from now on.
    pub(crate) fn release(&self) {
        self.region.release();
        if let Some(settled) = self.settled_file() {
            settled.region().release();
        }
    }

    /// The file's descriptor, if it has one.
    pub(crate) fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.file.as_ref().and_then(|file| file.descriptor())
    }

    /// Writes to the file, behind what is published.
    pub(crate) fn write(&self, at: u32, bytes: &[u8]) -> io::Result<()> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        file.write_at(bytes, at.into())
    }

    /// Writes zeros over bytes that were never written, which brings in their pages.
    pub(crate) fn blank(&self, from: u32, to: u32) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.write_zeros(u64::from(to - from), from.into()))
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.sync_data())
    }

    /// The time index, good for every byte below `to`. Damaged spans are not indexed.
    #[inline]
    pub(crate) fn index(&self, to: u32) -> io::Result<&TimeIndex> {
        match self.index.get() {
            Some(index) if index.indexed() >= to => Ok(index),
            _ => self.index_more(to),
        }
    }

    /// Up to which byte there is a time index.
    pub(crate) fn indexed(&self) -> u32 {
        self.index.get().map_or(SEGMENT_HEADER_BYTES, TimeIndex::indexed)
    }

    #[cold]
    fn index_more(&self, to: u32) -> io::Result<&TimeIndex> {
        let index = match self.index.get() {
            Some(index) => index,
            None => {
                let made = TimeIndex::new(self.header.file_bytes())?;
                self.index.get_or_init(|| made)
            }
        };
        let mut at = index.indexed();
        while at < to {
            let end = match self.readable(at, to) {
                Readable::To(end) if end > at => {
                    index.extend(self.region.bytes(0..end), at, self.header.latest)
                }
                Readable::To(_) => break,
                Readable::Damaged(_, resumes) => index.skip(resumes.min(to)),
            };
            at = end;
        }
        Ok(index)
    }

    /// Which bytes below `end` are in memory.
    pub(crate) fn residency(&self, end: u32) -> Residency<'_> {
        self.region.residency(end)
    }
}

fn mapped_length(header: &SegmentHeader, file: &File) -> io::Result<u32> {
    Ok(header.file_bytes().min(u32::try_from(file.length()?).unwrap_or(u32::MAX)))
}

/// Whether a segment is there by its name, which a listing may have passed over: directories are read piece
/// by piece, and a file that replaced another meanwhile may be in none of them.
pub(crate) fn is_there(disk: &Disk, directory: &Path, number: u32) -> io::Result<bool> {
    match disk.open_read_only(&directory.join(file_name(number))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        opened => opened.map(|_| true),
    }
}

/// The header of a file that may be a segment; `None` for a spare.
pub(crate) fn read_header(disk: &Disk, path: &Path) -> io::Result<Option<Result<SegmentHeader, BadHeader>>> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
    match disk.open_read_only(path)?.read_at(&mut bytes, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        // The disk does not give it any more.
        Err(error) if thalweg_sys::disk::is_bad_sector(&error) => return Ok(Some(Err(BadHeader::Damaged))),
        other => other?,
    }
    Ok((bytes != [0; SEGMENT_HEADER_BYTES as usize]).then(|| SegmentHeader::decode(&bytes)))
}
