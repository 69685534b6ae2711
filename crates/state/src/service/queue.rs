//! The queue of long work: two lanes, each first in, first out. Work that holds turns delays other calls, so
//! it goes before calls that hold none. A reactor with nothing else to do may take a call of the second lane.
//!
//! A call is taken by a job of the pool or by a reactor that helps, whichever comes first, and a reactor puts
//! back what it did not finish. *Invariant*: at least as many jobs are submitted as there is work queued, so
//! that no work waits for a job that never comes. A job that finds both lanes empty does nothing. Each `put`
//! returns whether the caller has to submit a job.

use super::Core;
use super::order::{Budget, Rest};
use super::pending_call::PendingCall;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// How many calls a reactor looks at to find one that it can help with.
const HELP_AHEAD: usize = 16;

/// Work that holds turns.
pub(super) type Holding = Box<dyn FnOnce() + Send>;

/// A call that waits and holds no turn.
pub(super) struct Queued {
    pub(super) core: Arc<Core>,
    /// The smallest budget that its rest can go on with.
    pub(super) least: Budget,
    pub(super) rest: Rest<Budget>,
    pub(super) pending: PendingCall,
}

/// The work that a job takes.
pub(super) enum Next {
    Holding(Holding),
    Call(Queued),
}

#[derive(Default)]
pub(super) struct Queue(Mutex<Lanes>);

#[derive(Default)]
struct Lanes {
    holding: VecDeque<Holding>,
    calls: VecDeque<Queued>,
    /// Jobs that were submitted and have not taken work yet: as many as there is work, or more.
    jobs: usize,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Queues work that holds turns; whether it needs a job.
    #[must_use]
    pub(super) fn put_holding(&self, work: Holding) -> bool {
        let mut lanes = self.0.lock();
        lanes.holding.push_back(work);
        lanes.needs_job()
    }

    /// Queues a call after all others; whether it needs a job.
    #[must_use]
    pub(super) fn put_last(&self, call: Queued) -> bool {
        let mut lanes = self.0.lock();
        lanes.calls.push_back(call);
        lanes.needs_job()
    }

    /// Queues a call before all others; whether it needs a job: its job may have come while a reactor had the
    /// call.
    #[must_use]
    pub(super) fn put_first(&self, call: Queued) -> bool {
        let mut lanes = self.0.lock();
        lanes.calls.push_front(call);
        lanes.needs_job()
    }

    /// Takes the first work, for a job.
    pub(super) fn take_for_job(&self) -> Option<Next> {
        let mut lanes = self.0.lock();
        lanes.jobs -= 1;
        let holding = lanes.holding.pop_front().map(Next::Holding);
        holding.or_else(|| lanes.calls.pop_front().map(Next::Call))
    }

    /// Takes one of the first calls that fit into `budget`, if more work is queued than `idle` threads will
    /// take.
    pub(super) fn take_to_help(&self, idle: usize, budget: Budget) -> Option<Queued> {
        let mut lanes = self.0.lock();
        if lanes.len() <= idle {
            return None;
        }
        let first = lanes.calls.iter().take(HELP_AHEAD).position(|call| call.least <= budget)?;
        lanes.calls.remove(first)
    }
}

impl Lanes {
    fn len(&self) -> usize {
        self.holding.len() + self.calls.len()
    }

    /// Counts a job that is to be submitted, if there are too few.
    fn needs_job(&mut self) -> bool {
        let needs_job = self.jobs < self.len();
        self.jobs += usize::from(needs_job);
        needs_job
    }
}
