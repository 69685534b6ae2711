//! A child process from its start until the thread that reaps children has taken it over.

use std::process::Child;
use thalweg_sys::fork;

/// Kills its child, and every process of the group that the child leads, when it is dropped, unless the child
/// was handed over.
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
            let leader = started.id();
            // Another supervisor of this process may have reaped it already.
            let _ = fork::kill_group(leader);
            // It may have left the group that it led.
            if fork::is_child(leader).unwrap_or(false) {
                let _ = fork::kill(leader);
            }
            let _ = started.wait();
            // The rest of the group is this process's to reap. One of it that may not be killed is waited
            // for, so not here; if no thread starts, the rest stays unreaped until this process ends.
            let rest = move || fork::await_group(leader);
            let _ = std::thread::Builder::new().name("reaper".to_owned()).spawn(rest);
        }
    }
}
