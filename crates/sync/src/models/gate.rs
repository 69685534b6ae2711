//! The loom models of the gate: nobody who sleeps misses what was announced.
//!
//! The kernel's sleep is a lock and a condition variable here: the comparison and the sleep are one step to
//! the waking thread, as the kernel promises, and a sleep that nobody ends is a deadlock, which loom reports.
//!
//! What the essay of [`crate::gate`] calls necessary is taken away, one thing at a time, and loom has to
//! refute it: either fence, either ordering of the sequence, the rule that sleepers do not clear, the
//! sequence, and its place before the declaration.

use super::{Bell, ConsumerAbsent, ConsumerAcquireRelease, ProducerAbsent, ProducerAcquireRelease};
use super::{bounded, deadlocks};
use crate::gate::{Gate, Orderings, Place};
use crate::handshake::{self, Fence, Strong};
use crate::primitives::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

/// A gate's words, and a sleep that loom understands.
struct Model {
    sleepers: AtomicU32,
    sequence: AtomicU32,
    bed: Mutex<()>,
    woken: Condvar,
    /// A sleep that compares with nothing: a bare condition variable.
    blind: bool,
}

impl Place for Model {
    fn sleepers(&self) -> &AtomicU32 {
        &self.sleepers
    }

    fn sequence(&self) -> &AtomicU32 {
        &self.sequence
    }

    fn sleep(&self, seen: u32, timeout: Option<Duration>) {
        assert_eq!(timeout, None, "loom knows no time");
        let bed = self.bed.lock().unwrap();
        if self.blind || self.sequence.load(Ordering::Relaxed) == seen {
            drop(self.woken.wait(bed).unwrap());
        }
    }

    fn wake_all(&self) {
        let _bed = self.bed.lock().unwrap();
        self.woken.notify_all();
    }
}

/// A gate and the word that is published behind it.
struct World<O> {
    gate: Gate<Arc<Model>, O>,
    place: Arc<Model>,
    work: AtomicU32,
}

impl Place for Arc<Model> {
    fn sleepers(&self) -> &AtomicU32 {
        (**self).sleepers()
    }

    fn sequence(&self) -> &AtomicU32 {
        (**self).sequence()
    }

    fn sleep(&self, seen: u32, timeout: Option<Duration>) {
        (**self).sleep(seen, timeout);
    }

    fn wake_all(&self) {
        (**self).wake_all();
    }
}

impl<O: Orderings> World<O> {
    fn new(blind: bool) -> Arc<Self> {
        let place = Arc::new(Model {
            sleepers: AtomicU32::new(0),
            sequence: AtomicU32::new(0),
            bed: Mutex::new(()),
            woken: Condvar::new(),
            blind,
        });
        Arc::new(World { gate: Gate::over(place.clone()), place, work: AtomicU32::new(0) })
    }

    /// Relaxed: whatever order there is comes from the gate.
    fn there(&self, work: u32) -> bool {
        self.work.load(Ordering::Relaxed) >= work
    }

    fn publish(&self, work: u32) {
        self.work.store(work, Ordering::Relaxed);
        self.gate.announce();
    }

    fn wait(&self, work: u32) {
        assert!(self.gate.wait(None, || self.there(work)));
    }

    /// A sleeper that is up again and says so, as in parking.
    fn wait_and_clear(&self, work: u32) {
        while !self.there(work) {
            let seen = self.gate.prepare();
            if !self.there(work) {
                self.place.sleep(seen, None);
            }
            self.place.sleepers.store(0, Ordering::Relaxed);
        }
    }

    /// A sleeper that reads the sequence behind its declaration.
    fn wait_reading_late(&self, work: u32) {
        while !self.there(work) {
            self.gate.prepare();
            let seen = self.place.sequence.load(Ordering::Acquire);
            if !self.there(work) {
                self.place.sleep(seen, None);
            }
        }
    }

    /// A task's loop, run by a thread that sleeps until its waker rings.
    fn follow(&self, work: u32) {
        let bell = Bell::new();
        let waker = Waker::from(bell.clone());
        while !self.gate.register(&waker, || self.there(work)) {
            bell.notify.wait();
        }
    }

    /// A task that waits in a future, and in another that it gives up before it sleeps.
    fn until(&self, work: u32) {
        let bell = Bell::new();
        let waker = Waker::from(bell.clone());
        let mut context = Context::from_waker(&waker);
        let mut given_up = Box::pin(self.gate.until(|| false));
        assert!(given_up.as_mut().poll(&mut context).is_pending());
        let mut given_up = Some(given_up);
        let mut waits = pin!(self.gate.until(|| self.there(work)));
        while waits.as_mut().poll(&mut context).is_pending() {
            given_up = None;
            bell.notify.wait();
        }
        drop(given_up);
    }
}

impl std::task::Wake for Bell {
    fn wake(self: Arc<Self>) {
        crate::parking::Wake::wake(&*self);
    }
}

type Sleep<O> = fn(&World<O>, u32);

/// One publisher and these sleepers, each of which waits for the last of `works`.
fn none_oversleeps<O: Orderings + Send + Sync + 'static>(
    blind: bool,
    works: &'static [u32],
    sleepers: &'static [Sleep<O>],
) {
    bounded(3, move || {
        let world = World::<O>::new(blind);
        let last = works[works.len() - 1];
        let sleeping: Vec<_> = sleepers
            .iter()
            .map(|sleep| {
                let world = world.clone();
                loom::thread::spawn(move || sleep(&world, last))
            })
            .collect();
        works.iter().for_each(|work| world.publish(*work));
        sleeping.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    });
}

fn a_thread<O: Orderings + Send + Sync + 'static>() {
    none_oversleeps::<O>(false, &[1], &[World::wait]);
}

fn a_task<O: Orderings + Send + Sync + 'static>() {
    none_oversleeps::<O>(false, &[1], &[World::follow]);
}

#[test]
fn two_threads_are_both_woken() {
    none_oversleeps::<Strong>(false, &[1], &[World::wait, World::wait]);
    none_oversleeps::<Strong>(false, &[1, 2], &[World::wait, World::wait]);
}

#[test]
fn a_thread_and_a_task_are_both_woken() {
    none_oversleeps::<Strong>(false, &[1], &[World::wait, World::follow]);
}

#[test]
fn a_sleeper_that_waits_for_the_second_announcement_is_woken_by_it() {
    none_oversleeps::<Strong>(false, &[1, 2], &[World::wait]);
    none_oversleeps::<Strong>(false, &[1, 2], &[World::follow]);
}

#[test]
fn a_future_that_goes_takes_no_wake_of_another_along() {
    none_oversleeps::<Strong>(false, &[1], &[World::until]);
    none_oversleeps::<Strong>(false, &[1, 2], &[World::until]);
}

#[test]
fn two_publishing_threads_of_one_process_lose_nothing() {
    bounded(3, || {
        let world = World::<Strong>::new(false);
        let publisher = {
            let world = world.clone();
            loom::thread::spawn(move || {
                world.work.fetch_add(1, Ordering::Relaxed);
                world.gate.announce();
            })
        };
        let sleeper = {
            let world = world.clone();
            loom::thread::spawn(move || world.wait(2))
        };
        world.work.fetch_add(1, Ordering::Relaxed);
        world.gate.announce();
        publisher.join().unwrap();
        sleeper.join().unwrap();
    });
}

/// A publisher that looks at no declaration: at its beginning, and at its end.
fn an_end_is_not_slept_through<O: Orderings + Send + Sync + 'static>() {
    loom::model(|| {
        let world = World::<O>::new(false);
        let sleeper = {
            let world = world.clone();
            loom::thread::spawn(move || world.wait(1))
        };
        world.work.store(1, Ordering::Relaxed);
        world.gate.wake_all();
        sleeper.join().unwrap();
    });
}

macro_rules! orderings {
    ($name:ident, $moved:ident, $seen:ident) => {
        struct $name;
        impl handshake::Orderings for $name {
            const PRODUCER: Fence = Fence::Full;
            const CONSUMER: Fence = Fence::Full;
        }
        orderings!(sequence $name, $moved, $seen);
    };
    (sequence $name:ident, $moved:ident, $seen:ident) => {
        impl Orderings for $name {
            const SEQUENCE_MOVED: Ordering = Ordering::$moved;
            const SEQUENCE_SEEN: Ordering = Ordering::$seen;
        }
    };
}
orderings!(SequenceMovedRelaxed, Relaxed, Acquire);
orderings!(SequenceSeenRelaxed, Release, Relaxed);
orderings!(sequence ProducerAbsent, Release, Acquire);
orderings!(sequence ProducerAcquireRelease, Release, Acquire);
orderings!(sequence ConsumerAbsent, Release, Acquire);
orderings!(sequence ConsumerAcquireRelease, Release, Acquire);

#[test]
fn each_ordering_of_the_sequence_is_needed() {
    fn the_second_is_not_slept_through<O: Orderings + Send + Sync + 'static>() {
        none_oversleeps::<O>(false, &[1, 2], &[World::wait]);
    }
    assert!(!deadlocks(the_second_is_not_slept_through::<Strong>));
    assert!(deadlocks(the_second_is_not_slept_through::<SequenceMovedRelaxed>));
    assert!(deadlocks(the_second_is_not_slept_through::<SequenceSeenRelaxed>));
    assert!(!deadlocks(an_end_is_not_slept_through::<Strong>));
    assert!(deadlocks(an_end_is_not_slept_through::<SequenceMovedRelaxed>));
}

fn oversleeps<O: Orderings + Send + Sync + 'static>() -> [bool; 2] {
    [deadlocks(a_thread::<O>), deadlocks(a_task::<O>)]
}

#[test]
fn each_fence_of_the_gate_is_needed() {
    assert_eq!(oversleeps::<Strong>(), [false; 2]);
    assert_eq!(oversleeps::<ProducerAbsent>(), [true; 2]);
    assert_eq!(oversleeps::<ProducerAcquireRelease>(), [true; 2]);
    assert_eq!(oversleeps::<ConsumerAbsent>(), [true; 2]);
    assert_eq!(oversleeps::<ConsumerAcquireRelease>(), [true; 2]);
}

#[test]
fn a_sleeper_that_clears_hides_another() {
    none_oversleeps::<Strong>(false, &[1, 2], &[World::wait_and_clear]);
    assert!(deadlocks(|| none_oversleeps::<Strong>(false, &[1], &[World::wait, World::wait_and_clear])));
}

#[test]
fn a_sleep_that_compares_nothing_misses_the_wake() {
    assert!(deadlocks(|| none_oversleeps::<Strong>(true, &[1], &[World::wait])));
}

#[test]
fn a_sequence_read_behind_the_declaration_misses_the_next_wake() {
    assert!(deadlocks(|| none_oversleeps::<Strong>(false, &[1, 2], &[World::wait_reading_late])));
}
