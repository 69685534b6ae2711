//! Whether to listen for other threads for a moment before sleeping.
//!
//! A thread that answers the loop's last word at once would have to wake it across cores, which takes longer than the
//! answer did. So while calls of other threads keep coming that fast, and nothing else does, the loop listens first:
//! the caller then makes no system call. A descriptor that ends a wait says that it was not worth it.

use thalweg_sys::process;

/// About what a wake across cores costs; nobody listens for longer.
pub(crate) const LISTEN_NS: u64 = 60_000;
/// Longer waits count as this much, so that a burst is recognised after a few of its calls.
const WAIT_NS_MAX: u64 = 4 * LISTEN_NS;

/// An average of how long the loop lately waited for another thread's call.
pub(crate) struct Listening {
    possible: bool,
    average_ns: u64,
}

impl Listening {
    pub(crate) fn new() -> Self {
        Self { possible: process::parallelism() > 1, average_ns: WAIT_NS_MAX }
    }

    /// Whether to listen before the next sleep.
    #[inline]
    pub(crate) fn is_worth_it(&self) -> bool {
        self.possible && self.average_ns < LISTEN_NS
    }

    /// A wait ended: by another thread's call or by something else.
    #[inline]
    pub(crate) fn record(&mut self, waited_ns: u64, by_thread: bool) {
        let waited_ns = if by_thread { waited_ns.min(WAIT_NS_MAX) } else { WAIT_NS_MAX };
        self.average_ns = (3 * self.average_ns + waited_ns) / 4;
    }
}
