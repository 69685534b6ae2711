//! A session: writes that nobody else sees until they are committed, and that can be taken back.

use crate::changes::{Change, Changes};
use crate::digest::{Digest, Root};
use crate::error::Error;
use crate::fork::{Moment, View};
use crate::map::{Key, Map, Value};
use crate::state::{ForkId, State, check_key};
use std::ops::Bound;
use thalweg_log::{Receipt, Time};

/// What somebody does to a fork between snapshots. Dropped, it leaves nothing behind.
///
/// Without a snapshot it reads and writes the fork itself. A snapshot holds the fork as it is, and what is written from
/// then on lies beside it: neither snapshot nor write nor rollback touches the log, or copies anything. A commit is one
/// entry, and is refused if others committed to the fork meanwhile: then what was read may not hold any more.
#[derive(Debug)]
pub struct Session {
    state: State,
    fork: ForkId,
    snapshot: Option<Snapshot>,
}

#[derive(Debug)]
struct Snapshot {
    base: Moment,
    changes: Changes,
}

impl Session {
    pub(crate) fn new(state: State, fork: ForkId) -> Self {
        Self { state, fork, snapshot: None }
    }

    /// The fork.
    pub fn fork(&self) -> ForkId {
        self.fork
    }

    /// Whether a snapshot is pending.
    pub fn is_pending(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Takes a snapshot. One that is pending is committed first, and then the receipt is that commit's.
    ///
    /// # Errors
    /// Those of [`Session::commit`]; the pending snapshot stays.
    pub fn snapshot(&mut self, time: Time) -> Result<Receipt, Error> {
        let receipt = self.commit(time)?;
        let base = self.state.moment(self.fork, View::Pending)?;
        self.snapshot = Some(Snapshot { base, changes: Changes::default() });
        Ok(receipt)
    }

    /// Commits what was written since the snapshot, as one entry. Without a snapshot it does nothing.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::NoFork`], and what the log says; the snapshot stays, to be rolled back.
    pub fn commit(&mut self, time: Time) -> Result<Receipt, Error> {
        let Some(Snapshot { base, changes }) = &self.snapshot else { return Ok(Receipt::default()) };
        let receipt = self.state.commit(self.fork, changes, Some(base.offset), time)?;
        self.snapshot = None;
        Ok(receipt)
    }

    /// Forgets what was written since the snapshot, and the snapshot.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`].
    pub fn rollback(&mut self) -> Result<(), Error> {
        self.snapshot.take().map(drop).ok_or(Error::NoSnapshot)
    }

    /// Writes: beside the snapshot, or, without one, to the fork.
    ///
    /// # Errors
    /// [`Error::Key`]; without a snapshot those of [`State::write`].
    pub fn write(&mut self, changes: Changes, time: Time) -> Result<Receipt, Error> {
        let Some(snapshot) = &mut self.snapshot else { return self.state.write(self.fork, &changes, time) };
        changes.iter().try_for_each(|(key, _)| check_key(key))?;
        for (key, value) in changes.iter() {
            snapshot.changes.push(match value {
                Some(value) => Change::Put(key.clone(), value.clone()),
                None => Change::Delete(key.clone()),
            });
        }
        Ok(Receipt::default())
    }

    /// What a key holds, what this session wrote included.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn get(&self, key: &str) -> Result<Option<Value>, Error> {
        match &self.snapshot {
            None => self.state.get(self.fork, View::Pending, key),
            Some(Snapshot { base, changes }) => {
                Ok(changes.get(key).unwrap_or_else(|| base.map.get(key)).cloned())
            }
        }
    }

    /// At most `limit` entries from `from` on, in the order of their keys, what this session wrote included.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn scan(&self, from: Bound<&str>, limit: usize) -> Result<Vec<(Key, Value)>, Error> {
        let Some(Snapshot { base, changes }) = &self.snapshot else {
            return self.state.scan(self.fork, View::Pending, from, limit);
        };
        let mut under = base.map.scan(from).peekable();
        let mut over = changes.scan(from).peekable();
        let mut entries = Vec::new();
        while entries.len() < limit {
            let next = match (under.peek(), over.peek()) {
                (None, None) => break,
                (Some((below, _)), Some((above, _))) if below < above => {
                    under.next().map(|(k, v)| (k, Some(v)))
                }
                (Some(_), None) => under.next().map(|(k, v)| (k, Some(v))),
                (Some((below, _)), Some((above, _))) if below == above => {
                    under.next();
                    over.next()
                }
                _ => over.next(),
            };
            if let Some((key, Some(value))) = next {
                entries.push((key.clone(), value.clone()));
            }
        }
        Ok(entries)
    }

    /// The digest of the state as this session sees it.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn root(&self) -> Result<Root, Error> {
        match &self.snapshot {
            None => self.state.root(self.fork, View::Pending),
            Some(snapshot) if snapshot.changes.is_empty() => Ok(self.root_of(&snapshot.base.map)),
            Some(snapshot) => {
                let mut map = snapshot.base.map.clone();
                map.apply(&snapshot.changes);
                Ok(self.root_of(&map))
            }
        }
    }

    fn root_of(&self, map: &Map) -> Root {
        // A fork that is gone has nothing to reckon from.
        self.state.root_of(self.fork, map).unwrap_or_else(|_| Digest::of(map).root())
    }
}
