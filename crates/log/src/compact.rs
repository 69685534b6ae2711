//! Compaction: a sealed segment of which little is needed any more is written anew without the rest, so that files stay
//! proportional to what is live.
//!
//! Purpose: what was purged, deleted or expired goes whole segments at a time ([`checkpoint`](crate::checkpoint)); what is left
//! lies scattered among what is not. When it is worth a look [`reclaim`](crate::reclaim) says. A compacted segment has the same
//! number, and every batch that is needed stands in it at the place where it always stood, so that nobody who knows a place
//! has to be told. What is not needed is a hole in the file, and one frame ([`Kind::Gone`]) stands for each run of such
//! batches and carries the chain across it. A file gives back pages, so only runs of some length go: what is small and lies
//! among what is needed stays until that goes, too.
//!
//! Invariants: only segments are compacted that no replay begins in or before, by either checkpoint that is kept, so that
//! what a batch said about names and states is in both; a batch is left out only if no extent of any log, as it will be after a
//! crash, lies in it; a reader keeps the map it has. The new file takes the old one's place by a rename, so that a crash leaves the one or
//! the other, and both say the same about whatever is needed. *Checked by* the tests of compaction and by the crash simulation.
//!
//! One call looks at a bounded number of bytes; what is left is done by the next. A segment that was looked at in vain is left alone
//! until less of it is needed. It runs where housekeeping does, and rests
//! after each piece for several times as long as that took, so that it takes no more than its share of disk and processor.

use crate::error::is_full;
use crate::format::{
    self, BATCH_HEADER_BYTES, BatchHeader, FRAME_HEADER_BYTES, Kind, Link, SEGMENT_HEADER_BYTES,
    SegmentHeader,
};
use crate::open::Durability;
use crate::pace::rest;
use crate::places::Reach;
use crate::reclaim::{EXCESS, WORTH_PARTS};
use crate::scan::{Scan, Step};
use crate::segment::{self, Segment};
use crate::store::Shared;
use crate::view::View;
use crate::{Position, segment_of};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use thalweg_sys::disk::File;
use thalweg_sys::machine::{Keeps, file_system};

/// Bytes of segments read in one call at most, and so more than are written; the first one is compacted whatever it has.
const BYTES_AT_ONCE: u64 = if cfg!(test) { 2 << 20 } else { 64 << 20 };
const WRITE_BYTES: usize = 1 << 20;
/// Segments are looked at in pieces of so many bytes: a page, which is what a file gives back.
const PIECE_BYTES: u32 = if cfg!(test) { 512 } else { 4 << 10 };
/// A run of batches goes if it has so many, and so at least a whole page beside those of its two ends.
const PIECES_MIN: u32 = 3;
/// Bytes of pages that the two ends of a hole keep.
const EDGES_BYTES: u32 = 8 << 10;
/// Everything of a batch that stands for others but the hole.
const GONE_BYTES: u32 = BATCH_HEADER_BYTES + FRAME_HEADER_BYTES + 8;

/// Bytes of a segment.
type Span = Range<u32>;

/// What becomes of a run of batches.
#[derive(Debug, PartialEq, Eq)]
enum Run {
    /// They stay where they are.
    Kept(Span),
    /// They go. In front of them the chain stood at the first link, behind them it stands at the second.
    Gone(Span, Link, Link),
}

impl Shared {
    /// Compacts what is worth it, a bounded part of it. `true`: there is more to do.
    pub(crate) fn compact(&self) -> io::Result<bool> {
        let (Some(directory), Some(below)) = (&self.directory, self.compacts_below()) else {
            return Ok(false);
        };
        // Nor is one removed meanwhile.
        let _one_at_a_time = self.checkpointing.lock();
        let view = self.segments.latest();
        let candidates = self.candidates(&view, below);
        let mut pieces: BTreeMap<u32, Pieces> = BTreeMap::new();
        self.each_extent(&view, &candidates, |number, span| pieces.entry(number).or_default().mark(&span));
        let needed = |number: u32| pieces.get(&number).map_or(0, Pieces::bytes);
        // In memory (tmpfs) a hole takes room once a map is read there, and on a full one there may be none: SIGBUS.
        let holes_stay = !file_system(directory).is_ok_and(|system| system.keeps == Keeps::Memory);
        let excess = |segment: &&Arc<Segment>| {
            let (number, needed) = (segment.header.number, needed(segment.header.number));
            let worth = needed > 0 && needed * EXCESS <= segment.header.held_bytes();
            worth
                && (holes_stay || !segment.header.is_compacted())
                && !self.reclaim.lock().is_in_vain(number, needed)
        };
        let (mut chosen, mut bytes, mut more) = (BTreeMap::new(), 0, false);
        let mut worth: Vec<&Arc<Segment>> = view.all().iter().filter(excess).collect();
        worth.sort_by_key(|segment| needed(segment.header.number));
        for segment in worth {
            bytes += u64::from(segment.header.capacity);
            if bytes > BYTES_AT_ONCE && !chosen.is_empty() {
                more = true;
                break;
            }
            chosen.insert(segment.header.number, (segment.clone(), Vec::new()));
        }
        let numbers = chosen.keys().copied().collect();
        self.each_extent(&view, &numbers, |number, span| {
            if let Some((_, needed)) = chosen.get_mut(&number) {
                needed.push(span);
            }
        });
        let gone_by = self.writer.lock().written();
        if !chosen.is_empty() {
            // What was not met may be gone only as far as anybody knows: a crash would bring it back.
            self.commit_group()?;
            // Nor may a crash take the checkpoints: one that was found at opening may be there only as far as anybody knows,
            // because the sync of the directory failed when it was written.
            self.disk.sync_directory(directory)?;
        }
        // On a full disk what is least makes room for more.
        let mut chosen: Vec<_> =
            chosen.into_values().map(|(segment, spans)| (segment, merged(spans))).collect();
        chosen.sort_by_key(|(segment, _)| needed(segment.header.number));
        let mut refused = Ok(());
        for (segment, spans) in chosen {
            let number = segment.header.number;
            match self.compact_with_room(directory, &segment, &spans, gone_by) {
                Ok(true) => {}
                Ok(false) => self.reclaim.lock().looked_in_vain(number, needed(number), &candidates),
                Err(error) if is_full(&error) => refused = Err(error),
                Err(error) => return Err(error),
            }
        }
        refused.map(|()| more)
    }

    /// Compacts a segment, on a full disk with what is set aside.
    fn compact_with_room(
        &self,
        directory: &Path,
        segment: &Arc<Segment>,
        needed: &[Span],
        gone_by: Position,
    ) -> io::Result<bool> {
        let compacted = match self.compact_one(directory, segment, needed, gone_by) {
            Err(error) if is_full(&error) && self.writer.lock().reserve.lend() => {
                self.compact_one(directory, segment, needed, gone_by)
            }
            compacted => return compacted,
        };
        self.writer.lock().reserve.give_back();
        compacted
    }

    /// Segments below this one may be compacted.
    fn compacts_below(&self) -> Option<u32> {
        let replays = self.checkpoints.lock().first().copied();
        let allowed = self.options.compacts && self.options.durability != Durability::Memory;
        let whole = allowed && !self.is_damaged();
        let kept = self.checkpoints.lock().len() >= crate::checkpoint::KEPT;
        replays.filter(|_| whole && kept).map(segment_of)
    }

    /// The segments below one that may hold enough of what nobody needs: what is needed is more than its payload. One of which
    /// nothing is needed goes whole.
    fn candidates(&self, view: &View, below: u32) -> BTreeSet<u32> {
        let writer = self.writer.lock();
        let excess = |segment: &&Arc<Segment>| {
            let needed = writer.needed_bytes(segment.header.number);
            let worth = needed > 0 && needed * EXCESS <= segment.header.held_bytes();
            worth && segment.header.number < below
        };
        view.all().iter().filter(excess).map(|segment| segment.header.number).collect()
    }

    /// Visits what is needed of some segments.
    fn each_extent(&self, view: &View, among: &BTreeSet<u32>, mut visit: impl FnMut(u32, Span)) {
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
        let reach = Reach { view, limit: self.control.written() };
        for (log, extent) in folded {
            let number = segment_of(extent.position);
            match reach.unfold(log, &extent) {
                Ok(unfolded) => unfolded.for_each(|one| visit(number, one.bytes())),
                // Where nobody says, all of it may be needed.
                Err(_) => visit(number, extent.bytes()),
            }
        }
    }

    /// Writes a segment anew. `false`: it stays as it is, because little would be given back or it does not read as it was written.
    fn compact_one(
        &self,
        directory: &Path,
        old: &Arc<Segment>,
        needed: &[Span],
        gone_by: Position,
    ) -> io::Result<bool> {
        let bytes = old.region().bytes(0..old.region().published());
        let Some(runs) = plan(bytes, old.header.previous, needed) else {
            tracing::warn!(
                segment = old.header.number,
                "a segment does not read as it was written: verify the store"
            );
            return Ok(false);
        };
        let held = SEGMENT_HEADER_BYTES + runs.iter().map(Run::held_bytes).sum::<u32>();
        let given_back = old.header.held_bytes().saturating_sub(held.into());
        if given_back < old.header.held_bytes() / WORTH_PARTS {
            return Ok(false);
        }
        let header = SegmentHeader { held, gone_by, ..old.header };
        let name = segment::file_name(header.number);
        let working = directory.join(format!("{name}.new"));
        let _ = self.disk.unlink(&working);
        let made = self.disk.create(&working).and_then(|file| {
            write(&file, &header, bytes, &runs, self.options.rest_parts)?;
            file.sync_data()?;
            let compacted = Segment::compacted(header, file)?;
            self.disk.rename(&working, &directory.join(&name))?;
            Ok(compacted)
        });
        let compacted = made.inspect_err(|_| {
            let _ = self.disk.unlink(&working);
        })?;
        self.writer.lock().tally.freed_bytes += given_back;
        self.segments.add(Arc::new(compacted));
        self.control.bump_segments();
        self.disk.sync_directory(directory).map(|()| true)
    }
}

impl Run {
    /// Bytes of the file that it takes.
    fn held_bytes(&self) -> u32 {
        match self {
            Self::Kept(span) => span.end - span.start,
            Self::Gone(span, ..) => (span.end - span.start).min(EDGES_BYTES),
        }
    }
}

/// Spans in order, those that touch or overlap as one.
fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable_by_key(|span| span.start);
    let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    merged
}

/// Which pieces of a segment something needed lies in.
#[derive(Default)]
struct Pieces(Vec<u64>);

impl Pieces {
    fn mark(&mut self, span: &Span) {
        for piece in span.start / PIECE_BYTES..=(span.end - 1) / PIECE_BYTES {
            let (word, bit) = (piece as usize / 64, piece % 64);
            if word >= self.0.len() {
                self.0.resize(word + 1, 0);
            }
            self.0[word] |= 1 << bit;
        }
    }

    fn bytes(&self) -> u64 {
        let pieces: u64 = self.0.iter().map(|word| u64::from(word.count_ones())).sum();
        pieces * u64::from(PIECE_BYTES)
    }
}

/// What becomes of each batch; `None` if the segment does not read as it was written.
fn plan(bytes: &[u8], previous: Link, needed: &[Span]) -> Option<Vec<Run>> {
    let mut scan = Scan::new(bytes, SEGMENT_HEADER_BYTES, Some(previous));
    let (mut runs, mut link, mut next): (Vec<Run>, _, _) = (Vec::new(), previous, 0);
    loop {
        let batch = match scan.step() {
            Step::Batch(batch) => batch,
            Step::Stop(stop) => return stop.blank.then(|| worth(runs)),
        };
        let behind = scan.link()?;
        while needed.get(next).is_some_and(|span: &Span| span.end <= batch.at) {
            next += 1;
        }
        let kept = needed.get(next).is_some_and(|span| span.start <= batch.at);
        match runs.last_mut() {
            Some(Run::Kept(span)) if kept => span.end = batch.end(),
            Some(Run::Gone(span, _, carried)) if !kept => (span.end, *carried) = (batch.end(), behind),
            _ if kept => runs.push(Run::Kept(batch.at..batch.end())),
            _ => runs.push(Run::Gone(batch.at..batch.end(), link, behind)),
        }
        link = behind;
    }
}

/// Keeps what is too short to be worth a hole.
fn worth(runs: Vec<Run>) -> Vec<Run> {
    let mut worth: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        let span = match run {
            // What stands for others already stays what it is.
            Run::Gone(ref span, ..) if span.end - span.start >= PIECES_MIN * PIECE_BYTES => {
                worth.push(run);
                continue;
            }
            Run::Kept(span) | Run::Gone(span, ..) => span,
        };
        match worth.last_mut() {
            Some(Run::Kept(last)) => last.end = span.end,
            _ => worth.push(Run::Kept(span)),
        }
    }
    worth
}

/// Pieces are made durable one by one, with a rest after each, so that a commit's sync never waits for much that is not its
/// own.
fn write(file: &File, header: &SegmentHeader, bytes: &[u8], runs: &[Run], rest_parts: u32) -> io::Result<()> {
    file.write_at(&header.encode(), 0)?;
    let mut pace = Pace { rest_parts, begun: Instant::now(), unsynced: 0 };
    for run in runs {
        match run {
            Run::Kept(span) => {
                let pieces = bytes[span.start as usize..span.end as usize].chunks(WRITE_BYTES);
                for (piece, at) in pieces.zip((u64::from(span.start)..).step_by(WRITE_BYTES)) {
                    file.write_at(piece, at)?;
                    pace.wrote(file, piece.len())?;
                }
            }
            Run::Gone(span, previous, carried) => {
                file.write_at(&stand_in(span.end - span.start, *previous, *carried), span.start.into())?;
            }
        }
    }
    if file.length()? < u64::from(header.capacity) {
        // As long as ever, and what lies between takes no room.
        file.write_at(&[0], u64::from(header.capacity) - 1)?;
    }
    Ok(())
}

/// How much of the time is spent working in the background.
struct Pace {
    rest_parts: u32,
    begun: Instant,
    unsynced: usize,
}

impl Pace {
    /// So much was written.
    fn wrote(&mut self, file: &File, bytes: usize) -> io::Result<()> {
        self.unsynced += bytes;
        if self.rest_parts == 0 || self.unsynced < WRITE_BYTES {
            return Ok(());
        }
        file.sync_data()?;
        std::thread::sleep(rest(self.begun.elapsed(), self.rest_parts));
        (self.begun, self.unsynced) = (Instant::now(), 0);
        Ok(())
    }
}

/// The batch that stands for others of so many bytes, without the zeros behind it.
fn stand_in(length: u32, previous: Link, carried: Link) -> Vec<u8> {
    let payload = length - BATCH_HEADER_BYTES - FRAME_HEADER_BYTES;
    let mut body = format::frame_header(Kind::Gone, 0, 0, 0, 0, payload).to_vec();
    body.extend_from_slice(&carried.encode());
    let mut checksum = crc32c::crc32c(&body);
    let zeros = [0; 4096];
    let mut left = (length - GONE_BYTES) as usize;
    while left > 0 {
        let step = left.min(zeros.len());
        checksum = crc32c::crc32c_append(checksum, &zeros[..step]);
        left -= step;
    }
    let header = BatchHeader {
        length,
        header_checksum: 0,
        body_checksum: checksum,
        previous,
        durable: 0,
        time: 0,
        frames: 1,
        touched: 0,
    };
    let mut batch = Vec::with_capacity(GONE_BYTES as usize);
    header.encode(&[], &mut batch);
    batch.extend_from_slice(&body);
    batch
}
