//! A few threads that run jobs: the program's, sized by whoever makes it.
//!
//! Ownership: a [`Pool`] owns its threads and joins them when it is dropped, after the jobs it was given have run. A job that
//! panics ends itself and nothing else: the standard library's hook has told of it by then.

use crate::schedule::Executor;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads over one queue.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// One thread that waits is woken per job.
    filled: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Threads that wait and were not woken.
    idle: usize,
    ending: bool,
}

impl Pool {
    /// That many threads, at least one. Where not all can be started, as many as could; without any, jobs run where
    /// they are given.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared { queue: Mutex::new(Queue::default()), filled: Condvar::new() });
        let start = |index| {
            let shared = Arc::clone(&shared);
            let name = format!("thalweg-pool-{index}");
            std::thread::Builder::new().name(name).spawn(move || shared.work())
        };
        let threads = (0..threads.max(1)).map_while(|index| start(index).ok()).collect();
        Self { shared, threads }
    }

    /// How many threads it has.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }
}

impl Executor for Pool {
    fn execute(&self, job: Job) {
        if self.threads.is_empty() {
            return contain(job);
        }
        let mut queue = self.shared.queue.lock();
        queue.jobs.push_back(job);
        // Whoever is up looks again before it waits.
        if queue.idle > 0 {
            queue.idle -= 1;
            drop(queue);
            self.shared.filled.notify_one();
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                contain(job);
                queue = self.queue.lock();
            } else if queue.ending {
                return;
            } else {
                queue.idle += 1;
                self.filled.wait(&mut queue);
            }
        }
    }
}

fn contain(job: Job) {
    // What the job shared with others is theirs to leave whole, as in any thread that panics.
    let _ = catch_unwind(AssertUnwindSafe(job));
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue.lock().ending = true;
        self.shared.filled.notify_all();
        let this = std::thread::current().id();
        // The last job may be what drops the pool.
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != this) {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pool").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn jobs_run_side_by_side_on_as_many_threads_as_were_asked_for() {
        let pool = Pool::new(3);
        let barrier = Arc::new(std::sync::Barrier::new(3));
        let (ended, ends) = mpsc::channel();
        for _ in 0..3 {
            let (barrier, ended) = (Arc::clone(&barrier), ended.clone());
            // Each waits for the other two: fewer threads would wait forever.
            pool.execute(Box::new(move || {
                barrier.wait();
                ended.send(()).unwrap();
            }));
        }
        (0..3).for_each(|_| ends.recv().unwrap());
        assert_eq!(Pool::new(0).threads(), 1);
    }

    #[test]
    fn a_panic_costs_no_thread_and_no_other_job() {
        let pool = Pool::new(1);
        let (ended, ends) = mpsc::channel();
        for number in 0..10 {
            let ended = ended.clone();
            pool.execute(Box::new(move || {
                assert!(number % 2 == 1, "this job panics on purpose");
                ended.send(number).unwrap();
            }));
        }
        drop(pool);
        drop(ended);
        assert_eq!(
            ends.iter().collect::<Vec<_>>(),
            [1, 3, 5, 7, 9],
            "and a pool that ends has run everything"
        );
    }

    #[test]
    fn no_job_is_lost_between_a_thread_that_goes_to_wait_and_one_that_gives() {
        let pool = Arc::new(Pool::new(2));
        let (ended, ends) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (pool, ended) = (Arc::clone(&pool), ended.clone());
                scope.spawn(move || {
                    for _ in 0..5_000 {
                        let ended = ended.clone();
                        pool.execute(Box::new(move || ended.send(()).unwrap()));
                    }
                });
            }
        });
        (0..20_000).for_each(|_| ends.recv().unwrap());
    }
}
