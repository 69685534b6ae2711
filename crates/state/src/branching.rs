//! Makes and drops forks. A dropped fork is forgotten once its drop is durable.
//!
//! Forks are made and dropped with `images` locked, so no image is removed that a new fork would be rebuilt
//! from, and none is added for a dropped fork.
//!
//! *Checked by* `tests/`, and by the crash simulation.

use crate::error::Error;
use crate::fork::{Fork, Moment, Place};
use crate::images::Images;
#[cfg(test)]
use crate::images::STEPS;
use crate::map::Map;
use crate::state::{ForkId, Shared, State, config};
use std::ops::Range;
use std::sync::Arc;
use thalweg_log::{Commit, CommitError, Offset, Position, Receipt, Time};

impl State {
    /// Makes a fork of the current state of `of`, commits on their way included. The receipt says when the
    /// fork is durable. Complexity: one log entry, however large the state.
    ///
    /// # Errors
    /// [`Error::NoFork`], [`Error::TooManyForks`], and what the log says.
    pub fn fork(&self, of: ForkId, time: Time) -> Result<(ForkId, Receipt), Error> {
        let parent = self.find(of)?;
        self.branch(&parent, Fork::pending, None, time)
    }

    /// Makes a fork of the state of `of` when its log ended at `offset`. Complexity: that of [`State::at`].
    /// The fork shares memory with `of`, and with forks of nearby offsets.
    ///
    /// # Errors
    /// As [`State::at`] and [`State::fork`].
    pub fn fork_at(&self, of: ForkId, offset: Offset, time: Time) -> Result<(ForkId, Receipt), Error> {
        let parent = self.find(of)?;
        let (map, _) = self.at(of, offset)?;
        let past = self.shared.past.lock().note(of, offset, map);
        let moment = Moment { map: Map::clone(&past), offset };
        self.branch(&parent, |_| Ok(moment), Some(past), time)
    }

    fn branch(
        &self,
        parent: &Fork,
        moment: impl FnOnce(&Fork) -> Result<Moment, Error>,
        past: Option<Arc<Map>>,
        time: Time,
    ) -> Result<(ForkId, Receipt), Error> {
        let shared = &*self.shared;
        // Locked until the fork is in the map: no image that it would be rebuilt from is removed meanwhile.
        let mut images = shared.images.lock();
        let limit = shared.options.logs_max;
        if shared.store.logs_count() >= limit {
            return Err(Error::TooManyForks { limit });
        }
        let moment = moment(parent)?;
        let fork = thalweg_log::Fork { parent: parent.log.clone(), at: moment.offset, asked: [0; 2] };
        let (at, watcher) = (moment.offset, shared.durable.watcher);
        loop {
            let number = {
                let mut next = shared.next.lock();
                let following = next.wrapping_add(1);
                std::mem::replace(&mut *next, following)
            };
            let name = format!("{}/forks/{number}", shared.name);
            let commit = Commit { time, ..Commit::default() };
            match shared.store.create(name.as_bytes(), &config(), Some(&fork), &commit, watcher) {
                Err(CommitError::Exists) => {}
                Err(CommitError::Purged { at, .. }) => {
                    return Err(Error::NoState { fork: parent.log.id(), offset: at });
                }
                Err(CommitError::ParentDeleted) => return Err(Error::NoFork(parent.log.id())),
                Err(error) => return Err(error.into()),
                Ok((log, receipt)) => {
                    shared.options.log_observer.tell(&log);
                    let id = log.id();
                    images.use_as_parent(parent.log.id(), at, &log, shared.options.history);
                    shared.branches.lock().insert((parent.log.id(), at, id));
                    let fork = Fork::new(log, receipt.ticket, moment, parent.rooted());
                    let fork = Arc::new(fork.of_past(past));
                    fork.begins_at(self.begin_of(&images, &fork));
                    let show = || drop(shared.forks.write().insert(id, fork.clone()));
                    match receipt.ticket {
                        0 => show(),
                        ticket => shared.durable.note(ticket, fork.clone(), show),
                    }
                    // Not before: a thread that looks at the set finds the fork.
                    self.note_due(&fork, at);
                    return Ok((id, Receipt { first: at, next: at, ..receipt }));
                }
            }
        }
    }

    /// Drops a fork. Others keep what they share with it. From now on it accepts no writes, and has no
    /// pending view; its committed view stays until the drop is durable, which the receipt's ticket says.
    ///
    /// # Errors
    /// [`Error::MainLine`], [`Error::NoFork`], and what the log says.
    pub fn drop_fork(&self, fork: ForkId, time: Time) -> Result<Receipt, Error> {
        let Shared { store, durable, options, main, unreadable, .. } = &*self.shared;
        if fork == *main {
            return Err(Error::MainLine);
        }
        let unreadable = unreadable.read().get(&fork).map(|(log, _)| log.clone());
        let found = match unreadable {
            Some(log) => Err(log),
            None => Ok(self.find(fork)?),
        };
        // Locked until the fork is dropped: no image is added for it meanwhile that would never be removed.
        let mut images = self.shared.images.lock();
        let log = found.as_ref().map_or_else(|log| log, |fork| &fork.log);
        let branch = log.fork();
        let receipt = match &found {
            Ok(found) => found.leave(&Place { store, durable, kind: &options.kind }, time)?,
            Err(log) => {
                let version = log.staged().ok_or(Error::NoFork(fork))?.version;
                store.delete(log, version, time, durable.watcher)?
            }
        };
        // Its images are removed after the drop in the store's order. The drop is done even if that fails:
        // then they are removed with the next image, or start.
        images.leave(fork);
        let _ = images.clear(store, time, durable.watcher);
        if let Some(branch) = branch {
            self.shared.branches.lock().remove(&(branch.parent.id(), branch.at, fork));
        }
        // Most forks have no forks of their own.
        if log.is_tombstone() {
            self.pass_over(&images, fork, 0..Offset::MAX);
        }
        drop((images, found));
        // The last owner of the fork frees all its keys, so none is left here.
        self.forget(fork, receipt.ticket);
        Ok(receipt)
    }

    /// The forks of a fork that branched off at these offsets are replayed from an image from now on, and no
    /// longer from where they branched off: no replay of their parent comes there, because it begins behind
    /// it, or because the parent is dropped. Complexity: a look at each of them.
    pub(crate) fn pass_over(&self, images: &Images, parent: ForkId, offsets: Range<Offset>) {
        let branches = self.shared.branches.lock();
        let children = branches.range((parent, offsets.start, 0)..(parent, offsets.end, 0));
        let children: Vec<_> = children.copied().collect();
        drop(branches);
        for (_, at, child) in children {
            #[cfg(test)]
            STEPS.set(STEPS.get() + 1);
            if let Ok(child) = self.find(child) {
                child.is_passed_over(at, images.offset_used_by(child.log.id()).unwrap_or(0));
                if let Ok(pending) = child.pending() {
                    self.note_due(&child, pending.offset);
                }
            }
        }
    }

    /// Forgets a fork that was dropped, once the drop is durable. Until then the fork itself says that it is
    /// gone.
    fn forget(&self, fork: ForkId, ticket: Position) {
        let shared = Arc::downgrade(&self.shared);
        self.when(ticket, move |told| {
            // If the store failed, it is unknown whether the drop lasts.
            if let (Ok(()), Some(shared)) = (told, shared.upgrade()) {
                let gone = shared.forks.write().remove(&fork);
                let unreadable = shared.unreadable.write().remove(&fork);
                drop(unreadable);
                // This thread announces what is durable, or is a reactor: it must not be busy for long.
                if gone.as_ref().is_some_and(|gone| gone.is_large()) {
                    shared.background_drop.add(gone);
                }
            }
        });
    }
}
