//! Forks: logs whose first bytes are another log's.
//!
//! A fork begins at its *base*, an offset of its *parent*: what lies below is read from the parent, cut
//! exactly there, through as many ancestors as it takes; what lies above is its own. Nothing is copied,
//! and a fork costs what a create costs.
//!
//! A parent counts its *children*: up when a child's create is staged, down when the child is visibly
//! gone. A deleted log with children is *retained*: it takes no commits and shows nothing, but keeps its
//! name until the last child goes, and then goes too, up the chain; of its payload it keeps what they
//! need ([`fork_needs`](crate::fork_needs)). All of that follows from the create and delete frames alone,
//! so recovery comes to the same end. Because the count goes down only at what is durable, nobody is told
//! that a name is free, or a log gone, that a crash could bring back. Locks are taken child before
//! parent; checked by the crash simulation and the random trees below.

use crate::error::{CommitError, Damage, ReadError};
use crate::extents::Extent;
use crate::fork_needs::{Need, drop_unneeded};
use crate::log::{Inner, Log};
use crate::store::Shared;
use crate::{LogId, Offset};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// Where a log branches off from another of the same store.
#[derive(Clone, Debug)]
pub struct Fork {
    /// The log whose payload below `at` is inherited.
    pub parent: Arc<Log>,
    /// The parent's offset at which the fork's own payload begins; anywhere up to its end.
    pub at: Offset,
    /// What the creator asked for: kept with the log, opaque to it.
    pub asked: [u64; 2],
}

/// A fork as it is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    pub(crate) parent: LogId,
    pub(crate) base: Offset,
    pub(crate) asked: [u64; 2],
    /// Offset below which the parent had been purged by then: the fork never had it.
    pub(crate) first: Offset,
}

/// A log's descent.
#[derive(Debug)]
pub(crate) struct Lineage {
    pub(crate) branch: Branch,
    /// Unknown only during recovery, and after damage took it.
    pub(crate) parent: Option<Arc<Log>>,
    /// What the parent knows to be needed of it.
    pub(crate) need: Need,
}

/// The part of a read that one log of a chain holds.
#[derive(Debug)]
pub(crate) struct ReadPart {
    pub(crate) log: LogId,
    /// What lies behind is not inherited, or not to be seen yet.
    pub(crate) cut: Offset,
    pub(crate) extents: SmallVec<[Extent; 6]>,
}

/// Parts of a read, the last of them first.
pub(crate) type ReadParts = SmallVec<[ReadPart; 2]>;

impl Fork {
    /// How it is written down, with the parent locked.
    pub(crate) fn branch(&self, parent: &Inner) -> Branch {
        Branch { parent: self.parent.id(), base: self.at, asked: self.asked, first: parent.first }
    }

    /// Whether the parent, locked, can be forked there.
    pub(crate) fn check(&self, parent: &Inner) -> Result<(), CommitError> {
        if parent.phase.is_deleting() {
            return Err(CommitError::ParentDeleted);
        }
        if let Some(damage) = parent.damage() {
            return Err(CommitError::damaged(damage));
        }
        if self.at < parent.first {
            return Err(CommitError::Purged { at: self.at, first: parent.first });
        }
        if self.at > parent.tail {
            return Err(CommitError::PastEnd { at: self.at, tail: parent.tail });
        }
        Ok(())
    }
}

impl Lineage {
    /// That of a log that has just branched off: it needs all that it inherits.
    pub(crate) fn of(branch: Branch, parent: Option<Arc<Log>>) -> Box<Lineage> {
        let need = if branch.first < branch.base { branch.first..branch.base } else { 0..0 };
        Box::new(Lineage { branch, parent, need })
    }
}

/// The offsets of a log that one log of its lineage holds.
#[derive(Clone, Debug)]
pub(crate) struct LineagePart {
    pub(crate) log: Arc<Log>,
    pub(crate) from: Offset,
    pub(crate) cut: Offset,
}

/// The logs that hold what a log shows, oldest first; the last one is the log itself. Those that hold only
/// what lies below the offset `wanted` may be left out. What an ancestor has purged since, its forks keep.
/// Complexity: a step per ancestor that is not left out.
pub(crate) fn lineage_parts(log: &Arc<Log>, wanted: Offset) -> SmallVec<[LineagePart; 1]> {
    let mut held = SmallVec::new();
    let (mut log, mut cut, first) = (log.clone(), Offset::MAX, log.lock().first_visible);
    let oldest = first.max(wanted);
    loop {
        note_step();
        let (base, parent) = {
            let inner = log.lock();
            (inner.base(), inner.lineage.as_ref().and_then(|lineage| lineage.parent.clone()))
        };
        let from = first.max(base);
        if from < cut {
            held.push(LineagePart { log: log.clone(), from, cut });
        }
        match parent {
            Some(parent) if oldest < base => (log, cut) = (parent, cut.min(base)),
            _ => break,
        }
    }
    held.reverse();
    held
}

/// Notes that a lineage led to one more log.
#[inline]
pub(crate) fn note_step() {
    #[cfg(test)]
    LINEAGE_STEPS.set(LINEAGE_STEPS.get() + 1);
}

#[cfg(test)]
thread_local! {
    /// Logs that lineages led this thread to.
    pub(crate) static LINEAGE_STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Log {
    /// Where it branches off; `None` for a log that is no fork.
    pub fn fork(&self) -> Option<Fork> {
        let inner = self.lock();
        let Lineage { branch, parent, .. } = &**inner.lineage.as_ref()?;
        Some(Fork { parent: parent.clone()?, at: branch.base, asked: branch.asked })
    }

    /// Deleted, and kept because other logs inherit from it.
    pub fn is_tombstone(&self) -> bool {
        let inner = self.lock();
        inner.phase.is_deleting() && inner.children > 0
    }

    /// The log of the lineage that first gave out an offset: this log, from its base on; below that, the
    /// owner in its parent. Grows with the offset, because ids only grow. Complexity: a step per ancestor.
    pub fn owner(&self, offset: Offset) -> LogId {
        let (mut id, mut parent) = (self.id(), self.inherits(offset));
        while let Some(log) = parent {
            (id, parent) = (log.id(), log.inherits(offset));
        }
        id
    }

    /// The parent, if an offset is its.
    fn inherits(&self, offset: Offset) -> Option<Arc<Log>> {
        let inner = self.lock();
        inner.lineage.as_ref().filter(|lineage| offset <= lineage.branch.base)?.parent.clone()
    }
}

impl Inner {
    /// The offset at which its own payload begins.
    pub(crate) fn base(&self) -> Offset {
        self.lineage.as_ref().map_or(0, |lineage| lineage.branch.base)
    }

    /// Deleted, and no log inherits from it.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_deleted() && self.children == 0
    }

    /// It takes commits or is a tombstone: no other log can be given its name.
    pub(crate) fn has_name(&self) -> bool {
        !self.phase.is_deleting() || self.children > 0
    }

    /// Lets go of the parent. Answers it, and what it knows to be needed of it.
    pub(crate) fn take_parent(&mut self) -> Option<(Arc<Log>, Need)> {
        let lineage = self.lineage.as_mut()?;
        Some((lineage.parent.take()?, lineage.need.clone()))
    }
}

/// A chain is let go one log after the other, however long it is.
impl Drop for Log {
    fn drop(&mut self) {
        let mut parent = self.inner_mut().take_parent();
        while let Some((log, _)) = parent {
            parent = Arc::into_inner(log).and_then(|mut log| log.inner_mut().take_parent());
        }
    }
}

/// Where the records lie that hold bytes of `from..to`, in a view that ends at `tail`. The log itself stays
/// locked by the caller meanwhile: so long none of its ancestors lets go of anything that it shows.
pub(crate) fn read_parts(
    log: &Log,
    inner: &Inner,
    from: Offset,
    to: Offset,
    tail: Offset,
) -> Result<ReadParts, ReadError> {
    let mut parts = ReadParts::new();
    let mut above = add_part(log.id(), inner, from..to, tail, &mut parts)?;
    while let Some((log, cut)) = above {
        above = add_part(log.id(), &log.lock(), from..to, cut, &mut parts)?;
    }
    Ok(parts)
}

/// Adds one log's part, of which what lies behind `cut` is not to be seen. Answers the parent, if it holds
/// some too, and the parent's cut.
fn add_part(
    id: LogId,
    inner: &Inner,
    wanted: Range<Offset>,
    cut: Offset,
    parts: &mut ReadParts,
) -> Result<Option<(Arc<Log>, Offset)>, ReadError> {
    if let Some(damage) = inner.damage() {
        return Err(ReadError::damaged(damage));
    }
    let (base, end) = (inner.base(), wanted.end.min(cut));
    if end > base {
        let extents = inner.extents.covering(wanted.start.max(base), end).into();
        parts.push(ReadPart { log: id, cut, extents });
    }
    let Some(lineage) = inner.lineage.as_ref().filter(|_| wanted.start < base) else { return Ok(None) };
    match &lineage.parent {
        Some(parent) => Ok(Some((parent.clone(), cut.min(base)))),
        None => Err(ReadError::Damaged(Box::new(orphaned(lineage.branch.parent)))),
    }
}

/// The damage of a fork whose parent is lost.
pub(crate) fn orphaned(parent: LogId) -> Damage {
    Damage::of_logs(0, vec![parent])
}

impl Shared {
    /// Drops what a log kept that is gone, and every ancestor that was retained for it alone.
    pub(crate) fn forget(&self, log: &Arc<Log>) {
        let mut gone = Some(log.clone());
        while let Some(log) = gone {
            self.catalogue.remove(&log);
            self.expiry.leave(&log);
            self.log_retention.leave(&log);
            let (extents, parent) = {
                let mut inner = log.lock();
                (inner.extents.take(), inner.take_parent())
            };
            self.unload(extents);
            let Some((parent, need)) = parent else { break };
            let is_gone = {
                let mut inner = parent.lock();
                self.unload(inner.remove_fork(&need));
                inner.is_gone()
            };
            if !is_gone {
                self.drop_unneeded(&parent);
            }
            gone = is_gone.then_some(parent);
        }
        if self.options.durability == crate::options::Durability::Memory {
            self.drop_dead_segments();
        }
    }

    /// Lets go of what no log needs any more of a log and its ancestors; none of them is locked by the
    /// caller.
    pub(crate) fn drop_unneeded(&self, log: &Arc<Log>) {
        drop_unneeded(log, |extents| self.unload(extents));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descent_costs_little() {
        assert!(size_of::<Lineage>() <= 64, "{}", size_of::<Lineage>());
    }
}
