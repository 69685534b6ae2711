//! Commits: create, append, close and delete, each one batch.

use crate::error::CommitError;
use crate::fork::{Branch, Fork, Lineage};
use crate::format::{self, Config, FLAG_LAST, Kind, Producer};
use crate::log::{Change, Inner, Log, Seen};
use crate::open::Durability;
use crate::places::Places;
use crate::store::{Shared, Store};
use crate::tip::Due;
use crate::writer::{Pending, Placed, PlannedBatch, PlannedFrame};
use crate::{LogId, Offset, Position, Time, WatcherId};
use smallvec::{SmallVec, smallvec};
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
    fn has_payload(&self) -> bool {
        !(self.payload.is_empty() && self.suffix.is_empty())
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
        if size > NOTES_BYTES_MAX || commit.notes.iter().any(|(key, _)| key.len() > usize::from(u16::MAX)) {
            return Err(CommitError::TooLarge { size: size as u64, limit: NOTES_BYTES_MAX as u64 });
        }
        let mut notes = Notes::default();
        if let Some((name, config, branch)) = create {
            format::encode_create(name, config, branch, &mut notes.bytes);
        }
        notes.create = notes.bytes.len();
        if let Some((id, producer)) = commit.producer {
            format::encode_producer(id, producer, &mut notes.bytes);
        }
        notes.producer = notes.bytes.len();
        for (key, value) in commit.notes {
            format::encode_note(key, value, &mut notes.bytes);
        }
        notes.note = notes.bytes.len();
        if let Some(first) = commit.trim {
            notes.bytes.extend_from_slice(&first.to_le_bytes());
        }
        notes.trim = notes.bytes.len();
        Ok(notes)
    }
}

fn frame<'a>(
    kind: Kind,
    flags: u8,
    log: LogId,
    offset: Offset,
    time: Time,
    pieces: [&'a [u8]; 2],
) -> Result<PlannedFrame<'a>, CommitError> {
    let size = pieces[0].len() as u64 + pieces[1].len() as u64;
    let limit = u64::from(u32::MAX >> 1);
    let length =
        u32::try_from(size).ok().filter(|_| size <= limit).ok_or(CommitError::TooLarge { size, limit })?;
    let padding =
        usize::try_from(format::frame_bytes(size) - size).unwrap_or(0) - format::FRAME_HEADER_BYTES as usize;
    Ok(PlannedFrame { header: format::frame_header(kind, flags, log, offset, time, length), pieces, padding })
}

fn plan<'a>(
    log: LogId,
    tail: Offset,
    commit: &Commit<'a>,
    notes: &'a Notes,
    places: &'a [u8],
    delete: bool,
) -> Result<PlannedBatch<'a>, CommitError> {
    let end = tail + commit.payload.len() as u64 + commit.suffix.len() as u64;
    let mut frames: SmallVec<[PlannedFrame<'a>; 4]> = SmallVec::new();
    let mut add = |kind, offset, pieces| {
        let flags = if kind == Kind::Data { FLAG_LAST } else { 0 };
        frame(kind, flags, log, offset, commit.time, pieces).map(|frame| frames.push(frame))
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
    Ok(PlannedBatch::of(frames, smallvec![(log, end)], commit.time))
}

impl Store {
    /// Creates a log, with first payload and closed at once if the commit says so; as a fork of another, the
    /// payload comes behind what is inherited. Complexity: one batch, whatever is inherited.
    ///
    /// # Errors
    /// [`CommitError::Exists`] when the name is taken, [`CommitError::ParentDeleted`] and
    /// [`CommitError::PastEnd`] when the parent cannot be forked there; otherwise as [`Store::commit`].
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
            return Err(CommitError::Damaged(Box::new(damage.clone())));
        }
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
        let lineage = fork.zip(branch).map(|(fork, branch)| Lineage::of(fork, branch));
        // Nobody else knows the log, so that its lock is taken behind its parent's harms nobody.
        let log = Arc::new(Log::new(shared.next_log_id(), name, config, commit.time, lineage));
        let receipt = shared.submit(&log, &mut log.lock(), commit, &notes, false, watcher)?;
        if let Some(parent) = &mut parent {
            parent.children += 1;
        }
        drop(parent);
        place.put(log.clone());
        shared.expiry.enter(&log);
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
        self.commit_unless(log, expected, commit, watcher, check_whole)
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
        check(&inner, expected)?;
        let notes = Notes::of(None, commit)?;
        self.shared.submit(log, &mut inner, commit, &notes, false, watcher)
    }

    /// Deletes the log if its staged version is `expected`, also one that damage took something of. While other logs inherit
    /// from it, it is [retained](Log::retained).
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
        let (receipt, gone) = {
            let mut inner = log.lock();
            self.shared.owns(&inner)?;
            check(&inner, expected)?;
            refuse(&inner)?;
            let commit = Commit { time, ..Commit::default() };
            let notes = Notes::default();
            (self.shared.submit(log, &mut inner, &commit, &notes, true, watcher)?, inner.is_gone())
        };
        if gone {
            self.shared.forget(log);
        }
        Ok(receipt)
    }
}

pub(crate) fn check_whole(inner: &Inner) -> Result<(), CommitError> {
    match inner.damage().filter(|_| !inner.deleting) {
        Some(damage) => Err(CommitError::Damaged(Box::new(damage.clone()))),
        None => Ok(()),
    }
}

fn check(inner: &Inner, expected: u32) -> Result<(), CommitError> {
    if inner.deleting {
        return Err(CommitError::Deleted);
    }
    if inner.version != expected {
        return Err(CommitError::Conflict { expected, found: inner.version });
    }
    Ok(())
}

/// Who sees to it that a batch becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nudge {
    /// The committer, woken if it sleeps.
    Committer,
    /// The caller, who is going to wait for it anyway.
    Nobody,
}

impl Shared {
    /// Writes and publishes a batch; in `sync` mode the committer reveals what is pending once it is durable.
    pub(crate) fn publish(
        &self,
        batch: &PlannedBatch<'_>,
        payload_bytes: u64,
        pending: impl IntoIterator<Item = Pending>,
        watcher: Option<WatcherId>,
        nudge: Nudge,
    ) -> Result<Placed, CommitError> {
        let carried = watcher.is_some_and(WatcherId::carries);
        // Readers are not to look for places in what is in no file yet.
        let due = Due::of(self.options.durability, carried && !batch.says_places());
        let mut writer = self.writer.lock();
        let placed = writer.append(batch, due, &self.control, &self.segments)?;
        *writer.live_bytes.entry(crate::segment_of(placed.start)).or_default() += payload_bytes;
        if writer.ahead.is_wanted() && std::mem::take(&mut writer.lead.committer_idle) {
            self.work.notify_one();
        }
        if writer.options.durability == Durability::Sync {
            writer.pending.extend(pending);
            writer.waiting |= watcher.map_or(0, WatcherId::bit);
            if nudge == Nudge::Committer && !carried {
                self.nudge(&mut writer);
            }
        }
        Ok(placed)
    }

    /// Makes what a commit did to a log visible in this process. Answers the watchers to tell.
    pub(crate) fn reveal(&self, inner: &mut Inner, seen: &Seen) -> u32 {
        let tell = inner.reveal(seen);
        if seen.first > 0 {
            self.unload(inner.prune());
            // Readers look again where the log begins.
            self.segments.touch();
        }
        tell
    }

    /// The way in for what is judged by a log's version: plans the batch, writes it, stages it, and either reveals it or leaves that to the
    /// committer.
    fn submit(
        &self,
        log: &Arc<Log>,
        inner: &mut Inner,
        commit: &Commit<'_>,
        notes: &Notes,
        delete: bool,
        watcher: Option<WatcherId>,
    ) -> Result<Receipt, CommitError> {
        // A batch without payload may be let go before what it speaks of.
        let mut places = if commit.has_payload() { inner.say_places() } else { Vec::new() };
        let mut batch = plan(log.id(), inner.tail, commit, notes, &places, delete)?;
        if !places.is_empty() && batch.bytes() > self.options.batch_bytes_max() {
            drop(batch);
            places.clear();
            batch = plan(log.id(), inner.tail, commit, notes, &[], delete)?;
        }
        if let Some(at) = commit.trim.filter(|at| *at > inner.tail) {
            return Err(CommitError::PastEnd { at, tail: inner.tail });
        }
        let (first, next) = (inner.tail, batch.touched[0].1);
        let seen =
            Seen { first: commit.trim.unwrap_or(0), tail: next, closed: commit.close, deleted: delete };
        let pending = Pending { log: log.clone(), seen };
        let placed = self.publish(&batch, next - first, [pending], watcher, Nudge::Committer)?;
        stage(inner, commit, &places, placed, first, next);
        if delete {
            inner.deleting = true;
        }
        if inner.notes.is_some() {
            self.retention.note(log, inner, commit.time);
        }
        self.gate.announce();
        if self.options.durability == Durability::Sync {
            return Ok(Receipt { ticket: placed.end, first, next });
        }
        let tell = self.reveal(inner, &seen);
        if seen.first > 0 {
            self.control.bump_segments();
        }
        self.watchers.tell(tell, |watch| watch.advanced(log.id()));
        Ok(Receipt { ticket: 0, first, next })
    }
}

fn stage(inner: &mut Inner, commit: &Commit<'_>, places: &[u8], placed: Placed, first: Offset, next: Offset) {
    let length = u32::try_from(next - first).unwrap_or(u32::MAX);
    inner.stage(&Change {
        extent: placed.extent(first, length),
        places: Places::decode(places),
        producer: commit.producer,
        writer_seq: commit.writer_seq,
        notes: commit.notes,
        close: commit.close,
        trim: commit.trim,
        end: placed.end,
        time: commit.time,
    });
}
