//! When images that could not be written are tried again, and what is said of it.
//!
//! An image takes a walk over all that a fork holds, and one that does not fit has been written as far as
//! there was room: so each that is refused is waited for twice as long as the one before, and told of once.

use crate::error::Error;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// How long the first that was refused is waited for, and how long any is.
const WAIT_MIN: Duration = Duration::from_secs(10);
const WAIT_MAX: Duration = Duration::from_secs(5 * 60);

/// What became of the images that were due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageNews {
    /// Why one cannot be written. Nothing is lost by it: opening has more to replay. It is tried again.
    Refused(String),
    /// Those that were refused are written, or needed no more.
    Written,
}

#[derive(Default)]
pub(super) struct Imaging(Mutex<Trouble>);

/// Of the images that were refused last.
#[derive(Default)]
struct Trouble {
    why: Option<String>,
    /// What was told of it last.
    told: Option<String>,
    wait: Duration,
    until: Option<Instant>,
}

impl Imaging {
    /// Whether nothing is to be tried yet.
    pub(super) fn rests(&self, now: Instant) -> bool {
        self.0.lock().until.is_some_and(|until| now < until)
    }

    /// Images were tried.
    pub(super) fn came_to(&self, outcome: Result<usize, Error>, now: Instant) {
        let mut trouble = self.0.lock();
        let (why, wait) = match outcome {
            Ok(_) => (None, Duration::ZERO),
            Err(error) => (Some(error.to_string()), (trouble.wait * 2).clamp(WAIT_MIN, WAIT_MAX)),
        };
        let until = if why.is_some() { now.checked_add(wait) } else { None };
        *trouble = Trouble { why, wait, until, told: trouble.told.take() };
    }

    /// What changed since this was asked last.
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
