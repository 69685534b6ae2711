//! The scheduler against a model that only knows which work may run beside which.

use super::*;
use crate::pool::Pool;
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

/// Runs a job where it is given, in the middle of whatever goes on.
struct Inline;

impl Executor for Inline {
    fn execute(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }
}

/// Never runs anything.
struct Careless;

impl Executor for Careless {
    fn execute(&self, job: Box<dyn FnOnce() + Send>) {
        drop(job);
    }
}

/// What has been scheduled, in order, and how far each is.
#[derive(Default)]
struct Model {
    works: Vec<(u8, Access, bool)>,
}

impl Model {
    /// What must have begun: everything that no earlier work of its fork stands against, where a read also
    /// waits for an earlier read that has not begun.
    fn begun(&self) -> Vec<usize> {
        let mut begun = vec![false; self.works.len()];
        for (at, (fork, kind, _)) in self.works.iter().enumerate() {
            let mut earlier = self.works[..at].iter().zip(&begun).filter(|((other, _, _), _)| other == fork);
            begun[at] = *kind == Access::ReadCommitted
                || earlier.all(|((_, other, done), begun)| match (kind, other) {
                    (_, Access::ReadCommitted) => true,
                    (Access::Read, Access::Read) => *begun,
                    _ => *done,
                });
        }
        (0..begun.len()).filter(|at| begun[*at]).collect()
    }
}

proptest! {
    /// Work is scheduled and ended in any order. After each step exactly that has begun which the model says.
    #[test]
    fn exactly_what_nothing_stands_against_has_begun(
        steps in proptest::collection::vec((0_u8..3, 0_u8..3, any::<Option<prop::sample::Index>>()), 1..80),
    ) {
        let scheduler = Scheduler::new(Inline);
        let begun = Arc::new(Mutex::new(Vec::<(usize, Turn<u8, Inline>)>::new()));
        let mut model = Model::default();
        for (fork, kind, ending) in steps {
            let running = begun.lock().len();
            if let Some(which) = ending.filter(|_| running > 0) {
                let (work, turn) = begun.lock().swap_remove(which.index(running));
                model.works[work].2 = true;
                drop(turn);
            } else {
                let kind = [Access::ReadCommitted, Access::Read, Access::Write][kind as usize];
                let work = model.works.len();
                model.works.push((fork, kind, false));
                let begun = Arc::clone(&begun);
                scheduler.schedule(fork, kind, move |turn| begun.lock().push((work, turn)));
            }
            let mut running: Vec<usize> = begun.lock().iter().map(|(work, _)| *work).collect();
            running.extend((0..model.works.len()).filter(|work| model.works[*work].2));
            running.sort_unstable();
            prop_assert_eq!(running, model.begun());
            let alive = model.works.iter().filter(|(_, _, done)| !done).count();
            prop_assert_eq!(scheduler.in_flight(), alive);
        }
        loop {
            let Some((_, turn)) = begun.lock().pop() else { break };
            drop(turn);
        }
        prop_assert_eq!((scheduler.in_flight(), scheduler.forks()), (0, 0), "an idle fork is forgotten");
    }
}

/// Who is on a fork. Looked at by jobs that run at the same moment.
#[derive(Default)]
struct Present {
    readers: usize,
    writers: usize,
    order: Vec<usize>,
}

#[test]
fn many_threads_over_a_pool_never_meet_where_they_must_not() {
    const THREADS: usize = 4;
    const WORKS: usize = 3_000;
    let scheduler = Scheduler::new(Pool::new(3));
    let forks: Arc<[Mutex<Present>; 3]> = Arc::default();
    let (ended, ends) = mpsc::channel();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (scheduler, forks, ended) = (scheduler.clone(), Arc::clone(&forks), ended.clone());
            scope.spawn(move || {
                for work in 0..WORKS {
                    let seed = (thread * WORKS + work).wrapping_mul(0x9e37_79b9);
                    let fork = (seed >> 7) % 3;
                    let kind =
                        [Access::ReadCommitted, Access::Read, Access::Read, Access::Write][(seed >> 13) % 4];
                    let (forks, ended) = (Arc::clone(&forks), ended.clone());
                    scheduler.schedule(fork as u8, kind, move |turn| {
                        visit(&forks[fork], kind, thread * WORKS + work);
                        drop(turn);
                        ended.send(()).unwrap();
                    });
                }
            });
        }
    });
    drop(ended);
    assert_eq!(
        ends.iter().count(),
        THREADS * WORKS,
        "a job that met another would have panicked and said nothing"
    );
    assert_eq!((scheduler.in_flight(), scheduler.forks()), (0, 0));
    for fork in forks.iter() {
        let order = &fork.lock().order;
        for thread in 0..THREADS {
            let of_thread: Vec<_> = order.iter().filter(|work| **work / WORKS == thread).collect();
            assert!(of_thread.is_sorted(), "writes happen in the order they were scheduled");
        }
    }
}

fn visit(fork: &Mutex<Present>, kind: Access, work: usize) {
    {
        let mut present = fork.lock();
        match kind {
            Access::ReadCommitted => return,
            Access::Read => present.readers += 1,
            Access::Write => {
                present.writers += 1;
                present.order.push(work);
            }
        }
        assert!(present.writers == 0 || present.writers == 1 && present.readers == 0);
    }
    std::thread::yield_now();
    let mut present = fork.lock();
    match kind {
        Access::ReadCommitted => {}
        Access::Read => present.readers -= 1,
        Access::Write => present.writers -= 1,
    }
}

#[test]
fn a_panic_and_a_job_that_is_thrown_away_leave_the_fork_free() {
    let scheduler = Scheduler::new(Inline);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        scheduler.schedule(1, Access::Write, |_turn| panic!("this job panics on purpose"));
    }));
    assert!(outcome.is_err());
    let (ended, ends) = mpsc::channel();
    scheduler.schedule(1, Access::Write, move |_turn| ended.send(()).unwrap());
    ends.recv().unwrap();
    assert_eq!((scheduler.in_flight(), scheduler.forks()), (0, 0));

    let scheduler = Scheduler::new(Careless);
    (0..3).for_each(|_| scheduler.schedule(1, Access::Write, |_turn| unreachable!("nothing runs here")));
    assert_eq!((scheduler.in_flight(), scheduler.forks()), (0, 0));
}

#[test]
fn a_panic_in_the_middle_of_a_line_does_not_lose_the_rest_of_it() {
    let scheduler = Scheduler::new(Inline);
    let first = scheduler.alone(1, Access::Write).unwrap();
    let (ended, ends) = mpsc::channel();
    for work in 0..6 {
        let ended = ended.clone();
        scheduler.schedule(1, Access::Write, move |_turn| {
            assert!(work != 2, "this job panics on purpose");
            ended.send(work).unwrap();
        });
    }
    assert!(catch_unwind(AssertUnwindSafe(|| drop(first))).is_err());
    drop(ended);
    assert_eq!(ends.iter().collect::<Vec<_>>(), [0, 1, 3, 4, 5]);
    assert_eq!((scheduler.in_flight(), scheduler.forks()), (0, 0));
}

#[test]
fn a_long_line_makes_no_deep_stack() {
    let scheduler = Scheduler::new(Inline);
    let first = scheduler.alone(1, Access::Write).unwrap();
    let count = Arc::new(Mutex::new(0));
    for _ in 0..200_000 {
        let count = Arc::clone(&count);
        scheduler.schedule(1, Access::Write, move |_turn| *count.lock() += 1);
    }
    drop(first);
    assert_eq!(*count.lock(), 200_000);
}

#[test]
fn alone_means_that_nothing_at_all_is_in_flight() {
    let scheduler = Scheduler::new(Inline);
    let first = scheduler.alone(1, Access::ReadCommitted).unwrap();
    assert!(
        scheduler.alone(2, Access::Write).is_none() && scheduler.alone(2, Access::ReadCommitted).is_none()
    );
    drop(first);
    let write = scheduler.alone(2, Access::Write).unwrap();
    let (ended, ends) = mpsc::channel();
    scheduler.schedule(2, Access::Read, move |_turn| ended.send(()).unwrap());
    assert!(ends.try_recv().is_err(), "it waits behind a write that runs inline");
    drop(write);
    ends.recv().unwrap();
    assert!(scheduler.alone(2, Access::Read).is_some());
}

#[test]
fn a_turn_here_and_now_minds_its_own_fork_only() {
    let scheduler = Scheduler::new(Inline);
    let read = scheduler.now(1, Access::Read).unwrap();
    assert!(scheduler.now(1, Access::Write).is_none(), "somebody reads");
    let write = scheduler.now(2, Access::Write).unwrap();
    assert!(scheduler.now(2, Access::Read).is_none(), "somebody writes");
    assert!(scheduler.now(2, Access::ReadCommitted).is_some(), "what is committed is read beside everything");
    let (ended, ends) = mpsc::channel();
    scheduler.schedule(1, Access::Write, move |_turn| ended.send(()).unwrap());
    assert!(scheduler.now(1, Access::Read).is_none(), "a write waits, and is not to be overtaken");
    drop(read);
    ends.recv().unwrap();
    drop(write);
    assert!(scheduler.now(2, Access::Write).is_some());
    assert_eq!((scheduler.in_flight(), scheduler.forks()), (0, 0));
}

#[test]
fn a_turn_may_be_kept_beyond_its_job() {
    let scheduler = Scheduler::new(Inline);
    let (keep, kept) = mpsc::channel();
    scheduler.schedule(1, Access::Write, move |turn| keep.send(turn).unwrap());
    let (ended, ends) = mpsc::channel();
    scheduler.schedule(1, Access::Read, move |_turn| ended.send(()).unwrap());
    assert!(ends.try_recv().is_err());
    drop(kept.recv().unwrap());
    ends.recv().unwrap();
}

#[test]
fn work_of_several_forks_has_its_place_in_each_line_from_when_it_came() {
    let scheduler = Scheduler::new(Inline);
    let first = scheduler.now(1, Access::Write).unwrap();
    let (ended, ends) = mpsc::channel();
    let say = |word: &'static str| {
        let ended = ended.clone();
        move |_turn: Turn<u8, Inline>| ended.send(word).unwrap()
    };
    let all = ended.clone();
    scheduler.schedule_all(&[(1, Access::Write), (2, Access::Read), (3, Access::Write)], move |turns| {
        assert_eq!(turns.iter().map(|turn| turn.fork).collect::<Vec<_>>(), [1, 2, 3]);
        all.send("all").unwrap();
    });
    assert!(scheduler.all_now(&[(2, Access::Read), (3, Access::Read)]).is_none(), "one of them is written");
    assert!(scheduler.all_now(&[(2, Access::Read), (4, Access::Write)]).is_some(), "readers read together");
    scheduler.schedule(2, Access::Write, say("behind it"));
    scheduler.schedule(4, Access::Write, say("elsewhere"));
    assert_eq!(ends.try_iter().collect::<Vec<_>>(), ["elsewhere"]);
    drop(first);
    assert_eq!(ends.try_iter().collect::<Vec<_>>(), ["all", "behind it"]);
    assert_eq!((scheduler.in_flight(), scheduler.forks()), (0, 0));
}

/// Each names two of three forks in an order of its own, from several threads at once.
#[test]
fn works_of_several_forks_never_wait_in_a_circle() {
    let scheduler = Scheduler::new(Pool::new(2));
    let (ended, ends) = mpsc::channel();
    std::thread::scope(|scope| {
        for thread in 0_u8..4 {
            let (scheduler, ended) = (scheduler.clone(), ended.clone());
            scope.spawn(move || {
                for work in 0_u8..250 {
                    let (one, other) = ((thread + work) % 3, (thread + work + 1 + work % 2) % 3);
                    let ended = ended.clone();
                    let access = |writes| if writes { Access::Write } else { Access::Read };
                    let forks = [(one, access(work % 3 != 0)), (other, access(work % 5 != 0))];
                    scheduler.schedule_all(&forks, move |turns| {
                        drop(turns);
                        ended.send(()).unwrap();
                    });
                }
            });
        }
    });
    for _ in 0..1_000 {
        ends.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    }
    assert_eq!((scheduler.in_flight(), scheduler.forks()), (0, 0));
}
