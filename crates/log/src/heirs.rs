//! What a log keeps: what it shows itself, and what others inherit from it.
//!
//! A fork *needs* of its parent what lies below its base and was not purged from it, and what forks of its own need of
//! that. It tells its parent when it is created, whenever it needs less, and when it is gone; so a parent knows at
//! any time the *hull* of what its forks need, lets go of what lies neither there nor in what it shows, and needs no
//! more of its own parent than it keeps for that. Between the two there may be a gap: a parent that is purged up to its
//! end, or deleted, keeps what its forks inherit and nothing behind it.
//!
//! Invariants: a fork needs less and less; what it told is never less than what it needs, because it tells behind the
//! commit that became visible; forks are locked before their parents. All of it follows from where logs begin and
//! branch off, so that recovery comes to the same end whatever a checkpoint knew.
//! *Checked by* the tests of forks, which reckon what is needed of every log of random trees, and by the crash simulation.

use crate::Offset;
use crate::extents::Extent;
use crate::log::{Inner, Log, Phase};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Offsets of a parent that one of its forks needs; empty, if it needs none.
pub(crate) type Need = Range<Offset>;

/// What all forks of a log need of it. Memory grows with the number of different bounds, not with that of forks.
#[derive(Debug, Default)]
pub(crate) struct Heirs {
    starts: Counts,
    ends: Counts,
}

/// Offsets, and how often each occurs.
#[derive(Debug, Default)]
struct Counts(BTreeMap<Offset, u32>);

/// What is kept of a log's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// For its forks.
    pub(crate) inherited: Need,
    /// Because it shows it: from here on.
    pub(crate) own: Offset,
}

impl Heirs {
    pub(crate) fn add(&mut self, need: &Need) {
        if !need.is_empty() {
            self.starts.add(need.start);
            self.ends.add(need.end);
        }
    }

    pub(crate) fn remove(&mut self, need: &Need) {
        if !need.is_empty() {
            self.starts.remove(need.start);
            self.ends.remove(need.end);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.starts.0.is_empty()
    }

    /// From the first offset that some fork needs to behind the last.
    fn hull(&self) -> Need {
        let (first, last) = (self.starts.0.first_key_value(), self.ends.0.last_key_value());
        first.zip(last).map_or(0..0, |((start, _), (end, _))| *start..*end)
    }
}

impl Counts {
    fn add(&mut self, offset: Offset) {
        *self.0.entry(offset).or_default() += 1;
    }

    fn remove(&mut self, offset: Offset) {
        if let Some(count) = self.0.get_mut(&offset) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&offset);
            }
        }
    }
}

impl Kept {
    /// What a log that keeps this needs of its parent, if it branched off at `base`.
    fn below(&self, base: Offset) -> Need {
        let Kept { inherited, own } = self;
        let (start, end) = match (inherited.is_empty(), *own < base) {
            (true, _) => (*own, base),
            (false, true) => (inherited.start.min(*own), base),
            (false, false) => (inherited.start, inherited.end.min(base)),
        };
        if start < end { start..end } else { 0..0 }
    }
}

impl Inner {
    /// What is kept of it as it is seen now.
    pub(crate) fn kept(&self) -> Kept {
        let own = if self.phase == Phase::Deleted { Offset::MAX } else { self.first_visible };
        Kept { inherited: self.heirs().map_or(0..0, Heirs::hull), own }
    }

    /// Another fork, which needs so much of it.
    pub(crate) fn bear(&mut self, need: &Need) {
        self.children += 1;
        self.with_heirs(|heirs| heirs.add(need));
    }

    /// A fork that needed so much of it is gone.
    pub(crate) fn bury(&mut self, need: &Need) {
        self.children = self.children.saturating_sub(1);
        self.with_heirs(|heirs| heirs.remove(need));
    }

    /// Lets go of what is not kept.
    fn prune(&mut self) -> SmallVec<[Extent; 1]> {
        let kept = self.kept();
        self.extents.keep(&kept)
    }

    /// Tells the parent what is needed of it, if that is not what it knows. Answers it then.
    fn tell_parent(&mut self) -> Option<Arc<Log>> {
        let need = self.kept().below(self.base());
        let lineage = self.lineage.as_mut().filter(|lineage| lineage.need != need)?;
        let parent = lineage.parent.clone()?;
        let told = std::mem::replace(&mut lineage.need, need.clone());
        parent.lock().with_heirs(|heirs| {
            heirs.remove(&told);
            heirs.add(&need);
        });
        Some(parent)
    }
}

/// Has a log let go of what nobody needs any more, and then those of its ancestors that kept something for it alone.
/// None of them is locked by the caller. Complexity: a step per ancestor of which less is needed now.
pub(crate) fn relinquish(log: &Arc<Log>, mut gone: impl FnMut(SmallVec<[Extent; 1]>)) {
    let mut next = Some(log.clone());
    while let Some(log) = next {
        next = relinquish_one(&log, &mut gone);
    }
}

/// The same of one log. Answers its parent, if less is needed of that now.
pub(crate) fn relinquish_one(log: &Log, mut gone: impl FnMut(SmallVec<[Extent; 1]>)) -> Option<Arc<Log>> {
    let mut inner = log.lock();
    gone(inner.prune());
    inner.tell_parent()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain list of what each fork told.
        #[test]
        fn the_hull_is_that_of_what_was_told_and_not_taken_back(
            steps in proptest::collection::vec((0u64..20, 0u64..20, any::<prop::sample::Index>(), any::<bool>()), 1..60),
        ) {
            let (mut heirs, mut told) = (Heirs::default(), Vec::new());
            for (start, end, index, adds) in steps {
                if adds || told.is_empty() {
                    heirs.add(&(start..end));
                    told.push(start..end);
                } else {
                    heirs.remove(&told.swap_remove(index.index(told.len())));
                }
                let needs = || told.iter().filter(|need| !need.is_empty());
                let hull = needs().map(|need| need.start).min().zip(needs().map(|need| need.end).max());
                prop_assert_eq!(heirs.hull(), hull.map_or(0..0, |(start, end)| start..end));
                prop_assert_eq!(heirs.is_empty(), hull.is_none());
            }
        }
    }

    #[test]
    fn a_log_needs_of_its_parent_what_it_shows_or_keeps_of_it() {
        let below = |inherited: Need, own, base| Kept { inherited, own }.below(base);
        assert_eq!(below(0..0, 3, 10), 3..10);
        assert_eq!(below(0..0, 10, 10), 0..0);
        assert_eq!(below(2..5, 3, 10), 2..10);
        assert_eq!(below(4..5, 3, 10), 3..10);
        assert_eq!(below(2..5, Offset::MAX, 10), 2..5);
        assert_eq!(below(2..15, Offset::MAX, 10), 2..10);
        assert_eq!(below(12..15, Offset::MAX, 10), 0..0);
    }
}
