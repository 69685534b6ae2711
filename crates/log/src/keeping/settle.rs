//! Settling: a segment out of which much is copied has its payload written once more, each log's bytes
//! together.
//!
//! Purpose: a reader of one log's history reads one range of a file ([`settled`]), whatever lay between its
//! records, and a disk brings in no others'. To write everything twice would cost more than it saves, because
//! most logs are read at their end or not at all. So it is what was read that decides: once a quarter as many
//! bytes were copied out of a sealed segment as it has, a record at a time, it is settled, and from then on
//! they are sent from there. What settling costs has been paid by reads before, and is saved by those that
//! follow. Logs of large records are left out, which are sent from the segment as they are, and those of
//! which there is little.
//!
//! What is settled is the first to go: when the disk is full, when the bound of the whole store is near, when
//! a segment is removed or written anew, when something is wrong with it.
//!
//! Invariants: a settled file has its name only once it is durable, and is taken for a segment's only if the
//! next segment follows on from the very batches it was made from, so that a crash may take what it likes.
//! Reads find the one or the other, and never a gap. It runs where housekeeping does, and rests as that does.
//! *Checked by* the tests of settling, and by the crash simulation.

use crate::Offset;
use crate::error::is_full;
use crate::format::SegmentHeader;
use crate::log::Log;
use crate::options::Durability;
use crate::pace::PacedFile;
use crate::places::Unfolder;
use crate::read::BORROW_BYTES_MIN;
use crate::records::{Record, each_record};
use crate::segment::Segment;
use crate::settled::{self, Settled, Writing};
use crate::store::Shared;
use crate::view::View;
use crate::working::Working;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A segment is settled once one part in this many of its bytes was copied out of it.
const COPIED_PARTS: u64 = 4;
/// A settled file takes at most one part in this many of the disk's free bytes.
const FREE_PARTS: u64 = 8;
/// Less of a log is soon copied.
const LOG_BYTES_MIN: u64 = if cfg!(any(test, fuzzing)) { 64 } else { 16 << 10 };
/// What is put together before it is written.
const WRITE_BYTES: usize = 256 << 10;

impl Shared {
    /// Settles the segment out of which most is copied, and gives up what is in the way. `true`: there is
    /// another. Does nothing on a thread that is at other files and was called back: what it wrote could not
    /// be put in place.
    pub(crate) fn settle(&self) -> io::Result<bool> {
        if self.maintenance_locks.replacing.is_at_work_here() {
            return Ok(false);
        }
        let Some(directory) =
            self.directory.as_ref().filter(|_| self.options.durability != Durability::Memory)
        else {
            return Ok(false);
        };
        if !self.give_up_settled(directory) || !self.options.settles || self.is_damaged() {
            return Ok(false);
        }
        let Some(_one_at_a_time) = self.maintenance_locks.settling.try_lock() else { return Ok(false) };
        let view = self.segments.latest();
        let (Some(segment), more) = self.hottest(directory, &view) else { return Ok(false) };
        let Some(next) = follower(&view, segment) else { return Ok(false) };
        segment.count_anew();
        match self.settle_one(directory, &view, segment, next) {
            // There is no room for what can be done without.
            Err(error) if is_full(&error) => Ok(false),
            settled => settled.map(|()| more),
        }
    }

    /// The segment that is due, out of which most was copied, and whether there are others.
    fn hottest<'v>(&self, directory: &Path, view: &'v View) -> (Option<&'v Arc<Segment>>, bool) {
        let room = self.room_for_settled(directory, view);
        let writer = self.writer.lock();
        let is_due = |segment: &&Arc<Segment>| {
            let header = &segment.header;
            let is_hot = segment.copied_bytes() * COPIED_PARTS >= header.held_bytes();
            let is_sealed = follower(view, segment).is_some() && !segment.is_lost();
            let can_be = is_sealed && segment.settled_file().is_none();
            is_hot && can_be && taken_by(writer.needed_bytes(header.number)) <= room
        };
        let due = view.all().iter().filter(is_due);
        (due.clone().max_by_key(|segment| segment.copied_bytes()), due.count() > 1)
    }

    /// Bytes that there may be more of what is settled.
    fn room_for_settled(&self, directory: &Path, view: &View) -> u64 {
        let free = self.disk.free_bytes(directory).unwrap_or(u64::MAX) / FREE_PARTS;
        self.options.retain_bytes.map_or(free, |bound| bound.saturating_sub(held_bytes(view)).min(free))
    }

    /// Gives up what is wrong with itself, and what the bound of the whole store or a full disk has no room
    /// for, the oldest first. `false`: the disk is full.
    fn give_up_settled(&self, directory: &Path) -> bool {
        let view = self.segments.latest();
        let has_room = {
            let writer = self.writer.lock();
            !self.reclaim.lock().was_refused(writer.tally.failures) && writer.reserve.is_whole()
        };
        let bound = self.options.retain_bytes.filter(|_| has_room);
        let mut excess = match bound {
            Some(bound) => held_bytes(&view).saturating_sub(bound),
            None if has_room => 0,
            None => u64::MAX,
        };
        for segment in view.all() {
            let Some(settled) = segment.settled_file() else { continue };
            if excess > 0 {
                excess = excess.saturating_sub(settled.held_bytes());
                self.unsettle(directory, segment);
            } else if !settled.is_sound() {
                let number = segment.header.number;
                tracing::warn!(segment = number, "what was settled of it is damaged: it is made anew");
                self.unsettle(directory, segment).copied(segment.header.held_bytes());
            }
        }
        has_room
    }

    /// Has a segment read as it is. Answers what stands in its place now.
    fn unsettle(&self, directory: &Path, segment: &Arc<Segment>) -> Arc<Segment> {
        let alone = Arc::new(segment.alone());
        let Some(_one_at_a_time) = self.maintenance_locks.replacing.lock() else { return alone };
        // It may be gone by now, or another.
        if self.segments.find(segment.header.number).is_some_and(|same| Arc::ptr_eq(&same, segment)) {
            self.segments.add(alone.clone());
            self.remove_settled(directory, segment.header.number);
        }
        alone
    }

    /// Removes the file, if there is one: with the segment, or in front of it. Readers may be at it, and keep
    /// their map.
    pub(crate) fn remove_settled(&self, directory: &Path, number: u32) {
        let _ = self.disk.unlink(&directory.join(settled::file_name(number)));
    }

    fn settle_one(
        &self,
        directory: &Path,
        view: &View,
        segment: &Segment,
        next: &SegmentHeader,
    ) -> io::Result<()> {
        let unfolder = Unfolder { view, limit: self.control.file_end() };
        let logs = self.worth_settling(unfolder, segment.header.number);
        let name = settled::file_name(segment.header.number);
        let (working, file) = Working::create(&self.disk, directory, &name)?;
        let Some(settled) = write(self.paced(file, WRITE_BYTES), &logs, unfolder, next)? else {
            return Ok(());
        };
        // From here on it is not removed, or written anew.
        let Some(_one_at_a_time) = self.maintenance_locks.replacing.lock() else { return Ok(()) };
        let same = self.segments.find(segment.header.number).filter(|same| same.header == segment.header);
        let Some(same) = same else { return Ok(()) };
        working.put_in_place()?;
        same.settle(Arc::new(settled));
        self.disk.sync_directory(directory)
    }

    /// The logs that have enough in a segment, in small records, in the order of their ids.
    fn worth_settling(&self, unfolder: Unfolder<'_>, number: u32) -> Vec<Arc<Log>> {
        let mut logs = Vec::new();
        let visitor = |log: &Arc<Log>| {
            let bytes: u64 =
                log.lock().extents.of_segment(number).iter().map(|one| u64::from(one.length)).sum();
            if bytes >= LOG_BYTES_MIN {
                logs.push(log.clone());
            }
        };
        self.catalogue.visit_unlocked(visitor, || {});
        logs.retain(|log| is_of_small_records(unfolder, log, number));
        logs.sort_unstable_by_key(|log| log.id());
        logs
    }
}

/// Bytes that a settled file takes for `payload` bytes of payload, with the tables that say where they lie.
fn taken_by(payload: u64) -> u64 {
    payload + payload / 16
}

/// The segment that follows on from one, and so says what that one holds.
fn follower<'v>(view: &'v View, segment: &Segment) -> Option<&'v SegmentHeader> {
    view.find(segment.header.number + 1).map(|next| &next.header).filter(|next| !next.after_damage)
}

/// Bytes of segments and of what is settled of them.
fn held_bytes(view: &View) -> u64 {
    view.all().iter().map(|segment| segment.header.held_bytes() + segment.settled_bytes()).sum()
}

/// Whether most of what a log has in a segment would be copied, record by record.
fn is_of_small_records(unfolder: Unfolder<'_>, log: &Log, number: u32) -> bool {
    let (mut small, mut large) = (0, 0);
    each_of(unfolder, log, number, |_, record| {
        let bytes = u64::from(record.range.end - record.range.start);
        *if bytes < u64::from(BORROW_BYTES_MIN) { &mut small } else { &mut large } += bytes;
        true
    });
    small >= LOG_BYTES_MIN && small >= large
}

/// Visits what a log has in a segment, record by record, until the visitor wants no more. What cannot be read
/// is left out: its reader meets the damage in the segment.
fn each_of<'v>(
    unfolder: Unfolder<'v>,
    log: &Log,
    number: u32,
    mut visit: impl FnMut(&'v Segment, Record) -> bool,
) {
    let extents = log.lock().extents.of_segment(number).to_vec();
    for one in extents.iter().flat_map(|extent| unfolder.known(log.id(), extent)) {
        let mut next = one.offset;
        if let Ok(false) = each_record(unfolder, log.id(), &one, Offset::MAX, &mut next, &mut visit) {
            return;
        }
    }
}

/// Writes what logs have in a segment; `None`: they have nothing in it any more that can be read.
fn write(
    file: PacedFile<'_>,
    logs: &[Arc<Log>],
    unfolder: Unfolder<'_>,
    next: &SegmentHeader,
) -> io::Result<Option<Settled>> {
    let mut writing = Writing::new(file);
    for log in logs {
        let mut put = Ok(());
        each_of(unfolder, log, next.number - 1, |segment, record| {
            put = writing.put(log.id(), record.offset, segment.region().bytes(record.range));
            put.is_ok()
        });
        put?;
    }
    if writing.is_empty() { Ok(None) } else { writing.finish(next).map(Some) }
}
