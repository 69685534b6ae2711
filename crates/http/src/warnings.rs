//! Warnings that are said once a second at most: whoever floods a server with what it warns about does not flood its
//! log. Each reactor has its own; what was not said is counted and said with the next.

use std::num::NonZeroU64;

/// At least so long after a warning comes the next of its kind.
const APART_MS: u64 = 1000;

/// What a reactor warns about over and over.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    /// Connections that no descriptor was left for.
    pub(crate) shed: Sparing,
    /// Listeners that do not accept.
    pub(crate) deaf: Sparing,
    /// Peers of another user.
    pub(crate) strangers: Sparing,
    /// Readers that were cut.
    pub(crate) cut: Sparing,
}

/// One kind of warning.
#[derive(Debug, Default)]
pub struct Sparing {
    said_ms: Option<u64>,
    /// What it happened to since it was said.
    unsaid: u64,
}

impl Sparing {
    /// It happened `times` more at a time of the reactor's clock: what a warning has to say, if it may be said now.
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
        let mut warning = Sparing::default();
        assert_eq!(warning.note(5, 0), None, "nothing happened");
        assert_eq!(warning.note(5, 3), NonZeroU64::new(3));
        assert_eq!(warning.note(6, 1), None);
        assert_eq!(warning.note(1004, 2), None);
        assert_eq!(warning.note(1005, 1), NonZeroU64::new(4));
        assert_eq!(warning.note(1500, 0), None);
        assert_eq!(warning.note(9000, 1), NonZeroU64::new(1));
    }
}
