//! The images of a state: from which of them a fork is rebuilt, and which are no longer needed.
//!
//! A fork is rebuilt from its newest image, or from an image of an ancestor that is no newer than where the
//! fork branched off. This module alone chooses it, and counts for each image the forks that use it. An image
//! is removed when its last user stops using it.
//!
//! *Damaged images* are set aside. A fork that has trimmed entries, and no image of its lineage that could be
//! read in their place, uses the damaged ones: they may be mended by other means, and stay until there is a
//! new one. Others are removed at once.
//!
//! *A count may be out of date, and is never too low*: a fork uses the image that was chosen when the fork
//! was made, had its last image written, or was opened. An image that its parent had written since is not
//! chosen, even if the fork branched off after it.

use crate::image::Image;
use crate::lineages::with_ancestors;
use crate::state::{ForkId, History};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::iter::successors;
use std::sync::Arc;
use thalweg_log::{CommitError, Log, LogId, Offset, Store, Time, WatcherId};

/// Names an image: its fork, and where.
type ImageId = (ForkId, Offset);

/// The images that a fork uses: the one it would be rebuilt from, and, if history is kept, the one that
/// replaces the trimmed part of its log, from which past states are rebuilt.
type Used = [Option<ImageId>; 2];

/// The complete images of a state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Images {
    /// By fork, the oldest first, so that those of a fork are found without a look at those of others.
    images: BTreeMap<ForkId, Vec<Image>>,
    /// The images that each fork uses, of forks that use any.
    uses: HashMap<ForkId, Used>,
    /// How many forks use each image.
    users: HashMap<ImageId, usize>,
    /// The images that no fork used when the state was opened are marked for removal.
    is_settled: bool,
    /// Those that could not be read, and that forks use all the same. They are not among the others.
    damaged: Vec<Image>,
    /// Logs of images that are unneeded, damaged or incomplete, and were not removed yet.
    spent: Vec<Arc<Log>>,
}

impl Images {
    /// Finds the images in a store. Incomplete ones, which a crash left, are removed, now or later.
    pub(crate) fn find(store: &Store, prefix: &str, time: Time) -> Self {
        let mut found = Vec::new();
        store.visit(|log| found.extend(Image::of(log, prefix).filter(|image| image.log.staged().is_some())));
        let (images, cut_off): (Vec<_>, Vec<_>) = found.into_iter().partition(Image::is_whole);
        let mut found =
            Self { spent: cut_off.into_iter().map(|image| image.log).collect(), ..Self::default() };
        images.into_iter().for_each(|image| found.add(image));
        // On a full disk the removal may fail. Then it is tried again later.
        let _ = found.clear(store, time, None);
        found
    }

    /// Removes an incomplete image, now or later.
    pub(crate) fn spend(&mut self, store: &Store, half: Arc<Log>, time: Time, watcher: Option<WatcherId>) {
        self.spent.push(half);
        let _ = self.clear(store, time, watcher);
    }

    /// Sets damaged images aside. [`Images::use_all`] says which of them stay.
    pub(crate) fn set_aside(&mut self, damaged: &[LogId]) {
        for of_fork in self.images.values_mut() {
            self.damaged.extend(of_fork.extract_if(.., |image| damaged.contains(&image.log.id())));
        }
        self.images.retain(|_, of_fork| !of_fork.is_empty());
    }

    /// Removes a damaged image in whose place another was written, now or later.
    pub(crate) fn replace_damaged(&mut self, fork: ForkId, offset: Offset) {
        let gone = self.damaged.extract_if(.., |image| image.id() == (fork, offset));
        self.spent.extend(gone.map(|image| image.log));
    }

    /// Removes the spent images, as far as the store allows it now.
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

    /// Whether there is an image of that fork at that offset.
    pub(crate) fn has(&self, fork: ForkId, offset: Offset) -> bool {
        self.of(fork, offset).last().is_some_and(|image| image.offset == offset)
    }

    pub(crate) fn add(&mut self, image: Image) {
        let of_fork = self.images.entry(image.fork).or_default();
        let place = of_fork.partition_point(|other| other.offset <= image.offset);
        of_fork.insert(place, image);
    }

    /// The images of a fork up to an offset.
    fn of(&self, fork: ForkId, until: Offset) -> &[Image] {
        let of_fork = self.images.get(&fork).map_or(&[][..], Vec::as_slice);
        &of_fork[..of_fork.partition_point(|image| image.offset <= until)]
    }

    /// The images from which a log can be rebuilt up to `until`, the newest first. Complexity: a look at each
    /// ancestor that the caller's iteration reaches.
    pub(crate) fn under(&self, log: &Arc<Log>, until: Offset) -> impl Iterator<Item = &Image> {
        lineage(log, until).flat_map(move |(log, until)| self.of(log.id(), until).iter().rev())
    }

    /// All of them, fork by fork, the oldest of each first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Image> {
        self.images.values().flatten()
    }

    /// The oldest image from which a log can be rebuilt and that is no older than `first`. Complexity: a look
    /// at each ancestor from which entries after `first` are inherited.
    fn oldest(&self, log: &Arc<Log>, first: Offset) -> Option<&Image> {
        let line = lineage(log, Offset::MAX).take_while(|(_, until)| *until >= first);
        let images = line.flat_map(|(log, until)| self.of(log.id(), until).iter().rev());
        images.take_while(|image| image.offset >= first).last()
    }

    /// The images that a log uses which begins at `first`.
    fn used(&self, log: &Arc<Log>, first: Offset, history: History) -> Used {
        let newest = self.under(log, Offset::MAX).next();
        let is_kept = first > 0 && history == History::Kept;
        let base = if is_kept { self.oldest(log, first) } else { None };
        let base = base.map(Image::id).filter(|base| newest.map(Image::id) != Some(*base));
        [newest.map(Image::id), base]
    }

    /// The damaged images that replaced entries of a log which begins at `first`, up to `until`. Complexity:
    /// a look at each of its ancestors and each damaged image.
    fn damaged_of(
        &self,
        log: &Arc<Log>,
        first: Offset,
        until: Offset,
    ) -> impl Iterator<Item = &Image> + Clone {
        let line: HashMap<LogId, Offset> = match self.damaged.is_empty() {
            true => HashMap::new(),
            false => lineage(log, until).map(|(log, until)| (log.id(), until)).collect(),
        };
        self.damaged.iter().filter(move |image| {
            image.offset >= first && line.get(&image.fork).is_some_and(|until| image.offset <= *until)
        })
    }

    /// The images from which a log might be rebuilt up to `until`: those of [`Images::under`], and behind
    /// them, for a log that has trimmed entries, the damaged ones. They may have been mended, and say what is
    /// wrong with them where nothing else can be read.
    pub(crate) fn under_or_damaged(&self, log: &Arc<Log>, until: Offset) -> Vec<Image> {
        let mut images: Vec<_> = self.under(log, until).cloned().collect();
        if let Some(first) = first_of(log).filter(|first| *first > 0) {
            images.extend(self.damaged_of(log, first, until).cloned());
        }
        images
    }

    /// The newest and the oldest damaged image that replaced entries of a log which begins at `first`.
    fn used_damaged(&self, log: &Arc<Log>, first: Offset) -> Used {
        let of_log = self.damaged_of(log, first, Offset::MAX).map(Image::id);
        let newest = of_log.clone().max_by_key(|(_, offset)| *offset);
        let oldest = of_log.min_by_key(|(_, offset)| *offset);
        [newest, oldest.filter(|oldest| Some(*oldest) != newest)]
    }

    /// Chooses the images that a fork uses, and stops using those before. Complexity: a look at each ancestor
    /// up to the first that has an image.
    pub(crate) fn use_best(&mut self, log: &Arc<Log>, history: History) {
        self.choose(log.id(), self.used(log, first_of(log).unwrap_or(0), history));
    }

    fn choose(&mut self, fork: ForkId, used: Used) {
        used.iter().flatten().for_each(|image| *self.users.entry(*image).or_default() += 1);
        self.leave(fork);
        if used[0].is_some() {
            self.uses.insert(fork, used);
        }
    }

    /// Chooses the images of forks that are opened together. Complexity: constant for a fork without images
    /// that keeps as much as its parent, so a long chain of such forks takes no longer than as many forks of
    /// one parent; for others a look at each ancestor up to the image. A dropped log is taken to keep as much
    /// as that of its forks that keeps most.
    pub(crate) fn use_all(&mut self, logs: &[Arc<Log>], history: History) {
        let all: Vec<_> = with_ancestors(logs).map(|log| (log.fork(), log)).collect();
        let mut firsts: HashMap<LogId, Offset> = HashMap::new();
        for (branch, log) in all.iter().rev() {
            let first = first_of(log).or(firsts.get(&log.id()).copied()).unwrap_or(0);
            firsts.insert(log.id(), first);
            if let Some(branch) = branch {
                let least = firsts.entry(branch.parent.id()).or_insert(first);
                *least = first.min(*least);
            }
        }
        self.keep_newest();
        let mut chosen: HashMap<LogId, Used> = HashMap::new();
        for (branch, log) in &all {
            let first = firsts[&log.id()];
            let as_parent = branch.as_ref().and_then(|branch| {
                let parent = branch.parent.id();
                let used = chosen.get(&parent).filter(|used| is_before(used, branch.at))?;
                // It may still have entries that its parent has trimmed since.
                let keeps_as_much = history == History::Trimmed || firsts.get(&parent) == Some(&first);
                (keeps_as_much && !self.images.contains_key(&log.id())).then_some(*used)
            });
            chosen.insert(log.id(), as_parent.unwrap_or_else(|| self.used(log, first, history)));
        }
        for log in logs {
            let (Some(used), Some(first)) = (chosen.get(&log.id()), first_of(log)) else { continue };
            let is_whole = self.damaged.is_empty() || replaces(used, first);
            self.choose(log.id(), if is_whole { *used } else { self.used_damaged(log, first) });
        }
        let (images, users) = (&self.images, &self.users);
        // Another of its place may be whole all the same: an older one that was mended by other means.
        let is_replaced = |image: &Image| {
            images.get(&image.fork).is_some_and(|those| those.iter().any(|one| one.offset == image.offset))
        };
        let is_gone = |image: &mut Image| !users.contains_key(&image.id()) || is_replaced(image);
        self.spent.extend(self.damaged.extract_if(.., is_gone).map(|image| image.log));
    }

    /// Of images of one fork and offset the newest stays. A crash may have left a damaged one beside what was
    /// written in its place. Only the latter was read then, so nobody knows that the other is damaged.
    fn keep_newest(&mut self) {
        for of_fork in self.images.values_mut() {
            of_fork.sort_by_key(|image| (image.offset, Reverse(image.log.id())));
            of_fork.dedup_by(|image, newest| {
                let is_replaced = image.offset == newest.offset;
                if is_replaced {
                    self.spent.push(image.log.clone());
                }
                is_replaced
            });
        }
    }

    /// Whether a fork has trimmed entries, and no image of its lineage can be read in their place.
    /// Complexity: constant.
    pub(crate) fn lacks(&self, log: &Arc<Log>) -> bool {
        let first = first_of(log).unwrap_or(0);
        let used = self.uses.get(&log.id()).copied().unwrap_or_default();
        first > 0 && !(replaces(&used, first) && used[0].is_some_and(|(fork, offset)| self.has(fork, offset)))
    }

    /// The offset of the image that a fork would be rebuilt from. Complexity: constant.
    pub(crate) fn offset_used_by(&self, fork: ForkId) -> Option<Offset> {
        self.uses.get(&fork)?[0].map(|(_, offset)| offset)
    }

    /// Has a new fork use the images of its parent, if it branched off after them. Complexity: constant in
    /// that case.
    pub(crate) fn use_as_parent(&mut self, parent: ForkId, at: Offset, log: &Arc<Log>, history: History) {
        match self.uses.get(&parent).copied() {
            None => {}
            Some(used) if is_before(&used, at) => self.choose(log.id(), used),
            Some(_) => self.use_best(log, history),
        }
    }

    /// A fork stops using images. Those of which it was the last user are spent.
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

    /// This image is spent, unless a fork uses it.
    pub(crate) fn settle(&mut self, image: &Image) {
        if !self.users.contains_key(&image.id()) {
            self.let_go(image.id());
        }
    }

    /// The first call marks all images that no fork uses as spent. After that, each is when its last user
    /// stops.
    pub(crate) fn settle_once(&mut self) {
        if !std::mem::replace(&mut self.is_settled, true) {
            let all: Vec<_> = self.all().cloned().collect();
            all.iter().for_each(|image| self.settle(image));
        }
    }

    fn let_go(&mut self, (fork, offset): ImageId) {
        self.replace_damaged(fork, offset);
        let Some(of_fork) = self.images.get_mut(&fork) else { return };
        let gone = of_fork.extract_if(.., |image| image.offset == offset);
        self.spent.extend(gone.map(|image| image.log));
        if of_fork.is_empty() {
            self.images.remove(&fork);
        }
    }
}

/// Where a log begins; `None` for a dropped one.
fn first_of(log: &Log) -> Option<Offset> {
    log.staged().map(|state| state.first)
}

/// Whether one of these images replaces what is trimmed of a log that begins at `first`.
fn replaces(used: &Used, first: Offset) -> bool {
    first == 0 || used[0].is_some_and(|(_, offset)| offset >= first)
}

/// Whether all of these images are no newer than an offset.
fn is_before(used: &Used, at: Offset) -> bool {
    used.iter().flatten().all(|(_, offset)| *offset <= at)
}

#[cfg(test)]
thread_local! {
    /// Logs that this thread looked at.
    pub(crate) static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A log and its ancestors, each with the offset up to which its entries are inherited.
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
