//! Which logs may be due: an index by time, visited lazily, so that a log with a lifetime costs a step
//! per lifetime and not a step per interval.
//!
//! A log enters with the earliest moment it can expire. When that moment comes it is either expired, and
//! deleted by an ordinary commit, or has been accessed since, and enters again with its new moment.

use crate::error::CommitError;
use crate::log::Log;
use crate::store::Store;
use crate::{Lifetime, LogId, Time};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Logs deleted in one sweep at the most, so that a sweep stays short.
const SWEEP_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Expiry {
    due: Mutex<BTreeMap<(Time, LogId), Weak<Log>>>,
}

impl Lifetime {
    /// When a log accessed at `accessed` expires; `None` = never.
    pub fn due(self, accessed: Time) -> Option<Time> {
        match self {
            Lifetime::Unlimited => None,
            Lifetime::Sliding { ttl_s } => Some(accessed.saturating_add(ttl_s.saturating_mul(1_000_000))),
            Lifetime::Until { expires_us } => Some(expires_us),
        }
    }
}

impl Expiry {
    pub(crate) fn enter(&self, log: &Arc<Log>) {
        if let Some(due) = log.config().lifetime.due(log.accessed()) {
            log.lock().due = due;
            self.due.lock().insert((due, log.id()), Arc::downgrade(log));
        }
    }

    /// Forgets a deleted log.
    pub(crate) fn leave(&self, log: &Log) {
        let due = log.lock().due;
        self.due.lock().remove(&(due, log.id()));
    }

    fn take(&self, now: Time) -> Vec<Arc<Log>> {
        let mut due = self.due.lock();
        let mut taken = Vec::new();
        while let Some(entry) = due.first_entry()
            && entry.key().0 <= now
            && taken.len() < SWEEP_MAX
        {
            taken.extend(entry.remove().upgrade());
        }
        taken
    }
}

impl Store {
    /// Deletes logs whose time is over, at most a few thousand; answers how many. The rules above judge
    /// expiry on every access; this reclaims what is not accessed.
    pub fn expire(&self, now: Time) -> usize {
        self.sweep(now).0
    }

    /// The same; how many, and whether more may be due that can be deleted as well.
    pub(crate) fn sweep(&self, now: Time) -> (usize, bool) {
        let (mut expired, mut refused) = (0, 0);
        let taken = self.shared.expiry.take(now);
        let is_full = taken.len() == SWEEP_MAX;
        for log in taken {
            // Its version before it is judged: what is appended in between renews it, and the delete comes
            // too late.
            let Some(state) = log.staged() else { continue };
            self.shared.probes.before_verdict();
            let over = log.config().lifetime.due(log.accessed()).is_some_and(|due| due <= now);
            let outcome = if over { self.delete(&log, state.version, now, None).map(drop) } else { Ok(()) };
            match outcome {
                Ok(()) if over => expired += 1,
                Err(CommitError::Deleted | CommitError::Closed | CommitError::Failed(_)) => {}
                kept => {
                    refused += usize::from(kept.is_err());
                    self.shared.expiry.enter(&log);
                }
            }
        }
        (expired, is_full && refused == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Commit, Config, Options};

    #[test]
    fn more_than_one_sweep_takes_is_asked_for_until_nothing_is_left() {
        let store = Store::memory(Options::default()).unwrap();
        let config =
            Config { content_type: "text/plain".into(), lifetime: Lifetime::Until { expires_us: 5 } };
        for n in 0..2 * SWEEP_MAX + 7 {
            store.create(format!("{n}").as_bytes(), &config, None, &Commit::default(), None).unwrap();
        }
        let rounds = (1..).find(|_| !store.maintain(6).unwrap());
        assert_eq!((rounds, store.stats().logs), (Some(3), 0));
    }
}
