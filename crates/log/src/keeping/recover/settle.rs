//! What replay cannot tell batch by batch, settled when it is over: what became of forks, and what they keep.

use super::{Recovery, missing_segment};
use crate::error::Touched;
use crate::extents::Extent;
use crate::fork::orphaned;
use crate::fork_needs::drop_unneeded;
use crate::log::{Inner, Log};
use crate::segment;
use crate::{LogId, Position, position, segment_of};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Recovery {
    /// All of it, in the order that it takes.
    pub(super) fn settle(&mut self) {
        self.settle_forks();
        self.logs.values().for_each(|log| log.lock().show());
        self.drop_purged();
        self.miss_extents();
    }

    /// What replay could not tell: logs retained for forks that a checkpoint no longer had, and forks
    /// whose parent is lost.
    fn settle_forks(&mut self) {
        let deleted: Vec<Arc<Log>> =
            self.logs.values().filter(|log| log.lock().phase.is_deleting()).cloned().collect();
        deleted.iter().for_each(|log| self.collect(log, Position::MAX));
        let mut orphans = Vec::new();
        for log in self.logs.values() {
            let mut inner = log.lock();
            let lost = inner.lineage.as_ref().filter(|lineage| lineage.parent.is_none());
            if let Some(damage) = lost.map(|lineage| orphaned(lineage.branch.parent)) {
                inner.note_damage(|| damage.clone());
                orphans.push(damage);
            }
        }
        self.report.damage.extend(orphans);
    }

    /// Lets go of what no log needs. A checkpoint may know a log as it was before a purge, and what replay
    /// brings back of that may be in no segment any more.
    fn drop_purged(&self) {
        let mut logs: Vec<&Arc<Log>> = self.logs.values().filter(|log| lets_go(&log.lock())).collect();
        // A fork is younger than its parent, which has heard from all of them when its turn comes.
        logs.sort_unstable_by_key(|log| Reverse(log.id()));
        logs.into_iter().for_each(|log| drop_unneeded(log, drop));
    }

    /// Refuses logs with payload in segments that are gone.
    fn miss_extents(&mut self) {
        let mut missing: BTreeMap<u32, Vec<LogId>> = BTreeMap::new();
        for log in self.logs.values() {
            let mut inner = log.lock();
            let gone = |extent: &&Extent| !self.headers.contains_key(&segment_of(extent.position));
            let Some(extent) = inner.extents.all().iter().find(gone).copied() else { continue };
            let number = segment_of(extent.position);
            missing.entry(number).or_default().push(log.id());
            inner.note_damage(|| missing_segment(number, Touched::These(vec![log.id()])));
        }
        for (number, logs) in missing {
            let damage = missing_segment(number, Touched::these(logs));
            self.missing.entry(number).or_insert_with(|| damage.clone());
            self.report.damage.push(damage);
        }
        // One that no log needs is no loss, and yet not as it was.
        for number in std::mem::take(&mut self.headless) {
            let file = segment::file_name(number);
            if self.report.damage.iter().all(|damage| damage.file != file) {
                self.lost(file, position(number, 0));
            }
        }
    }
}

/// Whether something of a log may have been let go of for what became of itself.
fn lets_go(inner: &Inner) -> bool {
    inner.first > 0 || inner.phase.is_deleting()
}
