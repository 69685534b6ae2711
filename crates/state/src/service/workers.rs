//! Worker threads for long work, and the queue in front of them.

use super::order::{Budget, UNLIMITED};
use super::queue::{Next, Queue, Queued};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use thalweg_service::{Executor, Pool};

/// A fixed number of threads, started by the first job.
pub(super) struct LazyPool {
    threads: usize,
    pool: OnceLock<Pool>,
    /// Jobs that have begun and not ended.
    running: Arc<Mutex<usize>>,
}

impl LazyPool {
    pub(super) fn new(threads: usize) -> Self {
        Self { threads: threads.max(1), pool: OnceLock::new(), running: Arc::default() }
    }

    /// Threads that are not running a job. One that was woken may not have begun its job yet.
    fn idle(&self) -> usize {
        self.threads.saturating_sub(*self.running.lock())
    }
}

impl Executor for LazyPool {
    fn execute(&self, job: Box<dyn FnOnce() + Send>) {
        let running = Arc::clone(&self.running);
        let job = move || {
            *running.lock() += 1;
            let _running = Running(running);
            job();
        };
        self.pool.get_or_init(|| Pool::new(self.threads)).execute(Box::new(job));
    }
}

/// A job that has begun; it has ended when this is dropped, in a panic as well.
struct Running(Arc<Mutex<usize>>);

impl Drop for Running {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
    }
}

/// Threads that serve a [`Queue`]. As an executor they run the jobs of calls that were given turns, before
/// calls that hold none.
pub(super) struct Workers {
    threads: LazyPool,
    queue: Arc<Queue>,
}

impl Workers {
    pub(super) fn new(threads: usize) -> Self {
        Self { threads: LazyPool::new(threads), queue: Arc::default() }
    }

    /// Queues a call that holds no turn after the others.
    pub(super) fn put_last(&self, call: Queued) {
        self.submit(self.queue.put_last(call));
    }

    /// Queues it before the others.
    pub(super) fn put_first(&self, call: Queued) {
        self.submit(self.queue.put_first(call));
    }

    /// One of the first calls in the queue that can go on with `budget`, if every thread is busy.
    pub(super) fn take_to_help(&self, budget: Budget) -> Option<Queued> {
        self.queue.take_to_help(self.threads.idle(), budget)
    }

    /// Whether every thread is busy and has another job waiting: one more would only wait.
    pub(super) fn are_full(&self) -> bool {
        let threads = self.threads.threads;
        self.queue.len() + threads - self.threads.idle() >= 2 * threads
    }

    fn submit(&self, needs_job: bool) {
        if !needs_job {
            return;
        }
        let queue = Arc::clone(&self.queue);
        self.threads.execute(Box::new(move || match queue.take_for_job() {
            Some(Next::Holding(work)) => work(),
            Some(Next::Call(call)) => call.go_on(UNLIMITED),
            // A reactor has done what this job was for.
            None => {}
        }));
    }
}

impl Executor for Workers {
    fn execute(&self, job: Box<dyn FnOnce() + Send>) {
        self.submit(self.queue.put_holding(job));
    }
}
