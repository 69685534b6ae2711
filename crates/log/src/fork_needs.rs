//! What a log keeps: what it shows itself, and what others inherit from it.
//!
//! A fork *needs* one range of its parent's offsets, below the fork's base: from the first offset that
//! the fork shows, or that forks of the fork need, to the last. The fork tells its parent when it is
//! created, when it needs less, and when it is gone. So a parent knows what its forks need, and lets go
//! of what neither they need nor it shows itself. A parent that was deleted, or purged past what its
//! forks inherit, has gaps between what it keeps.
//!
//! Invariants: what a fork needs only shrinks. What it told its parent is never less than what it needs,
//! because it tells after the commit became visible. A new fork needs only what its parent shows. So what is
//! kept only shrinks, and recovery comes to the same end from any checkpoint. Forks are locked before their
//! parents. *Checked by* the tests of forks, which compute what is needed of every log of random trees,
//! and by the crash simulation, which loses checkpoints.

use crate::Offset;
use crate::extents::Extent;
use crate::log::{Inner, Log, Phase};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// What was let go of.
type Extents = SmallVec<[Extent; 1]>;

/// Offsets of a parent that one of its forks needs; empty, if it needs none.
pub(crate) type Need = Range<Offset>;

/// What some forks need alike, and how many they are.
#[derive(Debug)]
struct Needed {
    range: Need,
    forks: u32,
}

/// What the forks of a log need of it.
#[derive(Debug, Default)]
pub(crate) struct ForkNeeds {
    /// By where they begin and end, each once.
    needs: SmallVec<[Needed; 1]>,
    /// What lies below it and is not needed is gone.
    pruned: Offset,
}

impl ForkNeeds {
    pub(crate) fn is_empty(&self) -> bool {
        self.needs.is_empty()
    }

    /// Complexity: a search, and a move of what lies behind; forks are mostly made near the end.
    fn add(&mut self, need: &Need) {
        match self.find(need) {
            Ok(at) => self.needs[at].forks += 1,
            Err(at) => self.needs.insert(at, Needed { range: need.clone(), forks: 1 }),
        }
    }

    /// True unless a remaining fork visibly covers the whole range.
    fn remove(&mut self, need: &Need) -> bool {
        let Ok(at) = self.find(need) else { return false };
        self.needs[at].forks -= 1;
        if self.needs[at].forks > 0 {
            return false;
        }
        self.needs.remove(at);
        // A need that covers the range most likely stands next to it in the list.
        let front = at.checked_sub(1).is_some_and(|at| self.needs[at].range.end >= need.end);
        let behind = self.needs.get(at).is_some_and(|needed| needed.range.start == need.start);
        !(front || behind)
    }

    fn find(&self, need: &Need) -> Result<usize, usize> {
        let key = |range: &Need| (range.start, range.end);
        self.needs.binary_search_by_key(&key(need), |needed| key(&needed.range))
    }

    /// From the first offset below `base` that is needed to the last.
    fn below(&self, base: Offset) -> Need {
        let needs = &self.needs[..self.needs.partition_point(|needed| needed.range.start < base)];
        let end = needs.iter().map(|needed| needed.range.end).max().unwrap_or(0);
        needs.first().map_or(0..0, |first| first.range.start..end.min(base))
    }

    /// Which of some extents no fork needs: runs of their indices. Complexity: a step for each extent, and
    /// for each need that begins in front of their end.
    fn unneeded(&self, extents: &[Extent]) -> SmallVec<[Range<usize>; 2]> {
        let (mut needs, mut reach) = (self.needs.iter().peekable(), 0);
        let mut runs: SmallVec<[Range<usize>; 2]> = SmallVec::new();
        for (place, extent) in extents.iter().enumerate() {
            while let Some(needed) = needs.next_if(|needed| needed.range.start < extent.end()) {
                reach = reach.max(needed.range.end);
            }
            match runs.last_mut() {
                _ if reach > extent.offset => {}
                Some(run) if run.end == place => run.end += 1,
                _ => runs.push(place..place + 1),
            }
        }
        runs
    }
}

impl Inner {
    /// Where what it shows begins; behind everything, if it shows nothing any more.
    pub(crate) fn own(&self) -> Offset {
        if self.phase == Phase::Deleted { Offset::MAX } else { self.first_visible }
    }

    /// Counts another fork, and what that needs.
    pub(crate) fn add_fork(&mut self, need: &Need) {
        self.children += 1;
        self.add_need(need);
    }

    /// Counts one fork less, and what that needed. Answers the extents that no log needs any more.
    pub(crate) fn remove_fork(&mut self, need: &Need) -> Extents {
        self.children = self.children.saturating_sub(1);
        self.remove_need(need)
    }

    fn add_need(&mut self, need: &Need) {
        if !need.is_empty() {
            self.with_fork_needs(|needs| needs.add(need));
        }
    }

    /// Lets go of what one fork needed, and neither another fork needs nor the log shows.
    fn remove_need(&mut self, need: &Need) -> Extents {
        if need.is_empty() || !self.with_fork_needs(|needs| needs.remove(need)) {
            return Extents::new();
        }
        self.prune(need.clone())
    }

    /// Lets go of what the log no longer shows and no fork needs.
    fn drop_hidden(&mut self) -> Extents {
        let (own, from) = (self.own(), self.fork_needs().map_or(0, |needs| needs.pruned));
        let gone = self.prune(from..own);
        if self.fork_needs().is_some() {
            self.with_fork_needs(|needs| needs.pruned = own);
        }
        gone
    }

    /// Lets go of the extents in a range that the log does not show and no fork needs.
    fn prune(&mut self, range: Range<Offset>) -> Extents {
        let places = self.extents.places(&range, self.own());
        let runs = match self.fork_needs() {
            Some(needs) => needs.unneeded(&self.extents.all()[places.clone()]),
            None => std::iter::once(0..places.len()).collect(),
        };
        let runs = runs.into_iter().map(|run| run.start + places.start..run.end + places.start);
        self.extents.remove(runs)
    }

    /// Passes to `name` the extents that the log is going to let go of once what it shows begins at `own`.
    pub(crate) fn unneeded_below(&self, own: Offset, name: impl FnMut(&Extent)) {
        let places = self.extents.places(&(0..own), own);
        let extents = &self.extents.all()[places];
        match self.fork_needs() {
            Some(needs) => {
                needs.unneeded(extents).into_iter().flatten().map(|place| &extents[place]).for_each(name)
            }
            None => extents.iter().for_each(name),
        }
    }

    /// What it needs of its parent.
    fn need(&self) -> Need {
        let (own, base) = (self.own(), self.base());
        let inherited = self.fork_needs().map_or(0..0, |needs| needs.below(base));
        match (inherited.is_empty(), own < base) {
            (true, true) => own..base,
            (false, true) => inherited.start.min(own)..base,
            (_, false) => inherited,
        }
    }

    /// Tells the parent what this log needs, if that has changed. Answers the parent then, and the extents
    /// that the parent let go of.
    fn tell_parent(&mut self) -> Option<(Arc<Log>, Extents)> {
        let parent = self.lineage.as_ref()?.parent.clone()?;
        let need = self.need();
        let lineage = self.lineage.as_mut().filter(|lineage| lineage.need != need)?;
        let told = std::mem::replace(&mut lineage.need, need.clone());
        let mut inner = parent.lock();
        inner.add_need(&need);
        let gone = inner.remove_need(&told);
        drop(inner);
        Some((parent, gone))
    }
}

/// Has a log let go of what it no longer shows, and its ancestors of what they kept for this log alone. The
/// caller has none of them locked. Complexity: a step per ancestor of which less is needed now.
pub(crate) fn drop_unneeded(log: &Arc<Log>, mut gone: impl FnMut(Extents)) {
    let mut inner = log.lock();
    gone(inner.drop_hidden());
    let mut told = inner.tell_parent();
    drop(inner);
    while let Some((log, freed)) = told {
        gone(freed);
        told = log.lock().tell_parent();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extent(offset: Offset, length: u32) -> Extent {
        Extent { position: crate::position(1, 64), offset, length, span: 64, places: 0 }
    }

    proptest! {
        /// Against a plain list of what each fork told, and of which offsets lie in it.
        #[test]
        fn what_is_needed_is_what_was_told_and_not_taken_back(
            steps in proptest::collection::vec((0u64..20, 1u64..20, any::<prop::sample::Index>(), any::<bool>()), 1..60),
            lengths in proptest::collection::vec(1u32..5, 1..12), base in 0u64..40,
        ) {
            let (mut needs, mut told) = (ForkNeeds::default(), Vec::<Need>::new());
            for (start, length, index, adds) in steps {
                if adds || told.is_empty() {
                    needs.add(&(start..start + length));
                    told.push(start..start + length);
                } else {
                    let gone = told.swap_remove(index.index(told.len()));
                    let frees = gone.clone().any(|offset| !told.iter().any(|need| need.contains(&offset)));
                    prop_assert!(needs.remove(&gone) || !frees);
                }
            }
            let is_needed = |offset: Offset| told.iter().any(|need| need.contains(&offset));
            let mut next = 0;
            let extents: Vec<Extent> = lengths.iter().map(|length| {
                let extent = extent(next, *length);
                next = extent.end();
                extent
            }).collect();
            let unneeded: Vec<usize> = needs.unneeded(&extents).into_iter().flatten().collect();
            for (place, extent) in extents.iter().enumerate() {
                let needed = (extent.offset..extent.end()).any(is_needed);
                prop_assert_eq!(unneeded.contains(&place), !needed);
            }
            let needed: Vec<Offset> = (0..base).filter(|offset| is_needed(*offset)).collect();
            let hull = needed.first().zip(needed.last()).map_or(0..0, |(first, last)| *first..last + 1);
            prop_assert_eq!(needs.below(base), hull);
            prop_assert_eq!(needs.is_empty(), told.is_empty());
        }
    }
}
