//! A bar where something takes longer than a second and standard error is a terminal.
//!
//! Our own forty lines: a library for this brings floating-point powers, and with them the C mathematics
//! library into the memory of every idle server.

use crate::quantity::Bytes;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Before which nothing is shown.
const QUIET: Duration = Duration::from_secs(1);
/// Between two drawings.
const PAUSE: Duration = Duration::from_millis(100);
/// Characters of the bar.
const WIDTH: u64 = 30;

/// How far something is.
#[derive(Debug)]
pub(super) struct Progress {
    start: Instant,
    visible: bool,
    /// Bytes in all, where that is known.
    total: Option<u64>,
    drawn: Option<Instant>,
}

impl Progress {
    /// Of `total` bytes, if it is known how many there will be.
    pub(super) fn new(total: Option<u64>) -> Self {
        Self { start: Instant::now(), visible: stderr().is_terminal(), total, drawn: None }
    }

    /// Shows that `bytes` are done.
    pub(super) fn at(&mut self, bytes: u64) {
        let now = Instant::now();
        if self.is_due(now) {
            self.drawn = Some(now);
            let line = line(bytes, self.total, now - self.start);
            // A bar that cannot be drawn is none.
            let _ = write!(stderr(), "\r\x1b[K{line}");
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let waited = self.drawn.is_none_or(|drawn| now - drawn >= PAUSE);
        self.visible && now - self.start >= QUIET && waited
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

fn line(bytes: u64, total: Option<u64>, elapsed: Duration) -> String {
    let mut line = String::new();
    if let Some(total) = total {
        let total = total.max(bytes).max(1);
        let share =
            |of: u64| u64::try_from(u128::from(bytes) * u128::from(of) / u128::from(total)).unwrap_or(of);
        let filled = share(WIDTH);
        (0..WIDTH).for_each(|place| line.push(if place < filled { '#' } else { '.' }));
        // Writing to a string cannot fail.
        let _ = write!(line, " {:>3} %  {} of {}", share(100), Bytes(bytes), Bytes(total));
    } else {
        let _ = write!(line, "{}", Bytes(bytes));
    }
    let per_second = u128::from(bytes) * 1_000 / elapsed.as_millis().max(1);
    let _ = write!(line, ", {}/s", Bytes(u64::try_from(per_second).unwrap_or(u64::MAX)));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_shown_at_once_or_to_nobody_or_all_the_time() {
        let start = Instant::now();
        let progress = |visible, drawn| Progress { start, visible, total: None, drawn };
        let later = start + 2 * QUIET;
        assert!(!progress(true, None).is_due(start));
        assert!(!progress(false, None).is_due(later));
        assert!(progress(true, None).is_due(later));
        let mut drawn = progress(true, Some(later));
        assert!(!drawn.is_due(later + PAUSE / 2) && drawn.is_due(later + PAUSE));
        drawn.drawn = None;
    }

    #[test]
    fn a_bar_says_how_far_it_is() {
        let half = line(5 << 20, Some(10 << 20), Duration::from_secs(2));
        assert_eq!(half, "###############...............  50 %  5 MiB of 10 MiB, 2.5 MiB/s");
        assert!(line(20, Some(10), Duration::ZERO).starts_with(&"#".repeat(30)), "it grew meanwhile");
        assert!(line(0, Some(0), Duration::ZERO).contains("  0 %"));
        assert_eq!(line(2048, None, Duration::from_secs(1)), "2 KiB, 2 KiB/s");
    }
}
