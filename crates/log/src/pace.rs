//! How much of the time, of the disk and of a processor, what is done in the background takes.

use std::time::Duration;

/// However long a step took, it goes on after so much.
const REST_MAX: Duration = Duration::from_millis(50);

/// How long to rest after a step that took so long: so many times as long, within bounds.
pub(crate) fn rest(took: Duration, parts: u32) -> Duration {
    took.saturating_mul(parts).min(REST_MAX)
}
