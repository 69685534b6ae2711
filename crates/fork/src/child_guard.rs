//! A child process from its start until the thread that reaps children has taken it over.

use std::process::Child;

/// Kills and reaps its child when it is dropped, unless the child was handed over.
pub(crate) struct ChildGuard(Option<Child>);

impl ChildGuard {
    pub(crate) fn new(started: Child) -> Self {
        Self(Some(started))
    }

    pub(crate) fn process(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    /// Leaves the child to the thread that reaps children.
    pub(crate) fn hand_over(mut self) {
        self.0 = None;
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if let Some(mut started) = self.0.take() {
            // Another supervisor of this process may have reaped it already.
            let _ = started.kill();
            let _ = started.wait();
        }
    }
}
