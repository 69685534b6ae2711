//! Warnings that are logged once a second at most: a client that floods a server with what it warns about
//! does not flood its log. Each reactor has its own; what was not logged is counted and logged with the next.

use crate::limit::Limit;
use crate::meters::Meters;
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
    /// How often limits had been reached in all when last looked at each of them.
    overloads: u64,
    /// And whether something of that was not said.
    owes: bool,
    /// Of each limit, by its number: how often it had been reached by then, and its warning.
    limits: [(u64, RateLimitedWarning); Limit::COUNT],
}

impl Warnings {
    /// Warns of limits that were reached since. In nearly every turn none was.
    #[inline]
    pub(crate) fn reached(&mut self, now_ms: u64, meters: &Meters) {
        let overloads = meters.overloads_seen();
        if overloads != self.overloads || self.owes {
            self.overloads = overloads;
            self.warn(now_ms, meters.overloads());
        }
    }

    fn warn(&mut self, now_ms: u64, overloads: [u64; Limit::COUNT]) {
        self.owes = false;
        for ((limit, count), (seen, warning)) in Limit::ALL.into_iter().zip(overloads).zip(&mut self.limits) {
            let times = count - std::mem::replace(seen, count);
            if let Some(times) = warning.note(now_ms, times) {
                tracing::warn!(limit = limit.name(), times, "{}", limit.said());
            }
            self.owes |= warning.unsaid > 0;
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

    #[test]
    fn what_was_not_said_is_said_in_a_later_turn_though_nothing_else_is_reached() {
        let (mut warnings, meters) = (Warnings::default(), Meters::default());
        let mut owes_at = |now_ms, times| {
            (0..times).for_each(|_| meters.overload(Limit::Writes));
            warnings.reached(now_ms, &meters);
            warnings.owes
        };
        assert!(!owes_at(5, 0) && !owes_at(5, 1));
        assert!(owes_at(6, 2) && owes_at(1_004, 0));
        assert!(!owes_at(1_005, 0));
    }
}
