//! A fixed set of threads that run jobs. The program makes it, chooses its size, and joins its threads.
//!
//! How jobs come to threads is [`thalweg_reactor::Pool`]'s. Ownership: a [`Pool`] owns its threads and joins
//! them when it is dropped, after the jobs it was given have run.

use crate::schedule::Executor;
use std::fmt;
use std::thread::JoinHandle;
use thalweg_reactor::{Crew, Job};
use thalweg_sync::contain::contain;

/// A fixed number of threads over one queue without a bound: a scheduler bounds what it lets run.
pub struct Pool {
    /// Until it is dropped.
    pool: Option<thalweg_reactor::Pool>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of `threads` threads, at least one. It has fewer where the system could not start all; without
    /// any, jobs run on the thread that submits them.
    pub fn new(threads: usize) -> Self {
        let threads = threads.max(1);
        let crew = Crew { name: "thalweg-pool", threads, stack_bytes: None, queue_max: usize::MAX };
        let (pool, started) = thalweg_reactor::Pool::crew(crew);
        Self { pool: Some(pool), threads: started.into_iter().flatten().collect() }
    }

    /// How many threads it has.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }
}

impl Executor for Pool {
    fn execute(&self, job: Job) {
        let pool = self.pool.as_ref().filter(|_| !self.threads.is_empty());
        let left = match pool {
            Some(pool) => pool.submit(job).err(),
            None => Some(job),
        };
        left.into_iter().for_each(contain);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.pool.take());
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
    use std::sync::{Arc, mpsc};

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
    fn a_pool_that_ends_has_run_everything() {
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
        assert_eq!(ends.try_iter().collect::<Vec<_>>(), [1, 3, 5, 7, 9]);
    }

    #[test]
    fn the_last_job_may_be_what_drops_the_pool() {
        let (pool, (ended, ends)) = (Arc::new(Pool::new(1)), mpsc::channel());
        let last = Arc::clone(&pool);
        let (go, waits) = mpsc::channel::<()>();
        pool.execute(Box::new(move || {
            waits.recv().unwrap();
            drop(last);
            ended.send(()).unwrap();
        }));
        drop(pool);
        go.send(()).unwrap();
        ends.recv().unwrap();
    }
}
