//! A session: writes that no other caller sees until they are committed, and that can be rolled back.

use crate::changes::Changes;
use crate::digest::Root;
use crate::error::Error;
use crate::fork::{LARGE_KEYS, Moment, Rooted, View};
use crate::map::{Key, Value};
use crate::overlay::Overlay;
use crate::read_view::ReadView;
use crate::state::{ForkId, State, check_key};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use thalweg_log::{Offset, Receipt, Time};

/// The most that a session may hold beside its snapshot, counted as the most that the entry of its commit
/// could take: for each change about 120 bytes, its key and, in base64, its value. A store with smaller
/// segments refuses such a commit.
pub const SESSION_BYTES_MAX: usize = 16 << 20;

/// A fork whose log has grown by less since a snapshot shares nearly all its memory with it.
const SHARED_BYTES_MAX: u64 = 1 << 20;

/// Reads and writes of one client on a fork, between snapshots. Dropped, it leaves nothing behind.
///
/// Without a snapshot it reads and writes the fork itself. A snapshot holds the fork's state, and later
/// writes are kept beside it: neither snapshot nor write nor rollback touches the log, or copies the state. A
/// commit is one entry, and is refused if others committed to the fork since the snapshot, because what the
/// session has read may be outdated. A commit of a snapshot without writes is not refused: it depends on
/// nothing but the snapshot.
///
/// *Bound*: a snapshot, and [`SESSION_BYTES_MAX`] of changes over it. The changes of all sessions together
/// take at most [`Options::sessions_bytes_max`](crate::Options::sessions_bytes_max), including overwritten
/// ones that a [`ReadView`] still holds.
#[derive(Debug)]
pub struct Session {
    state: State,
    fork: ForkId,
    snapshot: Option<Snapshot>,
    /// The receipt of its last commit, write or snapshot, or of its beginning: where the fork ended then, and
    /// when that is durable.
    last: Receipt,
}

#[derive(Debug)]
struct Snapshot {
    base: Moment,
    /// Shared with read views. A write copies only the nodes on the way to its key.
    changes: Arc<Overlay>,
    /// The base's digest, once a root was asked for.
    rooted: Arc<OnceLock<Rooted>>,
}

impl Snapshot {
    /// Whether dropping its state may take long; `now` is where the fork ends, unless it is gone.
    fn is_much(&self, now: Option<Offset>) -> bool {
        let is_alone = now.is_none_or(|now| now.saturating_sub(self.base.offset) > SHARED_BYTES_MAX);
        is_alone && self.base.map.len() > LARGE_KEYS
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            self.let_go(snapshot);
        }
    }
}

impl Session {
    /// A session on a fork that ends at `end`.
    pub(crate) fn new(state: State, fork: ForkId, end: Offset) -> Self {
        Self { state, fork, snapshot: None, last: Receipt { ticket: 0, first: end, next: end } }
    }

    /// The fork.
    pub fn fork(&self) -> ForkId {
        self.fork
    }

    /// Whether a snapshot is pending.
    pub fn is_pending(&self) -> bool {
        self.snapshot.is_some()
    }

    /// How many keys a commit would change.
    pub fn changes(&self) -> usize {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.changes.len())
    }

    /// The most bytes that the entry of a commit would take.
    pub(crate) fn changed_bytes(&self) -> usize {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.changes.bytes())
    }

    /// Takes a snapshot. A pending one is committed first, unless nothing was written since: then no commit
    /// of others conflicts, and a client that lost the answer may repeat the call. `next` of the receipt is
    /// where the snapshot was taken; its ticket says when the commit is durable.
    ///
    /// # Errors
    /// Those of [`Session::commit`]; the pending snapshot stays.
    pub fn snapshot(&mut self, time: Time) -> Result<Receipt, Error> {
        let Receipt { ticket, first, .. } = if self.changes() == 0 { self.last } else { self.commit(time)? };
        let base = self.state.moment(self.fork, View::Pending)?;
        let next = base.offset;
        self.last.next = next;
        let changes = Arc::new(Overlay::new(&self.state.shared.memory));
        if let Some(before) = self.snapshot.replace(Snapshot { base, changes, rooted: Arc::default() }) {
            self.let_go(before);
        }
        Ok(Receipt { ticket, first, next })
    }

    /// Commits what was written since the snapshot, as one entry. If nothing was, no commit of others
    /// conflicts, and the receipt says where the snapshot was taken, and when that is durable. Without a
    /// snapshot it does nothing, and returns the receipt of the last commit, write or snapshot, or of the
    /// session's beginning. So a client that lost the answer may repeat the call.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::NoFork`], and what the log says; the snapshot stays, to be rolled back.
    pub fn commit(&mut self, time: Time) -> Result<Receipt, Error> {
        let Some(Snapshot { base, changes, .. }) = &self.snapshot else { return Ok(self.last) };
        let at = base.offset;
        let writes = !changes.is_empty();
        let receipt = self.state.commit(self.fork, &**changes, writes.then_some(at), time)?;
        // Without writes the receipt has the current end of the fork, which the session has not seen.
        self.last = if writes { receipt } else { Receipt { first: at, next: at, ..receipt } };
        if let Some(snapshot) = self.snapshot.take() {
            self.let_go(snapshot);
        }
        Ok(self.last)
    }

    /// Discards the snapshot, and what was written since.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`].
    pub fn rollback(&mut self) -> Result<(), Error> {
        let snapshot = self.snapshot.take().ok_or(Error::NoSnapshot)?;
        self.let_go(snapshot);
        Ok(())
    }

    /// Drops a snapshot. If the fork has changed much since, the snapshot may be the only owner of a large
    /// state, and is dropped in the background.
    fn let_go(&self, snapshot: Snapshot) {
        let is_much = snapshot.is_much(self.state.offset(self.fork, View::Pending).ok());
        let Snapshot { base, changes, rooted } = snapshot;
        // Not in the background, so that the memory is free when the client has its answer.
        drop(changes);
        if is_much {
            self.state.shared.background_drop.add((base, rooted));
        }
    }

    /// Writes: beside the snapshot, or, without one, to the fork. All or nothing.
    ///
    /// # Errors
    /// [`Error::Key`], [`Error::TooMuch`], [`Error::NoRoom`]; without a snapshot those of [`State::write`].
    pub fn write(&mut self, changes: Changes, time: Time) -> Result<Receipt, Error> {
        let Some(snapshot) = &mut self.snapshot else {
            let receipt = self.state.write(self.fork, &changes, time)?;
            self.wrote(receipt);
            return Ok(receipt);
        };
        changes.iter().try_for_each(|(key, _)| check_key(key))?;
        Arc::make_mut(&mut snapshot.changes).write(&self.state.shared.options.kind, changes)?;
        let at = snapshot.base.offset;
        Ok(Receipt { ticket: 0, first: at, next: at })
    }

    /// Notes a write that the service made to the fork for this session, without a snapshot.
    pub(crate) fn wrote(&mut self, receipt: Receipt) {
        self.last = receipt;
    }

    /// A view of the state as this session sees it now. Complexity: constant.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn read_view(&self) -> Result<ReadView, Error> {
        match &self.snapshot {
            None => self.state.read_view(self.fork, View::Pending),
            Some(Snapshot { base, changes, rooted }) => {
                let fork = self.state.find(self.fork).ok();
                Ok(ReadView::new(base.clone(), Some(changes.clone()), fork).kept_by(rooted.clone()))
            }
        }
    }

    /// What a key holds in this session.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn get(&self, key: &str) -> Result<Option<Value>, Error> {
        Ok(self.read_view()?.get(key).cloned())
    }

    /// At most `limit` entries of this session from `from` on, in the order of their keys.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn scan(&self, from: Bound<&str>, limit: usize) -> Result<Vec<(Key, Value)>, Error> {
        let read_view = self.read_view()?;
        Ok(read_view.scan(from).take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    /// The root of the state as this session sees it.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn root(&self) -> Result<Root, Error> {
        Ok(self.read_view()?.root())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::Change;
    use crate::state::Options;
    use thalweg_log::{Options as StoreOptions, Store};

    #[test]
    fn a_snapshot_is_much_once_the_fork_has_left_all_of_it_behind() {
        let store = Store::memory(StoreOptions::default()).unwrap();
        let state = State::open(&store, "s", Options::default()).unwrap();
        let put = |key: &str, value: &[u8]| Change::Put(key.into(), value.into());
        let keys = (0..=LARGE_KEYS).map(|n| put(&format!("k{n}"), b"1"));
        state.write(state.main(), &keys.collect(), 1).unwrap();
        let mut session = state.session(state.main()).unwrap();
        session.snapshot(1).unwrap();
        let is_much = |session: &Session| {
            let now = state.offset(session.fork, View::Pending).ok();
            session.snapshot.as_ref().is_some_and(|snapshot| snapshot.is_much(now))
        };
        assert!(!is_much(&session), "all of it is the fork's as well");
        state.write(state.main(), &[put("k1", b"2")].into_iter().collect(), 1).unwrap();
        assert!(!is_much(&session), "all but a little");
        let much = vec![b'x'; SHARED_BYTES_MAX as usize];
        state.write(state.main(), &[put("k2", &much), put("k1", b"3")].into_iter().collect(), 1).unwrap();
        assert!(is_much(&session));
        session.rollback().unwrap();
        assert_eq!(session.get("k1").unwrap().as_deref(), Some(&b"3"[..]));
    }
}
