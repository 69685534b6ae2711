//! When the room of what was let go is worth a checkpoint.
//!
//! Purpose: whatever was purged, deleted, expired or trimmed goes out of the files behind two checkpoints:
//! whole segments that no log needs are removed there ([`removal`](super::removal)), those of which
//! little is needed are written anew ([`compact`](crate::keeping::compact)). A checkpoint has a record for
//! every log, so what it costs is weighed against what it gives back: where that is a good part of the files,
//! or of what the store may keep, one comes with the next housekeeping; where it is less, after a while,
//! which is the longer the more a checkpoint costs and the less there is to be had. For less than a page
//! there is none. Where the disk had no room for a commit nothing waits that gives back what it
//! costs.
//!
//! Two checkpoints have to begin behind what was let go. Where nothing is written in between, a batch that
//! stands for no others ([`Kind::Gone`]) is, so that the second begins somewhere else. The segment that is
//! written to is sealed first, if most of it would be given back.
//!
//! Invariants: what is written for reclaiming stays in proportion to what was let go since the older
//! checkpoint; once nothing more is let go there are two checkpoints at most. *Checked by* the tests of
//! reclaiming and by the crash simulation.

use crate::batch::{PlannedBatch, PlannedFrame};
use crate::checkpoint::KEPT;
use crate::error::CommitError;
use crate::format::{Kind, Stamp};
use crate::open::Contents;
use crate::segment_tail::WriteMode;
use crate::store::{Shared, Store};
use crate::view::View;
use crate::writer::Writer;
use crate::{Position, Time, segment_of};
use std::collections::BTreeMap;
use std::io;

/// A segment is written anew once it holds this many times the bytes that are needed of it.
pub(crate) const EXCESS: u64 = 2;
/// Such a part of all there are, or of what a store may keep, is worth a checkpoint at once; and of a
/// segment, to write it anew.
pub(crate) const WORTH_PARTS: u64 = 8;
/// Limits of that part, in a store that is bounded in size.
const WORTH_BYTES_MIN: u64 = 1 << 20;
const WORTH_BYTES_MAX: u64 = 16 << 20;
/// A checkpoint has to give back at least this many times the bytes that it takes itself.
const COST_TIMES: u64 = 2;
/// What is less waits for so long, and so long for each time that a checkpoint takes as much as there is to
/// be had.
const WAIT_US: Time = 60_000_000;
/// Less than this is not worth anything.
const TRIFLE_BYTES: u64 = 4096;
/// What a log takes of a checkpoint, as long as none was written that would tell.
const RECORD_BYTES: u64 = 128;
/// What is to be reclaimed.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    /// Bytes that came to be known as let go otherwise: when the store was opened, or when a segment was
    /// sealed for it.
    seen_bytes: u64,
    /// That and the payload let go, by the time of each of the checkpoints that are kept, the older one
    /// first.
    let_go_bytes: [u64; KEPT],
    /// Bytes of the last checkpoint.
    last_bytes: u64,
    /// Logs in it.
    last_logs: u64,
    /// Since when there is something worth waiting for.
    waiting_since: Option<Time>,
    /// There was no look since the last checkpoint, or there was more than one look takes.
    compacts: bool,
    /// Batches that the disk had no room for when settling last asked.
    refused: u64,
    /// The same when a checkpoint was last judged.
    refusals_seen: u64,
    /// Checkpoints that are wanted at once, because the disk had no room.
    urgent_checkpoints: usize,
    /// Segments that were not worth it at the last look, and what was needed of them then.
    in_vain: BTreeMap<u32, u64>,
}

impl Reclaim {
    /// Of a store that was just opened. What was let go since the older checkpoint is nobody's to know: it is
    /// taken from what is needed of the segments behind it.
    pub(crate) fn opened(
        contents: &Contents,
        checkpoints: &[Position],
        spans: &BTreeMap<u32, u64>,
    ) -> Reclaim {
        let from = checkpoints.first().map_or(0, |start| segment_of(*start));
        let (view, active) = (contents.segments.latest(), contents.tail.active.header.number);
        let headers = view.all().iter().map(|segment| &segment.header);
        let sealed = headers.filter(|header| header.number >= from && header.number != active);
        let excess = sealed.map(|header| {
            let (held, needed) = (header.held_bytes(), spans.get(&header.number).copied().unwrap_or(0));
            if needed * EXCESS <= held { held - needed } else { 0 }
        });
        Reclaim { seen_bytes: excess.sum(), compacts: true, ..Reclaim::default() }
    }

    /// Whether nothing was gained by a look at a segment when as much of it was needed.
    pub(crate) fn is_in_vain(&self, segment: u32, needed: u64) -> bool {
        self.in_vain.get(&segment).is_some_and(|then| *then <= needed)
    }

    /// One of those that there are was not worth it.
    pub(crate) fn looked_in_vain(&mut self, segment: u32, needed: u64, among: &View) {
        self.in_vain.retain(|known, _| among.find(*known).is_some());
        self.in_vain.insert(segment, needed);
    }

    /// Whether the disk was full since the last call; `failures` counts the writes that it ever refused.
    pub(crate) fn was_refused(&mut self, failures: u64) -> bool {
        std::mem::replace(&mut self.refused, failures) < failures
    }

    /// What is let go since the older checkpoint, of all that ever was.
    fn let_go_since(&self, purged_bytes: u64) -> u64 {
        (self.seen_bytes + purged_bytes).saturating_sub(self.let_go_bytes[0])
    }

    /// Bytes that a checkpoint of `logs` logs is going to take.
    fn cost_bytes(&self, logs: u64) -> u64 {
        match self.last_logs {
            0 => logs.saturating_mul(RECORD_BYTES),
            of_logs => (u128::from(self.last_bytes) * u128::from(logs) / u128::from(of_logs)) as u64,
        }
    }

    /// Notes how many writes a full disk has refused so far. After a new one, two checkpoints are urgent:
    /// they give back what was purged, which makes room for the writers that are refused.
    fn note_refusals(&mut self, failures: u64) {
        if std::mem::replace(&mut self.refusals_seen, failures) < failures {
            self.urgent_checkpoints = KEPT;
        }
    }

    /// Whether it is time for a checkpoint that gives back `worth` bytes.
    fn is_due(&mut self, worth: u64, at_once: u64, cost: u64, now: Time) -> bool {
        if worth < TRIFLE_BYTES {
            self.waiting_since = None;
            return false;
        }
        // A clock that was set back begins anew.
        let since = self.waiting_since.map_or(now, |since| since.min(now));
        self.waiting_since = Some(since);
        let wait = WAIT_US.saturating_mul((cost / worth).max(1));
        let is_wanted = self.urgent_checkpoints > 0 && worth >= cost;
        is_wanted || worth >= at_once.max(cost.saturating_mul(COST_TIMES)) || now - since >= wait
    }
}

impl Shared {
    /// Whether what was let go is worth a checkpoint now: what the older one holds on to can be reclaimed
    /// then.
    fn reclaim_due(&self, now: Time) -> bool {
        if self.directory.is_none() || self.is_damaged() {
            return false;
        }
        let (worth, logs) = (self.reclaimable(), self.catalogue.count() as u64);
        let failures = self.writer.lock().tally.failures;
        let bound = self.options.retain_bytes.map_or(u64::MAX, |bound| bound / WORTH_PARTS);
        let at_once = bound.clamp(WORTH_BYTES_MIN, WORTH_BYTES_MAX);
        let at_once = at_once.max(self.segments.allocated_bytes() / WORTH_PARTS);
        let mut reclaim = self.reclaim.lock();
        let cost = reclaim.cost_bytes(logs);
        reclaim.note_refusals(failures);
        reclaim.is_due(worth, at_once, cost, now)
    }

    /// About how many bytes two checkpoints would give back: of segments that no log needs, or of what was
    /// let go in others.
    fn reclaimable(&self) -> u64 {
        let view = self.segments.latest();
        let (unneeded, purged) = {
            let writer = self.writer.lock();
            let held = writer.dead().filter_map(|number| Some(view.find(number)?.header.held_bytes()));
            (held.sum::<u64>() + writer.worn_bytes(), writer.tally.purged_bytes)
        };
        unneeded.max(self.reclaim.lock().let_go_since(purged))
    }

    /// Sees to it that a checkpoint taken now has something removed behind it. What the disk refuses here it
    /// may do later.
    pub(crate) fn make_room(&self) -> Result<(), CommitError> {
        let last = self.checkpoints.lock().last().copied();
        let mut writer = self.writer.lock();
        let worn = writer.worn_bytes();
        if worn > 0 {
            match writer.begin_anew() {
                // Neither checkpoint that is kept lies behind it yet.
                Ok(()) => self.reclaim.lock().seen_bytes += worn,
                Err(error) => {
                    tracing::warn!(%error, "cannot begin a smaller segment: the one there is stays for now");
                }
            }
        }
        if last == Some(writer.staged_end()) {
            writer.mark()?;
        }
        Ok(())
    }

    /// Notes that another checkpoint is kept: `purged_bytes` had been purged when it began, and it takes
    /// `bytes` for `logs` logs.
    pub(crate) fn checkpoint_taken(&self, purged_bytes: u64, bytes: u64, logs: u64) {
        let mut reclaim = self.reclaim.lock();
        reclaim.let_go_bytes.rotate_left(1);
        reclaim.let_go_bytes[KEPT - 1] = reclaim.seen_bytes + purged_bytes;
        (reclaim.last_bytes, reclaim.last_logs) = (bytes, logs);
        (reclaim.waiting_since, reclaim.compacts) = (None, true);
        reclaim.urgent_checkpoints = reclaim.urgent_checkpoints.saturating_sub(1);
    }

    /// Sees to it that what reclaiming takes is set aside: the checkpoints that are missing, and another.
    pub(crate) fn set_room_aside(&self) {
        let missing = KEPT.saturating_sub(self.checkpoints.lock().len()) as u64;
        // Counted first: the catalogue's locks come before this one.
        let logs = self.catalogue.count() as u64;
        let cost = self.reclaim.lock().cost_bytes(logs);
        let mut writer = self.writer.lock();
        writer.reserve.foresee(cost.saturating_mul(1 + missing));
        writer.reserve.restore();
    }

    /// Compacts if that may be of use: after a checkpoint, until nothing is left to do. `true`: there is.
    fn compact_if_of_use(&self) -> io::Result<bool> {
        if !std::mem::take(&mut self.reclaim.lock().compacts) {
            return Ok(false);
        }
        let more = self.compact();
        // What the disk refused it may do later.
        self.reclaim.lock().compacts |= *more.as_ref().unwrap_or(&true);
        more
    }
}

impl Store {
    /// Writes a checkpoint if one is due, by the bytes logged since the last or by what it gives back.
    /// Compacts. `true`: there is more to compact. Does nothing on a thread that is at that already and was
    /// called back.
    pub(crate) fn reclaim(&self, now: Time) -> io::Result<bool> {
        let shared = &self.shared;
        if shared.maintenance_locks.replacing.is_at_work_here() {
            return Ok(false);
        }
        let reclaims = shared.reclaim_due(now);
        let room = if reclaims { shared.make_room() } else { Ok(()) };
        let taken = match room {
            Err(CommitError::Closed) => return Ok(false),
            Err(error) => Err(io::Error::other(error.to_string())),
            Ok(()) if reclaims || shared.checkpoint_due() => self.checkpoint_throttled(),
            Ok(()) => Ok(()),
        };
        // Whatever became of that: what compaction gives back may be what a checkpoint lacks.
        taken.and(shared.compact_if_of_use())
    }
}

impl Writer {
    /// Writes a batch that stands for no others, so that the log ends somewhere else.
    fn mark(&mut self) -> Result<(), CommitError> {
        let carried = self.link;
        let payload = carried.encode();
        let frames = [PlannedFrame::of(Kind::Gone, 0, Stamp::default(), [&payload, &[]])?];
        let batch = PlannedBatch::of(&frames, &[], 0);
        let placed = self.append(&batch, WriteMode::of(self.options.durability, false))?;
        self.live_bytes.entry(segment_of(placed.start)).or_default();
        self.link = carried;
        Ok(())
    }
}
