//! One fork: its log, and the state that the log's entries result in.
//!
//! Writers of a fork exclude each other with `writing`, held while an entry is encoded and appended. They
//! publish the result under `views`, a lock that is held only to copy a few words: a reader never waits for a
//! writer.
//!
//! A drop is the last change of a fork, ordered with its commits. From then on a call that writes, forks or
//! reads the pending view finds no fork, and the committed view stays until the drop is durable. So no reader
//! finds a fork gone that is there again after a crash. A refusal may tell of a drop that is not durable yet,
//! as a conflict may of a commit.

use crate::changes::EachChange;
use crate::digest::{Digest, Root};
use crate::durable::Durable;
use crate::error::Error;
use crate::journal;
use crate::map::Map;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_log::{Commit, CommitError, Log, Offset, Position, Receipt, Store, Time};

/// Which state of a fork is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Every commit that is durable.
    Committed,
    /// Those, and the commits on their way to the disk.
    Pending,
}

/// A state, and where in its log it was reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) map: Map,
    pub(crate) offset: Offset,
}

/// A state and its digest, shared with the forks that were made since. It is several times as large as an
/// otherwise small fork, so a fork has none until its first root is asked for.
pub(crate) type Rooted = Arc<(Map, Digest)>;

/// The digest of a map, computed from a known one. Complexity: what changed since, or every key if none is
/// known.
pub(crate) fn rooted(before: Option<Rooted>, map: &Map) -> Rooted {
    let digest = match before {
        Some(before) if before.0.is_same(map) => return before,
        Some(before) if !before.0.is_empty() => {
            let mut digest = before.1.clone();
            digest.follow(&before.0, &before.0.changes_to(map));
            digest
        }
        _ => Digest::of(map),
    };
    Arc::new((map.clone(), digest))
}

/// A map of more keys takes milliseconds to drop, if it shares them with no other map.
pub(crate) const LARGE_KEYS: usize = 10_000;

/// A fork in memory.
#[derive(Debug)]
pub(crate) struct Fork {
    pub(crate) log: Arc<Log>,
    writing: Mutex<()>,
    views: Mutex<Views>,
    /// The newest state whose root was asked for, and where the log ended then: the next root is computed
    /// from it. A session's snapshot of an older state keeps its own digest ([`Fork::digest_apart`]).
    rooted: Mutex<Option<(Offset, Rooted)>>,
    /// The past state from which it was forked, shared with other forks of the same offset.
    past: Option<Arc<Map>>,
    /// Where its replay would begin: at its newest image, or where it branched off, if its parent is
    /// replayed. `None` if it has trimmed entries and no image in their place.
    imaged: Mutex<Option<Offset>>,
}

#[derive(Debug)]
struct Views {
    /// `None` until its creation is durable, and once its drop is.
    committed: Option<Moment>,
    /// `None` once it is dropped.
    pending: Option<Moment>,
    /// The next committed states, each with the ticket at which it becomes so; `None` for a drop.
    under_way: VecDeque<(Position, Option<Moment>)>,
    /// The last committed state of a dropped fork. Freeing it may take long, so it is freed with the fork,
    /// where no call waits for that.
    last: Option<Moment>,
}

impl Views {
    /// Makes a state the committed one; `None` is a drop. Returns the state before for the caller to free,
    /// unless it is a drop.
    fn commit(&mut self, now: Option<Moment>) -> Option<Moment> {
        let is_dropped = now.is_none();
        let before = std::mem::replace(&mut self.committed, now);
        if !is_dropped {
            return before;
        }
        self.last = before;
        None
    }
}

impl Fork {
    /// A fork whose first state is `moment`; its creation is durable at the ticket `born`.
    /// [`Fork::begins_at`] is called before others find it.
    pub(crate) fn new(log: Arc<Log>, born: Position, moment: Moment, rooted: Option<Rooted>) -> Self {
        let (pending, begin) = (Some(moment.clone()), (born, Some(moment)));
        let (committed, under_way) =
            if born == 0 { (begin.1, VecDeque::new()) } else { (None, [begin].into()) };
        let views = Views { committed, pending, under_way, last: None };
        Self {
            log,
            writing: Mutex::new(()),
            views: Mutex::new(views),
            rooted: Mutex::new(rooted.map(|rooted| (0, rooted))),
            past: None,
            imaged: Mutex::new(None),
        }
    }

    /// The same, forked from a past state.
    pub(crate) fn of_past(self, past: Option<Arc<Map>>) -> Self {
        Self { past, ..self }
    }

    /// The current state in a view. Complexity: constant; nothing is copied.
    ///
    /// # Errors
    /// [`Error::NoFork`]: in the committed view before its creation is durable and once its drop is; in the
    /// pending view once it is dropped.
    pub(crate) fn moment(&self, view: View) -> Result<Moment, Error> {
        let views = self.views.lock();
        let moment = match view {
            View::Committed => &views.committed,
            View::Pending => &views.pending,
        };
        moment.clone().ok_or(Error::NoFork(self.log.id()))
    }

    /// The current state in the pending view.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub(crate) fn pending(&self) -> Result<Moment, Error> {
        self.moment(View::Pending)
    }

    /// Whether it is dropped, durably or not.
    pub(crate) fn is_dropped(&self) -> bool {
        self.views.lock().pending.is_none()
    }

    /// The state when the log ended at an offset, if that is the committed state, the pending one, or one on
    /// its way. Complexity: the number of commits on their way.
    pub(crate) fn recent(&self, offset: Offset) -> Option<Map> {
        let views = self.views.lock();
        let under_way = views.under_way.iter().map(|(_, moment)| moment);
        let mut moments = [&views.pending, &views.committed].into_iter().chain(under_way).flatten();
        moments.find(|moment| moment.offset == offset).map(|moment| moment.map.clone())
    }

    /// The ticket at which its log is durable up to an offset, 0 if it is now; `None` beyond the log's end.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub(crate) fn ticket_of(&self, offset: Offset) -> Result<Option<Position>, Error> {
        let views = self.views.lock();
        if views.pending.is_none() {
            return Err(Error::NoFork(self.log.id()));
        }
        let reaches = |moment: &Option<Moment>| moment.as_ref().is_some_and(|moment| offset <= moment.offset);
        let under_way = || views.under_way.iter().find(|(_, moment)| reaches(moment));
        Ok(if reaches(&views.committed) { Some(0) } else { under_way().map(|(ticket, _)| *ticket) })
    }

    /// The root of a state of this fork.
    pub(crate) fn root(&self, moment: &Moment) -> Root {
        self.digest(moment).1.root()
    }

    /// Whether computing the root of a state of this fork hashes at most `most` entries.
    pub(crate) fn is_near(&self, map: &Map, most: usize) -> bool {
        match self.rooted() {
            Some(before) if before.0.is_same(map) => true,
            Some(before) if !before.0.is_empty() => before.0.differences(map).nth(most).is_none(),
            _ => map.len() <= most,
        }
    }

    /// The digest of a session's snapshot, for the session to keep. If the fork has changed since, the fork
    /// does not keep it: it could become the last reference to everything that was overwritten.
    pub(crate) fn digest_apart(&self, moment: &Moment) -> Rooted {
        let committed = self.views.lock().committed.as_ref().map(|committed| committed.offset);
        match committed.is_none_or(|committed| committed > moment.offset) {
            true => rooted(self.rooted(), &moment.map),
            false => self.digest(moment),
        }
    }

    /// The digest of a state of this fork, kept unless that of a newer state is. Complexity: what differs
    /// from the kept one.
    pub(crate) fn digest(&self, moment: &Moment) -> Rooted {
        // Computed from a copy, without the lock: concurrent roots do not wait for each other.
        let rooted = rooted(self.rooted(), &moment.map);
        let mut newest = self.rooted.lock();
        let is_newest = newest.as_ref().is_none_or(|(offset, _)| *offset <= moment.offset);
        let before = if is_newest { newest.replace((moment.offset, rooted.clone())) } else { None };
        drop(newest);
        // Dropped without the lock: the last owner of a state may have much to free.
        drop(before);
        rooted
    }

    /// How many bytes of its log, inherited ones included, an opening would replay if the log ended at `end`;
    /// the most there are if it would need more than the log.
    pub(crate) fn behind(&self, end: Offset) -> u64 {
        self.imaged.lock().map_or(u64::MAX, |imaged| end.saturating_sub(imaged))
    }

    /// Notes where its replay would begin; `None` if it has trimmed entries and no image in their place.
    pub(crate) fn begins_at(&self, offset: Option<Offset>) {
        *self.imaged.lock() = offset;
    }

    /// Notes that no replay of its parent comes to where it branched off. Its own no longer begins there, but
    /// at `imaged`, unless it has an image of its own.
    pub(crate) fn is_passed_over(&self, branched: Offset, imaged: Offset) {
        let mut known = self.imaged.lock();
        if *known == Some(branched) {
            *known = Some(imaged);
        }
    }

    /// The state and digest that the next root is computed from.
    pub(crate) fn rooted(&self) -> Option<Rooted> {
        self.rooted.lock().as_ref().map(|(_, rooted)| rooted.clone())
    }

    /// Commits changes as one entry, if the log ends at `expected`. Changes without an effect make no entry.
    ///
    /// # Errors
    /// [`Error::Conflict`], and what the log says.
    pub(crate) fn commit<'c>(
        self: &Arc<Self>,
        place: &Place<'_>,
        changes: impl EachChange<'c>,
        expected: Option<Offset>,
        time: Time,
    ) -> Result<Receipt, Error> {
        let _writing = self.writing.lock();
        let staged = self.log.staged().ok_or(Error::NoFork(self.log.id()))?;
        let Moment { mut map, offset: tail } = self.pending()?;
        if staged.tail != tail {
            // An append to the fork's log that bypasses the state makes the state stale.
            return Err(Error::Conflict { fork: self.log.id(), base: tail, tail: staged.tail });
        }
        if let Some(base) = expected
            && base != tail
        {
            return Err(Error::Conflict { fork: self.log.id(), base, tail });
        }
        let mut payload = Vec::new();
        journal::encode(place.kind, &map, changes, tail, &mut payload);
        if payload.is_empty() {
            // The answer depends on the commits before it, so it is durable when they are.
            let ticket = self.views.lock().under_way.back().map_or(0, |(ticket, _)| *ticket);
            return Ok(Receipt { ticket, first: tail, next: tail });
        }
        // Applied before others can read the entry, to keep the time short in which a client that saw it in
        // the stream does not find it here.
        map.extend(changes);
        let commit = Commit { payload: &payload, suffix: b",", time, ..Commit::default() };
        let receipt = place.store.commit(&self.log, staged.version, &commit, place.durable.watcher)?;
        self.become_at(receipt.ticket, place, Some(Moment { map, offset: receipt.next }));
        Ok(receipt)
    }

    /// Drops it, ordered with its commits.
    ///
    /// # Errors
    /// [`Error::NoFork`], and what the log says.
    pub(crate) fn leave(self: &Arc<Self>, place: &Place<'_>, time: Time) -> Result<Receipt, Error> {
        let _writing = self.writing.lock();
        let staged = self.log.staged().ok_or(Error::NoFork(self.log.id()))?;
        let receipt = place.store.delete(&self.log, staged.version, time, place.durable.watcher)?;
        self.become_at(receipt.ticket, place, None);
        Ok(receipt)
    }

    /// Publishes the new state, which becomes committed at a ticket. The caller holds `writing`.
    fn become_at(self: &Arc<Self>, ticket: Position, place: &Place<'_>, now: Option<Moment>) {
        let show = || {
            let mut views = self.views.lock();
            let committed = if ticket == 0 {
                views.commit(now.clone())
            } else {
                views.under_way.push_back((ticket, now.clone()));
                None
            };
            (committed, std::mem::replace(&mut views.pending, now))
        };
        let before = match ticket {
            0 => show(),
            ticket => place.durable.note(ticket, self.clone(), show),
        };
        // Dropped without the lock: the last owner of a state may have much to free.
        drop(before);
    }

    /// Blocks every read of this fork while it is held.
    #[cfg(test)]
    pub(crate) fn stand_still(&self) -> impl Drop {
        self.views.lock()
    }

    /// Whether freeing it takes long, once it is dropped.
    pub(crate) fn is_large(&self) -> bool {
        let rooted = self.rooted();
        let views = self.views.lock();
        let last = views.last.as_ref().map(|moment| &moment.map);
        let rooted = rooted.as_deref().map(|(map, _)| map);
        last.into_iter().chain(rooted).chain(self.past.as_deref()).any(|map| map.len() > LARGE_KEYS)
    }

    /// Advances the committed view: everything up to a ticket is durable. Returns the states before for the
    /// caller to free.
    pub(crate) fn complete(&self, up_to: Position) -> Vec<Option<Moment>> {
        let mut done = Vec::new();
        let mut views = self.views.lock();
        while views.under_way.front().is_some_and(|(ticket, _)| *ticket <= up_to) {
            done.extend(views.under_way.pop_front().map(|(_, moment)| moment));
        }
        if let Some(newest) = done.pop() {
            done.push(views.commit(newest));
        }
        done
    }

    /// Changes the log without changing the state, ordered with the commits. `act` is given the log's
    /// version.
    ///
    /// # Errors
    /// [`Error::NoFork`], and what the log says.
    pub(crate) fn in_turn<R>(&self, act: impl FnOnce(u32) -> Result<R, CommitError>) -> Result<R, Error> {
        let _writing = self.writing.lock();
        let staged = self.log.staged().ok_or(Error::NoFork(self.log.id()))?;
        Ok(act(staged.version)?)
    }
}

/// Where and as what a fork commits.
pub(crate) struct Place<'s> {
    pub(crate) store: &'s Store,
    pub(crate) durable: &'s Durable,
    /// The `type` of its messages.
    pub(crate) kind: &'s str,
}
