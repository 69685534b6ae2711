//! One publisher, any number of sleepers in any process: nobody polls, and nobody who sleeps misses.
//!
//! A publisher moves a word that readers watch: the end of what is visible in a log. A reader that has seen
//! everything sleeps at the gate until the word moves again. While none sleeps, announcing costs the
//! publisher one fence and one load.
//!
//! # The words
//!
//! | word | written by | with | read by | with |
//! |---|---|---|---|---|
//! | *work*: whatever is published | the publisher, before it announces | its own | sleepers | its own |
//! | `sleepers` | sleepers: 1 before they sleep; the publisher: 0 when it takes on the wake | `Relaxed` | the publisher | `Relaxed` |
//! | `sequence` | the publisher: plus one with each wake | `Release` | sleepers, before they declare themselves | `Acquire` |
//! | *tasks*: wakers of this process's tasks | tasks; emptied with each wake | a lock | the publisher | a lock |
//!
//! # The handshake
//!
//! ```text
//! publisher                                  sleeper
//!   work     := …                              s = sequence
//!   fence  (PRODUCER)                          sleepers := 1
//!   sleepers = 1 ?  no: done                   fence  (CONSUMER)
//!   sleepers := 0                              work there ?  -> go on
//!   sequence += 1                              sleep while sequence = s, then begin again
//!   wake all, and every task
//! ```
//!
//! Both fences are those of [`crate::parking`], for the same reason (see [`crate::handshake`]). What differs
//! follows from there being several sleepers:
//!
//! - *Only the publisher clears `sleepers`.* In parking, a consumer that is up again clears its own word.
//!   Here the word is everybody's: a sleeper that cleared it on its way out would hide those who still
//!   sleep. It stays 1 instead, and the next announcement makes one superfluous wake.
//! - *A sleep needs something to compare with.* The publisher may have taken the wake on between a
//!   sleeper's declaration and its sleep, and another sleeper may have declared itself since, so `sleepers`
//!   itself tells nothing. `sequence` does: the kernel lets nobody sleep who saw it before the wake.
//! - *`sequence` is read before declaring.* Read later, it may already count the wake that cleared the
//!   declaration; the sleeper would then sleep undeclared, and the next announcement would pass it by. The
//!   `Acquire`, which pairs with the `Release` of the wake, keeps the read in its place: a sleeper that reads
//!   a count has its own declaration ordered behind the clearing that belongs to it.
//! - *A wake without a look at `sleepers`* ([`Gate::wake_all`]) has no fence. Its `Release` suffices: a
//!   sleeper that reads the count of the wake, and so would sleep through it, sees what was published before.
//!
//! A task does as a thread does, with its waker in the list in place of the sleep. The list is filled before
//! `sleepers` is set and emptied after it is cleared, each under the lock, so a thread that clears a
//! declaration finds the waker that it stands for. A future that waits ([`Gate::until`]) has a place of its
//! own in the list, which goes with it: tasks come and go while nothing is published. A waker that was
//! registered for itself is kept until the next wake even if its task has lost interest: one task may watch
//! two things, and the waker is the same. A task that has lost all interest says so ([`Gate::forget`]).
//! Wakers are foreign code, so they are cloned, woken and dropped without the lock.
//!
//! # Invariants
//!
//! 1. *No lost wake*: who looks for work that was announced sees it before sleeping, or is woken.
//! 2. While nobody sleeps, an announcement makes no system call and writes nothing.
//! 3. A waker is woken once per registration at most; a task is in the list once, and once for each future
//!    that waits.
//! 4. Of a future that is gone, and of a waker that was forgotten, nothing is in the list.
//!
//! The models in `models/gate.rs` check 1, for two threads, for a thread beside a task, and that it breaks
//! with either fence weakened or absent, with either ordering of the sequence weakened, with a sleeper that
//! clears, without the sequence, and with the sequence read late.
//! `tests/gate.rs` has real processes do it.
//!
//! # Strangers and the dead
//!
//! The words may lie in a file that other processes map. Nothing is ever addressed by them, so whatever is
//! written there costs a superfluous wake or, from a process that means harm, a lost one. A sleeper that dies
//! costs one superfluous wake. A publisher that dies between taking a wake on and giving it leaves sleepers
//! that nobody knows of: its successor begins with [`Gate::wake_all`]. 2^32 wakes while a sleeper stands
//! between its look and its sleep would look to it like none.

mod page;

pub use page::Page;

use crate::contain::contain;
use crate::handshake::{self, Strong};
use crate::primitives::Mutex;
use crate::primitives::atomic::{AtomicU32, Ordering};
use std::collections::HashMap;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use thalweg_sys::disk::Map;

/// The fences of the handshake, and how the sequence is moved and seen. Production code uses [`Strong`]; the
/// models use weaker tables to show that each entry is needed.
pub trait Orderings: handshake::Orderings {
    /// The publisher's move of `sequence`, behind the work.
    const SEQUENCE_MOVED: Ordering;
    /// The sleeper's load of `sequence`, before it declares itself and looks.
    const SEQUENCE_SEEN: Ordering;
}

impl Orderings for Strong {
    const SEQUENCE_MOVED: Ordering = Ordering::Release;
    const SEQUENCE_SEEN: Ordering = Ordering::Acquire;
}

/// Where the words of a gate live, and how a thread sleeps on one of them.
pub trait Place {
    /// 1 while somebody may be asleep, else 0.
    fn sleepers(&self) -> &AtomicU32;

    /// Counts wakes.
    fn sequence(&self) -> &AtomicU32;

    /// Sleeps until [`Place::wake_all`], or the time is over, unless the sequence is no longer `seen`.
    /// Comparing and going to sleep are one step to a thread that moves the sequence and then wakes. May end
    /// early.
    fn sleep(&self, seen: u32, timeout: Option<Duration>);

    /// Ends every sleep that is going on.
    fn wake_all(&self);
}

/// Those who are woken with the next wake.
#[derive(Debug, Default)]
struct Tasks {
    wakers: HashMap<WakerKey, Waker>,
    /// Futures that ever waited.
    futures: u64,
}

/// Tasks that slept at a gate and are to be woken: none of them is on its list any more.
#[derive(Debug, Default)]
#[must_use = "tasks that are not woken sleep for ever"]
pub struct Roused(HashMap<WakerKey, Waker>);

impl Roused {
    /// Wakes them. A waker that panics keeps none of the others asleep.
    pub fn wake(self) {
        self.0.into_values().for_each(|waker| contain(|| waker.wake()));
    }
}

/// Whose waker it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum WakerKey {
    /// A task's, by what its waker wakes: [`Waker::will_wake`] as a key.
    Task(usize, usize),
    /// A future's, by its number.
    Future(u64),
}

impl WakerKey {
    fn of(waker: &Waker) -> WakerKey {
        WakerKey::Task(waker.data().addr(), std::ptr::from_ref(waker.vtable()).addr())
    }
}

/// The place where those wait who have seen everything.
///
/// ```
/// # use std::sync::Arc;
/// # use thalweg_sync::{gate::Gate, words::Words};
/// # use thalweg_sys::disk::Map;
/// # fn main() -> std::io::Result<()> {
/// let published = Arc::new(Words::new(Map::anonymous(4096)?));
/// let gate = Arc::new(Gate::new(Map::anonymous(4096)?));
/// let reader = std::thread::spawn({
///     let (published, gate) = (published.clone(), gate.clone());
///     move || gate.wait(None, || published.load(0) == 7)
/// });
/// published.store(0, 7);
/// gate.announce();
/// assert!(reader.join().unwrap());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Gate<P = Page, O = Strong> {
    place: P,
    tasks: Mutex<Tasks>,
    orderings: PhantomData<O>,
}

impl Gate {
    /// A gate whose words are the first bytes of a writable map: a file's, to be shared with other processes
    /// that map it, or memory. The publisher and the sleepers make theirs alike.
    ///
    /// # Panics
    /// When the map is shorter than [`Page::BYTES`].
    pub fn new(map: Map) -> Gate {
        Gate::over(Page::new(map))
    }

    /// A gate for sleepers who cannot write to the publisher's words and so cannot be woken by it: they look
    /// by themselves whether it moved, at this interval. A wake through this very gate reaches them at once.
    ///
    /// # Errors
    /// There is no memory for its words.
    pub fn apart(look_every: Duration) -> std::io::Result<Gate> {
        Page::apart(look_every).map(Gate::over)
    }
}

impl<P, O> Gate<P, O> {
    /// A gate with its words elsewhere.
    pub fn over(place: P) -> Self {
        Self { place, tasks: Mutex::new(Tasks::default()), orderings: PhantomData }
    }
}

impl<P: Place, O: Orderings> Gate<P, O> {
    /// Publisher: after the word was moved that sleepers watch. Whether somebody was woken.
    #[inline]
    pub fn announce(&self) -> bool {
        let ours = handshake::take_on::<O>(self.place.sleepers());
        if ours {
            self.wake_all();
        }
        ours
    }

    /// The same by a publisher that holds a lock: a waker may run its task at once, and that may want the
    /// lock. The tasks are the caller's to wake, without it.
    pub fn announce_to_threads(&self) -> Roused {
        if !handshake::take_on::<O>(self.place.sleepers()) {
            return Roused::default();
        }
        self.wake_threads();
        self.rouse_tasks()
    }

    /// Publisher: wakes everybody whether they have declared themselves or not. For the beginning, since a
    /// predecessor may have died with a wake in its hands, and for the end.
    #[cold]
    pub fn wake_all(&self) {
        self.wake_threads();
        self.wake_tasks();
    }

    fn wake_threads(&self) {
        // Pairs with the load in `Gate::prepare`.
        self.place.sequence().fetch_add(1, O::SEQUENCE_MOVED);
        self.place.wake_all();
    }

    /// Wakes the tasks of this process: for a thread that sleeps on their behalf where the publisher is
    /// another process.
    pub fn wake_tasks(&self) {
        self.rouse_tasks().wake();
    }

    fn rouse_tasks(&self) -> Roused {
        Roused(std::mem::take(&mut self.tasks.lock().wakers))
    }

    /// Sleeper: blocks until `there` finds what it looks for, or the time is over; `true`: it is there. No
    /// sleep and no write when it is there at once. `None` waits for ever.
    pub fn wait(&self, timeout: Option<Duration>, mut there: impl FnMut() -> bool) -> bool {
        if there() {
            return true;
        }
        // A deadline that no clock reaches is none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let seen = self.prepare();
            if there() {
                return true;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return false;
            }
            self.place.sleep(seen, left);
        }
    }

    /// Sleeper that is a task, of the publisher's process or of one in which a thread sleeps for it: `true`,
    /// it is there already; `false`, the waker is kept and woken by the next wake.
    pub fn register(&self, waker: &Waker, there: impl FnOnce() -> bool) -> bool {
        self.keep(waker, |_| WakerKey::of(waker));
        self.prepare();
        there()
    }

    /// Wakes a waker no more that was registered: nobody waits there any longer. It is to be the one that
    /// was: another, though it wakes the same, need not be known to ([`Waker::will_wake`]).
    pub fn forget(&self, waker: &Waker) {
        let _waker = self.tasks.lock().wakers.remove(&WakerKey::of(waker));
    }

    /// The same as a future, which ends once `there` finds what it looks for. Dropped before, it leaves
    /// nothing behind.
    pub async fn until(&self, mut there: impl FnMut() -> bool) {
        if there() {
            return;
        }
        let mut waiting = Waiting { gate: self, who: None };
        poll_fn(|context| match waiting.look(context.waker(), &mut there) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Has a waker woken by the next wake, in place of the one that its owner had there.
    fn keep(&self, waker: &Waker, who: impl FnOnce(&mut Tasks) -> WakerKey) {
        let given = waker.clone();
        let mut tasks = self.tasks.lock();
        let who = who(&mut tasks);
        let former = tasks.wakers.insert(who, given);
        drop(tasks);
        drop(former);
    }

    /// Sleeper: declares itself, for a last look; the sequence to sleep on.
    pub(crate) fn prepare(&self) -> u32 {
        // Pairs with the move in `Gate::wake_all`.
        let seen = self.place.sequence().load(O::SEQUENCE_SEEN);
        handshake::declare::<O>(self.place.sleepers());
        seen
    }
}

/// A future's place among those who wait, from its first look on.
struct Waiting<'g, P: Place, O: Orderings> {
    gate: &'g Gate<P, O>,
    who: Option<WakerKey>,
}

impl<P: Place, O: Orderings> Waiting<'_, P, O> {
    fn look(&mut self, waker: &Waker, there: impl FnOnce() -> bool) -> bool {
        self.gate.keep(waker, |tasks| {
            *self.who.get_or_insert_with(|| {
                tasks.futures += 1;
                WakerKey::Future(tasks.futures)
            })
        });
        self.gate.prepare();
        there()
    }
}

impl<P: Place, O: Orderings> Drop for Waiting<'_, P, O> {
    fn drop(&mut self) {
        if let Some(who) = self.who {
            let _waker = self.gate.tasks.lock().wakers.remove(&who);
        }
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Words;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Context;

    #[derive(Default)]
    struct Rung(AtomicUsize);

    impl std::task::Wake for Rung {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Rung {
        fn new() -> (Arc<Rung>, Waker) {
            let rung = Arc::new(Rung::default());
            (rung.clone(), Waker::from(rung))
        }

        fn times(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    fn gate() -> Gate {
        Gate::new(Map::anonymous(4096).unwrap())
    }

    #[test]
    fn while_nobody_sleeps_an_announcement_touches_nothing() {
        let map = Map::anonymous(4096).unwrap();
        let gate = Gate::new(map);
        assert!(!gate.announce());
        assert!(gate.wait(None, || true), "who finds it at once does not declare itself");
        assert!(!gate.announce());
        assert_eq!(gate.place.sequence().load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_wait_ends_with_its_time_and_leaves_one_superfluous_wake() {
        let gate = gate();
        assert!(!gate.wait(Some(Duration::ZERO), || false));
        assert!(!gate.wait(Some(Duration::from_millis(2)), || false));
        assert_eq!([gate.announce(), gate.announce()], [true, false]);
    }

    #[test]
    fn the_last_look_comes_after_the_last_sleep() {
        let gate = gate();
        let mut looks = 0;
        let there = gate.wait(Some(Duration::from_millis(2)), || {
            looks += 1;
            looks == 3
        });
        assert!(there, "at once, once declared, and when the time is over");
    }

    /// The publisher comes between a sleeper's last look and its sleep, and another sleeper after it.
    #[test]
    fn a_wake_before_the_sleep_is_not_slept_through() {
        let gate = gate();
        let mut looks = 0;
        let there = gate.wait(None, || {
            looks += 1;
            if looks == 2 {
                assert!(gate.announce());
                gate.prepare();
            }
            looks == 3
        });
        assert!(there);
    }

    #[test]
    fn a_task_is_woken_once_however_often_it_asked() {
        let gate = gate();
        let ((rung, waker), (other, other_waker)) = (Rung::new(), Rung::new());
        for _ in 0..1_000 {
            assert!(!gate.register(&waker.clone(), || false));
        }
        assert!(!gate.register(&other_waker, || false));
        assert_eq!(gate.tasks.lock().wakers.len(), 2);
        assert!(gate.announce());
        assert_eq!((rung.times(), other.times()), (1, 1));
        assert!(!gate.announce());
        assert_eq!((rung.times(), other.times()), (1, 1));
    }

    /// A task that watches two things with one waker, and finds one of them.
    #[test]
    fn what_a_task_found_does_not_cost_it_what_it_still_waits_for() {
        let gate = gate();
        let (rung, waker) = Rung::new();
        assert!(!gate.register(&waker, || false));
        assert!(gate.register(&waker, || true));
        assert!(gate.announce());
        assert_eq!(rung.times(), 1);
    }

    #[test]
    fn a_task_that_is_forgotten_is_not_woken_and_others_are() {
        let gate = gate();
        let ((gone, gone_waker), (stays, stays_waker)) = (Rung::new(), Rung::new());
        for waker in [&gone_waker, &stays_waker] {
            assert!(!gate.register(waker, || false));
        }
        gate.forget(&gone_waker.clone());
        gate.forget(&gone_waker);
        assert!(gate.announce());
        assert_eq!((gone.times(), stays.times()), (0, 1));
        drop(gone_waker);
        assert_eq!(Arc::strong_count(&gone), 1, "nothing of it is kept");
    }

    #[test]
    fn a_future_that_waits_is_woken_and_one_that_is_gone_leaves_nothing() {
        let (gate, words) = (gate(), Words::new(Map::anonymous(8).unwrap()));
        let (rung, waker) = Rung::new();
        let mut context = Context::from_waker(&waker);
        for _ in 0..1_000 {
            let mut gives_up = pin!(gate.until(|| words.load(0) == 1));
            assert!(gives_up.as_mut().poll(&mut context).is_pending());
        }
        assert!(gate.tasks.lock().wakers.is_empty());
        // Two of one task; the one that goes leaves the other its wake.
        let mut waits = pin!(gate.until(|| words.load(0) == 1));
        assert!(waits.as_mut().poll(&mut context).is_pending());
        assert!(pin!(gate.until(|| false)).as_mut().poll(&mut context).is_pending());
        words.store(0, 1);
        assert!(gate.announce());
        assert_eq!(rung.times(), 1);
        assert!(waits.as_mut().poll(&mut context).is_ready());
        assert!(pin!(gate.until(|| true)).as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn a_task_that_comes_back_while_it_is_woken_is_kept() {
        struct Returns(Gate, AtomicUsize);
        impl std::task::Wake for Returns {
            fn wake(self: Arc<Self>) {
                self.1.fetch_add(1, Ordering::SeqCst);
                assert!(!self.0.register(&Waker::from(self.clone()), || false));
            }
        }
        let task = Arc::new(Returns(gate(), AtomicUsize::new(0)));
        assert!(!task.0.register(&Waker::from(task.clone()), || false));
        assert!(task.0.announce() && task.0.announce());
        assert_eq!(task.1.load(Ordering::SeqCst), 2);
        task.0.tasks.lock().wakers.clear();
    }

    #[test]
    fn everybody_is_woken_who_no_longer_counts_as_asleep() {
        let gate = Arc::new(gate());
        let published = Arc::new(Words::new(Map::anonymous(8).unwrap()));
        let asleep = {
            let (gate, published) = (gate.clone(), published.clone());
            std::thread::spawn(move || gate.wait(None, || published.load(0) == 1))
        };
        while gate.place.sleepers().load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let (rung, waker) = Rung::new();
        assert!(!gate.register(&waker, || false));
        // As a publisher does that dies with the wake in its hands.
        assert!(handshake::take_on::<Strong>(gate.place.sleepers()));
        published.store(0, 1);
        assert!(!gate.announce());
        gate.wake_all();
        assert!(asleep.join().unwrap());
        assert_eq!(rung.times(), 1);
    }

    #[test]
    fn whatever_a_stranger_left_in_the_words_sleepers_are_woken() {
        for garbage in [2, u32::MAX] {
            let map = Map::anonymous(4096).unwrap();
            // SAFETY: nobody else knows the map.
            unsafe { map.write(0, &garbage.to_ne_bytes().repeat(32)) };
            let (gate, published) = (Gate::new(map), Words::new(Map::anonymous(8).unwrap()));
            assert!(!gate.announce());
            std::thread::scope(|scope| {
                let sleeper = scope.spawn(|| gate.wait(None, || published.load(0) == 1));
                published.store(0, 1);
                gate.announce();
                assert!(sleeper.join().unwrap());
            });
        }
    }

    #[test]
    fn who_is_apart_looks_by_itself_and_hears_whoever_wakes_it() {
        let published = Words::new(Map::anonymous(8).unwrap());
        let [looks, hears] = [1, u64::MAX].map(|ms| Gate::apart(Duration::from_millis(ms)).unwrap());
        assert!(!looks.wait(Some(Duration::from_millis(5)), || published.load(0) == 1));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| looks.wait(None, || published.load(0) == 1));
            published.store(0, 1);
            assert!(sleeper.join().unwrap());
            let sleeper = scope.spawn(|| hears.wait(None, || published.load(0) == 2));
            published.store(0, 2);
            hears.wake_all();
            assert!(sleeper.join().unwrap());
        });
    }

    #[test]
    fn threads_follow_a_publisher_to_the_end() {
        const LAST: u64 = 20_000;
        let (gate, published) = (gate(), Words::new(Map::anonymous(8).unwrap()));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut seen = 0;
                    while seen < LAST {
                        assert!(gate.wait(None, || published.load(0) > seen));
                        seen = published.load(0);
                    }
                });
            }
            for next in 1..=LAST {
                published.store(0, next);
                gate.announce();
            }
        });
    }

    #[test]
    fn a_map_without_room_for_the_words_is_refused() {
        let short = Map::anonymous(Page::BYTES - 1).unwrap();
        assert!(std::panic::catch_unwind(move || Gate::new(short)).is_err());
        Gate::new(Map::anonymous(Page::BYTES).unwrap());
    }
}
