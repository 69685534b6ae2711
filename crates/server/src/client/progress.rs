//! A bar where something takes longer than a second and somebody is looking.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// Before which nothing is shown.
const QUIET: Duration = Duration::from_secs(1);

/// How far something is.
#[derive(Debug)]
pub(super) struct Progress {
    start: Instant,
    visible: bool,
    /// Bytes in all, where that is known.
    total: Option<u64>,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Of `total` bytes, if it is known how many there will be.
    pub(super) fn new(total: Option<u64>) -> Self {
        Self { start: Instant::now(), visible: stderr().is_terminal(), total, bar: None }
    }

    /// So many bytes are done.
    pub(super) fn at(&mut self, bytes: u64) {
        if !self.visible || self.start.elapsed() < QUIET {
            return;
        }
        let total = self.total;
        let bar = self.bar.get_or_insert_with(|| {
            let (bar, template) = match total {
                Some(total) => {
                    let template = "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
                    (ProgressBar::new(total), template)
                }
                None => (ProgressBar::no_length(), "{spinner} {bytes} {bytes_per_sec}"),
            };
            // The templates are constants: one that could not be read would leave the usual style.
            bar.with_style(
                ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
            )
        });
        if total.is_some_and(|total| bytes > total) {
            bar.set_length(bytes);
        }
        bar.set_position(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(visible: bool, started_ago: Duration, total: Option<u64>) -> Progress {
        let start = Instant::now().checked_sub(started_ago).unwrap();
        Progress { start, visible, total, bar: None }
    }

    #[test]
    fn nothing_is_shown_at_once_or_to_nobody() {
        let mut early = progress(true, Duration::ZERO, Some(10));
        early.at(5);
        assert!(early.bar.is_none());
        let mut nobody = progress(false, 2 * QUIET, Some(10));
        nobody.at(5);
        assert!(nobody.bar.is_none());
        let mut shown = progress(true, 2 * QUIET, Some(10));
        shown.at(5);
        shown.at(15);
        let bar = shown.bar.as_ref().unwrap();
        assert_eq!((bar.position(), bar.length()), (15, Some(15)));
        let mut endless = progress(true, 2 * QUIET, None);
        endless.at(7);
        let bar = endless.bar.as_ref().unwrap();
        assert_eq!((bar.position(), bar.length()), (7, None));
    }
}
