//! The few threads that may wait for a disk, so that no reactor does.
//!
//! Work is handed over with the means to report back (a [`Permit`](crate::Permit), say); the queue is
//! bounded, and a full one gives the work back. The threads end when the last clone of the pool is gone
//! and the queue is empty; nobody waits for them, since a disk may not answer for long.
//!
//! A job that panics ends itself and nothing else: the standard library's hook has told of it by then.

use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Something to be done where waiting is fine.
pub type Job = Box<dyn FnOnce() + Send>;

/// A job waits behind so many at most.
const QUEUE_MAX: usize = 1024;
/// A job reads and checksums; it needs little stack, and only what it uses takes memory.
const STACK_BYTES: usize = 128 * 1024;

/// Hands jobs to its threads. Clones share them.
#[derive(Clone)]
pub struct Pool {
    queue: SyncSender<Job>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    /// Starts so many threads.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(threads: usize) -> io::Result<Pool> {
        let (queue, jobs) = sync_channel(QUEUE_MAX);
        let jobs = Arc::new(Mutex::new(jobs));
        for index in 0..threads {
            let jobs = jobs.clone();
            let builder = std::thread::Builder::new().name(format!("cold-{index}")).stack_size(STACK_BYTES);
            builder.spawn(move || work(&jobs))?;
        }
        Ok(Pool { queue })
    }

    /// Hands a job over without waiting.
    ///
    /// # Errors
    /// The job, when the queue is full.
    pub fn submit(&self, job: Job) -> Result<(), Job> {
        self.queue.try_send(job).map_err(|error| match error {
            TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
        })
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        // The lock is held while waiting for a job, not while doing it: the others wait for the lock.
        let next = jobs.lock().recv();
        match next {
            // What the job shared with others is theirs to leave whole, as in any thread that panics.
            Ok(job) => drop(catch_unwind(AssertUnwindSafe(job))),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn jobs_are_done_elsewhere_and_two_at_a_time() {
        let pool = Pool::start(2).unwrap();
        let (done, results) = channel();
        let (first, first_waits) = channel::<()>();
        let report = done.clone();
        let waits = move || {
            first_waits.recv().unwrap();
            report.send(1).unwrap();
        };
        assert!(pool.submit(Box::new(waits)).is_ok());
        let here = std::thread::current().id();
        let passes = move || {
            assert_ne!(std::thread::current().id(), here);
            done.send(2).unwrap();
        };
        assert!(pool.submit(Box::new(passes)).is_ok());
        assert_eq!(results.recv(), Ok(2), "the second job did not wait for the first");
        first.send(()).unwrap();
        assert_eq!(results.recv(), Ok(1));
    }

    #[test]
    fn a_panic_costs_no_thread() {
        let pool = Pool::start(1).unwrap();
        let (done, results) = channel();
        for number in 0..4 {
            let done = done.clone();
            let job = move || {
                assert!(number % 2 == 1, "this job panics on purpose");
                done.send(number).unwrap();
            };
            assert!(pool.submit(Box::new(job)).is_ok());
        }
        drop(done);
        assert_eq!(results.iter().collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn a_full_queue_gives_the_job_back() {
        let pool = Pool::start(0).unwrap();
        let held = (0..QUEUE_MAX).filter(|_| pool.submit(Box::new(|| ())).is_ok()).count();
        assert!(held < QUEUE_MAX || pool.submit(Box::new(|| ())).is_err());
    }
}
