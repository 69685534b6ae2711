//! Past states. Those from which forks were made are kept for as long as one of these forks exists: a new
//! fork of the same offset uses the same state, and one of a nearby offset shares structure with it.
//!
//! *Bound*: a pointer and a few numbers for each offset from which an existing fork was made, and at most the
//! same number again, or [`SWEPT_MIN`], for offsets whose forks are gone.

use crate::error::Error;
use crate::image::{self, Near};
use crate::map::Map;
use crate::replay;
use crate::state::{ForkId, State};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use thalweg_log::{Offset, Position, ReadError};

/// How many offsets are kept before those without a fork are first removed.
const SWEPT_MIN: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Past {
    places: BTreeMap<(ForkId, Offset), Weak<Map>>,
    /// The number of offsets at which those without a fork are removed next.
    sweep_at: usize,
}

impl Past {
    /// The state of a fork at an offset, if it is kept.
    pub(crate) fn at(&self, fork: ForkId, offset: Offset) -> Option<Arc<Map>> {
        self.places.get(&(fork, offset))?.upgrade()
    }

    /// The kept state nearest to an offset, if it is nearer than the current end of the log.
    pub(crate) fn near(&self, fork: ForkId, offset: Offset, end: Offset) -> Option<Arc<Map>> {
        let there = |(place, map): (&(ForkId, Offset), &Weak<Map>)| Some((place.1, map.upgrade()?));
        let below = self.places.range((fork, 0)..=(fork, offset)).rev().find_map(there);
        let above = self.places.range((fork, offset)..=(fork, Offset::MAX)).find_map(there);
        let found = [below, above].into_iter().flatten().min_by_key(|(at, _)| at.abs_diff(offset));
        found.filter(|(at, _)| at.abs_diff(offset) < end.abs_diff(offset)).map(|(_, map)| map)
    }

    /// Keeps a state from which a fork is made. Concurrent forks of one offset share the result.
    pub(crate) fn note(&mut self, fork: ForkId, offset: Offset, map: Map) -> Arc<Map> {
        if let Some(known) = self.at(fork, offset) {
            return known;
        }
        if self.places.len() >= self.sweep_at {
            self.places.retain(|_, map| map.strong_count() > 0);
            self.sweep_at = (self.places.len() * 2).max(SWEPT_MIN);
        }
        let map = Arc::new(map);
        self.places.insert((fork, offset), Arc::downgrade(&map));
        map
    }
}

impl State {
    /// The state when the fork's log ended at `offset`, commits on their way included. The ticket says when
    /// all of it is durable: see [`State::when`]. Complexity: constant for the current state, and if a fork
    /// of that offset exists; otherwise a replay up to there and a look at every key.
    ///
    /// # Errors
    /// [`Error::NoState`] when no commit ended there; [`Error::NoFork`]; [`Error::Root`] when the entries are
    /// trimmed and the image in their place is damaged; what the log says.
    pub fn at(&self, fork: ForkId, offset: Offset) -> Result<(Map, Position), Error> {
        let no_state = Error::NoState { fork, offset };
        let found = self.find(fork)?;
        // Checked first: the end of the log may not be visible yet.
        let Some(ticket) = found.ticket_of(offset)? else { return Err(no_state) };
        let shared = &*self.shared;
        let past = || shared.past.lock().at(fork, offset).map(|past| Map::clone(&past));
        if let Some(map) = found.recent(offset).or_else(past) {
            return Ok((map, ticket));
        }
        let now = found.pending()?;
        let past = shared.past.lock().near(fork, offset, now.offset);
        let near = Near { map: past.map_or(now.map, |past| Map::clone(&past)), rooted: found.rooted() };
        let look = || shared.images.lock().under_or_damaged(&found.log, offset);
        loop {
            let images = look();
            let moment = replay::until(&shared.store, &found.log, &images, &near, offset);
            match moment.map(|moment| moment.filter(|moment| moment.offset == offset)) {
                Ok(Some(moment)) => return Ok((moment.map, ticket)),
                // The log of a fork that was dropped meanwhile reads as empty.
                _ if found.log.staged().is_none() => return Err(Error::NoFork(fork)),
                // An image was removed before it was read, and is missing or empty; or entries were trimmed
                // that another image replaces. Other images are added before anything is removed, so the next
                // try begins with those.
                _ if !image::are_same(&look(), &images) => {}
                Ok(None) | Err(Error::Read(ReadError::Purged { .. })) => return Err(no_state),
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_known_while_somebody_has_it() {
        let mut past = Past::default();
        let map = |n: u64| Map::of(vec![(n.to_string().into(), b""[..].into())]);
        let held: Vec<_> = (0..SWEPT_MIN as u64).map(|n| past.note(1, n, map(n))).collect();
        assert!(Arc::ptr_eq(&past.note(1, 3, map(99)), &held[3]));
        assert!(past.at(2, 3).is_none() && past.at(1, 1_000).is_none());
        assert_eq!(past.near(1, 1_000, 5_000).as_deref(), Some(&map(SWEPT_MIN as u64 - 1)));
        assert!(past.near(1, 1_000, 1_001).is_none(), "where it ends is nearer");
        drop(held);
        assert!(past.at(1, 3).is_none() && past.near(1, 3, 5_000).is_none());
        let _one = past.note(1, 5_000, map(0));
        assert_eq!(past.places.len(), 1);
    }
}
