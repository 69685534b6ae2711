//! Writes images while commits go on, and removes what they replace.

use crate::error::Error;
use crate::fork::{Fork, View};
use crate::image::Image;
use crate::images::Images;
use crate::state::{ForkId, History, Shared, State, image_prefix};
use std::sync::Arc;
use thalweg_log::{Commit, Offset, Time};

impl State {
    /// Writes images of the forks that would take long to replay, and removes those that are no longer
    /// needed. Call it now and then, on a thread that may be busy for long. Returns how many forks were due.
    /// Complexity: for each of them, all its entries, and a look at each fork that branched off it since its
    /// last image.
    ///
    /// # Errors
    /// What the log says of the first fork whose image cannot be written. Those of the others are written all
    /// the same, and nothing is lost.
    pub fn maintain(&self, time: Time) -> Result<usize, Error> {
        // Another thread does it.
        let Some(_alone) = self.shared.imaging.try_lock() else { return Ok(0) };
        let due = self.due();
        let mut outcome = Ok(due.len());
        // A fork before what it branched off from: it may need what that trims.
        for fork in due.iter().rev() {
            match self.write_image(fork, time) {
                // It was dropped meanwhile.
                Ok(_) | Err(Error::NoFork(_)) => {}
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// Whether a fork is due for an image ([`State::maintain`]). Complexity: a look at each that is.
    pub fn is_due(&self) -> bool {
        !self.due().is_empty()
    }

    /// Writes an image of a fork's committed state. Returns where its log ends there.
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
        // A dropped fork has no image written.
        fork.pending()?;
        let (moment, prefix) = (fork.moment(View::Committed)?, image_prefix(&shared.name));
        let (offset, watcher) = (moment.offset, shared.durable.watcher);
        let there = {
            let mut images = shared.images.lock();
            // A spent image takes room, and may have the name of the new one.
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
                    // Frees the space that it took.
                    let mut images = shared.images.lock();
                    half.into_iter().for_each(|half| images.spend(&shared.store, half, time, watcher));
                    return Err(error.into());
                }
            }
        }
        fork.begins_at(Some(offset));
        // All of this follows the image in the store's order, so a crash that keeps any of it keeps the
        // image. With the lock, no fork is made meanwhile that would need what is removed.
        let mut images = shared.images.lock();
        let trimmed = self.trim(fork, offset, time);
        let before = images.offset_used_by(fork.log.id()).unwrap_or(0);
        if !fork.is_dropped() {
            images.use_best(&fork.log, shared.options.history);
        }
        // Forks that branched off before are not replayed from there any more. Those that branched off before
        // the last image never are.
        self.pass_over(&images, fork.log.id(), before.min(offset)..offset);
        // Not before: if the new one could not be written, it is all there is.
        images.replace_damaged(fork.log.id(), offset);
        // If the fork was dropped meanwhile, this image is removed, too.
        written.iter().for_each(|image| images.settle(image));
        images.settle_once();
        images.clear(&shared.store, time, watcher)?;
        trimmed.map(|()| offset)
    }

    /// Trims the entries that an image replaces, unless history is kept.
    fn trim(&self, fork: &Fork, offset: Offset, time: Time) -> Result<(), Error> {
        let Shared { store, durable, options, .. } = &*self.shared;
        if options.history == History::Trimmed && fork.log.staged().is_some_and(|s| s.first < offset) {
            let trim = Commit { trim: Some(offset), time, ..Commit::default() };
            fork.in_turn(|version| store.commit(&fork.log, version, &trim, durable.watcher))?;
        }
        Ok(())
    }

    /// Chooses the images that each fork uses, forks included that cannot be read.
    pub(crate) fn count_uses(&self, images: &mut Images) {
        images.use_all(&self.logs(), self.shared.options.history);
    }

    /// Where the replay of a fork would begin: at the newest image of its lineage, or where it branched off,
    /// if its parent is replayed up to there. `None` if it has trimmed entries and no image in their place.
    pub(crate) fn begin_of(&self, images: &Images, fork: &Fork) -> Option<Offset> {
        if images.lacks(&fork.log) {
            return None;
        }
        let imaged = images.offset_used_by(fork.log.id()).unwrap_or(0);
        let Some(branch) = fork.log.fork() else { return Some(imaged) };
        // What lies before where the parent branched off itself is its own parent's.
        let begins = branch.parent.fork().map_or(0, |of_parent| of_parent.at);
        let newest = images.offset_used_by(branch.parent.id()).unwrap_or(0);
        let is_replayed = self.find(branch.parent.id()).is_ok() && !images.lacks(&branch.parent);
        let is_passed = is_replayed && branch.at >= begins.max(newest);
        Some(if is_passed { imaged.max(branch.at) } else { imaged })
    }
}
