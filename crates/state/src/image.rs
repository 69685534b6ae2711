//! An image: a fork's whole state at an offset, so that opening need not replay what led to it.
//!
//! It is a log of the same store, named after fork and offset, with a `+` behind these for each damaged
//! image of that fork and offset that has the name: those stay until the new one is whole. In it are runs
//! of entries, then one entry with their number and root. That last entry closes the log, so an image
//! that a crash cut off is recognised by being open. Whatever depends on the image (the trim of the
//! fork's log, the removal of an older image) is committed after it, and the store has one order. So no
//! crash keeps such a change and loses the image.
//!
//! ```text
//! run      { key length u32 │ value length u32 │ key │ value } …      little-endian
//! the last { u32::MAX │ version u32 │ fork u64 │ offset u64 │ entries u64 │ root 32 }
//! ```

use crate::digest::Root;
use crate::error::Error;
use crate::fork::{self, Fork, Moment, Rooted};
use crate::map::{Key, Map, Value};
use crate::state::{self, ForkId};
use crate::strict_read;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use thalweg_log::{Commit, CommitError, Config, Lifetime, Log, Offset, Store, Time, WatcherId};

const VERSION: u32 = 1;
/// The most bytes of a run, unless one entry has more: as much as may be copied while other commits wait.
const RUN_BYTES: usize = 128 << 10;
const END_BYTES: usize = 64;
/// Behind the name of an image, as often as it takes, where a closed log that cannot be used has the name.
const AGAIN: &str = "+";

/// A state that is in memory already, and one with its digest to compute others from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Near {
    pub(crate) map: Map,
    pub(crate) rooted: Option<Rooted>,
}

/// A complete image.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) log: Arc<Log>,
    pub(crate) fork: ForkId,
    pub(crate) offset: Offset,
}

impl Image {
    /// The image that a log is by its name; `None` for a log whose name is none that an image is given.
    pub(crate) fn of(log: &Arc<Log>, prefix: &str) -> Option<Self> {
        let name = std::str::from_utf8(log.name().strip_prefix(prefix.as_bytes())?).ok()?;
        let (fork, offset) = name.trim_end_matches(AGAIN).split_once('-')?;
        Some(Self { log: log.clone(), fork: state::number(fork)?, offset: state::number(offset)? })
    }

    pub(crate) fn id(&self) -> (ForkId, Offset) {
        (self.fork, self.offset)
    }

    /// Whether it was written to its end.
    pub(crate) fn is_whole(&self) -> bool {
        self.log.staged().is_some_and(|state| state.closed)
    }

    /// Writes an image, where there is none that can be read. Commits go on meanwhile.
    ///
    /// # Errors
    /// What the log says, and the log that was written in part, for the caller to remove.
    pub(crate) fn write(
        store: &Store,
        prefix: &str,
        fork: &Fork,
        moment: &Moment,
        time: Time,
        watcher: Option<WatcherId>,
    ) -> Result<Self, (CommitError, Option<Arc<Log>>)> {
        let (id, offset) = (fork.log.id(), moment.offset);
        let config =
            Config { content_type: "application/octet-stream".into(), lifetime: Lifetime::Unlimited };
        let root = fork.root(moment);
        let begun = || {
            let mut name = format!("{prefix}{id}-{offset}");
            let staged = |name: &str| store.find(name.as_bytes())?.staged();
            while staged(&name).is_some_and(|state| state.closed) {
                name.push_str(AGAIN);
            }
            // A full disk may have left a part of one.
            if let Some(half) = store.find(name.as_bytes())
                && let Some(state) = half.staged().filter(|state| !state.closed)
            {
                store.delete(&half, state.version, time, watcher)?;
            }
            let first = Commit { time, ..Commit::default() };
            store.create(name.as_bytes(), &config, None, &first, watcher)
        };
        let (log, _) = begun().map_err(|error| (error, None))?;
        let append = |payload: &[u8], close| {
            let version = log.staged().ok_or(CommitError::Deleted)?.version;
            store.commit(&log, version, &Commit { payload, close, time, ..Commit::default() }, watcher)
        };
        let fill = || {
            let mut run = Vec::with_capacity(RUN_BYTES);
            for (key, value) in moment.map.scan(Bound::Unbounded) {
                // A long value has a run of its own: a value that fits into a commit alone may not fit
                // together with others.
                if !run.is_empty() && run.len() + 8 + key.len() + value.len() > RUN_BYTES {
                    append(&run, false)?;
                    run.clear();
                }
                for length in [key.len(), value.len()] {
                    run.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
                }
                run.extend_from_slice(key.as_bytes());
                run.extend_from_slice(value);
            }
            if !run.is_empty() {
                append(&run, false)?;
            }
            append(&end(id, offset, moment.map.len() as u64, &root), true)
        };
        match fill() {
            Ok(_) => Ok(Self { log, fork: id, offset }),
            Err(error) => Err((error, Some(log))),
        }
    }

    /// Reads it, and checks its root. What it has in common with `near` is shared in memory, and its digest
    /// is computed from that of `near`.
    ///
    /// # Errors
    /// [`Error::Root`] if its entries do not have the recorded number and root; what the log says.
    pub(crate) fn read(&self, store: &Store, near: &Near) -> Result<(Moment, Rooted), Error> {
        let (map, last) = self.load(store)?;
        let map = map.sharing(&near.map);
        let rooted = fork::rooted(near.rooted.clone(), &map);
        let wanted = end(self.fork, self.offset, map.len() as u64, &rooted.1.root());
        if last != wanted {
            return Err(Error::Root { fork: self.fork, offset: self.offset });
        }
        Ok((Moment { map, offset: self.offset }, rooted))
    }

    /// The entries, and the log's last one.
    fn load(&self, store: &Store) -> Result<(Map, Vec<u8>), Error> {
        let (mut entries, mut last) = (Vec::new(), Vec::new());
        strict_read::entries(store, &self.log, 0, |entry| {
            if entry.data.starts_with(&u32::MAX.to_le_bytes()) {
                last = entry.data.to_vec();
                return Ok(ControlFlow::Continue(()));
            }
            let mut run = entry.data;
            while !run.is_empty() {
                let read = take(&mut run).ok_or(Error::Root { fork: self.fork, offset: self.offset })?;
                entries.push(read);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((Map::of(entries), last))
    }
}

/// Whether these are the same images.
pub(crate) fn are_same(these: &[Image], those: &[Image]) -> bool {
    let id = |image: &Image| image.log.id();
    these.iter().map(id).eq(those.iter().map(id))
}

/// The last entry of an image.
pub(crate) fn end(fork: ForkId, offset: Offset, entries: u64, root: &Root) -> Vec<u8> {
    let mut end = Vec::with_capacity(END_BYTES);
    end.extend_from_slice(&u32::MAX.to_le_bytes());
    end.extend_from_slice(&VERSION.to_le_bytes());
    [fork, offset, entries].iter().for_each(|word| end.extend_from_slice(&word.to_le_bytes()));
    end.extend_from_slice(root);
    end
}

/// The next entry of a run; `None` if the rest is not one.
pub(crate) fn take(run: &mut &[u8]) -> Option<(Key, Value)> {
    let (lengths, rest) = run.split_at_checked(8)?;
    let (key, value) = lengths.split_at(4);
    let length = |word: &[u8]| Some(u32::from_le_bytes(word.try_into().ok()?) as usize);
    let (key, rest) = rest.split_at_checked(length(key)?)?;
    let (value, rest) = rest.split_at_checked(length(value)?)?;
    *run = rest;
    Some((std::str::from_utf8(key).ok()?.into(), value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_run_or_none(bytes: Vec<u8>) {
            let mut run = &bytes[..];
            let mut left = run.len();
            while let Some((key, value)) = take(&mut run) {
                left -= 8 + key.len() + value.len();
                prop_assert_eq!(run.len(), left);
            }
        }
    }
}
