//! Calls that wait for a thread, or for a reactor that has nothing else to do, first come first.
//!
//! A call is taken out by a job of the pool or by a reactor that helps, whichever comes first, and a reactor
//! puts back what it did not end. Invariant: at least as many jobs are on their way here as calls wait, so
//! that no call waits for nobody. A job that finds the queue empty has nothing to do. Putting a call
//! in says whether it needs a job, which the caller submits.

use super::asked::Asked;
use super::order::{Budget, Rest};
use parking_lot::Mutex;
use std::collections::VecDeque;

/// How many calls a reactor looks at for one to help with: those in front may take long.
const HELP_AHEAD: usize = 16;

/// A call that waits.
pub(super) struct Queued {
    /// The smallest budget that its rest can go on with.
    pub(super) least: Budget,
    pub(super) rest: Rest<Budget>,
    pub(super) asked: Asked,
}

#[derive(Default)]
pub(super) struct Queue(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    calls: VecDeque<Queued>,
    /// Jobs that were asked for and have not come yet: as many as there are calls, or more.
    jobs: usize,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.0.lock().calls.len()
    }

    /// Puts a call behind all others; whether it needs a job.
    #[must_use]
    pub(super) fn put_last(&self, call: Queued) -> bool {
        let mut waiting = self.0.lock();
        waiting.calls.push_back(call);
        waiting.needs_job()
    }

    /// Puts a call before all others; whether it needs a job: the one for which it stood here may have come
    /// while it was out.
    #[must_use]
    pub(super) fn put_first(&self, call: Queued) -> bool {
        let mut waiting = self.0.lock();
        waiting.calls.push_front(call);
        waiting.needs_job()
    }

    /// The first call, for a job that has come.
    pub(super) fn take_for_job(&self) -> Option<Queued> {
        let mut waiting = self.0.lock();
        waiting.jobs -= 1;
        waiting.calls.pop_front()
    }

    /// One of the first calls that can go on with `budget`, if more wait than `idle` threads will take.
    pub(super) fn take_to_help(&self, idle: usize, budget: Budget) -> Option<Queued> {
        let mut waiting = self.0.lock();
        if waiting.calls.len() <= idle {
            return None;
        }
        let first = waiting.calls.iter().take(HELP_AHEAD).position(|call| call.least <= budget)?;
        waiting.calls.remove(first)
    }
}

impl Waiting {
    /// Counts a job that is to be submitted, if there are too few.
    fn needs_job(&mut self) -> bool {
        let needs_job = self.jobs < self.calls.len();
        self.jobs += usize::from(needs_job);
        needs_job
    }
}
