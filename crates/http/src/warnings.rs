//! Warnings that are logged once a second at most: a client that floods a server with what it warns about
//! does not flood its log. Each reactor has its own; what was not logged is counted and logged with the next.

use crate::limit::Limit;
use std::num::NonZeroU64;

/// At least so long after a warning comes the next of its kind.
const APART_MS: u64 = 1000;

/// What a reactor warns about over and over.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    /// Listeners that do not accept.
    pub(crate) deaf: RateLimitedWarning,
    /// Peers of another user.
    pub(crate) strangers: RateLimitedWarning,
    /// Of each limit, by its number: how often it had been reached when last looked at, and its warning.
    limits: [(u64, RateLimitedWarning); Limit::COUNT],
}

impl Warnings {
    /// Warns of limits that were reached since, which were reached so often in all.
    pub(crate) fn reached(&mut self, now_ms: u64, overloads: [u64; Limit::COUNT]) {
        for ((limit, count), (seen, warning)) in Limit::ALL.into_iter().zip(overloads).zip(&mut self.limits) {
            let times = count - std::mem::replace(seen, count);
            if let Some(times) = warning.note(now_ms, times) {
                tracing::warn!(limit = limit.name(), times, "{}", limit.said());
            }
        }
    }
}

/// One kind of warning.
#[derive(Debug, Default)]
pub struct RateLimitedWarning {
    said_ms: Option<u64>,
    /// What it happened to since it was said.
    unsaid: u64,
}

impl RateLimitedWarning {
    /// It happened `times` more at a time of the reactor's clock: what a warning has to say, if it may be
    /// said now.
    #[must_use]
    pub fn note(&mut self, now_ms: u64, times: u64) -> Option<NonZeroU64> {
        self.unsaid += times;
        if self.said_ms.is_some_and(|said_ms| now_ms < said_ms + APART_MS) {
            return None;
        }
        let unsaid = NonZeroU64::new(std::mem::take(&mut self.unsaid))?;
        self.said_ms = Some(now_ms);
        Some(unsaid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_said_at_once_then_once_a_second_with_what_was_not_said() {
        let mut warning = RateLimitedWarning::default();
        assert_eq!(warning.note(5, 0), None, "nothing happened");
        assert_eq!(warning.note(5, 3), NonZeroU64::new(3));
        assert_eq!(warning.note(6, 1), None);
        assert_eq!(warning.note(1004, 2), None);
        assert_eq!(warning.note(1005, 1), NonZeroU64::new(4));
        assert_eq!(warning.note(1500, 0), None);
        assert_eq!(warning.note(9000, 1), NonZeroU64::new(1));
    }
}
