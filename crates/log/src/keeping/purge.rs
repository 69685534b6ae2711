//! Purging: letting go of the oldest entries of a log, or of the log.
//!
//! Purpose: purges that a caller asks for, by time or of whole logs. What goes is always a prefix of what
//! a log shows, and so it is where [`retention`](crate::retention) asks for it. A purge is a commit like
//! any other ([`Commit::trim`]), so it is durable, replayed and seen in order. Readers that are at work
//! keep the bytes they have; those that come later begin behind it. What a fork inherited stays until it
//! is purged from the fork, or the fork is gone ([`fork_needs`](crate::fork_needs)). Segments in which
//! no log has anything left are removed behind the checkpoints. Checked by the tests of purging and by
//! the crash simulation.

use crate::error::{CommitError, ReadError};
use crate::extents::Extent;
use crate::fork::note_step;
use crate::log::Log;
use crate::options::Durability;
use crate::query::{Query, Start};
use crate::spare::SegmentPurpose;
use crate::store::Store;
use crate::{Commit, LogId, Offset, Receipt, Time, segment_of};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// What to purge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purge<'a> {
    /// Of one log; `None`: of every log.
    pub log: Option<&'a [u8]>,
    /// The entries in front of the first one of this time or a later one; `None`: all there are.
    pub before: Option<Time>,
    /// Delete the logs, whatever is in them: not together with `before`.
    pub destroy: bool,
    /// Count the entries, which means walking over them.
    pub count_entries: bool,
    /// The time of the purge, microseconds since the Unix epoch.
    pub time: Time,
}

/// What was purged of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// The log's name.
    pub name: Vec<u8>,
    /// Its identity.
    pub log: LogId,
    /// The first offset that is left; its end when nothing is.
    pub first: Offset,
    /// Payload bytes that went.
    pub bytes: u64,
    /// Entries that went, if they were counted.
    pub entries: Option<u64>,
    /// The log itself is gone.
    pub destroyed: bool,
}

/// What is to be purged of a log.
struct PurgePlan<'l> {
    log: &'l Arc<Log>,
    /// The first offset there is, and the first that is left.
    begin: Offset,
    first: Offset,
}

impl Store {
    /// Purges, and answers what went, log by log in the order of their names; logs of which nothing went are
    /// left out. In `sync` mode it is durable by then, and what was not durable when it began is left:
    /// [`Store::flush`] comes first where that is to go, too. Segments in which no log has anything left are
    /// removed before it returns; when all that the newest one holds goes, a new one is begun for that. It
    /// waits for a checkpoint or a compaction that another thread is at. Called by a watcher within one, it
    /// leaves the segments to later maintenance. What is still needed and what files take is said by
    /// [`Store::stats`]. Complexity: a search and a commit per log; a walk over what goes, if it is to be
    /// counted; two checkpoints, if there are segments to remove.
    ///
    /// ```
    /// use thalweg_log::{Options, Purge, Query, Store};
    /// let store = Store::memory(Options::default())?;
    /// let log = store.log(b"readings")?;
    /// (1..=10).try_for_each(|time| store.append(&log, b"21.5", time).map(drop))?;
    /// let purged = store.purge(&Purge { before: Some(8), count_entries: true, ..Purge::default() })?;
    /// assert_eq!((purged[0].entries, purged[0].bytes), (Some(7), 28));
    /// assert_eq!(store.reader(&log).entries(&Query::default()).count(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`CommitError::BadPurge`] when it contradicts itself; [`CommitError::NoLog`] when there is no log of
    /// the name, or its creation is not durable yet, [`CommitError::Deleted`] when it is on its way out;
    /// [`CommitError::Pending`] when logs are to be destroyed to which transactions are going to append;
    /// [`CommitError::Damaged`] when damage hides the entry to purge up to: nothing is purged then. Otherwise
    /// as [`Store::commit`]; logs that come before the one at fault are purged.
    pub fn purge(&self, purge: &Purge<'_>) -> Result<Vec<Purged>, CommitError> {
        if purge.destroy && purge.before.is_some() {
            return Err(CommitError::BadPurge);
        }
        let logs = match purge.log {
            Some(name) => {
                let created = |log: &Arc<Log>| log.lock().phase.was_visible();
                vec![self.find(name).filter(created).ok_or_else(|| CommitError::no_log(name))?]
            }
            None => self.logs(),
        };
        if purge.destroy {
            refuse_pending(&logs)?;
        }
        let mut plans = Vec::new();
        for log in &logs {
            plans.extend(unless_deleted(self.plan(log, purge), purge)?.flatten());
        }
        let frees = self.make_way(&plans);
        let (mut purged, mut ticket) = (Vec::new(), 0);
        for plan in plans {
            let Some((went, receipt)) = unless_deleted(self.let_go(plan, purge), purge)? else { continue };
            purged.extend(went);
            ticket = ticket.max(receipt.ticket);
        }
        self.persist(ticket)?;
        if frees {
            self.remove_files();
        }
        self.shared.writer.lock().tally.purges += 1;
        Ok(purged)
    }

    /// [`Store::purge`], of all that was written before the call: what is not durable yet is made so first,
    /// for a purge passes over what is not visible.
    ///
    /// ```
    /// use thalweg_log::{Disk, Durability, Options, Purge, Store};
    /// let directory = tempfile::tempdir()?;
    /// let options = Options { durability: Durability::Sync, ..Options::default() };
    /// let (store, _) = Store::open(&Disk::Real, directory.path(), options)?;
    /// let log = store.log(b"readings")?;
    /// store.append(&log, b"21.5", 1)?;
    /// assert_eq!(store.purge_written(&Purge::default())?[0].bytes, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::persist`] and [`Store::purge`].
    pub fn purge_written(&self, purge: &Purge<'_>) -> Result<Vec<Purged>, CommitError> {
        self.persist(self.staged_end())?;
        self.purge(purge)
    }

    /// What a purge takes of a log, if anything.
    fn plan<'l>(&self, log: &'l Arc<Log>, purge: &Purge<'_>) -> Result<Option<PurgePlan<'l>>, CommitError> {
        let Some(state) = log.visible() else { return Ok(None) };
        let keep = match purge.before {
            Some(before) => self.first_since(log, before)?,
            None => None,
        };
        let (begin, first) = (state.first, keep.unwrap_or(state.tail));
        Ok((first > begin || purge.destroy).then_some(PurgePlan { log, begin, first }))
    }

    /// Lets go of it. Answers what went: nothing, if another caller was faster.
    fn let_go(
        &self,
        plan: PurgePlan<'_>,
        purge: &Purge<'_>,
    ) -> Result<(Option<Purged>, Receipt), CommitError> {
        let PurgePlan { log, begin, first } = plan;
        let count = |from| purge.count_entries.then(|| self.count_entries(log, from..first));
        let (mut from, mut entries) = (begin, count(begin));
        loop {
            let done_by_another = || Ok((None, Receipt { ticket: log.last(), ..Receipt::default() }));
            let state = match log.staged() {
                Some(state) => state,
                None if purge.destroy => return done_by_another(),
                None => return Err(CommitError::Deleted),
            };
            if state.first >= first && !purge.destroy {
                return done_by_another();
            }
            // Another caller may have let go of some of it since.
            if state.first > from {
                from = state.first.min(first);
                entries = count(from);
            }
            let outcome = match purge.destroy {
                // No transaction begins between this look and the delete.
                true => self
                    .delete_unless(log, state.version, purge.time, None, |inner| refused(inner.transactions)),
                // A caller that asks for it may let go of what is damaged, too.
                false => {
                    let commit = Commit { trim: Some(first), time: purge.time, ..Commit::default() };
                    self.commit_unless(log, state.version, &commit, None, |_| Ok(()))
                }
            };
            if matches!(outcome, Err(CommitError::Conflict { .. })) {
                continue;
            }
            let (name, bytes) = (log.name().to_vec(), first - from);
            let purged = Purged { name, log: log.id(), first, bytes, entries, destroyed: purge.destroy };
            return outcome.map(|receipt| (Some(purged), receipt));
        }
    }

    /// Sees to it that segments that no log will need can be removed: they must not be written to, and two
    /// checkpoints must stand behind them, of which this is the first. Answers whether there are any. What
    /// the disk refuses here it may do later.
    fn make_way(&self, plans: &[PurgePlan<'_>]) -> bool {
        let shared = &self.shared;
        let dead = shared.dead_without(&lengths_by_segment(plans));
        if dead.newest {
            let mut writer = shared.writer.lock();
            let _ = match dead.all {
                true => writer.begin_anew(),
                false => writer.begin_next(SegmentPurpose::ToLetGo),
            };
        }
        if dead.any {
            self.checkpoint_if_possible();
        }
        dead.any
    }

    fn remove_files(&self) {
        match self.durability() {
            Durability::Memory => self.shared.drop_dead_segments(),
            Durability::Sync | Durability::Os => self.checkpoint_if_possible(),
        }
    }

    /// Offset of the first entry of a time or a later one. What damage hides is not taken for older.
    pub(crate) fn first_since(&self, log: &Arc<Log>, time: Time) -> Result<Option<Offset>, CommitError> {
        self.since(log, time).map_err(CommitError::from)
    }

    /// Entries in a range of offsets; those that damage took are not counted.
    fn count_entries(&self, log: &Arc<Log>, offsets: Range<Offset>) -> u64 {
        let (mut reader, mut count) = (self.reader(log), 0);
        let mut entries = reader.entries(&Query::from(Start::Offset(offsets.start)));
        loop {
            match entries.next() {
                Some(Ok(entry)) if entry.offset < offsets.end => count += 1,
                Some(Err(ReadError::Damaged(_))) => entries.resume(),
                _ => return count,
            }
        }
    }

    /// Purges everything below an offset, also while others commit. What is damaged is left as it is.
    pub(crate) fn trim(&self, log: &Arc<Log>, first: Offset, time: Time) -> Result<Receipt, CommitError> {
        loop {
            let Some(state) = log.staged() else { return Err(CommitError::Deleted) };
            if state.first >= first {
                return Ok(Receipt { ticket: log.last(), ..Receipt::default() });
            }
            let commit = Commit { trim: Some(first), time, ..Commit::default() };
            match self.commit(log, state.version, &commit, None) {
                Err(CommitError::Conflict { .. }) => {}
                outcome => return outcome,
            }
        }
    }
}

/// How many bytes of payload go from which segment. A fork that goes may be the last that needed something of
/// its ancestors, and of those that go with it nobody knows who is: then all is counted once that none of
/// them shows. Complexity: a step for each log that goes and each of their ancestors, where forks of one log
/// show as much of it; and one for each extent.
fn lengths_by_segment(plans: &[PurgePlan<'_>]) -> BTreeMap<u32, u64> {
    let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
    let mut add = |extent: &Extent| {
        *bytes.entry(segment_of(extent.position)).or_default() += u64::from(extent.length);
    };
    if !plans.iter().any(|plan| plan.log.lock().lineage.is_some()) {
        plans.iter().for_each(|plan| plan.log.lock().unneeded_below(plan.first, &mut add));
        return bytes;
    }
    let mut counted = HashSet::new();
    let mut add_once = |log: LogId, extents: &[Extent], first: Offset| {
        let goes = |extent: &&Extent| extent.end() <= first && counted.insert((log, extent.position));
        extents.iter().filter(goes).for_each(&mut add);
    };
    // Those that show most come first: nothing of an ancestor that they were led to is looked at again.
    let mut order: Vec<&PurgePlan<'_>> = plans.iter().collect();
    order.sort_by_cached_key(|plan| (plan.begin, Reverse(plan.log.lock().base())));
    let mut seen: HashMap<LogId, Offset> = HashMap::new();
    for PurgePlan { log, begin, first } in order {
        add_once(log.id(), log.lock().extents.all(), *first);
        let (mut cut, mut next) = (Offset::MAX, Some((*log).clone()));
        while let Some(log) = next.take() {
            note_step();
            let seen_below = seen.entry(log.id()).or_default();
            if cut <= *seen_below {
                break;
            }
            let inner = log.lock();
            let from = inner.base().max(*begin).max(std::mem::replace(seen_below, cut));
            add_once(log.id(), inner.extents.covering(from, cut), inner.own());
            cut = cut.min(inner.base());
            let inherits = inner.lineage.as_ref().filter(|_| *begin < cut);
            next = inherits.and_then(|lineage| lineage.parent.clone());
        }
    }
    bytes
}

/// A purge of every log passes over one that is being deleted.
fn unless_deleted<T>(outcome: Result<T, CommitError>, purge: &Purge<'_>) -> Result<Option<T>, CommitError> {
    match outcome {
        Err(CommitError::Deleted) if purge.log.is_none() => Ok(None),
        outcome => outcome.map(Some),
    }
}

fn refuse_pending(logs: &[Arc<Log>]) -> Result<(), CommitError> {
    refused(logs.iter().map(|log| log.lock().transactions).sum())
}

/// Refuses a delete while `count` transactions are under way.
fn refused(count: u32) -> Result<(), CommitError> {
    if count > 0 { Err(CommitError::Pending { count }) } else { Ok(()) }
}
