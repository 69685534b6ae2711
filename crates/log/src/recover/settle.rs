//! What replay cannot tell batch by batch, settled when it is over: what became of forks, and what they keep.

use super::Recovery;
use crate::fork::orphaned;
use crate::log::Log;
use crate::{LogId, Offset, Position};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

impl Recovery {
    /// What replay could not tell: logs retained for forks that a checkpoint no longer had, and forks
    /// whose parent is lost.
    pub(super) fn settle_forks(&mut self) {
        let deleted: Vec<Arc<Log>> = self.logs.values().filter(|log| log.lock().deleting).cloned().collect();
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

    /// Lets go of what was purged and nobody inherits: what lies below the first offset of a log and of every log
    /// that descends from it. Counting forks is not enough: a checkpoint may know a log as it was before a purge,
    /// and a fork that was made after, when what it has no part in was gone.
    pub(super) fn drop_purged(&self) {
        let mut logs: Vec<&Arc<Log>> = self.logs.values().collect();
        if logs.iter().all(|log| log.lock().first == 0) {
            return;
        }
        // A fork is younger than its parent.
        logs.sort_unstable_by_key(|log| Reverse(log.id()));
        let mut needed: HashMap<LogId, Offset> = HashMap::new();
        for log in logs {
            let mut inner = log.lock();
            let own = if inner.deleting { Offset::MAX } else { inner.first };
            let first = own.min(needed.remove(&log.id()).unwrap_or(Offset::MAX));
            inner.extents.drop_below(first);
            if let Some(lineage) = &inner.lineage {
                let parents = needed.entry(lineage.branch.parent).or_insert(Offset::MAX);
                *parents = first.min(*parents);
            }
        }
    }
}
