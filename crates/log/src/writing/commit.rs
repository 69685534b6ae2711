//! Commits: create, append, close and delete, each one batch.

use crate::batch::{Placed, PlannedBatch, PlannedFrame, PlannedFrames};
use crate::committer::Pending;
use crate::error::{CommitError, said};
use crate::fork::{Branch, Fork, Lineage};
use crate::format::{self, Config, FLAG_LAST, Kind, Producer, Stamp};
use crate::log::{Change, Inner, Log, Seen};
use crate::options::Durability;
use crate::segment_tail::WriteMode;
use crate::store::{Shared, Store};
use crate::{LogId, Offset, Position, Time, WatcherId};
use std::sync::Arc;

/// Bytes of keys and values that one commit notes at most.
pub const NOTES_BYTES_MAX: usize = 1 << 20;

/// One atomic change to one log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Commit<'a> {
    /// Payload to append; may be empty.
    pub payload: &'a [u8],
    /// More payload, placed right behind.
    pub suffix: &'a [u8],
    /// A producer's new place.
    pub producer: Option<(&'a [u8], Producer)>,
    /// The new writer sequence.
    pub writer_seq: Option<&'a [u8]>,
    /// Notes to keep: key and value; an empty value removes the note. Of one commit at most
    /// [`NOTES_BYTES_MAX`].
    pub notes: &'a [(&'a [u8], &'a [u8])],
    /// Take no payload after this one.
    pub close: bool,
    /// Purge the payload below this offset; at most the end of the log.
    pub trim: Option<Offset>,
    /// When, microseconds since the Unix epoch.
    pub time: Time,
}

impl Commit<'_> {
    fn payload_bytes(&self) -> u64 {
        self.payload.len() as u64 + self.suffix.len() as u64
    }

    fn has_payload(&self) -> bool {
        self.payload_bytes() > 0
    }
}

/// A commit that was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Durable once the store's durable mark reaches this position; 0 when nothing has to be waited for.
    pub ticket: Position,
    /// Offset of the first byte of payload.
    pub first: Offset,
    /// Offset after the last.
    pub next: Offset,
}

/// Small payloads of a batch, encoded before its frames borrow them.
#[derive(Default)]
struct Notes {
    bytes: Vec<u8>,
    create: usize,
    producer: usize,
    note: usize,
    trim: usize,
}

impl Notes {
    fn of(
        create: Option<(&[u8], &Config, Option<&Branch>)>,
        commit: &Commit<'_>,
    ) -> Result<Notes, CommitError> {
        let size: usize = commit.notes.iter().map(|(key, value)| key.len() + value.len()).sum();
        if size > NOTES_BYTES_MAX {
            return Err(CommitError::TooLarge { size: size as u64, limit: NOTES_BYTES_MAX as u64 });
        }
        let mut notes = Notes::default();
        if let Some((name, config, branch)) = create {
            format::encode_create(name, config, branch, &mut notes.bytes)?;
        }
        notes.create = notes.bytes.len();
        if let Some((id, producer)) = commit.producer {
            format::encode_producer(id, producer, &mut notes.bytes);
        }
        notes.producer = notes.bytes.len();
        for (key, value) in commit.notes {
            format::encode_note(key, value, &mut notes.bytes)?;
        }
        notes.note = notes.bytes.len();
        if let Some(first) = commit.trim {
            notes.bytes.extend_from_slice(&first.to_le_bytes());
        }
        notes.trim = notes.bytes.len();
        Ok(notes)
    }
}

/// Whether a name can be written down, of whatever bytes it is.
pub(crate) fn check_length(name: &[u8]) -> Result<(), CommitError> {
    match u16::try_from(name.len()) {
        Ok(_) => Ok(()),
        Err(_) => Err(CommitError::BadName { name: said(name), why: "it is longer than 65,535 bytes" }),
    }
}

fn plan<'a>(
    log: LogId,
    tail: Offset,
    commit: &Commit<'a>,
    notes: &'a Notes,
    places: &'a [u8],
    delete: bool,
) -> Result<PlannedFrames<'a>, CommitError> {
    let end = tail + commit.payload_bytes();
    let mut frames = PlannedFrames::new();
    let mut add = |kind, offset, pieces| {
        let flags = if kind == Kind::Data { FLAG_LAST } else { 0 };
        let stamp = Stamp { log, offset, time: commit.time };
        PlannedFrame::of(kind, flags, stamp, pieces).map(|frame| frames.push(frame))
    };
    if notes.create > 0 {
        add(Kind::Create, tail, [&notes.bytes[..notes.create], &[]])?;
    }
    if !places.is_empty() {
        add(Kind::Places, tail, [places, &[]])?;
    }
    if end > tail {
        add(Kind::Data, tail, [commit.payload, commit.suffix])?;
    }
    if notes.producer > notes.create {
        add(Kind::Producer, end, [&notes.bytes[notes.create..notes.producer], &[]])?;
    }
    if let Some(writer_seq) = commit.writer_seq {
        add(Kind::WriterSeq, end, [writer_seq, &[]])?;
    }
    if notes.note > notes.producer {
        add(Kind::Note, end, [&notes.bytes[notes.producer..notes.note], &[]])?;
    }
    if notes.trim > notes.note {
        add(Kind::Trim, end, [&notes.bytes[notes.note..], &[]])?;
    }
    if commit.close {
        add(Kind::Close, end, [&[], &[]])?;
    }
    if delete {
        add(Kind::Delete, end, [&[], &[]])?;
    }
    Ok(frames)
}

impl Store {
    /// Creates a log, with first payload and closed at once if the commit says so; as a fork of another, the
    /// payload comes behind what is inherited. Complexity: one batch, whatever is inherited.
    ///
    /// # Errors
    /// [`CommitError::Exists`] when the name is taken, [`CommitError::ParentDeleted`] and
    /// [`CommitError::PastEnd`] when the parent cannot be forked there, [`CommitError::BadName`] and
    /// [`CommitError::TooLarge`] when the name or the media type is longer than 65,535 bytes; otherwise as
    /// [`Store::commit`].
    pub fn create(
        &self,
        name: &[u8],
        config: &Config,
        fork: Option<&Fork>,
        commit: &Commit<'_>,
        watcher: Option<WatcherId>,
    ) -> Result<(Arc<Log>, Receipt), CommitError> {
        let shared = &*self.shared;
        if let Some(damage) = &shared.unnamed {
            return Err(CommitError::damaged(damage));
        }
        check_length(name)?;
        let config = Config { content_type: shared.catalogue.intern(&config.content_type), ..config.clone() };
        let mut place = shared.catalogue.place(name);
        if place.occupied(name) {
            return Err(CommitError::Exists);
        }
        let mut parent = fork.map(|fork| fork.parent.lock());
        if let (Some(fork), Some(parent)) = (fork, &parent) {
            shared.owns(parent)?;
            fork.check(parent)?;
        }
        let branch = fork.zip(parent.as_ref()).map(|(fork, parent)| fork.branch(parent));
        let notes = Notes::of(Some((name, &config, branch.as_ref())), commit)?;
        let lineage = fork.zip(branch).map(|(fork, branch)| Lineage::of(branch, Some(fork.parent.clone())));
        // No other thread knows the log yet, so taking its lock behind its parent's cannot deadlock.
        let log = Arc::new(Log::new(shared.next_log_id(), name, config, commit.time, lineage));
        let mut inner = log.lock();
        let (receipt, tell) = shared.submit(&log, &mut inner, commit, &notes, false, watcher)?;
        if let (Some(parent), Some(lineage)) = (&mut parent, &inner.lineage) {
            parent.add_fork(&lineage.need);
        }
        drop(inner);
        drop(parent);
        place.put(log.clone());
        shared.expiry.enter(&log);
        drop(place);
        shared.tell_moved([(tell, log.id())]);
        Ok((log, receipt))
    }

    /// Applies one commit if the log's staged version is `expected`. Complexity: a copy of the payload and
    /// a checksum over it; no system call but in `sync` mode's committer.
    ///
    /// # Errors
    /// [`CommitError`]; nothing was applied in any case.
    pub fn commit(
        &self,
        log: &Arc<Log>,
        expected: u32,
        commit: &Commit<'_>,
        watcher: Option<WatcherId>,
    ) -> Result<Receipt, CommitError> {
        self.commit_unless(log, expected, commit, watcher, Inner::check_whole)
    }

    /// The same, unless something stands in its way, which is looked at with the log locked.
    pub(crate) fn commit_unless(
        &self,
        log: &Arc<Log>,
        expected: u32,
        commit: &Commit<'_>,
        watcher: Option<WatcherId>,
        refuse: impl FnOnce(&Inner) -> Result<(), CommitError>,
    ) -> Result<Receipt, CommitError> {
        let mut inner = log.lock();
        self.shared.owns(&inner)?;
        refuse(&inner)?;
        inner.check_version(expected)?;
        let notes = Notes::of(None, commit)?;
        let (receipt, tell) = self.shared.submit(log, &mut inner, commit, &notes, false, watcher)?;
        drop(inner);
        if commit.trim.is_some() {
            self.shared.drop_unneeded(log);
        }
        self.shared.tell_moved([(tell, log.id())]);
        Ok(receipt)
    }

    /// Deletes the log if its staged version is `expected`, also one that damage took something of. While
    /// other logs inherit from it, it is a [tombstone](Log::is_tombstone).
    ///
    /// # Errors
    /// [`CommitError`]; nothing was applied in any case.
    pub fn delete(
        &self,
        log: &Arc<Log>,
        expected: u32,
        time: Time,
        watcher: Option<WatcherId>,
    ) -> Result<Receipt, CommitError> {
        self.delete_unless(log, expected, time, watcher, |_| Ok(()))
    }

    /// The same, unless something else stands in its way, which is looked at with the log locked.
    pub(crate) fn delete_unless(
        &self,
        log: &Arc<Log>,
        expected: u32,
        time: Time,
        watcher: Option<WatcherId>,
        refuse: impl FnOnce(&Inner) -> Result<(), CommitError>,
    ) -> Result<Receipt, CommitError> {
        let ((receipt, tell), gone) = {
            let mut inner = log.lock();
            self.shared.owns(&inner)?;
            inner.check_version(expected)?;
            refuse(&inner)?;
            let commit = Commit { time, ..Commit::default() };
            let notes = Notes::default();
            (self.shared.submit(log, &mut inner, &commit, &notes, true, watcher)?, inner.is_gone())
        };
        if gone {
            self.shared.forget(log);
        } else {
            self.shared.drop_unneeded(log);
        }
        self.shared.tell_moved([(tell, log.id())]);
        Ok(receipt)
    }
}

/// The thread that sees to it that a batch becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhoSyncs {
    /// The committer, woken if it sleeps.
    Committer,
    /// The caller, which is going to wait for it anyway.
    Caller,
}

impl Shared {
    /// Writes and publishes a batch; in `sync` mode the committer reveals what is pending once it is durable.
    /// What the batch says of places it may have lost by then: see [`PlannedBatch::said`].
    pub(crate) fn publish(
        &self,
        batch: &mut PlannedBatch<'_>,
        payload_bytes: u64,
        pending: impl IntoIterator<Item = Pending>,
        watcher: Option<WatcherId>,
        who_syncs: WhoSyncs,
    ) -> Result<Placed, CommitError> {
        batch.make_fit(self.options.batch_bytes_max());
        let carried = watcher.is_some_and(WatcherId::is_in_turns);
        // Readers are not to look for places in what is in no file yet.
        let mode = WriteMode::of(self.options.durability, carried && !batch.says_places());
        let mut writer = self.writer.lock();
        let placed = writer.append(batch, mode)?;
        writer.tally.count(batch.entries, &placed);
        *writer.live_bytes.entry(crate::segment_of(placed.start)).or_default() += payload_bytes;
        if writer.ahead.is_wanted() {
            writer.wake_committer();
        }
        if writer.options.durability == Durability::Sync {
            writer.next_group.pending.extend(pending);
            writer.next_group.waiting |= watcher.map_or(0, WatcherId::bit);
            if who_syncs == WhoSyncs::Committer && !carried {
                writer.nudge();
            }
        }
        Ok(placed)
    }

    /// Applies a published commit to its log, which the caller has had locked since. If nothing has to be
    /// waited for, the commit is visible afterwards, and the answer is the watchers to tell. The order is the
    /// same on every way in: published, staged, looked at by retention, revealed, and, once the caller holds
    /// no lock any more, [told](Shared::tell_moved).
    #[inline]
    pub(crate) fn apply(&self, log: &Arc<Log>, inner: &mut Inner, change: &Change<'_>, seen: &Seen) -> u32 {
        inner.stage(change);
        if seen.deleted {
            inner.stage_delete();
        }
        if inner.notes.is_some() {
            self.log_retention.note(log, inner, change.time);
        }
        if self.options.durability == Durability::Sync {
            return 0;
        }
        let tell = self.reveal(inner, seen);
        if seen.first > 0 {
            self.control.bump_segments();
        }
        tell
    }

    /// Tells of what is visible by now: those who sleep at the gate, and the watchers of each log that
    /// moved. The caller holds no lock, and nothing else that a commit needs: a task that is woken may look
    /// at the log and commit on this very thread, and so may a watcher.
    #[inline]
    pub(crate) fn tell_moved(&self, moved: impl IntoIterator<Item = (u32, LogId)>) {
        self.gate.announce();
        for (tell, log) in moved {
            self.watchers.tell(tell, |watch| watch.advanced(log));
        }
    }

    /// Makes what a commit did to a log visible in this process. Answers the watchers to tell. Once the
    /// log is unlocked, one that was purged [lets go](Shared::drop_unneeded) of what no log needs, and one
    /// that was deleted is [forgotten](Shared::forget).
    pub(crate) fn reveal(&self, inner: &mut Inner, seen: &Seen) -> u32 {
        let tell = inner.reveal(seen);
        if seen.first > 0 {
            // Readers look again where the log begins.
            self.segments.touch();
        }
        tell
    }

    /// The way in for what is judged by a log's version: plans the batch, writes it and stages it. The caller
    /// announces it, to the watchers that are answered.
    fn submit(
        &self,
        log: &Arc<Log>,
        inner: &mut Inner,
        commit: &Commit<'_>,
        notes: &Notes,
        delete: bool,
        watcher: Option<WatcherId>,
    ) -> Result<(Receipt, u32), CommitError> {
        if commit.has_payload() && inner.closed {
            return Err(CommitError::LogClosed);
        }
        // A batch without payload may be let go before what it speaks of.
        let places = if commit.has_payload() { inner.places_to_list() } else { Vec::new() };
        let frames = plan(log.id(), inner.tail, commit, notes, &places, delete)?;
        if let Some(at) = commit.trim.filter(|at| *at > inner.tail) {
            return Err(CommitError::PastEnd { at, tail: inner.tail });
        }
        let (first, next) = (inner.tail, inner.tail + commit.payload_bytes());
        let seen =
            Seen { first: commit.trim.unwrap_or(0), tail: next, closed: commit.close, deleted: delete };
        let (pending, touched) = (Pending::of(log, seen), [(log.id(), next)]);
        let mut batch = PlannedBatch::of(&frames, &touched, commit.time);
        let placed = self.publish(&mut batch, next - first, [pending], watcher, WhoSyncs::Committer)?;
        let change = Change {
            producer: commit.producer,
            writer_seq: commit.writer_seq,
            notes: commit.notes,
            close: commit.close,
            trim: commit.trim,
            ..Change::payload(&placed, first..next, batch.said(&places), commit.time)
        };
        let tell = self.apply(log, inner, &change, &seen);
        Ok((self.receipt(placed.end, first, next), tell))
    }

    /// The receipt of a commit that ends at a position, with a ticket where the caller can wait until it is
    /// durable.
    pub(crate) fn receipt(&self, end: Position, first: Offset, next: Offset) -> Receipt {
        let ticket = if self.options.durability == Durability::Sync { end } else { 0 };
        Receipt { ticket, first, next }
    }
}
