//! When images that could not be written are tried again, and what is logged about it.
//!
//! Writing an image takes a walk over all entries of a fork, and one that does not fit was written as far as
//! there was room. So the wait doubles with each failure in a row, and a failure is logged once.

use crate::error::Error;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// The wait after the first failure, and the longest.
const WAIT_MIN: Duration = Duration::from_secs(10);
const WAIT_MAX: Duration = Duration::from_secs(5 * 60);

/// The outcome of writing images that were due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageNews {
    /// Why an image cannot be written. Nothing is lost: opening has more to replay. It is tried again.
    Refused(String),
    /// The images that could not be written are written, or no longer needed.
    Written,
}

#[derive(Default)]
pub(super) struct Imaging(Mutex<Trouble>);

/// The last failure, and when to try again.
#[derive(Default)]
struct Trouble {
    why: Option<String>,
    /// The reason that was logged last.
    told: Option<String>,
    wait: Duration,
    until: Option<Instant>,
}

impl Imaging {
    /// Whether it is too early to try again.
    pub(super) fn rests(&self, now: Instant) -> bool {
        self.0.lock().until.is_some_and(|until| now < until)
    }

    /// Notes the outcome of a try.
    pub(super) fn came_to(&self, outcome: Result<usize, Error>, now: Instant) {
        let mut trouble = self.0.lock();
        let (why, wait) = match outcome {
            Ok(_) => (None, Duration::ZERO),
            Err(error) => (Some(error.to_string()), (trouble.wait * 2).clamp(WAIT_MIN, WAIT_MAX)),
        };
        let until = if why.is_some() { now.checked_add(wait) } else { None };
        *trouble = Trouble { why, wait, until, told: trouble.told.take() };
    }

    /// The outcome, if it changed since the last call.
    pub(super) fn news(&self) -> Option<ImageNews> {
        let mut trouble = self.0.lock();
        if trouble.why == trouble.told {
            return None;
        }
        trouble.told = trouble.why.clone();
        Some(trouble.why.clone().map_or(ImageNews::Written, ImageNews::Refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_log::CommitError;

    fn full(why: &str) -> Result<usize, Error> {
        Err(CommitError::Full(why.to_owned()).into())
    }

    #[test]
    fn what_is_refused_again_is_waited_for_longer_up_to_a_bound() {
        let (imaging, mut now) = (Imaging::default(), Instant::now());
        assert!(!imaging.rests(now));
        for seconds in [10, 20, 40, 80, 160, 300, 300] {
            imaging.came_to(full("no space"), now);
            let until = now + Duration::from_secs(seconds);
            assert!(imaging.rests(until - Duration::from_millis(1)) && !imaging.rests(until), "{seconds}");
            now = until;
        }
        imaging.came_to(Ok(1), now);
        assert!(!imaging.rests(now));
        imaging.came_to(full("no space"), now);
        assert!(!imaging.rests(now + WAIT_MIN), "it is the first again");
    }

    #[test]
    fn what_is_refused_is_told_once_and_again_when_it_changes() {
        let (imaging, now) = (Imaging::default(), Instant::now());
        let mut told = Vec::new();
        for outcome in [Ok(0), full("a"), full("a"), full("b"), full("b"), Ok(1), Ok(0), full("b")] {
            imaging.came_to(outcome, now);
            told.push(imaging.news());
            assert_eq!(imaging.news(), None);
        }
        let refused = |why: &str| Some(ImageNews::Refused(full(why).unwrap_err().to_string()));
        let (a, b) = (refused("a"), refused("b"));
        let wanted = [None, a, None, b.clone(), None, Some(ImageNews::Written), None, b];
        assert_eq!(told, wanted);
    }
}
