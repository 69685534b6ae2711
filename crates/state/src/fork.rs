//! One fork: its log, and what that comes to.

use crate::changes::Changes;
use crate::digest::{Digest, Root};
use crate::error::Error;
use crate::journal;
use crate::map::Map;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_log::{Commit, CommitError, Log, Offset, Position, Receipt, Store, Time, WatcherId};

/// Which of a fork's states is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Every commit that is durable.
    Committed,
    /// And those on their way to the disk.
    Pending,
}

/// A state, and where in its log it was reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) map: Map,
    pub(crate) offset: Offset,
}

/// A fork in memory.
#[derive(Debug)]
pub(crate) struct Fork {
    pub(crate) log: Arc<Log>,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    committed: Moment,
    pending: Moment,
    /// What becomes committed at which ticket.
    under_way: VecDeque<(Position, Moment)>,
    /// A state whose digest is known: the next is reckoned from there.
    rooted: (Map, Digest),
    dropped: bool,
}

impl Fork {
    /// A fork whose state is `moment`, and durable unless `ticket` says when it is.
    pub(crate) fn new(log: Arc<Log>, moment: Moment, rooted: Option<(Map, Digest)>) -> Self {
        let rooted = rooted.unwrap_or_default();
        let held = Held {
            committed: moment.clone(),
            pending: moment,
            under_way: VecDeque::new(),
            rooted,
            dropped: false,
        };
        Self { log, held: Mutex::new(held) }
    }

    /// The state as of now. Complexity: constant; nothing is copied.
    pub(crate) fn moment(&self, view: View) -> Moment {
        let held = self.held.lock();
        match view {
            View::Committed => held.committed.clone(),
            View::Pending => held.pending.clone(),
        }
    }

    /// The root of a state of this fork. Complexity: what changed since the last one that was asked for.
    pub(crate) fn root(&self, map: &Map) -> Root {
        // Reckoned on a copy, without the lock: a root after many changes must not hold a writer back.
        let (before, mut digest) = self.held.lock().rooted.clone();
        let changes = before.changes_to(map);
        if changes.is_empty() {
            return digest.root();
        }
        digest.follow(&before, &changes);
        let root = digest.root();
        self.held.lock().rooted = (map.clone(), digest);
        root
    }

    /// What is needed to reckon roots from.
    pub(crate) fn rooted(&self) -> (Map, Digest) {
        self.held.lock().rooted.clone()
    }

    /// Commits changes as one entry, if the fork is where `expected` says. What changes nothing makes no entry.
    ///
    /// # Errors
    /// [`Error::Conflict`], and what the log says.
    pub(crate) fn commit(
        &self,
        place: &Place<'_>,
        changes: &Changes,
        expected: Option<Offset>,
        time: Time,
    ) -> Result<Receipt, Error> {
        let mut held = self.held.lock();
        let tail = held.pending.offset;
        if held.dropped {
            return Err(Error::NoFork(self.log.id()));
        }
        if let Some(base) = expected
            && base != tail
        {
            return Err(Error::Conflict { fork: self.log.id(), base, tail });
        }
        let mut payload = Vec::new();
        journal::encode(place.kind, &held.pending.map, changes, tail, &mut payload);
        if payload.is_empty() {
            let ticket = held.under_way.back().map_or(0, |(ticket, _)| *ticket);
            return Ok(Receipt { ticket, first: tail, next: tail });
        }
        let receipt = self.append(place, &payload, tail, time)?;
        let mut map = held.pending.map.clone();
        map.apply(changes);
        held.pending = Moment { map, offset: receipt.next };
        if receipt.ticket == 0 {
            held.committed = held.pending.clone();
        } else {
            let moment = held.pending.clone();
            held.under_way.push_back((receipt.ticket, moment));
        }
        Ok(receipt)
    }

    fn append(&self, place: &Place<'_>, payload: &[u8], tail: Offset, time: Time) -> Result<Receipt, Error> {
        let staged = self.log.staged().ok_or(CommitError::Deleted)?;
        if staged.tail != tail {
            // Whoever appends to a state's log by other means than the state makes this one stale.
            return Err(Error::Conflict { fork: self.log.id(), base: tail, tail: staged.tail });
        }
        let commit = Commit { payload, suffix: b",", time, ..Commit::default() };
        Ok(place.store.commit(&self.log, staged.version, &commit, place.watcher)?)
    }

    /// Everything up to a ticket is durable.
    pub(crate) fn complete(&self, up_to: Position) {
        let mut held = self.held.lock();
        while held.under_way.front().is_some_and(|(ticket, _)| *ticket <= up_to) {
            if let Some((_, moment)) = held.under_way.pop_front() {
                held.committed = moment;
            }
        }
    }

    /// Takes no more commits.
    pub(crate) fn drop_it(&self) {
        self.held.lock().dropped = true;
    }
}

/// What a fork commits with.
pub(crate) struct Place<'s> {
    pub(crate) store: &'s Store,
    pub(crate) watcher: Option<WatcherId>,
    /// The `type` of its messages.
    pub(crate) kind: &'s str,
}
