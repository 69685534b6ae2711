//! When streams that are followed are looked at again: one with a sliding lifetime is renewed, so that it
//! does not end meanwhile, and one that lasts until an instant ends then.
//!
//! Owns what is planned: one moment for each of these streams. Checked by the service's tests.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Streams by the moment of their next look.
#[derive(Default)]
pub(super) struct Looks {
    planned: BTreeSet<(Instant, u64)>,
}

impl Looks {
    /// Plans a stream's next look, if it is to have one; when that is.
    pub(super) fn plan(&mut self, topic_id: u64, after_ms: Option<u32>) -> Option<Instant> {
        let at = Instant::now() + Duration::from_millis(after_ms?.into());
        self.planned.insert((at, topic_id));
        Some(at)
    }

    /// Takes back what was planned for a stream.
    pub(super) fn forget(&mut self, topic_id: u64, planned: Option<Instant>) {
        if let Some(at) = planned {
            self.planned.remove(&(at, topic_id));
        }
    }

    /// The moment of the next look.
    pub(super) fn next(&self) -> Option<Instant> {
        self.planned.first().map(|(at, _)| *at)
    }

    /// The streams that are to be looked at by now; nothing is planned for them any more.
    pub(super) fn take_due(&mut self, now: Instant) -> impl Iterator<Item = u64> + use<> {
        let later = self.planned.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.planned, later).into_iter().map(|(_, topic_id)| topic_id)
    }
}
