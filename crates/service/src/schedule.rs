//! Orders work per fork: what must not overlap waits, everything else runs.
//!
//! | | runs beside |
//! |---|---|
//! | a committed read | everything |
//! | a read | other reads of its fork |
//! | a write | nothing of its fork |
//!
//! Work of one fork begins in the order it was scheduled, but for committed reads, which never wait: so a
//! read waits behind a write that was scheduled before it, begun or not, and writers do not starve behind
//! readers that keep coming. Forks do not wait for each other, and nothing is kept for one that is idle.
//!
//! Work of several forks joins all their queues in one step. So the order is the same in each queue, and
//! there is no deadlock as long as no holder of a turn waits for another turn.
//!
//! What is scheduled gets a [`Turn`] and holds its fork until it drops it, in whatever thread, by whatever
//! way: at the end of the job, when an answer that was promised is given, in a panic, or when the executor
//! throws the job away unrun.
//!
//! *Checked by* the tests here, which hold random histories on many threads against a model that only knows
//! the table above, and by `tests/scheduled.rs` with a generated service.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use thalweg_sync::primitives::Mutex;
use thalweg_wire::service::Access;

/// Runs jobs, in any order and on any thread. Its owner chooses its size: the scheduler starts no thread.
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
/// use thalweg_service::{Access, Pool, Scheduler};
/// let scheduler = Scheduler::new(Pool::new(2));
/// let (answers, answer) = mpsc::channel();
/// let other = answers.clone();
/// scheduler.schedule("main", Access::Write, move |_turn| answers.send("written").unwrap());
/// scheduler.schedule("main", Access::Read, move |_turn| other.send("read").unwrap());
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

/// The work of one fork. An idle fork has no entry.
#[derive(Default)]
struct Fork {
    readers: usize,
    writing: bool,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    access: Access,
    begin: Begin,
}

/// Hands a job its turn and the executor its job.
type Begin = Box<dyn FnOnce() + Send>;

impl<K: Hash + Eq + Clone + Send + 'static, E: Executor + 'static> Scheduler<K, E> {
    /// A scheduler over an executor. One that runs jobs where it is told to is fine too.
    pub fn new(executor: E) -> Self {
        let forks = Forks { forks: HashMap::new(), in_flight: 0 };
        Self { shared: Arc::new(Shared { executor, forks: Mutex::new(forks) }) }
    }

    /// Schedules what reads or writes a fork: at once if it reads what is committed, else behind what was
    /// scheduled before it and must not overlap it.
    pub fn schedule(&self, fork: K, access: Access, job: impl FnOnce(Turn<K, E>) + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        let turn = self.turn(fork.clone(), access);
        let begin = move || shared.executor.execute(Box::new(move || job(turn)));
        let begin = self.shared.forks.lock().line_up(&fork, access, Box::new(begin));
        begin.into_iter().for_each(run);
    }

    /// Schedules what reads, or writes, each of some forks: it takes its place in every line in one step, and
    /// begins once it has all turns, which it gets in the order of the forks. One at least is named, and none
    /// twice.
    pub fn schedule_all(&self, forks: &[(K, Access)], job: impl FnOnce(Vec<Turn<K, E>>) + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        let turns = self.turns(forks);
        let begin: Begin = Box::new(move || shared.executor.execute(Box::new(move || job(turns))));
        // Dropped turns are given back: none is before all of them were had.
        let missing = Arc::new(Mutex::new((forks.len(), Some(begin))));
        let mut lines = self.shared.forks.lock();
        let had = forks.iter().filter_map(|(fork, access)| {
            let missing = Arc::clone(&missing);
            lines.line_up(fork, *access, Box::new(move || one_more(&missing)))
        });
        let had: Vec<_> = had.collect();
        drop(lines);
        had.into_iter().for_each(run);
    }

    /// A turn here and now, if nothing stands against it on its fork.
    pub fn now(&self, fork: K, access: Access) -> Option<Turn<K, E>> {
        let mut forks = self.shared.forks.lock();
        if !forks.enter(&fork, access) {
            return None;
        }
        forks.in_flight += 1;
        drop(forks);
        Some(self.turn(fork, access))
    }

    /// Turns of each of some forks here and now, if nothing stands against any.
    pub fn all_now(&self, forks: &[(K, Access)]) -> Option<Vec<Turn<K, E>>> {
        let mut lines = self.shared.forks.lock();
        if !forks.iter().all(|(fork, access)| lines.is_open(fork, *access)) {
            return None;
        }
        for (fork, access) in forks {
            lines.in_flight += 1;
            lines.enter(fork, *access);
        }
        drop(lines);
        Some(self.turns(forks))
    }

    /// A turn here and now, if nothing at all is in flight: for work so short that handing it over costs more
    /// than doing it, where nobody else waits meanwhile.
    pub fn alone(&self, fork: K, access: Access) -> Option<Turn<K, E>> {
        let mut forks = self.shared.forks.lock();
        if forks.in_flight > 0 {
            return None;
        }
        forks.in_flight = 1;
        forks.enter(&fork, access);
        drop(forks);
        Some(self.turn(fork, access))
    }

    /// Turns that were given and not dropped, and work that waits for one.
    pub fn in_flight(&self) -> usize {
        self.shared.forks.lock().in_flight
    }

    /// Forks with work in flight.
    pub fn forks(&self) -> usize {
        self.shared.forks.lock().forks.len()
    }

    fn turn(&self, fork: K, access: Access) -> Turn<K, E> {
        Turn { shared: Arc::clone(&self.shared), fork, access }
    }

    fn turns(&self, forks: &[(K, Access)]) -> Vec<Turn<K, E>> {
        forks.iter().map(|(fork, access)| self.turn(fork.clone(), *access)).collect()
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

impl Fork {
    /// Whether the turns that are held admit one more.
    fn admits(&self, access: Access) -> bool {
        match access {
            Access::ReadCommitted => true,
            Access::Read => !self.writing,
            Access::Write => !self.writing && self.readers == 0,
        }
    }

    /// Whether new work may begin now. Waiting work comes first, except before work that nothing conflicts
    /// with.
    fn is_open(&self, access: Access) -> bool {
        self.admits(access) && (access == Access::ReadCommitted || self.waiting.is_empty())
    }

    fn enter(&mut self, access: Access) {
        match access {
            Access::ReadCommitted => {}
            Access::Read => self.readers += 1,
            Access::Write => self.writing = true,
        }
    }

    fn leave(&mut self, access: Access) {
        match access {
            Access::ReadCommitted => {}
            Access::Read => self.readers -= 1,
            Access::Write => self.writing = false,
        }
    }

    /// The first in line, if it may begin.
    fn next(&mut self) -> Option<Begin> {
        let access = self.waiting.front()?.access;
        if !self.admits(access) {
            return None;
        }
        self.enter(access);
        self.waiting.pop_front().map(|waiting| waiting.begin)
    }

    fn is_idle(&self) -> bool {
        !self.writing && self.readers == 0
    }
}

impl<K: Hash + Eq + Clone> Forks<K> {
    fn is_open(&self, fork: &K, access: Access) -> bool {
        self.forks.get(fork).is_none_or(|fork| fork.is_open(access))
    }

    /// What begins now, or nothing if it has to wait in its line.
    fn line_up(&mut self, fork: &K, access: Access, begin: Begin) -> Option<Begin> {
        self.in_flight += 1;
        if self.enter(fork, access) {
            return Some(begin);
        }
        let busy = self.forks.entry(fork.clone()).or_default();
        busy.waiting.push_back(Waiting { access, begin });
        None
    }

    /// Takes a fork if nothing stands against it; otherwise it is busy, and has an entry to wait in.
    fn enter(&mut self, fork: &K, access: Access) -> bool {
        // A committed read takes no entry, so that an idle fork stays without one.
        if access == Access::ReadCommitted {
            return true;
        }
        let fork = self.forks.entry(fork.clone()).or_default();
        let is_open = fork.is_open(access);
        if is_open {
            fork.enter(access);
        }
        is_open
    }

    /// Gives a fork back; what may begin now.
    fn leave(&mut self, key: &K, access: Access) -> Vec<Begin> {
        self.in_flight -= 1;
        let mut next = Vec::new();
        if access == Access::ReadCommitted {
            return next;
        }
        let Some(fork) = self.forks.get_mut(key) else { return next };
        fork.leave(access);
        next.extend(std::iter::from_fn(|| fork.next()));
        if fork.is_idle() {
            self.forks.remove(key);
        }
        next
    }
}

/// The right to a fork, until it is dropped.
pub struct Turn<K: Hash + Eq + Clone, E: Executor> {
    shared: Arc<Shared<K, E>>,
    fork: K,
    access: Access,
}

impl<K: Hash + Eq + Clone, E: Executor> Drop for Turn<K, E> {
    fn drop(&mut self) {
        let next = self.shared.forks.lock().leave(&self.fork, self.access);
        next.into_iter().for_each(run);
    }
}

thread_local! {
    /// What this thread is to hand to executors, while it is doing so.
    static QUEUE: RefCell<Option<VecDeque<Begin>>> = const { RefCell::new(None) };
}

/// Hands a job to its executor. An executor that runs it here and now comes back here when it ends and the
/// next begins: then it is queued for the call below it on the stack, so that a long line of jobs makes no
/// deep stack.
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
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
