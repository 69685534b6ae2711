//! A store: everything its clones share.
//!
//! Its methods stand beside what they are about:
//!
//! ```text
//! for everybody
//!   open memory                                open.rs
//!   find reader visit flush maintain release
//!   stats damage durability durable            here
//!   close                                      guard.rs
//!   logs page order                            names.rs
//!   log append append_all append_timed
//!   persist                                    writing/append.rs
//!   transaction                                writing/transaction.rs
//!   rotate                                     writing/writer.rs
//!   since since_behind                         reading/since.rs
//!   purge purge_written                        keeping/purge.rs
//!   checkpoint                                 keeping/write_checkpoint.rs
//!   backup                                     keeping/backup.rs
//! for servers
//!   create commit delete                       writing/commit.rs
//!   read record                                reading/read.rs
//!   needs_disk                                 reading/warm.rs
//!   end_turn groups                            writing/committer.rs, writing/groups.rs
//!   hold                                       writing/transaction.rs
//!   expire                                     keeping/expiry.rs
//!   watcher dismiss wait_for written
//!   logs_count names_touched leave_to_parent   here
//!   stop_throttling                            guard.rs
//! for readers in other languages
//!   maps                                       reading/maps.rs
//!   new_logs                                   reading/new_logs.rs
//!   runs                                       writing/packing.rs
//! ```

use crate::catalogue::Catalogue;
use crate::control::Control;
use crate::error::CommitError;
use crate::error::Damage;
use crate::expiry::Expiry;
use crate::groups::GroupMeters;
use crate::guard::Guard;
use crate::known_damage::KnownDamage;
use crate::log::{Inner, Log};
use crate::open::{Contents, Needed, Parts};
use crate::options::{Durability, Options};
use crate::pace::Throttle;
use crate::probes::Probes;
use crate::reader::Reader;
use crate::reclaim::Reclaim;
use crate::replacing::Replacing;
use crate::retention::{LogRetention, StoreRetention};
use crate::segment::Segment;
use crate::source::{ReadContext, StoreAccess};
use crate::view::Segments;
use crate::watch::{Watch, Watchers};
use crate::writer::Writer;
use crate::{Position, Time, WatcherId};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use thalweg_sync::gate::Gate;
use thalweg_sys::disk::{Disk, Lock};

/// A store. Clones share it; it lives until the last one is dropped or one is closed. Readers may outlive it:
/// what they could read they still can, and one that waits for more is woken and
/// [told](crate::Ended::StoreClosed).
#[derive(Clone)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
    pub(crate) guard: Arc<Guard>,
}

pub(crate) struct Shared {
    /// Holds the directory, for as long as the store lives.
    pub(crate) disk: Disk,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) lock: Option<Lock>,
    pub(crate) options: Options,
    pub(crate) control: Arc<Control>,
    pub(crate) segments: Arc<Segments>,
    /// Where readers sleep until something is visible.
    pub(crate) gate: Arc<Gate>,
    pub(crate) catalogue: Catalogue,
    pub(crate) watchers: Watchers,
    pub(crate) expiry: Expiry,
    pub(crate) reclaim: Mutex<Reclaim>,
    pub(crate) store_retention: Mutex<StoreRetention>,
    pub(crate) log_retention: LogRetention,
    pub(crate) writer: Mutex<Writer>,
    /// Wakes the committer.
    pub(crate) work: Arc<Condvar>,
    /// One group is synced at a time.
    pub(crate) group: Mutex<()>,
    pub(crate) next_log: Mutex<u64>,
    /// Each transaction under way holds one more reference for each log it appends to; these are counted.
    pub(crate) transactions: Arc<()>,
    pub(crate) maintenance_locks: MaintenanceLocks,
    pub(crate) throttle: Throttle,
    /// Starting positions of the checkpoints on disk, oldest first.
    pub(crate) checkpoints: Mutex<Vec<Position>>,
    pub(crate) known_damage: KnownDamage,
    /// Damage that may have taken logs whose names are lost: no log is created beside it.
    pub(crate) unnamed: Option<Damage>,
    pub(crate) group_meters: GroupMeters,
    pub(crate) probes: Probes,
}

/// Locks of maintenance: of each kind one thread works at a time.
#[derive(Default)]
pub(crate) struct MaintenanceLocks {
    /// Held while a segment is settled. It is taken before the other.
    pub(crate) settling: Mutex<()>,
    /// Held while a checkpoint is written, and while files are removed or replaced.
    pub(crate) replacing: Replacing,
}

impl StoreAccess for Shared {
    fn opening(&self) -> u32 {
        self.catalogue.opening()
    }

    fn known(&self) -> Position {
        self.control.file_end()
    }

    fn checkpoint(&self) -> io::Result<Position> {
        Ok(self.checkpoints.lock().last().copied().unwrap_or(0))
    }

    fn is_over(&self) -> bool {
        let writer = self.writer.lock();
        // What was committed before is shown first, unless it cannot be any more.
        let shows_no_more = writer.abandoned || writer.failure.is_some();
        writer.closed && (shows_no_more || self.control.visible() >= writer.staged_end())
    }

    fn came_upon(&self, damage: &Damage) {
        self.note_damage_read(damage);
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Store").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(parts: Parts, contents: Contents) -> Shared {
        let Needed { live_bytes, gone_bytes, reclaim } = contents.needed(&parts.checkpoints);
        let Contents { catalogue, segments, tail, next_log } = contents;
        let segments = Arc::new(segments);
        let writer = Writer { live_bytes, gone_bytes, ..Writer::new(&parts, segments.clone(), tail) };
        let Parts { disk, directory, lock, options, control, gate, checkpoints, report } = parts;
        Shared {
            disk,
            directory,
            lock,
            probes: Probes::of(&options),
            options,
            control,
            segments,
            gate: Arc::new(gate),
            known_damage: KnownDamage::found(&report.damage, &catalogue),
            catalogue,
            watchers: Watchers::default(),
            expiry: Expiry::default(),
            reclaim: Mutex::new(reclaim),
            store_retention: Mutex::default(),
            log_retention: LogRetention::default(),
            work: writer.work.clone(),
            writer: Mutex::new(writer),
            group: Mutex::default(),
            next_log: Mutex::new(next_log),
            transactions: Arc::default(),
            maintenance_locks: MaintenanceLocks::default(),
            throttle: Throttle::default(),
            checkpoints: Mutex::new(checkpoints),
            unnamed: report.unnamed,
            group_meters: GroupMeters::default(),
        }
    }

    /// Refuses a log, locked, that is none of this store's.
    #[inline]
    pub(crate) fn owns(&self, inner: &Inner) -> Result<(), CommitError> {
        if inner.opening == self.catalogue.opening() { Ok(()) } else { Err(CommitError::OtherStore) }
    }

    pub(crate) fn next_log_id(&self) -> u64 {
        let mut next = self.next_log.lock();
        *next += 1;
        self.control.set_next_log(*next);
        *next - 1
    }
}

fn mapped_bytes(segments: &Segments) -> u64 {
    let of_each = |segment: &Arc<Segment>| u64::from(segment.region().capacity()) + segment.settled_bytes();
    segments.latest().all().iter().map(of_each).sum()
}

/// A count of what a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Logs in the catalogue.
    pub logs: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes allocated for segments.
    pub segment_bytes: u64,
    /// Bytes of files that say again what segments hold, each log's bytes together.
    pub settled_bytes: u64,
    /// Bytes of this process's address space that segments are mapped at. What of it is in memory is for the
    /// system to say.
    pub mapped_bytes: u64,
    /// End of the last batch, as [`Store::staged_end`] says it.
    pub staged_end: Position,
    /// End of what is known to last.
    pub durable: Position,
    /// Bytes of memory that the time indexes of segments may take; [`Store::release`] lets go of them.
    pub index_bytes: u64,
    /// Batches written since the store was opened: commits and transactions, each once.
    pub batches: u64,
    /// Bytes of segments that they took.
    pub batch_bytes: u64,
    /// Entries written since the store was opened.
    pub entries: u64,
    /// Segments begun since then.
    pub rotations: u64,
    /// Calls of [`Store::purge`] that were carried out since then.
    pub purges: u64,
    /// Payload bytes let go since then, by purges, retention and deletion.
    pub purged_bytes: u64,
    /// Payload bytes that some log needs, counted as they are let go of: up to 256 KiB of a log at a time.
    pub live_bytes: u64,
    /// Bytes of segments removed since the store was opened.
    pub freed_bytes: u64,
    /// Batches since then that no segment could be begun for: the disk had no room, or refused otherwise.
    pub failures: u64,
    /// Transactions under way, counted once per log they are going to append to.
    pub transactions: u64,
    /// A write or a sync failed: the store takes no writes until it is opened again.
    pub failed: bool,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.shared.fmt(out)
    }
}

impl Store {
    /// The log of that name. Complexity: one lookup.
    pub fn find(&self, name: &[u8]) -> Option<Arc<Log>> {
        self.shared.catalogue.find(name)
    }

    /// A reader of one of the store's logs; one of any other is refused when it is to read
    /// ([`ReadError::OtherStore`](crate::ReadError)).
    pub fn reader(&self, log: &Arc<Log>) -> Reader {
        Reader::new(self.context(), log.clone())
    }

    /// End of the last batch, durable or not, in its file or staged: it moves with every commit. Complexity:
    /// one load.
    ///
    /// ```
    /// use thalweg_log::{Options, Store};
    /// let store = Store::memory(Options::default())?;
    /// let before = store.staged_end();
    /// store.log(b"orders")?;
    /// assert!(store.staged_end() > before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn staged_end(&self) -> Position {
        self.shared.control.staged_end()
    }

    /// What its readers see of it.
    pub(crate) fn context(&self) -> ReadContext {
        let shared = &self.shared;
        let (control, segments) = (shared.control.clone(), shared.segments.clone());
        ReadContext { control, segments, gate: shared.gate.clone(), access: shared.clone() }
    }

    /// Visits every log, in no order. The visitor must not call the store.
    pub fn visit(&self, visitor: impl FnMut(&Arc<Log>)) {
        self.shared.catalogue.visit(visitor);
    }

    /// Registers a watcher, which is told what becomes durable; `None` when 32 are registered.
    pub fn watcher(&self, watch: Arc<dyn Watch>) -> Option<WatcherId> {
        self.shared.watchers.add(watch)
    }

    /// Tells a watcher nothing any more, and gives its place to the next. It watches no log by then.
    pub fn dismiss(&self, watcher: WatcherId) {
        self.shared.watchers.remove(watcher);
    }

    /// What an acknowledged commit survives.
    pub fn durability(&self) -> Durability {
        self.shared.options.durability
    }

    /// Whether a write or a sync failed: the store takes no writes until it is opened again.
    pub fn has_failed(&self) -> bool {
        self.shared.writer.lock().failure.is_some()
    }

    /// End of what is durable.
    pub fn durable(&self) -> Position {
        self.shared.control.durable()
    }

    /// Asks for [`Watch::complete`] once `ticket` is durable; it may be of another caller's commit. Answers
    /// the ticket, or 0 if it is durable already.
    ///
    /// # Errors
    /// [`CommitError::Failed`]: the store failed before that, and no watcher is told anything any more.
    /// [`CommitError::NoTicket`] when nothing reaches as far: the ticket is another store's, or what a crash
    /// took.
    pub fn wait_for(&self, ticket: Position, watcher: Option<WatcherId>) -> Result<Position, CommitError> {
        if self.durability() != Durability::Sync || ticket <= self.shared.control.durable() {
            return Ok(0);
        }
        let mut writer = self.shared.writer.lock();
        // Under the lock: the committer moves the mark before it looks for late waiters.
        if ticket <= self.shared.control.durable() {
            return Ok(0);
        }
        if let Some(why) = &writer.failure {
            return Err(CommitError::Failed(why.clone()));
        }
        let last = writer.staged_end();
        if ticket > last {
            return Err(CommitError::NoTicket { ticket, last });
        }
        writer.next_group.waiting |= watcher.map_or(0, WatcherId::bit);
        Ok(ticket)
    }

    /// What the store holds.
    pub fn stats(&self) -> Stats {
        let shared = &self.shared;
        let (logs, transactions) = (self.logs_count(), Arc::strong_count(&shared.transactions) as u64 - 1);
        let writer = shared.writer.lock();
        Stats {
            logs,
            segments: shared.segments.numbers().len() as u64,
            segment_bytes: shared.segments.allocated_bytes(),
            settled_bytes: shared.segments.settled_bytes(),
            mapped_bytes: mapped_bytes(&shared.segments),
            staged_end: writer.staged_end(),
            durable: shared.control.durable(),
            index_bytes: shared.segments.index_bytes(),
            batches: writer.tally.batches,
            batch_bytes: writer.tally.batch_bytes,
            entries: writer.tally.entries,
            rotations: writer.tally.rotations,
            purges: writer.tally.purges,
            purged_bytes: writer.tally.purged_bytes,
            live_bytes: writer.live_bytes.values().sum(),
            freed_bytes: writer.tally.freed_bytes,
            failures: writer.tally.failures,
            transactions,
            failed: writer.failure.is_some(),
        }
    }

    /// Logs in the catalogue, as [`Stats::logs`] has them, and nothing else: a look at each of its few
    /// shards.
    pub fn logs_count(&self) -> u64 {
        self.shared.catalogue.count() as u64
    }

    /// The names of the logs that damage touches, as far as they are known and as a line has room for.
    pub fn names_touched(&self, damage: &Damage) -> String {
        self.shared.names_touched(damage)
    }

    /// Spans found damaged when the store was opened, and those that a read came upon since, each once. What
    /// opening has no need to read, because a checkpoint lies behind it, is not looked at before somebody
    /// reads it.
    pub fn damage(&self) -> Vec<Damage> {
        self.shared.known_damage.spans()
    }

    /// Makes everything committed so far durable and visible, in any mode with files.
    ///
    /// # Errors
    /// What the sync said; the store takes no more writes then.
    pub fn flush(&self) -> io::Result<()> {
        match self.durability() {
            Durability::Memory => Ok(()),
            Durability::Sync | Durability::Os => self.shared.commit_group(),
        }
    }

    /// Housekeeping, for a thread that may wait for the disk: deletes logs whose time is over, writes a
    /// checkpoint when one is due, removes segments that no log needs, compacts segments of which little is
    /// needed, and settles those out of which much is read; a bounded part of all that in one call.
    /// `true`: there is more to do, and who calls again at once takes no more than housekeeping's share of
    /// the time ([`Options::rest_parts`](crate::Options)), because the calls rest themselves. May wait for
    /// the disk.
    ///
    /// # Errors
    /// What the disk said; nothing is lost by it.
    pub fn maintain(&self, now: Time) -> io::Result<bool> {
        let begun = Instant::now();
        let (_, more_expired) = self.sweep(now);
        // What one of them is refused another may make room for.
        let rotated = [self.shared.rotate_idle(now), self.shared.rotate_aged(now)];
        let trimmed = self.retain_each(now);
        let retired = self.retain(now);
        self.shared.catalogue.forget_content_types();
        match self.durability() {
            Durability::Memory => self.shared.drop_dead_segments(),
            // What is let go counts once it is durable.
            Durability::Sync if retired == Ok(true) => self.shared.commit_group()?,
            Durability::Sync | Durability::Os => {}
        }
        let mut more = more_expired || trimmed == Ok(true);
        if more {
            self.shared.throttle.rest(begun.elapsed(), self.shared.options.rest_parts);
        }
        // What a full disk refused it refuses until something was given back.
        let reclaimed = self.reclaim(now);
        self.shared.set_room_aside();
        let settled = self.shared.settle();
        let kept =
            rotated.into_iter().collect::<Result<(), _>>().and(trimmed.map(drop)).and(retired.map(drop));
        let kept = if kept == Err(CommitError::Closed) { Ok(()) } else { kept };
        more |= settled.as_ref().is_ok_and(|more| *more);
        more |= kept.map_err(|error| io::Error::other(error.to_string())).and(reclaimed)?;
        settled?;
        Ok(more)
    }

    /// Lets go of what all but the newest `keep` segments take of this process's memory: their pages stay in
    /// the system's cache and come back when they are read, their time indexes are made again by the next
    /// search. Readers at work are not disturbed. A segment that is sealed gives its pages back by
    /// itself.
    ///
    /// ```
    /// use thalweg_log::{Options, Query, Store};
    /// let store = Store::memory(Options::default())?;
    /// let log = store.log(b"steps")?;
    /// store.append(&log, b"step", 1)?;
    /// store.rotate()?;
    /// assert_eq!(store.reader(&log).entries(&Query::between(1, 2)).count(), 1);
    /// assert!(store.stats().index_bytes > 0);
    /// store.release(1);
    /// assert_eq!(store.stats().index_bytes, 0);
    /// assert_eq!(store.reader(&log).entries(&Query::between(1, 2)).count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn release(&self, keep: usize) {
        let shared = &self.shared;
        shared.segments.release(keep);
        // What waits for a sync would keep the memory, too.
        for sealed in &mut shared.writer.lock().next_group.sealed {
            if let Some(same) = shared.segments.find(sealed.header.number) {
                *sealed = same;
            }
        }
    }

    /// In a child right after a fork: leaves the directory to the parent, so that the parent's end, however
    /// it comes, is the end of its hold on it. A child can do nothing else with a store that was opened
    /// before it was made, not even drop it: its threads and its locks are the parent's ([`std::mem::forget`]
    /// it, and open the directory anew, read-only). Does nothing in the process that opened it.
    ///
    /// ```
    /// # use thalweg_log::{Disk, OpenError, Options, Store};
    /// # let directory = tempfile::tempdir()?;
    /// let (store, _) = Store::open(&Disk::Real, directory.path(), Options::default())?;
    /// store.leave_to_parent()?;
    /// let again = Store::open(&Disk::Real, directory.path(), Options::default());
    /// assert!(matches!(again, Err(OpenError::Held { .. })), "this is no child");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no descriptor left: the child goes on holding it.
    pub fn leave_to_parent(&self) -> io::Result<()> {
        self.shared.lock.as_ref().map_or(Ok(()), Lock::leave_to_parent)
    }
}
