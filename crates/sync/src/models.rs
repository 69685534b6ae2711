//! The loom models of mailbox and parking; those of the gate, of rings and of snapshots are beside this file.
//!
//! Every interleaving and every reordering that the memory model allows, with a bounded number of
//! preemptions where three threads take part. A lost wake shows as a deadlock: the consumer sleeps in
//! loom's own `Notify`, which loom reports.
//!
//! `each_fence_is_needed` runs the same model with one fence weakened or taken away at a time and demands
//! that loom refutes it. Both fences are refuted both ways, so the table has no entry that stands on an
//! argument alone. Not in the table, since `Relaxed` cannot be weakened: the accesses to `pending` and
//! `parked` themselves. The lock's own ordering is what carries the messages; it is not ours to weaken.

mod gate;
mod ring;
mod snapshot;

use crate::mailbox::{Drained, Mailbox, Permit};
use crate::parking::{Fence, LocalWord, Orderings, ParkedWord, Parking, Strong, Wake};
use crate::primitives::atomic::{AtomicU32, Ordering};
use loom::sync::Notify;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic as plain;

/// A sleep that remembers one wake that came early, as an eventfd does; counts wakes outside the model.
struct Bell {
    notify: Notify,
    rung: plain::AtomicUsize,
}

impl Bell {
    fn new() -> Arc<Self> {
        Arc::new(Self { notify: Notify::new(), rung: plain::AtomicUsize::new(0) })
    }

    fn rung(&self) -> usize {
        self.rung.load(plain::Ordering::SeqCst)
    }
}

impl Wake for Bell {
    fn wake(&self) {
        self.rung.fetch_add(1, plain::Ordering::SeqCst);
        self.notify.notify();
    }
}

type Shared<O> = Arc<Mailbox<u32, Arc<Bell>, O>>;

fn mailbox<O: Orderings>(capacity: usize) -> (Shared<O>, Arc<Bell>) {
    let bell = Bell::new();
    (Arc::new(Mailbox::new(capacity, bell.clone())), bell)
}

/// The consumer's loop until it has `count` messages; how often it slept.
fn consume<O: Orderings>(mailbox: &Shared<O>, bell: &Bell, count: usize) -> (VecDeque<u32>, usize) {
    let (mut got, mut inbox, mut slept) = (VecDeque::new(), VecDeque::new(), 0);
    loop {
        mailbox.drain(&mut inbox);
        got.append(&mut inbox);
        if got.len() >= count {
            return (got, slept);
        }
        if mailbox.prepare_to_park() {
            slept += 1;
            bell.notify.wait();
            mailbox.resume();
        }
    }
}

fn no_wake_is_lost<O: Orderings + Send + Sync + 'static>() {
    loom::model(|| {
        let (mailbox, bell) = mailbox::<O>(4);
        let producer = {
            let mailbox = mailbox.clone();
            loom::thread::spawn(move || mailbox.post(1).unwrap())
        };
        let (got, slept) = consume(&mailbox, &bell, 1);
        producer.join().unwrap();
        assert_eq!(got, [1]);
        assert!(bell.rung() <= slept.max(1));
    });
}

fn bounded(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

#[test]
fn a_message_reaches_a_consumer_that_goes_to_sleep() {
    no_wake_is_lost::<Strong>();
}

#[test]
fn two_producers_lose_neither_message_nor_wake() {
    bounded(3, || {
        let (mailbox, bell) = mailbox::<Strong>(4);
        let producers: Vec<_> = [1, 2]
            .into_iter()
            .map(|message| {
                let mailbox = mailbox.clone();
                loom::thread::spawn(move || mailbox.post(message).unwrap())
            })
            .collect();
        let (got, _) = consume(&mailbox, &bell, 2);
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        assert!(got == [1, 2] || got == [2, 1], "{got:?}");
        assert_eq!(mailbox.occupied(), 0);
        assert!(!mailbox.pending(), "nothing is there, and nothing says so");
    });
}

#[test]
fn a_burst_wakes_a_parked_consumer_once() {
    bounded(3, || {
        let (mailbox, bell) = mailbox::<Strong>(4);
        assert!(mailbox.prepare_to_park());
        let producers: Vec<_> = [1, 2]
            .into_iter()
            .map(|message| {
                let mailbox = mailbox.clone();
                loom::thread::spawn(move || mailbox.post(message).unwrap())
            })
            .collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        assert_eq!(bell.rung(), 1);
        bell.notify.wait();
        mailbox.resume();
        let mut got = VecDeque::new();
        mailbox.drain(&mut got);
        assert_eq!(got.len(), 2);
    });
}

/// What a drain finds beside messages is announced as they are.
fn wakes_too(say: fn(&Shared<Strong>), hears: fn(Drained) -> bool) {
    loom::model(move || {
        let (mailbox, bell) = mailbox::<Strong>(4);
        let teller = {
            let mailbox = mailbox.clone();
            loom::thread::spawn(move || say(&mailbox))
        };
        while !hears(mailbox.drain(&mut VecDeque::new())) {
            if mailbox.prepare_to_park() {
                bell.notify.wait();
                mailbox.resume();
            }
        }
        teller.join().unwrap();
    });
}

#[test]
fn a_stop_wakes_too() {
    wakes_too(|mailbox| mailbox.stop(), |drained| drained.stopped);
}

#[test]
fn a_nudge_wakes_too() {
    wakes_too(|mailbox| mailbox.nudge(), |drained| drained.nudged);
}

#[test]
fn permits_are_never_lost_and_never_exceed_the_bound() {
    bounded(3, || {
        let (mailbox, bell) = mailbox::<Strong>(1);
        let first = mailbox.reserve().unwrap();
        assert!(mailbox.reserve().is_none(), "the only room is reserved");
        let poster = {
            let mailbox = mailbox.clone();
            loom::thread::spawn(move || {
                assert!(mailbox.occupied() <= 1);
                Permit::post(first, 7);
            })
        };
        let rival = {
            let mailbox = mailbox.clone();
            loom::thread::spawn(move || drop(mailbox.reserve()))
        };
        let (got, _) = consume(&mailbox, &bell, 1);
        poster.join().unwrap();
        rival.join().unwrap();
        assert_eq!(got, [7]);
        assert_eq!(mailbox.occupied(), 0, "the rival gave its permit back");
        assert!(mailbox.reserve().is_some());
    });
}

/// Two sources of work that share one sleep: of both producers exactly one wakes.
#[test]
fn of_two_sources_one_takes_the_wake() {
    bounded(3, || {
        let bell = Bell::new();
        let parking: Arc<Parking<LocalWord, Arc<Bell>>> =
            Arc::new(Parking::new(LocalWord::new(), bell.clone()));
        assert!(parking.prepare(|| false));
        let producers: Vec<_> = (0..2)
            .map(|_| {
                let parking = parking.clone();
                loom::thread::spawn(move || parking.announce())
            })
            .collect();
        let woke = producers.into_iter().map(|producer| usize::from(producer.join().unwrap())).sum::<usize>();
        assert_eq!((woke, bell.rung()), (1, 1));
    });
}

/// The handshake on its own, with words it does not own: what a ring or a shared map will run.
#[test]
fn the_handshake_holds_for_borrowed_words() {
    struct Words {
        parked: AtomicU32,
        tail: AtomicU32,
    }
    struct Borrowed(Arc<Words>);
    impl ParkedWord for Borrowed {
        fn parked(&self) -> &AtomicU32 {
            &self.0.parked
        }
    }
    loom::model(|| {
        let words = Arc::new(Words { parked: AtomicU32::new(0), tail: AtomicU32::new(0) });
        let bell = Bell::new();
        let parking: Arc<Parking<Borrowed, Arc<Bell>>> =
            Arc::new(Parking::new(Borrowed(words.clone()), bell.clone()));
        let producer = {
            let (words, parking) = (words.clone(), parking.clone());
            loom::thread::spawn(move || {
                words.tail.store(1, Ordering::Relaxed);
                parking.announce();
            })
        };
        while words.tail.load(Ordering::Relaxed) == 0 {
            if parking.prepare(|| words.tail.load(Ordering::Relaxed) != 0) {
                bell.notify.wait();
                parking.resume();
            }
        }
        producer.join().unwrap();
    });
}

macro_rules! table {
    ($name:ident, $producer:ident, $consumer:ident) => {
        struct $name;
        impl Orderings for $name {
            const PRODUCER: Fence = Fence::$producer;
            const CONSUMER: Fence = Fence::$consumer;
        }
    };
}
table!(ProducerAbsent, Absent, Full);
table!(ProducerAcquireRelease, AcquireRelease, Full);
table!(ConsumerAbsent, Full, Absent);
table!(ConsumerAcquireRelease, Full, AcquireRelease);

/// Runs a model in a thread of its own; whether loom found a consumer that sleeps for ever.
fn deadlocks(model: fn()) -> bool {
    match std::thread::spawn(model).join() {
        Ok(()) => false,
        Err(panic) => panic.downcast_ref::<String>().is_some_and(|message| message.contains("deadlock")),
    }
}

#[test]
fn each_fence_is_needed() {
    assert!(!deadlocks(no_wake_is_lost::<Strong>));
    let weakened: [(&str, fn()); 4] = [
        ("no producer fence", no_wake_is_lost::<ProducerAbsent>),
        ("producer fence acquire-release", no_wake_is_lost::<ProducerAcquireRelease>),
        ("no consumer fence", no_wake_is_lost::<ConsumerAbsent>),
        ("consumer fence acquire-release", no_wake_is_lost::<ConsumerAcquireRelease>),
    ];
    for (name, model) in weakened {
        assert!(deadlocks(model), "loom finds nothing wrong with {name}");
    }
}
