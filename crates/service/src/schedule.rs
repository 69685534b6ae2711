//! Orders work per fork: what must not overlap waits, everything else runs.
//!
//! | | runs beside |
//! |---|---|
//! | a committed read | everything |
//! | a read | other reads of its fork |
//! | a write | nothing of its fork |
//!
//! Work of one fork begins in the order it was scheduled, but for committed reads, which never wait: so a read waits behind a
//! write that was scheduled before it, begun or not, and writers do not starve behind readers that keep coming. Forks do not
//! wait for each other, and nothing is kept for one that is idle.
//!
//! Work of several forks takes its place in all their lines in one step. So whatever came first is first everywhere, and as long as
//! nobody who has a turn waits for another, nobody waits in a circle.
//!
//! What is scheduled gets a [`Turn`] and holds its fork until it drops it, in whatever thread, by whatever way: at the end of
//! the job, when an answer that was promised is given, in a panic, or when the executor throws the job away unrun.
//!
//! *Checked by* the tests here, which hold random histories on many threads against a model that only knows the table above,
//! and by `tests/scheduled.rs` with a generated service.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use thalweg_sync::primitives::Mutex;

/// Runs jobs, in any order and on any thread. Sized by whoever makes it: the scheduler starts no thread.
pub trait Executor: Send + Sync {
    /// Runs the job, now or later.
    fn execute(&self, job: Box<dyn FnOnce() + Send>);
}

impl<E: Executor + ?Sized> Executor for Arc<E> {
    fn execute(&self, job: Box<dyn FnOnce() + Send>) {
        (**self).execute(job);
    }
}

/// Orders work per fork over an executor. Clones share the forks.
///
/// ```
/// use std::sync::mpsc;
/// use thalweg_service::{Pool, Scheduler};
/// let scheduler = Scheduler::new(Pool::new(2));
/// let (answers, answer) = mpsc::channel();
/// let other = answers.clone();
/// scheduler.schedule_write("main", move |_turn| answers.send("written").unwrap());
/// scheduler.schedule_read("main", false, move |_turn| other.send("read").unwrap());
/// assert_eq!([answer.recv().unwrap(), answer.recv().unwrap()], ["written", "read"]);
/// ```
pub struct Scheduler<K: Hash + Eq + Clone, E: Executor> {
    shared: Arc<Shared<K, E>>,
}

struct Shared<K, E> {
    executor: E,
    forks: Mutex<Forks<K>>,
}

struct Forks<K> {
    forks: HashMap<K, Fork>,
    /// Turns of any kind that were given and not dropped, and work that waits for one.
    in_flight: usize,
}

/// What goes on with one fork. There is none for an idle one.
#[derive(Default)]
struct Fork {
    readers: usize,
    writing: bool,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    write: bool,
    begin: Begin,
}

/// Hands a job its turn and the executor its job.
type Begin = Box<dyn FnOnce() + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Free,
    Read,
    Write,
}

impl<K: Hash + Eq + Clone + Send + 'static, E: Executor + 'static> Scheduler<K, E> {
    /// A scheduler over an executor. One that runs jobs where it is told to is fine too.
    pub fn new(executor: E) -> Self {
        let forks = Forks { forks: HashMap::new(), in_flight: 0 };
        Self { shared: Arc::new(Shared { executor, forks: Mutex::new(forks) }) }
    }

    /// Schedules a read: at once if it reads what is committed, else behind what was scheduled to write its fork.
    pub fn schedule_read(&self, fork: K, committed: bool, job: impl FnOnce(Turn<K, E>) + Send + 'static) {
        self.schedule(fork, if committed { Hold::Free } else { Hold::Read }, job);
    }

    /// Schedules a write: behind everything that was scheduled for its fork, alone.
    pub fn schedule_write(&self, fork: K, job: impl FnOnce(Turn<K, E>) + Send + 'static) {
        self.schedule(fork, Hold::Write, job);
    }

    /// Schedules what reads, or writes, each of some forks: it takes its place in every line in one step, and begins once it has all
    /// turns, which it gets in the order of the forks. One at least is named, and none twice.
    pub fn schedule_all(&self, forks: &[(K, bool)], job: impl FnOnce(Vec<Turn<K, E>>) + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        let turns: Vec<_> =
            forks.iter().map(|(fork, write)| self.turn(fork.clone(), Hold::of(*write))).collect();
        let begin: Begin = Box::new(move || shared.executor.execute(Box::new(move || job(turns))));
        // Dropped turns are given back: none is before all of them were had.
        let missing = Arc::new(Mutex::new((forks.len(), Some(begin))));
        let mut lines = self.shared.forks.lock();
        let had = forks.iter().filter_map(|(fork, write)| {
            let missing = Arc::clone(&missing);
            lines.line_up(fork, Hold::of(*write), Box::new(move || one_more(&missing)))
        });
        let had: Vec<_> = had.collect();
        drop(lines);
        had.into_iter().for_each(run);
    }

    /// Turns of each of some forks here and now, to write it or else to read, if nothing stands against any.
    pub fn all_now(&self, forks: &[(K, bool)]) -> Option<Vec<Turn<K, E>>> {
        let mut lines = self.shared.forks.lock();
        if !forks.iter().all(|(fork, write)| lines.is_free(fork, Hold::of(*write))) {
            return None;
        }
        for (fork, write) in forks {
            lines.in_flight += 1;
            lines.enter(fork, Hold::of(*write));
        }
        drop(lines);
        Some(forks.iter().map(|(fork, write)| self.turn(fork.clone(), Hold::of(*write))).collect())
    }

    /// A turn to read here and now, if nothing at all is in flight: for work so short that handing it over costs more than
    /// doing it, where nobody else waits meanwhile.
    pub fn read_alone(&self, fork: K, committed: bool) -> Option<Turn<K, E>> {
        self.alone(fork, if committed { Hold::Free } else { Hold::Read })
    }

    /// A turn to write here and now, if nothing at all is in flight.
    pub fn write_alone(&self, fork: K) -> Option<Turn<K, E>> {
        self.alone(fork, Hold::Write)
    }

    /// A turn to read here and now, if nothing stands against it on its fork.
    pub fn read_now(&self, fork: K, committed: bool) -> Option<Turn<K, E>> {
        self.now(fork, if committed { Hold::Free } else { Hold::Read })
    }

    /// A turn to write here and now, if nothing stands against it on its fork.
    pub fn write_now(&self, fork: K) -> Option<Turn<K, E>> {
        self.now(fork, Hold::Write)
    }

    /// Turns that were given and not dropped, and work that waits for one.
    pub fn in_flight(&self) -> usize {
        self.shared.forks.lock().in_flight
    }

    /// Forks that something goes on with.
    pub fn forks(&self) -> usize {
        self.shared.forks.lock().forks.len()
    }

    fn now(&self, fork: K, hold: Hold) -> Option<Turn<K, E>> {
        let mut forks = self.shared.forks.lock();
        if !forks.enter(&fork, hold) {
            return None;
        }
        forks.in_flight += 1;
        drop(forks);
        Some(self.turn(fork, hold))
    }

    fn alone(&self, fork: K, hold: Hold) -> Option<Turn<K, E>> {
        let mut forks = self.shared.forks.lock();
        if forks.in_flight > 0 {
            return None;
        }
        forks.in_flight = 1;
        forks.enter(&fork, hold);
        drop(forks);
        Some(self.turn(fork, hold))
    }

    fn turn(&self, fork: K, hold: Hold) -> Turn<K, E> {
        Turn { shared: Arc::clone(&self.shared), fork, hold }
    }

    fn schedule(&self, fork: K, hold: Hold, job: impl FnOnce(Turn<K, E>) + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        let turn = self.turn(fork.clone(), hold);
        let begin = move || shared.executor.execute(Box::new(move || job(turn)));
        let begin = self.shared.forks.lock().line_up(&fork, hold, Box::new(begin));
        begin.into_iter().for_each(run);
    }
}

impl Hold {
    fn of(write: bool) -> Self {
        if write { Self::Write } else { Self::Read }
    }
}

/// One more turn is had; with the last one the work begins.
fn one_more(missing: &Mutex<(usize, Option<Begin>)>) {
    let mut missing = missing.lock();
    missing.0 -= 1;
    let begin = if missing.0 == 0 { missing.1.take() } else { None };
    drop(missing);
    begin.into_iter().for_each(|begin| begin());
}

impl<K: Hash + Eq + Clone> Forks<K> {
    fn is_free(&self, fork: &K, hold: Hold) -> bool {
        self.forks.get(fork).is_none_or(|busy| {
            !busy.writing && busy.waiting.is_empty() && (hold != Hold::Write || busy.readers == 0)
        })
    }

    /// What begins now, or nothing if it has to wait in its line.
    fn line_up(&mut self, fork: &K, hold: Hold, begin: Begin) -> Option<Begin> {
        self.in_flight += 1;
        if self.enter(fork, hold) {
            return Some(begin);
        }
        let busy = self.forks.entry(fork.clone()).or_default();
        busy.waiting.push_back(Waiting { write: hold == Hold::Write, begin });
        None
    }

    /// Takes a fork if nothing stands against it; otherwise it is busy, and has an entry to wait in.
    fn enter(&mut self, fork: &K, hold: Hold) -> bool {
        if hold == Hold::Free {
            return true;
        }
        let busy = self.forks.entry(fork.clone()).or_default();
        let write = hold == Hold::Write;
        if busy.writing || !busy.waiting.is_empty() || write && busy.readers > 0 {
            return false;
        }
        if write {
            busy.writing = true
        } else {
            busy.readers += 1
        }
        true
    }

    /// Gives a fork back; what may begin now.
    fn leave(&mut self, fork: &K, hold: Hold) -> Vec<Begin> {
        self.in_flight -= 1;
        let mut next = Vec::new();
        let Some(busy) = self.forks.get_mut(fork).filter(|_| hold != Hold::Free) else { return next };
        if hold == Hold::Write {
            busy.writing = false
        } else {
            busy.readers -= 1
        }
        while let Some(first) = busy.waiting.front() {
            if busy.writing || first.write && busy.readers > 0 {
                break;
            }
            if first.write {
                busy.writing = true
            } else {
                busy.readers += 1
            }
            next.extend(busy.waiting.pop_front().map(|waiting| waiting.begin));
        }
        if !busy.writing && busy.readers == 0 {
            self.forks.remove(fork);
        }
        next
    }
}

/// The right to a fork, until it is dropped.
pub struct Turn<K: Hash + Eq + Clone, E: Executor> {
    shared: Arc<Shared<K, E>>,
    fork: K,
    hold: Hold,
}

impl<K: Hash + Eq + Clone, E: Executor> Drop for Turn<K, E> {
    fn drop(&mut self) {
        let next = self.shared.forks.lock().leave(&self.fork, self.hold);
        next.into_iter().for_each(run);
    }
}

thread_local! {
    /// What this thread is to hand to executors, while it is doing so.
    static QUEUE: RefCell<Option<VecDeque<Begin>>> = const { RefCell::new(None) };
}

/// Hands a job to its executor. An executor that runs it here and now comes back here when it ends and the next begins:
/// then it is queued for the call below it on the stack, so that a long line of jobs makes no deep stack.
fn run(begin: Begin) {
    let queued = QUEUE.with_borrow_mut(|queue| match queue {
        Some(queue) => {
            queue.push_back(begin);
            None
        }
        None => {
            *queue = Some(VecDeque::new());
            Some(begin)
        }
    });
    let Some(begin) = queued else { return };
    let _running = Running;
    begin();
    while let Some(begin) = QUEUE.with_borrow_mut(|queue| queue.as_mut()?.pop_front()) {
        begin();
    }
}

/// Leaves the queue as it was found, in a panic too; then what is left in it still runs.
struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        let left = QUEUE.with_borrow_mut(Option::take);
        left.into_iter().flatten().for_each(run);
    }
}

impl<K: Hash + Eq + Clone, E: Executor> Clone for Scheduler<K, E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Hash + Eq + Clone, E: Executor> fmt::Debug for Scheduler<K, E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forks = self.shared.forks.lock();
        let (busy, in_flight) = (forks.forks.len(), forks.in_flight);
        formatter.debug_struct("Scheduler").field("forks", &busy).field("in_flight", &in_flight).finish()
    }
}

impl<K: Hash + Eq + Clone + fmt::Debug, E: Executor> fmt::Debug for Turn<K, E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Turn")
            .field("fork", &self.fork)
            .field("hold", &self.hold)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
