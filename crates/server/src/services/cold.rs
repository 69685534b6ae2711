//! What the log's service has brought into memory, by the pool that it shares with every reactor's reads.
//!
//! Owns the jobs that the pool has no room for yet, and counts those that it has. A call or a tail goes with
//! its job and comes back with the report, so that nothing is brought in twice for one of them, however often
//! its stream moves meanwhile. What waits here needs no bound of its own: each is a call that its client has
//! in flight. What a service has in the pool has one, so that its tails leave room to others.
//!
//! Invariant: while a job waits here, the report of one that the pool has is to come, or the pool is to tell
//! of room. *Checked by* the tests below, and those of [`super::log`].

use super::log::{Tail, WaitingCall};
use super::news::News;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use thalweg_reactor::{Job, Pool};
use thalweg_wire::exchange::Work;

/// Jobs of one service that the pool has at once. It has two threads and a queue of 1,024.
const JOBS_MAX: usize = 64;

/// What waits for the disk.
pub(super) enum ColdWork {
    /// A call, to be made again.
    Call(WaitingCall),
    /// A tail of this topic.
    Tail(u64, Tail),
}

impl ColdWork {
    /// Its caller no longer waits for it.
    fn is_cancelled(&self) -> bool {
        match self {
            Self::Call(asked) => asked.reply.is_cancelled(),
            Self::Tail(_, tail) => tail.reply.is_cancelled(),
        }
    }
}

/// The jobs of one service.
pub(super) struct Cold {
    pool: Pool,
    news: Arc<News>,
    /// Wakes [`News`].
    room: Waker,
    /// Those that the pool has, or that were reported and not taken note of.
    jobs: usize,
    waiting: VecDeque<Job>,
}

impl Cold {
    pub(super) fn new(pool: Pool, news: Arc<News>) -> Self {
        Self { pool, room: Waker::from(news.clone()), news, jobs: 0, waiting: VecDeque::new() }
    }

    /// Has work done elsewhere. Then what waits for it comes back by [`News::brought`], whatever became of
    /// the work.
    pub(super) fn bring_in(&mut self, Work(work): Work, waits: ColdWork) {
        let news = self.news.clone();
        let job = move || {
            let report = Report(news, Some(waits));
            if !report.1.as_ref().is_some_and(ColdWork::is_cancelled) {
                work();
            }
        };
        self.waiting.push_back(Box::new(job));
        self.submit();
    }

    /// So many were brought.
    pub(super) fn reported(&mut self, jobs: usize) {
        self.jobs -= jobs;
        self.submit();
    }

    /// Hands over as many jobs as there is room for, in their order.
    fn submit(&mut self) {
        while self.jobs < JOBS_MAX
            && let Some(job) = self.waiting.pop_front()
        {
            if let Err(job) = self.pool.submit(job) {
                self.waiting.push_front(job);
                if self.jobs == 0 {
                    self.pool.when_room(&self.room);
                }
                return;
            }
            self.jobs += 1;
        }
    }
}

/// Says that work was done, or that it panicked.
struct Report(Arc<News>, Option<ColdWork>);

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(brought) = self.1.take() {
            self.0.brought(brought);
        }
    }
}
