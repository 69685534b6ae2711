//! A program that was started, before anybody waits for its end.

use std::process::Child;

/// The program, until somebody waits for its end: where nobody is going to, it is ended, and nothing is left
/// of it.
pub(crate) struct Started(Option<Child>);

impl Started {
    pub(crate) fn new(started: Child) -> Self {
        Self(Some(started))
    }

    pub(crate) fn process(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    /// Leaves it to the thread that waits for it.
    pub(crate) fn hand_over(mut self) {
        self.0 = None;
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut started) = self.0.take() {
            // Another supervisor of this process may have seen to its end already.
            let _ = started.kill();
            let _ = started.wait();
        }
    }
}
