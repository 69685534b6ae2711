//! One log: who it is, where it stands, where its payload lies.
//!
//! Two views: *staged* is every accepted commit, what the next one is judged by; *visible* is what is
//! durable (in `os` and `memory` mode: written), what readers see. The staged view runs ahead only while a
//! group waits for the disk. Everything behind one small lock; the lock order is catalogue shard, log,
//! writer.

use crate::batch::Placed;
use crate::error::CommitError;
use crate::extents::{Extent, Extents};
use crate::fork::Lineage;
use crate::format::{Config, Producer};
use crate::places::Places;
use crate::progress::{Ended, NotKnownYet};
use crate::spin_lock::lock_spinning;
use crate::uncommon::Uncommon;
use crate::{LogId, Offset, Position, Time};
use parking_lot::{Mutex, MutexGuard};
use smallvec::{SmallVec, smallvec};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A log of a store. Handles stay valid after deletion; calls with them then say so.
#[derive(Debug)]
pub struct Log {
    id: LogId,
    name: Box<[u8]>,
    config: Config,
    inner: Mutex<Inner>,
}

/// The producer that closed a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedBy {
    /// The producer's identifier.
    pub id: Arc<[u8]>,
    /// Its place when it did.
    pub producer: Producer,
}

/// A view of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Grows by one with every commit.
    pub version: u32,
    /// Offset at which its own payload begins; 0 unless it is a fork.
    pub base: Offset,
    /// Offset below which everything was purged.
    pub first: Offset,
    /// Offset after the last payload byte.
    pub tail: Offset,
    /// Takes no more payload.
    pub closed: bool,
    /// The producer that closed it, if one did.
    pub closed_by: Option<ClosedBy>,
    /// The highest writer sequence accepted.
    pub writer_seq: Option<Arc<[u8]>>,
}

/// A log's life: what is staged of it, and what readers see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Created, not visible yet.
    Creating,
    /// Created and deleted, neither visible yet.
    CreatedAndDeleted,
    Live,
    /// Deleted, and readers see it still.
    Deleting,
    Deleted,
}

impl Phase {
    /// A delete is staged, or visible.
    pub(crate) fn is_deleting(self) -> bool {
        matches!(self, Phase::CreatedAndDeleted | Phase::Deleting | Phase::Deleted)
    }

    /// Readers see it.
    pub(crate) fn is_visible(self) -> bool {
        matches!(self, Phase::Live | Phase::Deleting)
    }

    /// Its creation is visible, whatever became of it since.
    pub(crate) fn was_visible(self) -> bool {
        !matches!(self, Phase::Creating | Phase::CreatedAndDeleted)
    }

    /// Behind a delete that is staged.
    fn deleting(self) -> Phase {
        match self {
            Phase::Creating => Phase::CreatedAndDeleted,
            Phase::Live => Phase::Deleting,
            deleting => deleting,
        }
    }

    /// Behind a creation that is visible.
    fn created(self) -> Phase {
        match self {
            Phase::Creating => Phase::Live,
            Phase::CreatedAndDeleted => Phase::Deleting,
            visible => visible,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) phase: Phase,
    /// Of which opening of which store it is; see
    /// [`Catalogue::opening`](crate::catalogue::Catalogue::opening).
    pub(crate) opening: u32,
    /// Forks of it that are not visibly gone.
    pub(crate) children: u32,
    /// Transactions under way that are going to append to it.
    pub(crate) transactions: u32,
    pub(crate) closed: bool,
    pub(crate) closed_visible: bool,
    pub(crate) version: u32,
    /// Offsets below it were purged.
    pub(crate) first: Offset,
    pub(crate) first_visible: Offset,
    pub(crate) tail: Offset,
    pub(crate) tail_visible: Offset,
    /// End of the last batch that touched this log.
    pub(crate) last: Position,
    pub(crate) accessed: Time,
    /// Its place in the expiry index, 0 when it has none.
    pub(crate) due: Time,
    pub(crate) lineage: Option<Box<Lineage>>,
    pub(crate) extents: Extents,
    /// The next batch is to say where some of them lie.
    pub(crate) has_foldable: bool,
    pub(crate) producers: Option<Box<Producers>>,
    pub(crate) notes: Option<Box<Notes>>,
    pub(crate) uncommon: Option<Box<Uncommon>>,
    /// Watchers that want to hear of movements, and those that heard and have not acknowledged.
    pub(crate) interest: u32,
    pub(crate) announced: u32,
}

/// A note: its key and its value.
pub type Note = (Box<[u8]>, Arc<[u8]>);

pub(crate) type Producers = BTreeMap<Box<[u8]>, Producer>;
/// Small facts kept beside a log's payload, by key; of one key the last one wins.
pub(crate) type Notes = BTreeMap<Box<[u8]>, Arc<[u8]>>;

/// What readers see of a log once a commit is visible.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Offset below which everything was purged, or 0.
    pub(crate) first: Offset,
    pub(crate) tail: Offset,
    pub(crate) closed: bool,
    pub(crate) deleted: bool,
}

impl Seen {
    /// Payload up to an offset, and nothing else.
    pub(crate) fn payload(tail: Offset) -> Seen {
        Seen { tail, ..Seen::default() }
    }
}

/// What one commit does to a log, in the log's own words.
#[derive(Clone, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) extent: Extent,
    /// Where earlier payload lies.
    pub(crate) places: Option<Places<'a>>,
    pub(crate) producer: Option<(&'a [u8], Producer)>,
    pub(crate) writer_seq: Option<&'a [u8]>,
    pub(crate) notes: &'a [(&'a [u8], &'a [u8])],
    pub(crate) close: bool,
    /// Payload below it goes.
    pub(crate) trim: Option<Offset>,
    /// End of the batch.
    pub(crate) end: Position,
    pub(crate) time: Time,
}

impl<'a> Change<'a> {
    /// Of payload alone, and of the places of earlier payload that its batch says, if it says some.
    pub(crate) fn payload(
        placed: &Placed,
        offsets: Range<Offset>,
        places: &'a [u8],
        time: Time,
    ) -> Change<'a> {
        let length = u32::try_from(offsets.end - offsets.start).unwrap_or(u32::MAX);
        Change {
            extent: placed.extent(offsets.start, length),
            places: Places::decode(places),
            producer: None,
            writer_seq: None,
            notes: &[],
            close: false,
            trim: None,
            end: placed.end,
            time,
        }
    }
}

impl Log {
    pub(crate) fn new(
        id: LogId,
        name: &[u8],
        config: Config,
        time: Time,
        lineage: Option<Box<Lineage>>,
    ) -> Log {
        let (base, first) =
            lineage.as_ref().map_or((0, 0), |lineage| (lineage.branch.base, lineage.branch.first));
        let inner = Inner {
            phase: Phase::Creating,
            opening: 0,
            children: 0,
            transactions: 0,
            closed: false,
            closed_visible: false,
            version: 0,
            first,
            first_visible: first,
            tail: base,
            tail_visible: base,
            last: 0,
            accessed: time,
            due: 0,
            lineage,
            extents: Extents::default(),
            has_foldable: false,
            producers: None,
            notes: None,
            uncommon: None,
            interest: 0,
            announced: 0,
        };
        Log { id, name: name.into(), config, inner: Mutex::new(inner) }
    }

    /// Identity within the store.
    pub fn id(&self) -> LogId {
        self.id
    }

    /// The name it was created under.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// What it was created with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The staged view; `None` once a delete is staged.
    pub fn staged(&self) -> Option<State> {
        let inner = self.inner.lock();
        (!inner.phase.is_deleting()).then(|| inner.state(inner.first, inner.tail, inner.closed))
    }

    /// The visible view; `None` before the creation and after the deletion became visible. Version,
    /// closing producer and writer sequence are those staged.
    pub fn visible(&self) -> Option<State> {
        let inner = self.inner.lock();
        (inner.phase.is_visible())
            .then(|| inner.state(inner.first_visible, inner.tail_visible, inner.closed_visible))
    }

    /// A producer's staged place.
    pub fn producer(&self, id: &[u8]) -> Option<Producer> {
        self.inner.lock().producers.as_ref()?.get(id).copied()
    }

    /// The staged notes, ordered by key.
    pub fn notes(&self) -> Vec<Note> {
        let inner = self.inner.lock();
        inner.notes.iter().flat_map(|notes| notes.iter()).map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    /// Whether some of it is known not to read as it was written: what opening found, and what a read came
    /// upon since. Then it is refused, but for being deleted.
    pub fn is_damaged(&self) -> bool {
        self.inner.lock().damage().is_some()
    }

    /// End of the last batch that touched this log: durable once the store's durable mark reaches it.
    pub fn last(&self) -> Position {
        self.inner.lock().last
    }

    /// When it was last accessed.
    pub fn accessed(&self) -> Time {
        self.inner.lock().accessed
    }

    /// Renews a sliding lifetime. Kept in memory and by checkpoints, never a write of its own.
    pub fn touch(&self, time: Time) {
        let mut inner = self.inner.lock();
        inner.accessed = inner.accessed.max(time);
    }

    /// Announce movements to this watcher from now on.
    pub fn watch(&self, watcher: crate::WatcherId) {
        let mut inner = self.inner.lock();
        inner.interest |= watcher.bit();
        inner.announced &= !watcher.bit();
    }

    /// Announce no more to this watcher.
    pub fn unwatch(&self, watcher: crate::WatcherId) {
        let mut inner = self.inner.lock();
        inner.interest &= !watcher.bit();
        inner.announced &= !watcher.bit();
    }

    /// The watcher took the announcement up; the next movement announces again.
    pub fn acknowledge(&self, watcher: crate::WatcherId) {
        self.inner.lock().announced &= !watcher.bit();
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Locks several, each there once, and answers them in their order. The youngest is locked first, as
    /// forks lock theirs.
    pub(crate) fn lock_all<'l>(logs: impl Iterator<Item = &'l Log>) -> SmallVec<[MutexGuard<'l, Inner>; 2]> {
        let mut order: SmallVec<[(usize, &Log); 2]> = logs.enumerate().collect();
        if let [(_, log)] = order[..] {
            return smallvec![log.lock()];
        }
        order.sort_by_key(|(_, log)| Reverse(log.id));
        let mut locked: SmallVec<[_; 2]> =
            order.into_iter().map(|(place, log)| (place, log.lock())).collect();
        locked.sort_by_key(|(place, _)| *place);
        locked.into_iter().map(|(_, inner)| inner).collect()
    }

    /// The same for appends, which hold it for a tenth of a microsecond.
    #[inline]
    pub(crate) fn lock_spinning(&self) -> MutexGuard<'_, Inner> {
        lock_spinning(&self.inner)
    }

    pub(crate) fn inner_mut(&mut self) -> &mut Inner {
        self.inner.get_mut()
    }
}

impl Inner {
    /// Whether and how the log had ended by `position`, for a reader that did not meet every entry in front
    /// of it. `Err(NotKnownYet)`: the log has batches behind `position`, so it cannot be said.
    pub(crate) fn ended_by(&self, position: Position) -> Result<Option<Ended>, NotKnownYet> {
        match self.last <= position {
            false => Err(NotKnownYet),
            true if self.phase.is_deleting() => Ok(Some(Ended::Deleted)),
            true if self.closed => Ok(Some(Ended::Closed)),
            true => Ok(None),
        }
    }

    /// Whether entries may be appended to it.
    pub(crate) fn check_open(&self) -> Result<(), CommitError> {
        if self.phase.is_deleting() {
            return Err(CommitError::Deleted);
        }
        self.check_whole()?;
        if self.closed { Err(CommitError::LogClosed) } else { Ok(()) }
    }

    /// Whether damage is in the way of a commit to it; of one that is deleted there is none to be had.
    pub(crate) fn check_whole(&self) -> Result<(), CommitError> {
        match self.damage().filter(|_| !self.phase.is_deleting()) {
            Some(damage) => Err(CommitError::damaged(damage)),
            None => Ok(()),
        }
    }

    /// Refuses a commit unless the log is still at the version that the committer has read.
    pub(crate) fn check_version(&self, expected: u32) -> Result<(), CommitError> {
        if self.phase.is_deleting() {
            return Err(CommitError::Deleted);
        }
        if self.version != expected {
            return Err(CommitError::Conflict { expected, found: self.version });
        }
        Ok(())
    }

    fn state(&self, first: Offset, tail: Offset, closed: bool) -> State {
        State {
            version: self.version,
            base: self.base(),
            first,
            tail,
            closed,
            closed_by: self.closed_by().cloned(),
            writer_seq: self.writer_seq().cloned(),
        }
    }

    /// Applies a commit to the staged view: the one place where a log changes, live and in recovery.
    pub(crate) fn stage(&mut self, change: &Change<'_>) {
        if let Some(places) = &change.places {
            self.extents.fold(places, change.extent.position);
        }
        self.has_foldable = self.extents.push(change.extent);
        self.tail = change.extent.end();
        if let Some((id, producer)) = change.producer {
            let producers = self.producers.get_or_insert_default();
            match producers.get_mut(id) {
                Some(place) => *place = producer,
                None => {
                    producers.insert(id.into(), producer);
                }
            }
        }
        if let Some(writer_seq) = change.writer_seq {
            self.set_writer_seq(writer_seq);
        }
        for (key, value) in change.notes {
            self.note(key, value);
        }
        if let Some(first) = change.trim {
            self.first = self.first.max(first);
        }
        if change.close {
            self.closed = true;
            self.set_closed_by(change.producer.map(|(id, producer)| ClosedBy { id: id.into(), producer }));
        }
        self.version = self.version.wrapping_add(1);
        self.last = change.end;
        self.accessed = self.accessed.max(change.time);
    }

    /// Stages a delete.
    pub(crate) fn stage_delete(&mut self) {
        self.phase = self.phase.deleting();
    }

    /// The list of places that the next batch is to hold, so that their extents can be folded; empty if there
    /// is nothing to fold.
    #[inline]
    pub(crate) fn places_to_list(&self) -> Vec<u8> {
        if self.has_foldable { self.foldable_places() } else { Vec::new() }
    }

    #[cold]
    fn foldable_places(&self) -> Vec<u8> {
        let mut list = Vec::new();
        if let Some(extents) = self.extents.foldable() {
            Places::encode(extents, &mut list);
        }
        list
    }

    pub(crate) fn note(&mut self, key: &[u8], value: &[u8]) {
        let notes = self.notes.get_or_insert_default();
        if value.is_empty() {
            notes.remove(key);
        } else {
            notes.insert(key.into(), value.into());
        }
    }

    /// Whether readers see that it was deleted.
    pub(crate) fn is_deleted(&self) -> bool {
        self.phase == Phase::Deleted
    }

    /// Makes all that is staged visible: it is known to be there.
    pub(crate) fn show(&mut self) {
        self.phase = if self.phase.is_deleting() { Phase::Deleted } else { Phase::Live };
        self.first_visible = self.first;
        self.tail_visible = self.tail;
        self.closed_visible = self.closed;
    }

    /// Moves the visible view up to what a commit had staged. Answers the watchers to tell.
    pub(crate) fn reveal(&mut self, seen: &Seen) -> u32 {
        let Seen { first, tail, closed, deleted } = *seen;
        self.first_visible = self.first_visible.max(first);
        self.tail_visible = tail;
        self.closed_visible |= closed;
        self.phase = if deleted { Phase::Deleted } else { self.phase.created() };
        self.announce()
    }

    /// The watchers that are to be told that something happened to it.
    pub(crate) fn announce(&mut self) -> u32 {
        let tell = self.interest & !self.announced;
        self.announced |= tell;
        tell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_small() {
        assert!(size_of::<Log>() <= 240, "{}", size_of::<Log>());
    }
}
