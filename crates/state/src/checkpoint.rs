//! Images written while commits go on, and what they make superfluous.

use crate::error::Error;
use crate::fork::{Fork, View};
use crate::image::Image;
use crate::images::Images;
use crate::state::{ForkId, History, Shared, State, image_prefix};
use std::sync::Arc;
use thalweg_log::{Commit, Offset, Time};

impl State {
    /// Writes images of the forks that would take long to replay, and removes those that are needed no more.
    /// To be called now and then, on a thread that may take long. Returns of how many forks it wrote images.
    /// Complexity: a walk over all that such a fork holds.
    ///
    /// # Errors
    /// What the log says of the first fork whose image cannot be written; those of the others are, and
    /// nothing is lost by it.
    pub fn maintain(&self, time: Time) -> Result<usize, Error> {
        // Somebody else is at it.
        let Some(_alone) = self.shared.imaging.try_lock() else { return Ok(0) };
        let limit = self.shared.options.image_bytes;
        let due: Vec<_> = self.all().values().filter(|fork| fork.behind() >= limit).cloned().collect();
        let mut outcome = Ok(due.len());
        for fork in &due {
            match self.write_image(fork, time) {
                // It was dropped meanwhile.
                Ok(_) | Err(Error::NoFork(_)) => {}
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// Whether [`State::maintain`] would have something to do.
    pub fn is_due(&self) -> bool {
        let limit = self.shared.options.image_bytes;
        self.all().values().any(|fork| fork.behind() >= limit)
    }

    /// Writes an image of what is committed of a fork now; where that ends.
    ///
    /// # Errors
    /// [`Error::NoFork`], and what the log says.
    pub fn checkpoint(&self, fork: ForkId, time: Time) -> Result<Offset, Error> {
        let _alone = self.shared.imaging.lock();
        self.write_image(&self.find(fork)?, time)
    }

    /// The caller holds `imaging`: images are written one at a time.
    fn write_image(&self, fork: &Arc<Fork>, time: Time) -> Result<Offset, Error> {
        let shared = &*self.shared;
        // Nothing is made of one that was dropped.
        fork.pending()?;
        let (moment, prefix) = (fork.moment(View::Committed)?, image_prefix(&shared.name));
        let (offset, watcher) = (moment.offset, shared.durable.watcher);
        let there = {
            let mut images = shared.images.lock();
            // What is spent may stand where the new one is to be.
            let _ = images.clear(&shared.store, time, watcher);
            images.has(fork.log.id(), offset)
        };
        let mut written = None;
        if !there {
            match Image::write(&shared.store, &prefix, fork, &moment, time, watcher) {
                Ok(image) => {
                    shared.options.log_observer.tell(&image.log);
                    written = Some(image.clone());
                    shared.images.lock().add(image);
                }
                Err((error, half)) => {
                    // The room that it took is others' again.
                    let mut images = shared.images.lock();
                    half.into_iter().for_each(|half| images.spend(&shared.store, half, time, watcher));
                    return Err(error.into());
                }
            }
        }
        fork.has_image(offset);
        // All of this comes behind the image in the store's one order: a crash that keeps it keeps the image.
        // No fork is made meanwhile that would need what goes.
        let mut images = shared.images.lock();
        let trimmed = self.trim(fork, offset, time);
        if !fork.is_dropped() {
            images.lean(&fork.log, shared.options.history);
        }
        // Of a fork that was dropped meanwhile this one goes, too.
        written.iter().for_each(|image| images.settle(image));
        images.settle_once();
        images.clear(&shared.store, time, watcher)?;
        trimmed.map(|()| offset)
    }

    /// Lets go of the entries that an image stands for, where they are not kept.
    fn trim(&self, fork: &Fork, offset: Offset, time: Time) -> Result<(), Error> {
        let Shared { store, durable, options, .. } = &*self.shared;
        if options.history == History::Trimmed && fork.log.staged().is_some_and(|s| s.first < offset) {
            let trim = Commit { trim: Some(offset), time, ..Commit::default() };
            fork.in_turn(|version| store.commit(&fork.log, version, &trim, durable.watcher))?;
        }
        Ok(())
    }

    /// Counts what forks have use for, those that cannot be read included.
    pub(crate) fn count_uses(&self, images: &mut Images) {
        images.lean_all(self.logs(), self.shared.options.history);
    }
}
