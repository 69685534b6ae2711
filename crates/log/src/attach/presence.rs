//! Whether a store that another process writes is still where it was found.
//!
//! Purpose: mapped bytes stay as they are when their file is removed. So a store that was moved away, or
//! replaced by another, looks like one to which nothing is written, and a reader that sleeps until the next
//! commit would sleep for ever. Therefore the control file at the path is compared with the mapped one:
//! whenever logs are asked for, and once per [`LOOK_EVERY`] by a sleeper.

use crate::control::Control;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thalweg_sync::gate::Gate;
use thalweg_sync::region::Published;

/// How often a sleeper looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whether the store is still there, as of the last look.
#[derive(Debug)]
pub(crate) struct Presence {
    /// The control file's path.
    path: PathBuf,
    /// 1 once a look found another file, or none, at the path. It stays 1: the thread that wakes tasks has
    /// ended by then.
    gone: Published,
}

impl Presence {
    pub(crate) fn new(path: PathBuf) -> Presence {
        Presence { path, gone: Published::new(0) }
    }

    /// Whether a look ever found it gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.bytes() != 0
    }

    /// Looks whether it is gone, now or at any look before. An error of the system does not count as gone.
    /// Complexity: two system calls.
    pub(crate) fn look(&self, control: &Control) -> bool {
        let gone = control.is_at(&self.path).is_ok_and(|is_there| !is_there);
        self.gone.advance(gone.into());
        self.is_gone()
    }

    /// Sleeps at a gate until `is_ready` answers true, the store is gone, or the time is over; `false`: the
    /// time is over.
    pub(crate) fn wait(
        &self,
        control: &Control,
        gate: &Gate,
        timeout: Option<Duration>,
        mut is_ready: impl FnMut() -> bool,
    ) -> bool {
        let ends = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = ends.map_or(LOOK_EVERY, |ends| ends.saturating_duration_since(Instant::now()));
            if gate.wait(Some(left.min(LOOK_EVERY)), || is_ready() || self.is_gone()) || self.look(control) {
                return true;
            }
            if ends.is_some_and(|ends| ends <= Instant::now()) {
                return false;
            }
        }
    }
}
