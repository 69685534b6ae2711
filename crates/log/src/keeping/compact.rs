//! Compaction: a sealed segment of which little is needed any more is written anew without the rest, so that
//! files stay proportional to what is live.
//!
//! Purpose: what was purged, deleted or expired goes whole segments at a time
//! ([`removal`](super::removal)); what is left lies scattered among what is not. When it is worth a
//! look [`reclaim`](crate::reclaim) says. A compacted segment has the same number, and every batch that is
//! needed has the place it always had, so that no holder of a place has to be told; but in the file they
//! lie side by side, however small they are and whatever lay between them, and a table says where each run of
//! them stood ([`runs`]).
//!
//! Invariants: only segments are compacted that no replay begins in or before, by either checkpoint that is
//! kept, so that what a batch said about names and states is in both; a batch is left out only if no extent
//! of any log, as it will be after a crash, lies in it; a reader keeps the map it has. The new file takes the
//! old one's place by a rename, so that a crash leaves the one or the other, and both say the same about
//! whatever is needed. *Checked by* the tests of compaction and by the crash simulation.
//!
//! One call looks at a bounded number of bytes; what is left is done by the next. A segment that was looked
//! at in vain is left alone until less of it is needed. It runs where housekeeping does, and rests after each
//! piece for several times as long as that took, so that it takes no more than its share of disk and
//! processor.

use crate::error::is_full;
use crate::format::{self, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::options::Durability;
use crate::pace::PacedFile;
use crate::places::Unfolder;
use crate::reclaim::{EXCESS, WORTH_PARTS};
use crate::runs::{self, End, Run};
use crate::scan::Step;
use crate::segment::{self, Segment};
use crate::store::Shared;
use crate::view::View;
use crate::working::Working;
use crate::{Position, segment_of};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::File;

/// Bytes of segments read in one call at most, and so more than are written; the first one is compacted
/// whatever it has.
const BYTES_AT_ONCE: u64 = if cfg!(test) { 2 << 20 } else { 64 << 20 };
/// What is put together before it is written.
const WRITE_BYTES: usize = 256 << 10;
/// Bytes of segments that are looked at in one call, most of them from far: a bit is kept for each batch that
/// there could be.
const LOOK_BYTES: u64 = 16 * BYTES_AT_ONCE;
/// No batch is smaller.
const BATCH_BYTES_MIN: u32 = 64;
const _: () = assert!(BATCH_BYTES_MIN <= format::BATCH_HEADER_BYTES + format::TOUCHED_BYTES);
/// More runs a table does not have.
const RUNS_MAX: usize = (1 << 24) - 1;

/// Places of a segment.
type PlaceRange = Range<u32>;

/// Segments to be written anew, and what is needed of them.
type Chosen = BTreeMap<u32, (Arc<Segment>, Vec<PlaceRange>)>;

/// What is left of a segment.
#[derive(Debug, Default, PartialEq, Eq)]
struct CompactedLayout {
    /// The runs as the new file has them, and where each begins in the old one.
    runs: Vec<(Run, u32)>,
    end: End,
}

impl Shared {
    /// A file that is written in housekeeping's share of the time, `buffer_bytes` bytes at once.
    pub(crate) fn paced(&self, file: File, buffer_bytes: usize) -> PacedFile<'_> {
        PacedFile::new(file, buffer_bytes, &self.throttle, self.options.rest_parts)
    }

    /// Compacts what is worth it, a bounded part of it. `true`: there is more to do.
    pub(crate) fn compact(&self) -> io::Result<bool> {
        let (Some(directory), Some(below)) = (&self.directory, self.compacts_below()) else {
            return Ok(false);
        };
        // Nor is one removed meanwhile.
        let Some(_one_at_a_time) = self.maintenance_locks.replacing.lock() else { return Ok(false) };
        let view = self.segments.latest();
        let (candidates, mut more) = self.candidates(&view, below);
        let mut found: BTreeMap<u32, Needed> = BTreeMap::new();
        self.each_extent(&view, &candidates, |number, span| found.entry(number).or_default().add(&span));
        let mut chosen = self.choose(&view, &found, &mut more);
        let numbers = chosen.keys().copied().collect();
        self.each_extent(&view, &numbers, |number, span| {
            if let Some((_, needed)) = chosen.get_mut(&number) {
                needed.push(span);
            }
        });
        let gone_by = self.writer.lock().staged_end();
        if !chosen.is_empty() {
            // What was not met may be gone only as far as anybody knows: a crash would bring it back.
            self.commit_group()?;
            // Nor may a crash take the checkpoints: one that was found at opening may be there only as far as
            // anybody knows, because the sync of the directory failed when it was written.
            self.disk.sync_directory(directory)?;
        }
        // On a full disk what is least makes room for more.
        let mut chosen: Vec<_> =
            chosen.into_values().map(|(segment, spans)| (segment, merged(spans))).collect();
        chosen.sort_by_key(|(segment, _)| found.get(&segment.header.number).map(Needed::bytes));
        let mut refused = Ok(());
        for (segment, spans) in chosen {
            match self.with_reserve(|| self.compact_one(directory, &segment, &spans, gone_by)) {
                Ok(true) => {}
                Ok(false) => self.looked_in_vain(segment.header.number),
                Err(error) if is_full(&error) => refused = Err(error),
                Err(error) => return Err(error),
            }
        }
        refused.map(|()| more)
    }

    /// Segments below this one may be compacted.
    fn compacts_below(&self) -> Option<u32> {
        let replays = self.checkpoints.lock().first().copied();
        let allowed = self.options.compacts && self.options.durability != Durability::Memory;
        let whole = allowed && !self.is_damaged();
        let kept = self.checkpoints.lock().len() >= crate::checkpoint::KEPT;
        replays.filter(|_| whole && kept).map(segment_of)
    }

    /// The segments below one that may hold enough of what no log needs, as far as their payload tells, a
    /// bounded number of those that need least; and whether there are more. One of which nothing is needed
    /// goes whole.
    fn candidates(&self, view: &View, below: u32) -> (BTreeSet<u32>, bool) {
        let (writer, reclaim) = (self.writer.lock(), self.reclaim.lock());
        let mut excess: Vec<(u64, &SegmentHeader)> = Vec::new();
        for header in view.all().iter().map(|segment| &segment.header).filter(|header| header.number < below)
        {
            let needed = writer.needed_bytes(header.number);
            let worth = needed > 0 && needed * EXCESS <= header.held_bytes();
            if worth && !reclaim.is_in_vain(header.number, needed) {
                excess.push((needed, header));
            }
        }
        excess.sort_by_key(|(needed, _)| *needed);
        let mut bytes = 0;
        let few = excess.iter().take_while(|(_, header)| {
            bytes += header.held_bytes();
            bytes <= LOOK_BYTES
        });
        let few: BTreeSet<u32> = few.map(|(_, header)| header.number).collect();
        let more = few.len() < excess.len();
        (few, more)
    }

    /// Those of them that are to be written anew now, to be told what of them is needed.
    fn choose(&self, view: &View, found: &BTreeMap<u32, Needed>, more: &mut bool) -> Chosen {
        let (mut chosen, mut bytes) = (Chosen::new(), 0);
        let mut found: Vec<_> = found.iter().map(|(number, needed)| (needed.bytes(), *number)).collect();
        found.sort_unstable();
        for (needed, number) in found {
            let Some(segment) = view.find(number) else { continue };
            let held = segment.header.held_bytes();
            if needed * EXCESS > held {
                self.looked_in_vain(number);
                continue;
            }
            bytes += held;
            if bytes > BYTES_AT_ONCE && !chosen.is_empty() {
                *more = true;
                break;
            }
            chosen.insert(number, (segment.clone(), Vec::new()));
        }
        chosen
    }

    /// A segment is left alone until less of it is needed.
    fn looked_in_vain(&self, number: u32) {
        let needed = self.writer.lock().needed_bytes(number);
        self.reclaim.lock().looked_in_vain(number, needed, &self.segments.latest());
    }

    /// Visits what is needed of some segments.
    fn each_extent(&self, view: &View, among: &BTreeSet<u32>, mut visit: impl FnMut(u32, PlaceRange)) {
        let mut folded = Vec::new();
        if !among.is_empty() {
            self.catalogue.visit(|log| {
                let inner = log.lock();
                let found = inner.extents.all().iter().filter(|e| among.contains(&segment_of(e.position)));
                for extent in found {
                    if extent.is_folded() {
                        folded.push((log.id(), *extent));
                    } else {
                        visit(segment_of(extent.position), extent.bytes());
                    }
                }
            });
        }
        // With nothing locked: what they stand for may have to come from a disk.
        let unfolder = Unfolder { view, limit: self.control.file_end() };
        for (log, extent) in folded {
            let number = segment_of(extent.position);
            match unfolder.unfold(log, &extent) {
                Ok(unfolded) => unfolded.for_each(|one| visit(number, one.bytes())),
                // Where nothing says which, all of it may be needed.
                Err(_) => visit(number, extent.bytes()),
            }
        }
    }

    /// Writes a segment anew. `false`: it stays as it is, because little would be given back or it does not
    /// read as it was written.
    fn compact_one(
        &self,
        directory: &Path,
        old: &Arc<Segment>,
        needed: &[PlaceRange],
        gone_by: Position,
    ) -> io::Result<bool> {
        let Some(left) = plan(old, needed) else {
            tracing::warn!(
                segment = old.header.number,
                "a segment does not read as it was written: verify the store"
            );
            return Ok(false);
        };
        let (held, runs) = (left.file_bytes(), left.runs.len());
        let given_back = old.header.held_bytes().saturating_sub(held);
        // By now it may all have gone.
        if given_back < old.header.held_bytes() / WORTH_PARTS || !(1..=RUNS_MAX).contains(&runs) {
            return Ok(false);
        }
        let header = SegmentHeader { held: held as u32, runs: runs as u32, gone_by, ..old.header };
        let name = segment::file_name(header.number);
        let (working, file) = Working::create(&self.disk, directory, &name)?;
        let file = left.write(&header, old.batches().0, self.paced(file, WRITE_BYTES))?;
        let compacted = Segment::compacted(header, file)?;
        // First, or a crash would leave it beside much less than it was made of.
        self.remove_settled(directory, header.number);
        working.put_in_place()?;
        self.writer.lock().tally.freed_bytes += given_back;
        self.segments.add(Arc::new(compacted));
        self.announce_removal();
        self.disk.sync_directory(directory).map(|()| true)
    }
}

/// Spans in order, those that touch or overlap as one.
fn merged(mut spans: Vec<PlaceRange>) -> Vec<PlaceRange> {
    spans.sort_unstable_by_key(|span| span.start);
    let mut merged: Vec<PlaceRange> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    merged
}

/// How much of a segment is needed, at most.
#[derive(Default)]
struct Needed {
    bytes: u64,
    /// Where something begins that is needed: several logs may need the same batches.
    begins: Vec<u64>,
}

impl Needed {
    fn add(&mut self, span: &PlaceRange) {
        let piece = span.start / BATCH_BYTES_MIN;
        let (word, bit) = (piece as usize / 64, 1 << (piece % 64));
        if word >= self.begins.len() {
            self.begins.resize(word + 1, 0);
        }
        if self.begins[word] & bit == 0 {
            self.begins[word] |= bit;
            self.bytes += span.len() as u64;
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What is left of a segment's batches; `None` if it does not read as it was written.
fn plan(segment: &Segment, needed: &[PlaceRange]) -> Option<CompactedLayout> {
    let mut scan = segment.scan(SEGMENT_HEADER_BYTES, u32::MAX, Some(segment.header.previous));
    let (mut left, mut byte, mut next) = (CompactedLayout::default(), SEGMENT_HEADER_BYTES, 0);
    loop {
        let batch = match scan.step() {
            Step::Batch(batch) => batch,
            Step::Stop(stop) => {
                left.end = End { place: stop.place, link: stop.link? };
                return stop.blank.then_some(left);
            }
        };
        while needed.get(next).is_some_and(|span: &PlaceRange| span.end <= batch.place) {
            next += 1;
        }
        if needed.get(next).is_none_or(|span| span.start > batch.place) {
            continue;
        }
        let length = batch.header.length;
        match left.runs.last_mut() {
            Some((run, _)) if run.end_place() == batch.place => run.bytes += length,
            _ => left.runs.push((Run { place: batch.place, byte, bytes: length }, batch.at)),
        }
        byte += length;
    }
}

impl CompactedLayout {
    fn file_bytes(&self) -> u64 {
        let batches: u64 = self.runs.iter().map(|(run, _)| u64::from(run.bytes)).sum();
        u64::from(SEGMENT_HEADER_BYTES)
            + batches
            + (self.runs.len() as u64 + 1) * u64::from(runs::ENTRY_BYTES)
    }

    /// Writes a file of it, from the bytes of the old one.
    fn write(&self, header: &SegmentHeader, old: &[u8], mut into: PacedFile<'_>) -> io::Result<File> {
        into.put(&header.encode())?;
        for (run, from) in &self.runs {
            into.put(&old[*from as usize..][..run.bytes as usize])?;
        }
        let mut entry = Vec::with_capacity(runs::ENTRY_BYTES as usize);
        for (run, _) in &self.runs {
            entry.clear();
            run.encode(&mut entry);
            into.put(&entry)?;
        }
        entry.clear();
        self.end.encode(&mut entry);
        into.put(&entry)?;
        into.finish().map(|(file, _)| file)
    }
}
