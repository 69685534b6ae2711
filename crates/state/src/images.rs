//! Which images there are, which a fork is rebuilt from, and which nobody needs.
//!
//! A fork is rebuilt from its newest image, or from one of a fork that it came from, as long as that is no newer than where it
//! branched off. That choice is made in one place, here: opening a state makes it, and whoever removes images asks which
//! ones it would fall on.

use crate::error::Error;
use crate::image::Image;
use crate::state::{ForkId, History};
use std::collections::BTreeMap;
use std::iter::successors;
use std::sync::Arc;
use thalweg_log::{CommitError, Log, LogId, Offset, Store, Time, WatcherId};

/// The images of a state, those that are whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Images {
    /// By fork, the oldest first, so that what a fork has use for is found without a look at those of others.
    images: BTreeMap<ForkId, Vec<Image>>,
    /// Logs that are images no more, or never were whole, and could not be removed yet.
    spent: Vec<Arc<Log>>,
}

impl Images {
    /// Those in a store. What a crash left of others is removed, now or later.
    pub(crate) fn find(store: &Store, prefix: &str, time: Time) -> Self {
        let mut found = Vec::new();
        store.visit(|log| found.extend(Image::of(log, prefix).filter(|image| image.log.staged().is_some())));
        let (images, cut_off): (Vec<_>, Vec<_>) = found.into_iter().partition(Image::is_whole);
        let mut found =
            Self { spent: cut_off.into_iter().map(|image| image.log).collect(), ..Self::default() };
        images.into_iter().for_each(|image| found.add(image));
        // On a disk that is full that may have to wait, and nothing else does.
        let _ = found.clear(store, time, None);
        found
    }

    /// One of which only a part was written.
    pub(crate) fn spend(&mut self, store: &Store, half: Arc<Log>, time: Time, watcher: Option<WatcherId>) {
        self.spent.push(half);
        let _ = self.clear(store, time, watcher);
    }

    /// These are not what they were: another is to be written in the place of each.
    pub(crate) fn forget(&mut self, store: &Store, spoiled: &[LogId], time: Time) {
        for of_fork in self.images.values_mut() {
            let gone = of_fork.extract_if(.., |image| spoiled.contains(&image.log.id()));
            self.spent.extend(gone.map(|image| image.log));
        }
        let _ = self.clear(store, time, None);
    }

    /// Removes what is spent, as far as that can be now.
    pub(crate) fn clear(
        &mut self,
        store: &Store,
        time: Time,
        watcher: Option<WatcherId>,
    ) -> Result<(), CommitError> {
        let mut refused = None;
        self.spent.retain(|log| {
            let removed = remove(store, log, time, watcher);
            let stays = removed.is_err();
            refused = refused.take().or(removed.err());
            stays
        });
        refused.map_or(Ok(()), Err)
    }

    /// Whether there is one of that fork at that offset.
    pub(crate) fn has(&self, fork: ForkId, offset: Offset) -> bool {
        self.of(fork, offset).last().is_some_and(|image| image.offset == offset)
    }

    pub(crate) fn add(&mut self, image: Image) {
        let of_fork = self.images.entry(image.fork).or_default();
        let place = of_fork.partition_point(|other| other.offset <= image.offset);
        of_fork.insert(place, image);
    }

    /// Those of a fork up to an offset.
    fn of(&self, fork: ForkId, until: Offset) -> &[Image] {
        let of_fork = self.images.get(&fork).map_or(&[][..], Vec::as_slice);
        &of_fork[..of_fork.partition_point(|image| image.offset <= until)]
    }

    /// The images that a log's entries up to `until` can be rebuilt from, the best first. Complexity: a look for each log that it
    /// comes from, as far as it is asked for.
    pub(crate) fn under(&self, log: &Arc<Log>, until: Offset) -> impl Iterator<Item = &Image> {
        lineage(log, until).flat_map(move |(log, until)| self.of(log.id(), until).iter().rev())
    }

    /// Those of them at `from` or behind it. Complexity: a look for each log that the entries behind `from` are inherited from.
    pub(crate) fn between(&self, log: &Arc<Log>, from: Offset, until: Offset) -> impl Iterator<Item = &Image> {
        let line = lineage(log, until).take_while(move |(_, until)| *until >= from);
        line.flat_map(move |(log, until)| self.of(log.id(), until).iter().rev())
            .take_while(move |image| image.offset >= from)
    }

    /// The images that a log has use for: the one that it would be rebuilt from, and, where every state there ever was is kept,
    /// the one that stands for what is gone of the log, which all later ones are reached from.
    pub(crate) fn used(&self, log: &Arc<Log>, history: History) -> Vec<LogId> {
        let newest = self.under(log, Offset::MAX).next();
        let first = log.staged().map_or(0, |state| state.first);
        let is_kept = first > 0 && history == History::Kept;
        let base = is_kept.then(|| self.under(log, Offset::MAX).filter(|image| image.offset >= first).last());
        newest.into_iter().chain(base.flatten()).map(|image| image.log.id()).collect()
    }

    /// Removes those that are not used. One that cannot be removed now stays, to be tried again the next time.
    ///
    /// # Errors
    /// What the log says of the first that cannot be.
    pub(crate) fn retain(
        &mut self,
        store: &Store,
        is_used: impl Fn(LogId) -> bool,
        time: Time,
        watcher: Option<WatcherId>,
    ) -> Result<(), Error> {
        let mut refused = self.clear(store, time, watcher).err();
        self.images.retain(|_, of_fork| {
            of_fork.retain(|image| {
                if is_used(image.log.id()) {
                    return true;
                }
                let removed = remove(store, &image.log, time, watcher);
                let stays = removed.is_err();
                refused = refused.take().or(removed.err());
                stays
            });
            !of_fork.is_empty()
        });
        refused.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// A log and those that it comes from, each with where what is inherited of it ends.
pub(crate) fn lineage(log: &Arc<Log>, until: Offset) -> impl Iterator<Item = (Arc<Log>, Offset)> + use<> {
    successors(Some((log.clone(), until)), |(log, until)| {
        log.fork().map(|branch| (branch.parent, branch.at.min(*until)))
    })
}

fn remove(store: &Store, log: &Arc<Log>, time: Time, watcher: Option<WatcherId>) -> Result<(), CommitError> {
    match log.staged() {
        Some(state) => store.delete(log, state.version, time, watcher).map(drop),
        None => Ok(()),
    }
}
