//! Whether to look again for a moment before sleeping.
//!
//! Waking a sleeping thread on another core costs 50 to 75 µs. When work has been arriving faster than
//! that, looking again for as long is cheaper than sleeping; when it has not, it only burns the core.

/// About what a wake across cores costs.
pub(crate) const WAKE_NS: u64 = 60_000;
/// A long sleep counts as this much, so that a burst after it is recognised within a few arrivals.
const IDLE_CAP_NS: u64 = 4 * WAKE_NS;

/// The policy: an average of how long the reactor recently had nothing to do at a stretch.
#[derive(Debug)]
pub(crate) struct Spin {
    enabled: bool,
    average_ns: u64,
}

impl Spin {
    /// Never spins unless it is wanted and another processor can produce work meanwhile.
    pub(crate) fn new(wanted: bool, processors: usize) -> Self {
        Self { enabled: wanted && processors > 1, average_ns: IDLE_CAP_NS }
    }

    /// For how long to look again before sleeping, in nanoseconds; `None`: sleep at once.
    #[inline]
    pub(crate) fn limit_ns(&self) -> Option<u64> {
        (self.enabled && self.average_ns < WAKE_NS).then_some(WAKE_NS)
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// There was nothing to do for so long, spun or slept.
    pub(crate) fn record(&mut self, idle_ns: u64) {
        self.average_ns = (3 * self.average_ns + idle_ns.min(IDLE_CAP_NS)) / 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_only_while_work_comes_faster_than_a_wake() {
        let mut spin = Spin::new(true, 2);
        assert_eq!(spin.limit_ns(), None, "nothing is known yet");
        (0..12).for_each(|_| spin.record(5_000));
        assert_eq!(spin.limit_ns(), Some(WAKE_NS));
        spin.record(10_000_000_000);
        spin.record(10_000_000_000);
        assert_eq!(spin.limit_ns(), None, "work became rare");
        (0..6).for_each(|_| spin.record(5_000));
        assert_eq!(spin.limit_ns(), Some(WAKE_NS), "a burst is recognised again within a few arrivals");
    }

    #[test]
    fn one_processor_or_a_switch_means_no_spin() {
        for mut spin in [Spin::new(true, 1), Spin::new(false, 8)] {
            (0..100).for_each(|_| spin.record(1_000));
            assert_eq!(spin.limit_ns(), None);
        }
    }
}
