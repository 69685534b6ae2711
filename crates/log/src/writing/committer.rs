//! Group commit: one sync for everything that was written since the last one.
//!
//! While a group is being synced the next one fills. A group's order is: sync the segments it lies in, sync
//! the directory if a segment is new, show what it did to each log (what one batch did to several at once),
//! move `visible`, then `durable`, tell each watcher once. So a caller that waited for a commit finds it by
//! any way of reading. A sync that fails poisons the store: nothing is acknowledged any more, because
//! asking the kernel again would report a success that means nothing. So does a call that fails to write what
//! is to be synced.
//!
//! A reactor commits in turns and leads the group itself at the end of a turn ([`Store::end_turn`]), as long
//! as syncs are quick: that spares a wake across processors there and back. If it finds another group under
//! way, it goes on without waiting: when the leader is done, it tells every watcher that has commits behind
//! the group. For that `leading` is set, looked at and cleared, and `waiting` looked through, under the
//! writer's lock. A group that no reactor is going to lead is *owed* by the committer.
//!
//! How long a sync takes is known when it is over. So the first slow one may stop a turn, and only that one:
//! the committer then leads until a row of quick ones is behind it.

use crate::error::CommitError;
use crate::log::{Log, Seen};
use crate::options::Durability;
use crate::segment::Segment;
use crate::spare::Filler;
use crate::store::{Shared, Store};
use crate::writer::Writer;
use crate::{LogId, Offset, Position, WatcherId};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use thalweg_sync::contain::contain;
use thalweg_sync::gate::Roused;
use thalweg_sys::clock::monotonic_ns;

/// Syncs up to this long are quick: a reactor's turn that is full of requests takes as long.
pub(crate) const QUICK_NS_MAX: u64 = 1_000_000;
/// What a longer one counts as, however long it took: five quick ones at least have to follow.
pub(crate) const SLOW_NS: u64 = 4 * QUICK_NS_MAX;

/// Which thread leads the next group. Under the writer's lock.
#[derive(Debug)]
pub(crate) struct Lead {
    /// The committer sleeps and wants a nudge.
    pub(crate) committer_idle: bool,
    /// There are commits that the committer has to see to: no other thread is going to.
    pub(crate) owed: bool,
    /// A group is being synced, or is going to be at once. Its leader tells every watcher that has commits
    /// behind it.
    pub(crate) leading: bool,
    /// How long a sync takes: an average of those since the last slow one.
    pub(crate) sync_ns: u64,
}

impl Lead {
    pub(crate) fn is_quick(&self) -> bool {
        self.sync_ns <= QUICK_NS_MAX
    }

    pub(crate) fn note(&mut self, took_ns: u64) {
        self.sync_ns = if took_ns > QUICK_NS_MAX { SLOW_NS } else { (3 * self.sync_ns + took_ns) / 4 };
    }
}

impl Default for Lead {
    fn default() -> Lead {
        Lead { committer_idle: false, owed: false, leading: false, sync_ns: SLOW_NS }
    }
}

/// A commit that waits for its group, and what becomes visible then.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) log: Arc<Log>,
    pub(crate) seen: Seen,
    /// The next one is of the same batch: what that did to several logs is shown at once.
    pub(crate) same_batch_follows: bool,
}

impl Pending {
    /// Payload up to an offset, and nothing else.
    pub(crate) fn payload(log: &Arc<Log>, tail: Offset) -> Pending {
        Pending::of(log, Seen::payload(tail))
    }

    pub(crate) fn of(log: &Arc<Log>, seen: Seen) -> Pending {
        Pending { log: log.clone(), seen, same_batch_follows: false }
    }
}

/// What is written and no sync has covered: the next group, as it fills.
#[derive(Debug, Default)]
pub(crate) struct NextGroup {
    /// Segments that are full and not synced.
    pub(crate) sealed: Vec<Arc<Segment>>,
    /// A segment came to the directory.
    pub(crate) names_changed: bool,
    pub(crate) pending: Vec<Pending>,
    /// Watchers that wait for one of those.
    pub(crate) waiting: u32,
    pub(crate) batches: u64,
}

/// What one sync covers.
struct Group {
    taken: NextGroup,
    active: Arc<Segment>,
    end: Position,
}

fn take(writer: &mut Writer) -> Result<Group, CommitError> {
    writer.flush()?;
    (writer.lead.leading, writer.lead.owed) = (true, false);
    let taken = std::mem::take(&mut writer.next_group);
    Ok(Group { taken, active: writer.active.clone(), end: writer.staged_end() })
}

/// A group that is durable, and the watchers that are to be told.
struct DurableGroup {
    /// Logs that moved, and the watchers that want to know of each.
    moved: Vec<(u32, LogId)>,
    /// Watchers that wait for it.
    waiting: u32,
    end: Position,
}

impl Shared {
    /// Writes to the file what turns that are under way have staged, for a caller that has to read it.
    ///
    /// # Errors
    /// [`CommitError::Failed`]: it did not come there.
    pub(crate) fn flush_staged(&self) -> Result<(), CommitError> {
        match self.control.staged_end() > self.control.file_end() {
            true => self.writer.lock().flush(),
            false => Ok(()),
        }
    }

    /// Makes everything written so far durable and visible. Does nothing when it is already.
    ///
    /// # Errors
    /// What the sync said; the store is poisoned then.
    pub(crate) fn commit_group(&self) -> io::Result<()> {
        self.lead(Position::MAX)
    }

    /// Makes a ticket durable, in one group with everything else that was written. A caller that finds a
    /// group under way waits for it, and perhaps need not lead another.
    ///
    /// # Errors
    /// What the sync said; the store is poisoned then.
    pub(crate) fn lead(&self, ticket: Position) -> io::Result<()> {
        let mut roused = Roused::default();
        let outcome = self.lead_alone(ticket, &mut roused);
        // Without the lock: a task that is woken, or a watcher, may make something durable on this thread.
        roused.wake();
        match outcome {
            Ok(group) => {
                group.into_iter().for_each(|group| self.tell(group));
                Ok(())
            }
            Err(error) => {
                self.tell_failed();
                Err(error)
            }
        }
    }

    /// The same, one at a time, before anybody is told.
    fn lead_alone(&self, ticket: Position, roused: &mut Roused) -> io::Result<Option<DurableGroup>> {
        let _one_at_a_time = self.group.lock();
        if self.control.durable() >= ticket {
            return Ok(None);
        }
        let group = {
            let mut writer = self.writer.lock();
            if writer.failure.is_none() && writer.staged_end() == self.control.durable() {
                return Ok(None);
            }
            take(&mut writer)
        };
        // What did not come into the file cannot be synced.
        let group = group.map_err(|error| match error {
            CommitError::Failed(why) => io::Error::other(why),
            other => io::Error::other(other),
        })?;
        // Readers of what is not durable need not wait for the sync.
        *roused = self.gate.announce_to_threads();
        let _span = tracing::debug_span!("commit", batches = group.taken.batches).entered();
        let begun_ns = monotonic_ns();
        match self.sync(&group) {
            Ok(()) => {
                let took_ns = monotonic_ns().saturating_sub(begun_ns);
                self.group_meters.note(group.taken.batches, took_ns / 1_000);
                Ok(Some(self.conclude(group, took_ns)))
            }
            Err(error) => {
                self.writer.lock().fail(&error);
                Err(error)
            }
        }
    }

    fn sync(&self, group: &Group) -> io::Result<()> {
        self.probes.before_sync();
        if self.probes.forgets_sync() {
            return Ok(());
        }
        let NextGroup { sealed, names_changed, .. } = &group.taken;
        for segment in sealed.iter().chain([&group.active]) {
            segment.sync()?;
        }
        // What is mapped of those need not count as ours.
        sealed.iter().for_each(|segment| segment.release());
        match &self.directory {
            // Held open: a failure here is the disk's, and not that no descriptor is left.
            Some(directory) if *names_changed => self.disk.sync_directory(directory),
            _ => Ok(()),
        }
    }

    /// Shows what a group did, and has the next one begin.
    fn conclude(&self, group: Group, took_ns: u64) -> DurableGroup {
        let mut moved = Vec::new();
        for batch in group.taken.pending.chunk_by(|pending, _| pending.same_batch_follows) {
            self.show(batch, &mut moved);
        }
        let trimmed = group.taken.pending.iter().any(|pending| pending.seen.first > 0);
        self.probes.before_words();
        // Behind the logs, and `durable` last: a caller that waited for it finds everything that it covers.
        // Where commits are visible before they are durable, more may be by now.
        if self.options.durability == Durability::Sync {
            self.control.set_visible(group.end);
        }
        if trimmed {
            // A reader in another process looks once per version, and no further than is visible by then.
            self.control.bump_segments();
        }
        self.control.set_durable(group.end);
        // A watcher that began to wait while this group was under way may be waiting for it.
        let late = {
            let mut writer = self.writer.lock();
            writer.lead.leading = false;
            writer.lead.note(took_ns);
            // A leader other than the committer leaves the next segment to the committer.
            if writer.is_spare_due() {
                writer.wake_committer();
            }
            writer.next_group.waiting
        };
        DurableGroup { moved, waiting: group.taken.waiting | late, end: group.end }
    }

    /// Tells of a group that is durable. Others may be told of by now that are so behind it.
    fn tell(&self, group: DurableGroup) {
        let DurableGroup { moved, waiting, end } = group;
        self.tell_moved(moved);
        self.watchers.tell(waiting, |watch| watch.complete(end));
    }

    /// Shows what one batch did to the logs that it touched, with all of them locked: a reader that sees it
    /// in one of them and then looks at another sees it there. Notes which watchers are to be told of which
    /// log.
    fn show(&self, batch: &[Pending], moved: &mut Vec<(u32, LogId)>) {
        let mut locked = Log::lock_all(batch.iter().map(|pending| &*pending.log));
        let mut gone: SmallVec<[bool; 2]> = SmallVec::new();
        for (pending, inner) in batch.iter().zip(&mut locked) {
            let tell = self.reveal(inner, &pending.seen);
            gone.push(pending.seen.deleted && inner.is_gone());
            if tell != 0 {
                moved.push((tell, pending.log.id()));
            }
        }
        drop(locked);
        for (pending, gone) in batch.iter().zip(gone) {
            if gone {
                self.forget(&pending.log);
            } else if pending.seen.first > 0 || pending.seen.deleted {
                self.drop_unneeded(&pending.log);
            }
        }
    }

    /// Tells everybody once that the store failed.
    fn tell_failed(&self) {
        let why = {
            let mut writer = self.writer.lock();
            if std::mem::replace(&mut writer.failure_announced, true) {
                return;
            }
            writer.failure.clone().unwrap_or_default()
        };
        tracing::error!(why, "a write or a sync failed: the store takes no more writes until it is reopened");
        self.watchers.tell(u32::MAX, |watch| watch.failed());
    }

    /// Claims leadership of the next group for this watcher. Answers the position to sync up to, or `None`:
    /// nothing of its own is pending, a group is under way, or syncs are slow. In the last case the committer
    /// is woken and does it, behind what is under way. The claim counts from here on. If another thread syncs
    /// first, it does so with what this caller has, so that nothing has to be synced twice.
    pub(crate) fn leads(&self, watcher: WatcherId) -> Option<Position> {
        let mut writer = self.writer.lock();
        // A bit may be left from a wait that is over.
        let next = &writer.next_group;
        let waits = next.waiting & watcher.bit() != 0 && !next.pending.is_empty();
        if !waits {
            return None;
        }
        if !writer.lead.is_quick() || !next.sealed.is_empty() || next.names_changed {
            writer.nudge();
            return None;
        }
        let free = !std::mem::replace(&mut writer.lead.leading, true);
        free.then(|| writer.staged_end())
    }

    /// The committer's thread. Should it panic, the store takes nothing more, for no thread would make it
    /// durable.
    pub(crate) fn run_committer(&self) {
        let mut ended = false;
        contain(|| {
            self.commit_groups();
            ended = true;
        });
        if !ended {
            self.writer.lock().fail(&io::Error::other("the thread that commits panicked"));
            self.tell_failed();
        }
    }

    /// One group after the other until the store closes or fails, and the next segment's file.
    fn commit_groups(&self) {
        let mut filler = Filler::default();
        loop {
            let mut writer = self.writer.lock();
            while !writer.lead.owed && !writer.closed {
                let rests = filler.rests_until(&writer);
                if rests.is_some_and(|rests| rests <= Instant::now()) {
                    break;
                }
                writer.lead.committer_idle = true;
                match rests {
                    Some(rests) => _ = self.work.wait_until(&mut writer, rests),
                    None => self.work.wait(&mut writer),
                }
            }
            writer.lead.committer_idle = false;
            let (owed, closed) = (writer.lead.owed, writer.closed);
            let rested = filler.rests_until(&writer).is_some_and(|rests| rests <= Instant::now());
            if closed && writer.next_group.pending.is_empty() {
                return;
            }
            let order = if rested && !closed { writer.order_spare() } else { None };
            MutexGuard::unlock_fair(writer);
            if (owed || closed) && self.commit_group().is_err() {
                return;
            }
            if rested && !closed {
                filler.go_on(order, &self.writer, self.options.rest_parts);
            }
        }
    }
}

impl Store {
    /// Ends a turn of a watcher that [commits in turns](WatcherId::commits_in_turns): what it committed
    /// becomes durable, by a sync here and now if syncs are quick, or else by the committer. No system call
    /// while there is nothing to do.
    ///
    /// ```
    /// # use thalweg_log::{Commit, Config, Disk, Lifetime, Options, Position, Store, Watch, WatcherId};
    /// # use std::sync::{Arc, mpsc};
    /// struct Mailbox(mpsc::Sender<Position>);
    ///
    /// impl Watch for Mailbox {
    ///     fn complete(&self, up_to: Position) {
    ///         let _ = self.0.send(up_to);
    ///     }
    /// #   fn failed(&self) {}
    /// #   fn advanced(&self, _: u64) {}
    /// }
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let (store, _) = Store::open(&Disk::Real, directory.path(), Options::default())?;
    /// let (sender, mailbox) = mpsc::channel();
    /// let watcher = store.watcher(Arc::new(Mailbox(sender))).map(WatcherId::commits_in_turns);
    /// let commit = Commit { payload: b"a turn's first", ..Commit::default() };
    /// let config = Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited };
    /// let (_, receipt) = store.create(b"log", &config, None, &commit, watcher)?;
    /// // Everything else of the turn, and then its end. Turns go on until what it waits for is durable.
    /// watcher.into_iter().for_each(|watcher| store.end_turn(watcher));
    /// while mailbox.recv()? < receipt.ticket {
    ///     watcher.into_iter().for_each(|watcher| store.end_turn(watcher));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn end_turn(&self, watcher: WatcherId) {
        let shared = &self.shared;
        let taken =
            self.durability() == Durability::Sync && shared.control.staged_end() > shared.control.durable();
        if taken && let Some(ticket) = shared.leads(watcher) {
            // If it fails, every watcher has been told.
            let _ = shared.lead(ticket);
        }
    }
}
