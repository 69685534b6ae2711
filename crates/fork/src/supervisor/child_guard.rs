//! A child process from its start until the thread that reaps children has taken it over.

use super::reaper;
use std::process::Child;
use thalweg_sys::fork;

/// Kills its child, and every process of the group that the child leads, when it is dropped, unless the child
/// was handed over.
pub(super) struct ChildGuard(Option<Child>);

impl ChildGuard {
    pub(super) fn new(started: Child) -> Self {
        Self(Some(started))
    }

    pub(super) fn process(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    /// Leaves the child to the thread that reaps children.
    pub(super) fn hand_over(mut self) {
        self.0 = None;
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if let Some(mut started) = self.0.take() {
            let leader = started.id();
            // The reaper of another supervisor may have reaped it already, and must not do so in between.
            reaper::with_numbers_kept(|| {
                if fork::is_child(leader).unwrap_or(false) {
                    super::end_by_force(leader);
                }
            });
            let _ = started.wait();
            // The rest of the group is this process's to reap. One of it that may not be killed is waited
            // for, so not here; if no thread starts, the rest stays unreaped until this process ends.
            let rest = move || fork::await_group(leader);
            let _ = std::thread::Builder::new().name("group-reaper".to_owned()).spawn(rest);
        }
    }
}
