//! Bodies that wait because a client asked for a slow server ([`crate::built_in`]): at most one for each time
//! that it asked.

use std::time::{Duration, Instant};

/// The bodies that wait.
#[derive(Debug, Default)]
pub(crate) struct Delayed {
    bodies: Vec<DelayedBody>,
}

/// A body of which nothing was read yet.
#[derive(Debug)]
pub(crate) struct DelayedBody {
    /// The name by which the HTTP connection knows its answer.
    pub(crate) name: u64,
    /// The index of its service.
    pub(crate) place: usize,
    pub(crate) text: Vec<u8>,
    due: Instant,
}

impl Delayed {
    pub(crate) fn add(&mut self, name: u64, place: usize, text: &[u8], time: Duration) {
        self.bodies.push(DelayedBody { name, place, text: text.to_vec(), due: Instant::now() + time });
    }

    /// The next whose time has come.
    pub(crate) fn take(&mut self, now: Instant) -> Option<DelayedBody> {
        let place = self.bodies.iter().position(|body| body.due <= now)?;
        Some(self.bodies.remove(place))
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.bodies.iter().map(|body| size_of_val(body) + body.text.len()).sum()
    }

    /// Drops a body whose client is gone.
    pub(crate) fn forget(&mut self, name: u64) {
        self.bodies.retain(|body| body.name != name);
    }

    /// After how many milliseconds one is due.
    pub(crate) fn due_ms(&self, now: Instant) -> Option<u32> {
        let first = self.bodies.iter().map(|body| body.due).min()?;
        // Rounded up: a millisecond earlier none is due.
        let left = first.saturating_duration_since(now).as_micros().div_ceil(1_000);
        Some(u32::try_from(left).unwrap_or(u32::MAX))
    }
}
