//! Bodies that wait because somebody asked for a slow server ([`crate::built_in`]): at most one for each time
//! it was asked.

use std::time::{Duration, Instant};

/// What waits.
#[derive(Debug, Default)]
pub(crate) struct Held {
    bodies: Vec<Body>,
}

/// A body that nothing of was looked at yet.
#[derive(Debug)]
pub(crate) struct Body {
    /// What its answer goes by.
    pub(crate) name: u64,
    /// Of which service.
    pub(crate) place: usize,
    pub(crate) text: Vec<u8>,
    due: Instant,
}

impl Held {
    pub(crate) fn hold(&mut self, name: u64, place: usize, text: &[u8], time: Duration) {
        self.bodies.push(Body { name, place, text: text.to_vec(), due: Instant::now() + time });
    }

    /// The next that has waited long enough.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Body> {
        let place = self.bodies.iter().position(|body| body.due <= now)?;
        Some(self.bodies.remove(place))
    }

    /// What they take.
    pub(crate) fn bytes(&self) -> usize {
        self.bodies.iter().map(|body| size_of_val(body) + body.text.len()).sum()
    }

    /// Nobody waits for this one any more.
    pub(crate) fn forget(&mut self, name: u64) {
        self.bodies.retain(|body| body.name != name);
    }

    /// After how many milliseconds one is due.
    pub(crate) fn due_ms(&self, now: Instant) -> Option<u32> {
        let first = self.bodies.iter().map(|body| body.due).min()?;
        // Rounded up: a look too early finds nothing.
        let left = first.saturating_duration_since(now).as_micros().div_ceil(1_000);
        Some(u32::try_from(left).unwrap_or(u32::MAX))
    }
}
