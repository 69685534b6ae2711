//! How a thread goes to sleep without missing work, and how work wakes it without a wasted system call.
//!
//! # The words
//!
//! | word | written by | read by |
//! |---|---|---|
//! | *work* (a mailbox's `pending`, a ring's tail …) | producers, when there is work where there was none | the consumer |
//! | `parked` | the consumer: 1 before it sleeps, 0 once it is up; a producer: 0 when it takes on the wake | producers |
//!
//! # The handshake
//!
//! ```text
//! producer                         consumer
//!   work   := 1                      parked := 1
//!   fence  (PRODUCER)                fence  (CONSUMER)
//!   parked = 1 ?  -> 0 and wake      work = 1 ?  -> parked := 0 and go on
//!                                    otherwise sleep until woken
//! ```
//!
//! Why both fences are needed, and full ones, is said in [`crate::handshake`], which holds the code of both
//! sides up to the sleep.
//!
//! # Invariants
//!
//! 1. *No lost wake*: if work was announced, the consumer sees it before it sleeps, or is woken.
//! 2. *One wake per sleep*: of several producers that find the consumer parked, the one whose exchange
//!    takes `parked` from 1 to 0 wakes it, the others have nothing to do.
//! 3. While the consumer is up, producers make no system call.
//!
//! A wake may be superfluous (the consumer got up for another reason at the same moment): the consumer
//! then finds nothing and sleeps again.
//!
//! What the work *is* travels under the mailbox's lock or the ring's own release and acquire; the fences
//! order the words alone. The models in `models.rs` check 1 and 2 over every interleaving, and that without
//! either fence, or with either one weakened to acquire-release, 1 breaks.

use crate::handshake;
pub use crate::handshake::{Fence, Orderings, Strong};
use crate::primitives::atomic::{AtomicU32, Ordering};
use std::marker::PhantomData;

/// Wakes the consumer out of its sleep. Called by a producer's thread, at most once per sleep.
pub trait Wake {
    /// Ends the sleep that is going on or about to begin. A wake that comes before the sleep must not be
    /// lost: an eventfd, a semaphore, not a bare condition variable.
    fn wake(&self);
}

impl<W: Wake + ?Sized> Wake for std::sync::Arc<W> {
    fn wake(&self) {
        (**self).wake();
    }
}

/// Where the `parked` word lives: in this process, or in a map shared with another.
pub trait ParkedWord {
    /// The word. 1 while the consumer sleeps or is about to, else 0.
    fn parked(&self) -> &AtomicU32;
}

/// A `parked` word of this process.
#[derive(Debug)]
pub struct LocalWord {
    parked: AtomicU32,
}

impl LocalWord {
    /// A word that says "up".
    pub fn new() -> Self {
        Self { parked: AtomicU32::new(0) }
    }
}

impl Default for LocalWord {
    fn default() -> Self {
        Self::new()
    }
}

impl ParkedWord for LocalWord {
    #[inline]
    fn parked(&self) -> &AtomicU32 {
        &self.parked
    }
}

/// One consumer's sleep, shared with every producer that may have to end it. Several sources of work (a
/// mailbox, rings) may share one.
#[derive(Debug)]
pub struct Parking<S, W, O = Strong> {
    word: S,
    wake: W,
    orderings: PhantomData<O>,
}

impl<S: ParkedWord, W: Wake, O: Orderings> Parking<S, W, O> {
    /// A consumer that is up.
    pub fn new(word: S, wake: W) -> Self {
        Self { word, wake, orderings: PhantomData }
    }

    /// Producer: after the work word was written. Wakes the consumer if it is parked and nobody else
    /// took the wake on; whether it did.
    #[inline]
    pub fn announce(&self) -> bool {
        let ours = handshake::take_on::<O>(self.word.parked());
        if ours {
            self.wake.wake();
        }
        ours
    }

    /// Consumer: declares that it is about to sleep, then looks once more. `true`: nothing is there, sleep
    /// and call [`Parking::resume`] when up. `false`: there is work, and the consumer counts as up.
    #[inline]
    pub fn prepare(&self, work_is_there: impl FnOnce() -> bool) -> bool {
        handshake::declare::<O>(self.word.parked());
        if work_is_there() {
            self.resume();
            return false;
        }
        true
    }

    /// Consumer: is up again. Producers make no system call from here on.
    #[inline]
    pub fn resume(&self) {
        self.word.parked().store(0, Ordering::Relaxed);
    }

    /// How the consumer is woken.
    pub fn waker(&self) -> &W {
        &self.wake
    }

    /// Wakes the consumer whether it is parked or not: for what must not be missed and happens once.
    pub fn wake(&self) {
        self.wake.wake();
    }
}
