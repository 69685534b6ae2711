//! Retention of the store: how old entries may be, and how many bytes of all logs together there may be.
//!
//! Purpose: whole segments go, the oldest first, in every log but those that are left alone; what goes is
//! trimmed by [`Store::maintain`], as a purge would. A segment that is never full is sealed once its entries
//! are of a good part of the age that they may reach, so that retention comes to it too.
//!
//! Times are whatever the writers of entries say. One that lies in the future, by the clock of housekeeping,
//! says nothing about how old its segment is: that is judged by the other entries in it, or, where there are
//! none, by the segments behind.
//!
//! Owns: what housekeeping remembers from one look to the next. *Checked by* the tests of purging and of
//! trimming.

use crate::error::CommitError;
use crate::extents::Extent;
use crate::fork::note_step;
use crate::format::{self, Kind, SEGMENT_HEADER_BYTES};
use crate::log::Log;
use crate::options::{Durability, Options};
use crate::segment::Segment;
use crate::spare::SegmentPurpose;
use crate::store::{Shared, Store};
use crate::view::View;
use crate::{LogId, Offset, Position, Time, position, segment_of};
use std::collections::HashMap;
use std::sync::Arc;

/// A segment is sealed after such a part of the age that entries may reach.
const RETAIN_PARTS: u64 = 4;
/// And no sooner: each is a file, and what retention leaves alone may keep it.
const SEAL_US_MIN: u64 = 3_600_000_000;

/// What a look remembers of the one before.
#[derive(Debug, Default)]
pub(crate) struct StoreRetention {
    /// Since when there have been entries in which segment.
    aging: Option<(u32, Time)>,
    /// What lies before was let go.
    up_to: Position,
    /// The largest time in a segment that was not in the future when it was looked for.
    judged: Option<(u32, Time)>,
}

impl Store {
    /// Purges what is older than it may be, or more than there may be: whole segments, the oldest first.
    /// Answers whether there was anything. Complexity: every log is looked at, once per segment that retires.
    pub(crate) fn retain(&self, now: Time) -> Result<bool, CommitError> {
        let Some(keep_from) = self.shared.retained_from(now) else { return Ok(false) };
        if self.shared.store_retention.lock().up_to >= keep_from {
            return Ok(false);
        }
        self.retain_up_to(keep_from, now).map(|()| true)
    }

    /// The same for what lies in front of a position.
    pub(crate) fn retain_up_to(&self, keep_from: Position, now: Time) -> Result<(), CommitError> {
        let (mut trims, mut forks, mut later) = (Vec::new(), Vec::new(), false);
        self.visit(|log| {
            if !self.shared.options.retains(log.name()) {
                return;
            }
            let inner = log.lock();
            match old_below(inner.extents.all(), keep_from) {
                _ if inner.first_visible < inner.base() && inner.phase.is_visible() => {
                    forks.push(log.clone())
                }
                Some(first) if first > inner.tail_visible => later = true,
                Some(first) if first > inner.first => trims.push((log.clone(), first)),
                _ => {}
            }
        });
        let mut lineages = OldLineages { keep_from, known: HashMap::new() };
        for log in forks {
            let (first, inner) = (lineages.old_below(&log), log.lock());
            match first {
                Some(first) if first > inner.tail_visible => later = true,
                Some(first) if first > inner.first => trims.push((log.clone(), first)),
                _ => {}
            }
        }
        for (log, first) in trims {
            match self.trim(&log, first, now) {
                Ok(_) | Err(CommitError::Deleted | CommitError::Damaged(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if !later {
            self.shared.store_retention.lock().up_to = keep_from;
        }
        Ok(())
    }
}

/// The largest time of a segment's entries up to one. Of what is damaged nothing is known.
fn largest_time(segment: &Segment, most: Time) -> Option<Time> {
    let (mut at, mut largest) = (SEGMENT_HEADER_BYTES, None);
    loop {
        let stop = segment.scan(at, u32::MAX, None).each(|batch| {
            let entries = format::frames(batch.body).filter(|frame| frame.kind == Kind::Data);
            largest = entries.map(|frame| frame.time).filter(|time| *time <= most).chain(largest).max();
        });
        let Some(resumes) = stop.resumes.filter(|_| !stop.blank) else { return largest };
        at = resumes.at;
    }
}

/// Where the last of some extents ends that are old from the first on: all of each lies in front of a
/// position. Into the last one more may have been joined since: it goes once all of it is old.
fn old_below(extents: &[Extent], keep_from: Position) -> Option<Offset> {
    let old = extents.partition_point(|extent| extent.end_position() <= keep_from);
    extents[..old].last().map(Extent::end)
}

/// The same of logs that show something that they inherit, which their ancestors hold. What a log inherits
/// was written before what is its own, so whatever lies below something old is old, and only a log in which
/// nothing is old has its parent asked. *Checked by* the tests below.
struct OldLineages {
    keep_from: Position,
    /// The answers so far: those of a log's forks follow from its own.
    known: HashMap<LogId, Option<Offset>>,
}

impl OldLineages {
    /// Complexity: a step for each ancestor that was not asked before.
    fn old_below(&mut self, log: &Arc<Log>) -> Option<Offset> {
        let (mut inherits, mut next) = (Vec::new(), Some(log.clone()));
        let mut old = None;
        while let Some(log) = next.take() {
            note_step();
            if let Some(known) = self.known.get(&log.id()) {
                old = *known;
                break;
            }
            let inner = log.lock();
            old = old_below(inner.extents.all(), self.keep_from);
            if old.is_some() {
                self.known.insert(log.id(), old);
                break;
            }
            inherits.push((log.id(), inner.base()));
            next = inner.lineage.as_ref().and_then(|lineage| lineage.parent.clone());
        }
        for (log, base) in inherits.into_iter().rev() {
            old = old.map(|old| old.min(base));
            self.known.insert(log, old);
        }
        old
    }
}

impl Shared {
    /// Where what retention keeps begins, at a segment's beginning or at the end of all; `None` when it keeps
    /// all.
    pub(crate) fn retained_from(&self, now: Time) -> Option<Position> {
        let view = self.segments.latest();
        if let Some(age) = self.options.retain_us {
            let writer = self.writer.lock();
            let latest = writer.times.latest;
            if latest > 0 && latest < now.saturating_sub(age) {
                return Some(writer.staged_end());
            }
        }
        let newest = view.all().last()?.header.number;
        let mut from = 0;
        if let Some(age) = self.options.retain_us {
            from = self.aged_up_to(&view, now, now.saturating_sub(age));
        }
        if let Some(limit) = self.options.retain_bytes {
            let mut bytes = 0;
            let fits = view.all().iter().rev().take_while(|segment| {
                bytes += segment.header.held_bytes();
                bytes <= limit
            });
            // The one that is being written stays in any case.
            from = from.max(fits.last().map_or(newest, |segment| segment.header.number));
        }
        let first = view.all().first()?.header.number;
        (from > first).then_some(position(from, 0))
    }

    /// The segment in front of which all entries are older than a time, or 0. Complexity: one segment is
    /// read, if the time of an entry lies in the future, once for each that retires.
    fn aged_up_to(&self, view: &View, now: Time, old: Time) -> u32 {
        // All entries in front of a segment are older than its header says at the most.
        let aged = view.all().iter().rposition(|segment| segment.header.latest < old).unwrap_or(0);
        let mut from = view.all().get(aged).map_or(0, |segment| segment.header.number);
        for pair in view.all()[aged..].windows(2) {
            let [segment, next] = pair else { break };
            if next.header.latest <= now {
                break;
            }
            match self.latest_by(segment, now, old) {
                Some(latest) if latest >= old => break,
                Some(_) => from = next.header.number,
                // Whatever comes behind was written later.
                None => {}
            }
        }
        from
    }

    /// The largest time of a segment's entries that is not in the future; of one that was found to be no
    /// older than a time the same as before.
    fn latest_by(&self, segment: &Segment, now: Time, old: Time) -> Option<Time> {
        let number = segment.header.number;
        let known = self.store_retention.lock().judged.filter(|(of, latest)| *of == number && *latest >= old);
        if let Some((_, latest)) = known {
            return Some(latest);
        }
        let latest = largest_time(segment, now);
        self.store_retention.lock().judged = latest.map(|latest| (number, latest));
        latest
    }

    /// Seals a segment whose oldest entry is older than an idle segment may be.
    pub(crate) fn rotate_idle(&self, now: Time) -> Result<(), CommitError> {
        let age = self.options.rotate_after_us.filter(|_| self.options.durability != Durability::Memory);
        let Some(age) = age else { return Ok(()) };
        let mut writer = self.writer.lock();
        if writer.first_entry_time == 0 || now < writer.first_entry_time.saturating_add(age) {
            return Ok(());
        }
        writer.begin_next(SegmentPurpose::ToGrow)
    }

    /// Begins another segment once something has been in this one for a good part of the age that entries may
    /// reach, so that retention comes to it also where little is appended. The time is the housekeeping's:
    /// that of entries is whatever their writers say.
    pub(crate) fn rotate_aged(&self, now: Time) -> Result<(), CommitError> {
        let Options { retain_us, retain_bytes, .. } = self.options;
        let parts = u64::from(self.options.segment_bytes_first()) * (RETAIN_PARTS + 2);
        let Some(age) = retain_us.filter(|_| retain_bytes.is_none_or(|bound| parts <= bound)) else {
            return Ok(());
        };
        let Some(active) = self.aged(now, (age / RETAIN_PARTS).max(SEAL_US_MIN)) else { return Ok(()) };
        if !self.holds_retained(active) {
            self.store_retention.lock().aging = None;
            return Ok(());
        }
        let mut writer = self.writer.lock();
        if writer.active.header.number != active {
            return Ok(());
        }
        match writer.segment_tail.end() < writer.active.header.capacity / 2 {
            true => writer.begin_anew(),
            false => writer.begin_next(SegmentPurpose::ToLetGo),
        }
    }

    /// The segment that is written to, if entries were seen in it so long ago.
    fn aged(&self, now: Time, age: u64) -> Option<u32> {
        let (active, begun) = {
            let writer = self.writer.lock();
            (writer.active.header.number, writer.first_entry_time)
        };
        if begun == 0 {
            return None;
        }
        let mut retained = self.store_retention.lock();
        match retained.aging {
            Some((number, since)) if number == active && since <= now => {
                (now - since >= age).then_some(active)
            }
            _ => {
                retained.aging = Some((active, now));
                None
            }
        }
    }

    /// Whether a segment holds something that retention does not leave alone. Complexity: a look at every
    /// log.
    fn holds_retained(&self, number: u32) -> bool {
        let mut holds = false;
        self.catalogue.visit(|log| {
            let inner = log.lock();
            let newest = inner.extents.all().last().filter(|extent| segment_of(extent.position) == number);
            holds |= newest.is_some() && self.options.retains(log.name());
        });
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::{LINEAGE_STEPS, LineagePart, lineage_parts};
    use crate::{Commit, Config, Fork, Lifetime, Purge};
    use proptest::prelude::*;

    fn config() -> Config {
        Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited }
    }

    fn fork(store: &Store, name: &str, parent: &Arc<Log>, at: Offset) -> Arc<Log> {
        let fork = Fork { parent: parent.clone(), at, asked: [0; 2] };
        store.create(name.as_bytes(), &config(), Some(&fork), &Commit::default(), None).unwrap().0
    }

    /// What is old of all that a log shows, its oldest ancestor asked first.
    fn old_from_the_root(log: &Arc<Log>, keep_from: Position) -> Option<Offset> {
        let mut old = None;
        for LineagePart { log, from, cut } in lineage_parts(log, 0) {
            let inner = log.lock();
            let extents = inner.extents.covering(from, cut);
            let end = old_below(extents, keep_from).map(|end| end.min(cut));
            old = end.or(old);
            if end != extents.last().map(|extent| extent.end().min(cut)) {
                break;
            }
        }
        old
    }

    proptest! {
        #[test]
        fn what_is_old_of_a_fork_is_what_its_lineage_says_from_the_root_on(
            steps in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..8_u8), 1..60),
        ) {
            let store = Store::memory(Options::default()).unwrap();
            let mut logs = vec![store.log(b"root").unwrap()];
            for (index, (log, at, kind)) in steps.iter().enumerate() {
                let log = log.get(&logs).clone();
                let state = log.staged().unwrap();
                let place = state.first + at.index((state.tail - state.first) as usize + 1) as u64;
                match kind {
                    0 => store.rotate().unwrap(),
                    1 => _ = store.trim(&log, place, 0).unwrap(),
                    2..5 => logs.push(fork(&store, &index.to_string(), &log, place)),
                    _ => _ = store.append(&log, b"entry", 0).unwrap(),
                }
            }
            let last = store.shared.segments.latest().all().last().unwrap().header.number;
            for segment in 1..=last + 1 {
                let keep_from = position(segment, 0);
                let mut lineages = OldLineages { keep_from, known: HashMap::new() };
                for log in &logs {
                    let first = log.visible().unwrap().first;
                    let goes = |old: Option<Offset>| old.filter(|old| *old > first);
                    prop_assert_eq!(
                        goes(lineages.old_below(log)),
                        goes(old_from_the_root(log, keep_from))
                    );
                }
            }
        }
    }

    #[test]
    fn what_goes_of_a_long_chain_of_forks_is_found_in_a_few_steps_for_each() {
        const DEPTH: usize = 300;
        let chain = |store: &Store| {
            let mut logs = vec![store.log(b"root").unwrap()];
            (0..10).for_each(|_| _ = store.append(&logs[0], b"entry", 0).unwrap());
            store.rotate().unwrap();
            for depth in 1..DEPTH {
                let parent = &logs[depth - 1];
                let log = fork(store, &depth.to_string(), parent, parent.staged().unwrap().tail);
                store.append(&log, b"own", 0).unwrap();
                logs.push(log);
            }
            LINEAGE_STEPS.set(0);
            logs
        };
        let store = Store::memory(Options::default()).unwrap();
        let logs = chain(&store);
        store.retain_up_to(position(2, 0), 0).unwrap();
        assert!(LINEAGE_STEPS.get() < 4 * DEPTH, "{} by retention", LINEAGE_STEPS.take());
        assert!(logs.iter().all(|log| log.visible().is_some_and(|state| state.first == 50)));
        let store = Store::memory(Options::default()).unwrap();
        chain(&store);
        assert_eq!(store.purge(&Purge { destroy: true, ..Purge::default() }).unwrap().len(), DEPTH);
        assert!(LINEAGE_STEPS.get() < 4 * DEPTH, "{} by a purge", LINEAGE_STEPS.take());
        assert_eq!(store.stats().live_bytes, 0);
    }
}
