//! Whether a signal asks once more for the end that is under way already.
//!
//! Who runs a program for a while, as `timeout` does, signals the program and then the group it is in, which
//! the program is in too: that is one wish, said twice within a moment. A second wish comes later, or by the
//! other signal.

use std::time::{Duration, Instant};
use thalweg_sys::signal::Signal;

/// Within which the same signal says nothing new.
const ECHO: Duration = Duration::from_millis(200);

/// What had the server end, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    signal: Signal,
    at: Instant,
}

impl Asked {
    /// By a signal that was just taken.
    pub(crate) fn now(signal: Signal) -> Self {
        Self { signal, at: Instant::now() }
    }

    /// Whether a signal that is taken now is another wish to end.
    pub(crate) fn is_asked_again(self, signal: Signal, now: Instant) -> bool {
        let ends = matches!(signal, Signal::Terminate | Signal::Interrupt);
        ends && (signal != self.signal || now.saturating_duration_since(self.at) >= ECHO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_signal_at_once_is_the_same_wish() {
        let at = Instant::now();
        let asked = Asked { signal: Signal::Terminate, at };
        assert!(!asked.is_asked_again(Signal::Terminate, at + Duration::from_millis(1)));
        assert!(!asked.is_asked_again(Signal::Terminate, at + ECHO - Duration::from_millis(1)));
        assert!(asked.is_asked_again(Signal::Terminate, at + ECHO));
        assert!(asked.is_asked_again(Signal::Interrupt, at));
        assert!(!asked.is_asked_again(Signal::HangUp, at + ECHO));
    }
}
