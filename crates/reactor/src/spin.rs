//! Whether to look again for a moment before sleeping.
//!
//! When work has been arriving faster than a sleeping thread is woken, looking again for as long is cheaper
//! than sleeping; when it has not, it only burns the core.

use thalweg_sync::patience::{Pace, WAKE_NS};

/// The policy: how long the reactor recently had nothing to do at a stretch, unless it is never to spin.
#[derive(Debug)]
pub(crate) struct Spin {
    enabled: bool,
    pace: Pace,
}

impl Spin {
    /// Never spins unless it is wanted and another processor can produce work meanwhile, nor before work has
    /// come fast.
    pub(crate) fn new(wanted: bool, processors: usize) -> Self {
        Self { enabled: wanted && processors > 1, pace: Pace::slow(WAKE_NS) }
    }

    /// Whether to look again before sleeping.
    #[inline]
    pub(crate) fn is_worth(&self) -> bool {
        self.enabled && self.pace.is_quick()
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// There was nothing to do for so long, spun or slept.
    pub(crate) fn record(&mut self, idle_ns: u64) {
        self.pace.record(idle_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_only_while_work_comes_faster_than_a_wake() {
        let mut spin = Spin::new(true, 2);
        assert!(!spin.is_worth(), "nothing is known yet");
        (0..12).for_each(|_| spin.record(5_000));
        assert!(spin.is_worth());
        spin.record(10_000_000_000);
        spin.record(10_000_000_000);
        assert!(!spin.is_worth(), "work became rare");
        (0..6).for_each(|_| spin.record(5_000));
        assert!(spin.is_worth(), "a burst is recognised again within a few arrivals");
    }

    #[test]
    fn one_processor_or_a_switch_means_no_spin() {
        for mut spin in [Spin::new(true, 1), Spin::new(false, 8)] {
            (0..100).for_each(|_| spin.record(1_000));
            assert!(!spin.is_worth());
        }
    }
}
