//! Threads that run jobs: what may wait for a disk, or takes long, so that no reactor does.
//!
//! Work is handed over with the means to report back (a [`Permit`](crate::Permit), say); the queue has a
//! bound, and a full one gives the work back; a submitter that is to come again may be told of room
//! ([`Pool::when_room`]). A thread that has nothing to do looks again for a while, making
//! way to others, before it sleeps; one is woken only where none looks, and wakes the next when it finds
//! more than it takes. So a burst costs one wake where it comes in and not one per thread, and each of the
//! others is woken once its waker has a processor: then the kernel can tell which one is free.
//!
//! Ownership: clones of a [`Pool`] share its threads, which end when the last clone is gone and the queue is
//! empty. The pool does not wait for them, since a disk may not answer for long; an owner that wants to has
//! their handles ([`Pool::crew`]). A job or a waker that panics ends itself and nothing else: the standard
//! library's hook has told of it by then.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::thread::JoinHandle;
use thalweg_sync::contain::contain;
use thalweg_sync::patience::Patience;

/// Something to be done where waiting is fine.
pub type Job = Box<dyn FnOnce() + Send>;

/// Jobs that may wait for a disk at once.
const COLD_QUEUE_MAX: usize = 1024;
/// A job that reads and checksums needs little stack, and only what it uses takes memory.
const COLD_STACK_BYTES: usize = 128 * 1024;

/// What threads a pool has.
#[derive(Clone, Copy, Debug)]
pub struct Crew {
    /// What each is called, with its number behind it.
    pub name: &'static str,
    /// How many.
    pub threads: usize,
    /// Stack of each; `None`: what the standard library gives.
    pub stack_bytes: Option<usize>,
    /// Jobs that may wait for a thread.
    pub queue_max: usize,
}

/// Hands jobs to its threads. Clones share them.
#[derive(Clone)]
pub struct Pool(Arc<Owner>);

/// Shared by the handles that may still submit a job; the last one to go ends the threads.
struct Owner(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
}

struct Queue {
    jobs: VecDeque<Job>,
    jobs_max: usize,
    /// Threads that sleep and were not woken.
    asleep: usize,
    /// Threads that have no job and will look for one, those included that were woken and are not up yet.
    seeking: usize,
    /// Submitters to be told of room; none while there is any.
    turned_away: Vec<Waker>,
    ending: bool,
}

impl Pool {
    /// Starts so many threads for what waits for a disk, behind a queue of 1,024.
    ///
    /// # Errors
    /// The system does not give that many.
    pub fn start(threads: usize) -> io::Result<Pool> {
        let stack_bytes = Some(COLD_STACK_BYTES);
        let crew = Crew { name: "cold", threads, stack_bytes, queue_max: COLD_QUEUE_MAX };
        let (pool, started) = Pool::crew(crew);
        started.into_iter().collect::<io::Result<Vec<_>>>().map(|_| pool)
    }

    /// Starts these threads; each or why the system does not give it.
    pub fn crew(crew: Crew) -> (Pool, Vec<io::Result<JoinHandle<()>>>) {
        let queue = Queue {
            jobs: VecDeque::new(),
            jobs_max: crew.queue_max,
            asleep: 0,
            seeking: 0,
            turned_away: Vec::new(),
            ending: false,
        };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), filled: Condvar::new() });
        let start = |index| {
            let shared = Arc::clone(&shared);
            let mut builder = std::thread::Builder::new().name(format!("{}-{index}", crew.name));
            if let Some(bytes) = crew.stack_bytes {
                builder = builder.stack_size(bytes);
            }
            builder.spawn(move || shared.work())
        };
        let started = (0..crew.threads).map(start).collect();
        (Pool(Arc::new(Owner(shared))), started)
    }

    /// Hands a job over without waiting.
    ///
    /// # Errors
    /// The job, when the queue is full.
    pub fn submit(&self, job: Job) -> Result<(), Job> {
        let Owner(shared) = &*self.0;
        let mut queue = shared.queue.lock();
        if queue.jobs.len() >= queue.jobs_max {
            return Err(job);
        }
        queue.jobs.push_back(job);
        shared.release(queue);
        Ok(())
    }

    /// Wakes `waker` once, when the queue has room: at once, on this thread, if it has. Others may have taken
    /// the room by the time the woken submitter comes. One that waits already is not noted again.
    pub fn when_room(&self, waker: &Waker) {
        let Owner(shared) = &*self.0;
        let mut queue = shared.queue.lock();
        if queue.jobs.len() < queue.jobs_max {
            drop(queue);
            return waker.wake_by_ref();
        }
        if !queue.turned_away.iter().any(|known| known.will_wake(waker)) {
            queue.turned_away.push(waker.clone());
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.queue.lock().ending = true;
        self.0.filled.notify_all();
    }
}

impl Queue {
    /// Whether a thread is to be woken, which then counts as up: there are jobs, and no thread looks for one.
    fn takes_on_a_wake(&mut self) -> bool {
        let wanted = self.seeking == 0 && self.asleep > 0 && !self.jobs.is_empty();
        if wanted {
            self.asleep -= 1;
            self.seeking += 1;
        }
        wanted
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
                let turned_away = std::mem::take(&mut queue.turned_away);
                self.release(queue);
                // Without the lock: what they do with it is theirs to say.
                turned_away.into_iter().for_each(|waker| contain(|| waker.wake()));
                return Some(job);
            }
            if queue.ending {
                return None;
            }
            let patience = patience.get_or_insert_with(|| Patience::new(0));
            if !MutexGuard::unlocked(&mut queue, || patience.lasts())
                && queue.jobs.is_empty()
                && !queue.ending
            {
                queue.seeking -= 1;
                queue.asleep += 1;
                // The thread that wakes it counts it as awake.
                self.filled.wait(&mut queue);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use std::task::Wake;

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
    fn a_panic_costs_no_thread_and_what_was_handed_over_is_done_though_nobody_has_the_pool_any_more() {
        let pool = Pool::start(1).unwrap();
        let (done, results) = channel();
        for number in 0..4 {
            let done = done.clone();
            let job = move || {
                assert!(number % 2 == 1, "this job panics on purpose");
                done.send(number).unwrap();
            };
            assert!(pool.clone().submit(Box::new(job)).is_ok());
        }
        drop((pool, done));
        assert_eq!(results.iter().collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn threads_end_with_the_last_that_may_hand_something_over() {
        let (pool, threads) = Pool::crew(Crew { name: "few", threads: 3, stack_bytes: None, queue_max: 1 });
        let other = pool.clone();
        drop(pool);
        assert!(other.submit(Box::new(|| ())).is_ok());
        drop(other);
        threads.into_iter().for_each(|thread| thread.unwrap().join().unwrap());
    }

    #[test]
    fn no_job_is_lost_between_a_thread_that_goes_to_wait_and_one_that_gives() {
        let (pool, _) =
            Pool::crew(Crew { name: "all", threads: 2, stack_bytes: None, queue_max: usize::MAX });
        let (ended, ends) = channel();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (pool, ended) = (&pool, ended.clone());
                scope.spawn(move || {
                    for _ in 0..5_000 {
                        let ended = ended.clone();
                        assert!(pool.submit(Box::new(move || ended.send(()).unwrap())).is_ok());
                    }
                });
            }
        });
        (0..20_000).for_each(|_| ends.recv().unwrap());
    }

    /// A thread sleeps some 50 µs after its last job.
    #[test]
    fn threads_hear_of_the_end_at_whatever_moment_it_comes() {
        let (ended, ends) = channel();
        std::thread::spawn(move || {
            for round in 0..2_000 {
                let (pool, threads) =
                    Pool::crew(Crew { name: "brief", threads: 1, stack_bytes: None, queue_max: 1 });
                let (done, waits) = channel();
                assert!(pool.submit(Box::new(move || done.send(()).unwrap())).is_ok());
                waits.recv().unwrap();
                let until = std::time::Instant::now() + std::time::Duration::from_nanos(45_000 + round * 7);
                while std::time::Instant::now() < until {
                    std::hint::spin_loop();
                }
                drop(pool);
                threads.into_iter().for_each(|thread| thread.unwrap().join().unwrap());
            }
            ended.send(()).unwrap();
        });
        assert!(ends.recv_timeout(std::time::Duration::from_secs(120)).is_ok(), "a thread sleeps for good");
    }

    #[test]
    fn a_full_queue_gives_the_job_back() {
        let pool = Pool::start(0).unwrap();
        let held = (0..COLD_QUEUE_MAX).filter(|_| pool.submit(Box::new(|| ())).is_ok()).count();
        assert_eq!(held, COLD_QUEUE_MAX);
        assert!(pool.submit(Box::new(|| ())).is_err());
    }

    /// Counts how often it is woken.
    struct Counts(Sender<()>);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.send(()).unwrap();
        }
    }

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as the test wants it");
        }
    }

    #[test]
    fn a_waker_that_panics_costs_no_thread_no_job_and_no_other_its_wake() {
        let (pool, threads) = Pool::crew(Crew { name: "woken", threads: 1, stack_bytes: None, queue_max: 1 });
        let (held, released) = channel::<()>();
        let (taken, takes) = channel();
        let waits = move || {
            taken.send(()).unwrap();
            _ = released.recv();
        };
        assert!(pool.submit(Box::new(waits)).is_ok());
        takes.recv().unwrap();
        let (done, results) = channel();
        assert!(pool.submit(Box::new(move || done.send(()).unwrap())).is_ok());
        let (woken, wakes) = channel();
        pool.when_room(&Waker::from(Arc::new(Panics)));
        pool.when_room(&Waker::from(Arc::new(Counts(woken))));
        drop(held);
        assert_eq!((wakes.recv(), results.recv()), (Ok(()), Ok(())));
        drop(pool);
        threads.into_iter().for_each(|thread| thread.unwrap().join().unwrap());
    }

    #[test]
    fn who_found_no_room_is_told_of_it_once() {
        let (pool, _) = Pool::crew(Crew { name: "full", threads: 1, stack_bytes: None, queue_max: 1 });
        let (woken, wakes) = channel();
        let waker = Waker::from(Arc::new(Counts(woken)));
        pool.when_room(&waker);
        assert!(wakes.try_recv().is_ok(), "there is room now");
        let (held, released) = channel::<()>();
        let (taken, takes) = channel();
        let waits = move || {
            taken.send(()).unwrap();
            _ = released.recv();
        };
        assert!(pool.submit(Box::new(waits)).is_ok());
        takes.recv().unwrap();
        assert!(pool.submit(Box::new(|| ())).is_ok() && pool.submit(Box::new(|| ())).is_err());
        (0..3).for_each(|_| pool.when_room(&waker));
        assert!(wakes.try_recv().is_err(), "there is none");
        drop(held);
        wakes.recv().unwrap();
        assert!(pool.submit(Box::new(|| ())).is_ok());
        drop((pool, waker));
        assert!(wakes.recv().is_err(), "it was told once more");
    }
}
