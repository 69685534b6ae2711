//! A few threads that run jobs: the program's, sized by whoever makes it.
//!
//! A thread that has nothing to do looks again for a while, making way to others, before it sleeps; one is woken only where
//! nobody looks, and wakes the next when it finds more than it takes. So a burst costs one wake where it comes in and not one
//! per thread, and each of the others is woken once its waker has a processor: then the kernel can tell which one is free.
//!
//! Ownership: a [`Pool`] owns its threads and joins them when it is dropped, after the jobs it was given have run. A job that
//! panics ends itself and nothing else: the standard library's hook has told of it by then.

use crate::schedule::Executor;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use thalweg_sync::patience::Patience;

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads over one queue.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Threads that sleep and were not woken.
    asleep: usize,
    /// Threads that have no job and will look for one, those included that were woken and are not up yet.
    seeking: usize,
    ending: bool,
}

impl Queue {
    /// Whether a thread is to be woken, which then counts as up: there are jobs, and nobody looks for one.
    fn takes_on_a_wake(&mut self) -> bool {
        let wanted = self.seeking == 0 && self.asleep > 0 && !self.jobs.is_empty();
        if wanted {
            self.asleep -= 1;
            self.seeking += 1;
        }
        wanted
    }
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
        self.shared.release(queue);
    }
}

impl Shared {
    /// Lets go of the queue, and wakes a thread if that is owed.
    fn release(&self, mut queue: MutexGuard<'_, Queue>) {
        let wakes = queue.takes_on_a_wake();
        drop(queue);
        if wakes {
            self.filled.notify_one();
        }
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            contain(job);
        }
    }

    /// The next job, once there is one; `None` at the end.
    fn next(&self) -> Option<Job> {
        let mut patience = None;
        let mut queue = self.queue.lock();
        queue.seeking += 1;
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                queue.seeking -= 1;
                self.release(queue);
                return Some(job);
            }
            if queue.ending {
                return None;
            }
            let patience = patience.get_or_insert_with(|| Patience::new(0));
            if !MutexGuard::unlocked(&mut queue, || patience.lasts()) && queue.jobs.is_empty() {
                queue.seeking -= 1;
                queue.asleep += 1;
                // Whoever wakes it counts it as up.
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
