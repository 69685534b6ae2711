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

/// Needs that lie together at most. Tests divide early.
const BLOCK_NEEDS: usize = if cfg!(test) { 8 } else { 256 };

/// What some forks need alike, and how many they are.
#[derive(Debug)]
struct Needed {
    range: Need,
    forks: u32,
}

/// Needs that follow each other: one or more.
#[derive(Debug, Default)]
struct Block {
    needs: SmallVec<[Needed; 1]>,
    /// The last offset that any of them reaches.
    reach: Offset,
}

impl Block {
    fn of(needs: SmallVec<[Needed; 1]>) -> Block {
        let reach = needs.iter().map(|needed| needed.range.end).max().unwrap_or(0);
        Block { needs, reach }
    }
}

/// What the forks of a log need of it.
#[derive(Debug, Default)]
pub(crate) struct ForkNeeds {
    /// By where they begin and end, each once. A log may have very many forks, and where they come and go
    /// nothing but their block is moved or looked through.
    blocks: SmallVec<[Block; 1]>,
    /// What lies below it and is not needed is gone.
    pruned: Offset,
}

impl ForkNeeds {
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Complexity: two searches, and a move of what lies behind it in its block.
    fn add(&mut self, need: &Need) {
        let (at, found) = self.find(need);
        if self.blocks.is_empty() {
            self.blocks.push(Block::default());
        }
        let block = &mut self.blocks[at];
        match found {
            Ok(place) => block.needs[place].forks += 1,
            Err(place) => {
                count_moved(block.needs.len() - place);
                block.needs.insert(place, Needed { range: need.clone(), forks: 1 });
                block.reach = block.reach.max(need.end);
            }
        }
        if block.needs.len() > BLOCK_NEEDS {
            let behind = Block::of(block.needs.drain(BLOCK_NEEDS / 2..).collect());
            *block = Block::of(std::mem::take(&mut block.needs));
            count_moved(self.blocks.len() - at);
            self.blocks.insert(at + 1, behind);
        }
    }

    /// Answers the only part of it that may be needed by no fork any more. Complexity: a look at its block,
    /// and a step for each block in front.
    fn remove(&mut self, need: &Need) -> Need {
        let (at, Ok(place)) = self.find(need) else { return 0..0 };
        let block = &mut self.blocks[at];
        block.needs[place].forks -= 1;
        if block.needs[place].forks > 0 {
            return 0..0;
        }
        count_moved(block.needs.len() - place);
        block.needs.remove(place);
        *block = Block::of(std::mem::take(&mut block.needs));
        if block.needs.is_empty() {
            count_moved(self.blocks.len() - at);
            self.blocks.remove(at);
        }
        // What begins no later is needed as far as that reaches.
        need.start.max(self.reach_of_those_below(need.start + 1))..need.end
    }

    /// In which block a need belongs, and where in it it is or would be.
    fn find(&self, need: &Need) -> (usize, Result<usize, usize>) {
        let key = |needed: &Needed| (needed.range.start, needed.range.end);
        let sought = (need.start, need.end);
        let behind = |block: &Block| block.needs.first().is_some_and(|first| key(first) <= sought);
        let at = self.blocks.partition_point(behind).saturating_sub(1);
        let place = self.blocks.get(at).map(|block| block.needs.binary_search_by_key(&sought, key));
        (at, place.unwrap_or(Err(0)))
    }

    /// The last offset that is reached by those which begin below one.
    fn reach_of_those_below(&self, offset: Offset) -> Offset {
        let begins_below = |needed: &&Needed| needed.range.start < offset;
        let all_do = |block: &Block| block.needs.last().is_some_and(|last| begins_below(&last));
        let (whole, rest) = self.blocks.split_at(self.blocks.partition_point(all_do));
        let some = rest.iter().take(1).flat_map(|block| block.needs.iter().take_while(begins_below));
        let ends = whole.iter().map(|block| block.reach).chain(some.map(|needed| needed.range.end));
        ends.max().unwrap_or(0)
    }

    /// From the first offset below `base` that is needed to the last. Complexity: a look at one block, and a
    /// step for each in front.
    fn below(&self, base: Offset) -> Need {
        let first = self.blocks.first().and_then(|block| block.needs.first());
        match first.map(|first| first.range.start).filter(|start| *start < base) {
            Some(start) => start..self.reach_of_those_below(base).min(base),
            None => 0..0,
        }
    }

    /// Which of some extents no fork needs: runs of their indices. Complexity: a step for each extent, and
    /// for each need that begins in front of their end and is in one block with some that reaches them.
    fn unneeded(&self, extents: &[Extent]) -> SmallVec<[Range<usize>; 2]> {
        let from = extents.first().map_or(Offset::MAX, |first| first.offset);
        let blocks = self.blocks.iter().filter(|block| block.reach > from);
        let (mut needs, mut reach) = (blocks.flat_map(|block| &block.needs).peekable(), 0);
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

/// Counts what is moved in a list.
#[inline]
fn count_moved(_count: usize) {
    #[cfg(test)]
    MOVED.set(MOVED.get() + _count);
}

#[cfg(test)]
thread_local! {
    /// Needs and blocks that this thread moved in their lists.
    static MOVED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
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
        if need.is_empty() {
            return Extents::new();
        }
        let freed = self.with_fork_needs(|needs| needs.remove(need));
        if freed.is_empty() { Extents::new() } else { self.prune(freed) }
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
                    let freed = needs.remove(&gone);
                    let is_free = |offset: &Offset| !told.iter().any(|need| need.contains(offset));
                    prop_assert!(gone.filter(is_free).all(|offset| freed.contains(&offset)));
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

    #[test]
    fn forks_at_very_many_places_move_few_of_each_other() {
        const FORKS: usize = 2_000;
        let mut needs = ForkNeeds::default();
        MOVED.set(0);
        let places = || (0..FORKS as u64).map(|place| place..place + 1);
        // Each in front of all that are there, and then taken back in the same order.
        places().rev().for_each(|need| needs.add(&need));
        places().for_each(|need| assert_eq!(needs.remove(&need), need));
        assert!(needs.is_empty());
        let moved = MOVED.take();
        assert!(moved < 200 * FORKS, "{moved}");
    }

    #[test]
    fn a_fork_that_goes_frees_no_more_than_it_needed_alone() {
        let mut needs = ForkNeeds::default();
        (1..=100).for_each(|end| needs.add(&(0..end)));
        assert!((2..=100).rev().all(|end| needs.remove(&(0..end)) == (end - 1..end)));
    }
}
