//! The handshake of two sides that each write a word and then read the other's, so that not both miss.
//!
//! ```text
//! producer                         sleeper
//!   work   := 1                      asleep := 1
//!   fence  (PRODUCER)                fence  (CONSUMER)
//!   asleep = 1 ?  -> 0 and wake      work = 1 ?  -> do not sleep
//! ```
//!
//! Were either read allowed to overtake the write before it, both could read the old values: the producer
//! would not wake, the sleeper would sleep, and the work would lie there (a *lost wake*). Release and
//! acquire do not forbid that; only a sequentially consistent fence between the write and the read does,
//! and it takes one on both sides: the two fences have an order, and the side that comes second sees the
//! first one's write.
//!
//! This is the part that [`crate::parking`] (one sleeper, who clears its own word) and [`crate::gate`] (any
//! number, who must not) have in common. The words are loaded, stored and exchanged `Relaxed`: the fences
//! order them, and what the work *is* travels by other means. Checked by the models of both, which demand
//! that each fence is refuted when it is weakened.

use crate::primitives::atomic::{AtomicU32, Ordering, fence};

/// How strong a fence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Sequentially consistent.
    Full,
    /// Acquire and release: orders nothing between a write and a later read. For models only.
    AcquireRelease,
    /// None at all. For models only.
    Absent,
}

impl Fence {
    #[inline]
    fn apply(self) {
        match self {
            Fence::Full => fence(Ordering::SeqCst),
            Fence::AcquireRelease => fence(Ordering::AcqRel),
            Fence::Absent => {}
        }
    }
}

/// The fences of a handshake. Production code uses [`Strong`]; the models use weaker tables to show that
/// each is needed.
pub trait Orderings {
    /// Between the producer's write of its work word and its read of the sleeper's word.
    const PRODUCER: Fence;
    /// Between the sleeper's write of its word and its read of the work words.
    const CONSUMER: Fence;
}

/// The table that is correct.
#[derive(Clone, Copy, Debug)]
pub struct Strong;

impl Orderings for Strong {
    const PRODUCER: Fence = Fence::Full;
    const CONSUMER: Fence = Fence::Full;
}

/// Producer: after the work word was written. Whether somebody declared itself asleep and this producer is
/// the one to wake: of several, the one whose exchange takes the word from 1 to 0.
#[inline]
pub(crate) fn take_on<O: Orderings>(asleep: &AtomicU32) -> bool {
    publish::<O>();
    take(asleep)
}

/// Producer: the fence between its work words and [`take`], for one who has several of either.
#[inline]
pub(crate) fn publish<O: Orderings>() {
    O::PRODUCER.apply();
}

/// Producer, behind [`publish`]: whether somebody declared itself asleep and this producer is the one to
/// wake.
#[inline]
pub(crate) fn take(asleep: &AtomicU32) -> bool {
    // The plain load keeps the line shared while nobody sleeps; the exchange settles who wakes, and writes
    // nothing when it was another.
    asleep.load(Ordering::Relaxed) == 1
        && asleep.compare_exchange(1, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Sleeper: is about to sleep. To be followed by a last look at the work words.
#[inline]
pub(crate) fn declare<O: Orderings>(asleep: &AtomicU32) {
    asleep.store(1, Ordering::Relaxed);
    O::CONSUMER.apply();
}
