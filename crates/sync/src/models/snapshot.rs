//! The loom models of snapshots: who knows of a position has the snapshot that holds it.

use crate::primitives::atomic::{AtomicU64, Ordering};
use crate::snapshot::{Cached, Snapshots};
use std::sync::Arc;

/// How a position is published and looked up around the snapshots.
trait Protocol {
    const PUBLISH: Ordering;
    const LOOK: Ordering;
    /// The position is published before the snapshot that holds it is there.
    const EARLY: bool = false;
    /// The position is looked up after the snapshot.
    const LATE: bool = false;
}

macro_rules! protocol {
    ($name:ident, $publish:ident, $look:ident $(, $flag:ident)?) => {
        struct $name;
        impl Protocol for $name {
            const PUBLISH: Ordering = Ordering::$publish;
            const LOOK: Ordering = Ordering::$look;
            $(const $flag: bool = true;)?
        }
    };
}
protocol!(Correct, Release, Acquire);
protocol!(PublishedRelaxed, Relaxed, Acquire);
protocol!(LookedUpRelaxed, Release, Relaxed);
protocol!(PublishedEarly, Release, Acquire, EARLY);
protocol!(LookedUpLate, Release, Acquire, LATE);

/// The value is the last position it holds. A writer gets to 1 and 2, a reader looks twice.
fn a_position_that_was_seen_is_held<P: Protocol>() {
    loom::model(|| {
        let shared = Arc::new((Snapshots::new(0_u64), AtomicU64::new(0)));
        let writer = {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                let (snapshots, position) = &*shared;
                for next in 1..=2 {
                    if P::EARLY {
                        position.store(next, P::PUBLISH);
                    }
                    snapshots.replace(|former| former + 1);
                    position.store(next, P::PUBLISH);
                }
            })
        };
        let (snapshots, position) = &*shared;
        let mut cached = Cached::of(snapshots);
        for _ in 0..2 {
            let mut known = position.load(P::LOOK);
            let before = **cached.value();
            let replaced = cached.refresh(snapshots);
            if P::LATE {
                known = position.load(P::LOOK);
            }
            let held = **cached.value();
            assert!(held >= known, "position {known} is known and not held");
            assert_eq!(replaced, held > before, "a refresh says whether it moved, and only moves on");
        }
        writer.join().unwrap();
    });
}

fn is_refuted(model: fn()) -> bool {
    match std::thread::spawn(model).join() {
        Ok(()) => false,
        Err(panic) => panic.downcast_ref::<String>().is_some_and(|message| message.contains("not held")),
    }
}

#[test]
fn who_knows_of_a_position_has_the_snapshot_that_holds_it() {
    a_position_that_was_seen_is_held::<Correct>();
}

#[test]
fn the_order_around_a_replacement_is_needed() {
    let broken: [(&str, fn()); 4] = [
        ("a position published Relaxed", a_position_that_was_seen_is_held::<PublishedRelaxed>),
        ("a position looked up Relaxed", a_position_that_was_seen_is_held::<LookedUpRelaxed>),
        ("a position published early", a_position_that_was_seen_is_held::<PublishedEarly>),
        ("a position looked up late", a_position_that_was_seen_is_held::<LookedUpLate>),
    ];
    for (name, model) in broken {
        assert!(is_refuted(model), "loom finds nothing wrong with {name}");
    }
}

/// Two who replace at once: each works on what the other made.
#[test]
fn no_replacement_is_lost() {
    loom::model(|| {
        let snapshots = Arc::new(Snapshots::new(0));
        let rival = {
            let snapshots = snapshots.clone();
            loom::thread::spawn(move || snapshots.replace(|count| count + 1))
        };
        snapshots.replace(|count| count + 1);
        rival.join().unwrap();
        let (version, count) = snapshots.latest();
        assert_eq!((version, *count), (2, 2));
    });
}
