//! Which images there are, which of them a fork is rebuilt from, and which are not needed any more.
//!
//! A fork is rebuilt from its newest image, or from one of a fork that it came from, as long as that is no
//! newer than where it branched off. That choice is made in one place, here: opening a state makes it, and
//! how many forks it falls on is counted for each image. One that the last of them lets go of is removed.
//!
//! *Counts may be late, and never too low*: what a fork is counted for is what it could be rebuilt from when
//! it was made, had its last image or was opened. An image that its parent had since, behind which it
//! branched off all the same, changes nothing of that.

use crate::image::Image;
use crate::state::{ForkId, History};
use std::collections::{BTreeMap, HashMap};
use std::iter::successors;
use std::sync::Arc;
use thalweg_log::{CommitError, Log, LogId, Offset, Store, Time, WatcherId};

/// Names an image: its fork, and where.
type ImageId = (ForkId, Offset);

/// The image that a fork would be rebuilt from, and, where every state there ever was is kept, the one that
/// stands for what is gone of its log, which all later ones are reached from.
type Used = [Option<ImageId>; 2];

/// The images of a state, those that are whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Images {
    /// By fork, the oldest first, so that what a fork has use for is found without a look at those of others.
    images: BTreeMap<ForkId, Vec<Image>>,
    /// What forks have use for, those that have for any.
    uses: HashMap<ForkId, Used>,
    /// How often each image is among that.
    users: HashMap<ImageId, usize>,
    /// Those that no fork had use for when the state was opened are spent.
    is_settled: bool,
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

    /// The images that a log's entries up to `until` can be rebuilt from, the best first. Complexity: a look
    /// for each log that it comes from, as far as it is asked for.
    pub(crate) fn under(&self, log: &Arc<Log>, until: Offset) -> impl Iterator<Item = &Image> {
        lineage(log, until).flat_map(move |(log, until)| self.of(log.id(), until).iter().rev())
    }

    /// Those of them at `from` or behind it. Complexity: a look for each log that the entries behind `from`
    /// are inherited from.
    pub(crate) fn between(
        &self,
        log: &Arc<Log>,
        from: Offset,
        until: Offset,
    ) -> impl Iterator<Item = &Image> {
        let line = lineage(log, until).take_while(move |(_, until)| *until >= from);
        line.flat_map(move |(log, until)| self.of(log.id(), until).iter().rev())
            .take_while(move |image| image.offset >= from)
    }

    fn used(&self, log: &Arc<Log>, history: History) -> Used {
        let newest = self.under(log, Offset::MAX).next();
        let first = log.staged().map_or(0, |state| state.first);
        let is_kept = first > 0 && history == History::Kept;
        let kept = || self.under(log, Offset::MAX).take_while(|image| image.offset >= first).last();
        let base = if is_kept { kept() } else { None };
        let base = base.map(Image::id).filter(|base| newest.map(Image::id) != Some(*base));
        [newest.map(Image::id), base]
    }

    /// Counts what a fork has use for, and no longer what it had before. Complexity: a look for each log that
    /// it comes from, up to the first that has an image.
    pub(crate) fn lean(&mut self, log: &Arc<Log>, history: History) {
        let used = self.used(log, history);
        used.iter().flatten().for_each(|image| *self.users.entry(*image).or_default() += 1);
        self.leave(log.id());
        if used[0].is_some() {
            self.uses.insert(log.id(), used);
        }
    }

    /// Counts what forks have use for that are opened together. Complexity: constant for a fork without
    /// images whose parent is among them, so a long chain of forks takes no longer than as many forks of one
    /// parent.
    pub(crate) fn lean_all(&mut self, mut logs: Vec<Arc<Log>>, history: History) {
        // A parent is older than its forks, and ids only grow.
        logs.sort_by_key(|log| log.id());
        let mut firsts = HashMap::new();
        for log in &logs {
            let first = log.staged().map_or(0, |state| state.first);
            // What its parent let go of since, it may still have.
            let is_as_parent =
                |parent| !self.images.contains_key(&log.id()) && firsts.get(&parent) == Some(&first);
            match log.fork().filter(|branch| is_as_parent(branch.parent.id())) {
                Some(branch) => self.lean_as(branch.parent.id(), branch.at, log, history),
                None => self.lean(log, history),
            }
            firsts.insert(log.id(), first);
        }
    }

    /// Where the image is that a fork is counted for. Complexity: constant.
    pub(crate) fn leaned_on(&self, fork: ForkId) -> Option<Offset> {
        self.uses.get(&fork)?[0].map(|(_, offset)| offset)
    }

    /// The same of a new fork, which branched off there. Complexity: constant where that is behind what its
    /// parent leans on.
    pub(crate) fn lean_as(&mut self, parent: ForkId, at: Offset, log: &Arc<Log>, history: History) {
        match self.uses.get(&parent).copied() {
            None => {}
            Some(used) if used.iter().flatten().all(|(_, offset)| *offset <= at) => {
                used.iter().flatten().for_each(|image| *self.users.entry(*image).or_default() += 1);
                self.uses.insert(log.id(), used);
            }
            Some(_) => self.lean(log, history),
        }
    }

    /// A fork has use for none any more. Those that it was the last to have use for are spent.
    pub(crate) fn leave(&mut self, fork: ForkId) {
        for image in self.uses.remove(&fork).into_iter().flatten().flatten() {
            let users = self.users.get_mut(&image);
            if users.is_some_and(|users| {
                *users -= 1;
                *users == 0
            }) {
                self.users.remove(&image);
                self.let_go(image);
            }
        }
    }

    /// This one is spent, unless a fork has use for it.
    pub(crate) fn settle(&mut self, image: &Image) {
        if !self.users.contains_key(&image.id()) {
            self.let_go(image.id());
        }
    }

    /// All are spent that no fork has use for, but once: from then on each is when the last lets go of it.
    pub(crate) fn settle_once(&mut self) {
        if !std::mem::replace(&mut self.is_settled, true) {
            let all: Vec<_> = self.images.values().flatten().cloned().collect();
            all.iter().for_each(|image| self.settle(image));
        }
    }

    fn let_go(&mut self, (fork, offset): ImageId) {
        let Some(of_fork) = self.images.get_mut(&fork) else { return };
        let gone = of_fork.extract_if(.., |image| image.offset == offset);
        self.spent.extend(gone.map(|image| image.log));
        if of_fork.is_empty() {
            self.images.remove(&fork);
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Logs that this thread went up to.
    pub(crate) static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A log and those that it comes from, each with where what is inherited of it ends.
pub(crate) fn lineage(log: &Arc<Log>, until: Offset) -> impl Iterator<Item = (Arc<Log>, Offset)> + use<> {
    successors(Some((log.clone(), until)), |(log, until)| {
        #[cfg(test)]
        STEPS.set(STEPS.get() + 1);
        log.fork().map(|branch| (branch.parent, branch.at.min(*until)))
    })
}

fn remove(store: &Store, log: &Arc<Log>, time: Time, watcher: Option<WatcherId>) -> Result<(), CommitError> {
    match log.staged() {
        Some(state) => store.delete(log, state.version, time, watcher).map(drop),
        None => Ok(()),
    }
}
