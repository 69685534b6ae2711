//! Whether to listen for a moment before sleeping.
//!
//! A thread or a peer that answers the loop's last word at once would have to wake it across cores, which
//! takes longer than the answer did. So while what the loop waits for keeps coming that fast, it listens
//! first: the next answer finds it awake. Waits that are longer say that it was not worth it, and it sleeps
//! at once.

use thalweg_sys::process;

/// About what a wake across cores costs: the upper bound of a look.
pub(crate) const LISTEN_NS: u64 = 60_000;
/// Longer waits count as this much, so that a burst is recognised after a few of its words.
const WAIT_NS_MAX: u64 = 4 * LISTEN_NS;

/// An average of how long the loop lately waited.
pub(crate) struct WaitHistory {
    possible: bool,
    average_ns: u64,
    /// When the wait began that goes on.
    began_ns: Option<u64>,
}

impl WaitHistory {
    pub(crate) fn new() -> Self {
        Self { possible: process::parallelism() > 1, average_ns: WAIT_NS_MAX, began_ns: None }
    }

    /// Whether to listen before the next sleep.
    #[inline]
    pub(crate) fn is_worth_it(&self) -> bool {
        self.possible && self.average_ns < LISTEN_NS
    }

    /// A wait begins.
    #[inline]
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.began_ns = Some(now_ns);
    }

    /// A wait goes on asleep, or begins so.
    #[inline]
    pub(crate) fn sleep(&mut self, now_ns: u64) {
        self.began_ns.get_or_insert(now_ns);
    }

    /// The wait ended.
    #[inline]
    pub(crate) fn end(&mut self, now_ns: u64) {
        let waited_ns = self.began_ns.take().map_or(0, |began_ns| now_ns.saturating_sub(began_ns));
        self.average_ns = (3 * self.average_ns + waited_ns.min(WAIT_NS_MAX)) / 4;
    }
}
