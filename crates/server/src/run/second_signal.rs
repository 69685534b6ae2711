//! Whether a signal asks a program to end at once that is ending already.
//!
//! `timeout` and the like signal a program and then its process group, so that the program gets the same
//! signal twice within a moment. That is one request. A second request comes later, or by the other signal.

use std::time::{Duration, Instant};
use thalweg_sys::signal::Signal;

/// How long the same signal counts as the same request.
const ECHO: Duration = Duration::from_millis(200);

/// The signal that had the program end, and when it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstSignal {
    signal: Signal,
    at: Instant,
}

impl FirstSignal {
    /// A signal that was just taken.
    pub(crate) fn now(signal: Signal) -> Self {
        Self { signal, at: Instant::now() }
    }

    /// Whether a signal that is taken at `now` is a second request to end.
    pub(crate) fn is_followed_by_another(self, signal: Signal, now: Instant) -> bool {
        let ends = matches!(signal, Signal::Terminate | Signal::Interrupt);
        ends && (signal != self.signal || now.saturating_duration_since(self.at) >= ECHO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_signal_at_once_is_the_same_request() {
        let at = Instant::now();
        let first = FirstSignal { signal: Signal::Terminate, at };
        assert!(!first.is_followed_by_another(Signal::Terminate, at + Duration::from_millis(1)));
        assert!(!first.is_followed_by_another(Signal::Terminate, at + ECHO - Duration::from_millis(1)));
        assert!(first.is_followed_by_another(Signal::Terminate, at + ECHO));
        assert!(first.is_followed_by_another(Signal::Interrupt, at));
        assert!(!first.is_followed_by_another(Signal::HangUp, at + ECHO));
    }
}
