//! Whether a store that another process writes is still where it was found.
//!
//! Purpose: what is mapped stays as it is when its file is removed, so that a store that was moved away, or that another was put in
//! the place of, looks like one to which nobody writes; and whoever sleeps until somebody does would sleep for ever. So the control
//! file at the path is compared with the one that is mapped, by whoever asks for logs, and now and then by whoever sleeps.

use crate::control::Control;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thalweg_sync::gate::Gate;
use thalweg_sync::region::Published;

/// How often who sleeps looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is known of it.
#[derive(Debug)]
pub(crate) struct Presence {
    /// Of the control file.
    path: PathBuf,
    /// 1 once another file, or none, was at the path. It stays so: who sleeps was told, and nobody is left that would wake the next one.
    gone: Published,
}

impl Presence {
    pub(crate) fn new(path: PathBuf) -> Presence {
        Presence { path, gone: Published::new(0) }
    }

    /// Whether it was gone when somebody looked.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.bytes() != 0
    }

    /// Looks whether it is gone, or was once. One that cannot be looked at is not. Complexity: two system calls.
    pub(crate) fn look(&self, control: &Control) -> bool {
        let gone = control.is_at(&self.path).is_ok_and(|is_there| !is_there);
        self.gone.advance(gone.into());
        self.is_gone()
    }

    /// Sleeps at a gate until `there` finds what it looks for, the store is gone, or the time is over; whether it was for one of
    /// the first two.
    pub(crate) fn wait(
        &self,
        control: &Control,
        gate: &Gate,
        timeout: Option<Duration>,
        mut there: impl FnMut() -> bool,
    ) -> bool {
        let ends = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = ends.map_or(LOOK_EVERY, |ends| ends.saturating_duration_since(Instant::now()));
            if gate.wait(Some(left.min(LOOK_EVERY)), || there() || self.is_gone()) || self.look(control) {
                return true;
            }
            if ends.is_some_and(|ends| ends <= Instant::now()) {
                return false;
            }
        }
    }
}
