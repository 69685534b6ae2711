//! Which logs came to the catalogue last, for those who hear of new ones in a process that follows another.
//!
//! Logs come in the order of their commits, which need not be that of their ids, and some ids never come. So
//! they are numbered as they come, and a listener remembers how many had come by its last look. The ids of
//! those that came last are kept, as many as a part of all the logs there are: a listener that asks before
//! more have come looks at those alone, and one that is later looks at all, which is a few logs for each new
//! one.
//!
//! *Checked by* the tests of [`new_logs`](crate::reading).

use super::Recovery;
use crate::LogId;
use crate::log::Log;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Of as many logs as there are, one part in this many is kept.
const KEPT_PARTS: usize = 4;
/// At least as many are.
const KEPT_MIN: usize = 64;

/// The logs that came since a process began to follow.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    count: u64,
    /// The last of them, in their order.
    last: VecDeque<LogId>,
}

impl Arrivals {
    /// One more comes, to `logs` others.
    pub(super) fn add(&mut self, log: LogId, logs: usize) {
        self.count += 1;
        self.last.push_back(log);
        while self.last.len() > (logs / KEPT_PARTS).max(KEPT_MIN) {
            self.last.pop_front();
        }
    }

    /// The same where replay began anew: which logs came meanwhile is not known.
    pub(super) fn anew(&self) -> Arrivals {
        Arrivals { count: self.count + 1, last: VecDeque::new() }
    }

    /// Those that came after the first `seen`, if they are known.
    fn since(&self, seen: u64) -> Option<impl Iterator<Item = LogId>> {
        let new = usize::try_from(self.count.checked_sub(seen)?).ok()?;
        Some(self.last.range(self.last.len().checked_sub(new)?..).copied())
    }
}

impl Recovery {
    /// Visits the logs that came since the last call, of which `seen` takes note, or all there are.
    /// Complexity: constant if none came, else a few steps for each that did.
    pub(crate) fn visit_arrived(&self, seen: &mut Option<u64>, mut visitor: impl FnMut(&Arc<Log>)) {
        let before = seen.replace(self.arrivals.count);
        match before.and_then(|before| self.arrivals.since(before)) {
            Some(new) => new.filter_map(|id| self.logs.get(&id)).for_each(visitor),
            None => self.catalogue.visit(&mut visitor),
        }
    }

    /// Takes the logs that are gone out of a set that a listener remembers, where most of it may be.
    /// An id never comes again. Complexity: a few steps for each log that was put there.
    pub(crate) fn forget_gone(&self, told: &mut BTreeSet<LogId>) {
        if told.len() > 2 * self.logs.len() + KEPT_MIN {
            told.retain(|id| self.logs.contains_key(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_came_last_are_known_and_no_others_are_taken_for_them() {
        let mut arrivals = Arrivals::default();
        let since = |arrivals: &Arrivals, seen| arrivals.since(seen).map(|new| new.collect::<Vec<_>>());
        (0..100).for_each(|n| arrivals.add(1_000 - n, 0));
        assert_eq!(since(&arrivals, 100), Some(vec![]));
        assert_eq!(since(&arrivals, 98), Some(vec![902, 901]));
        assert_eq!(since(&arrivals, 36).map(|new| new.len()), Some(KEPT_MIN));
        assert_eq!(since(&arrivals, 35), None);
        (0..100).for_each(|n| arrivals.add(2_000 + n, 4_000));
        assert_eq!(since(&arrivals, 36).map(|new| new.len()), Some(KEPT_MIN + 100));
        let mut anew = arrivals.anew();
        assert_eq!((since(&anew, 200), since(&anew, 201)), (None, Some(vec![])));
        anew.add(7, 0);
        assert_eq!((since(&anew, 200), since(&anew, 201)), (None, Some(vec![7])));
    }
}
