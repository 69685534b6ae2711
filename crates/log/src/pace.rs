//! How much of the time, of the disk and of a processor, what is done in the background takes.
//!
//! A share, as long as a step takes no more than that part of the longest rest: who does these steps has other things to do, signals
//! among them. On a disk that takes longer for a mebibyte the share is larger.

use std::time::Duration;

/// However long a step took, it goes on after so much.
const REST_MAX: Duration = Duration::from_millis(50);

/// How long to rest after a step that took so long: so many times as long, within bounds.
pub(crate) fn rest(took: Duration, parts: u32) -> Duration {
    took.saturating_mul(parts).min(REST_MAX)
}
