//! One thread, one epoll, one mailbox, one timer wheel, one slab, one buffer pool.
//!
//! Owns: the descriptors of its connections and everything that wakes a thread: readiness, messages from
//! other threads, timers. Turns them into calls of one [`Handler`], one at a time, on one thread. Also
//! what every ordered protocol needs: [`Ordered`], which lets answers leave in the order of their questions.
//!
//! Never knows: a protocol, what a byte means, what a topic is, a file.
//!
//! # A turn
//!
//! Wait (spin a little if work came fast, then sleep in `epoll_wait`), then: ready descriptors, the mailbox,
//! the ready queue, timers that came due, [`Handler::turn_ended`]. Each of them is taken once, as long as it
//! is when its place comes: what a handler makes for its own reactor comes in this turn if that place is
//! still to come ([`Core::ready_later`]) and in the next otherwise, so no source starves another.
//!
//! Sources that no descriptor announces, such as rings in shared memory, are polled while the reactor waits
//! ([`Handler::busy_poll`]) and handled when the turn ends; while they are up the kernel is asked only once
//! in a while, and before the reactor sleeps they agree to ring a descriptor ([`Handler::prepare_to_sleep`]).
//!
//! An owner whose handler merely notes what came acts between turns: [`Reactor::gather`], then whatever it
//! does to [`Reactor::parts`], then, for a foreign loop, [`Reactor::leave`].
//!
//! # Invariants
//!
//! Each has a test of the same name in `tests.rs`. (That a reply may be given from any thread, and that none
//! is lost, is for `thalweg_service::Reply` to keep; the fourth here is what that stands on.)
//!
//! 1. No other thread touches a reactor's descriptors or slab. A connection is named by a [`Key`] (slot and
//!    generation), which is also its epoll token; what comes for a dead generation is dropped.
//! 2. One wake per burst (`thalweg-sync` has the handshake and its models).
//! 3. Responses leave in request order ([`Ordered`]).
//! 4. A producer that was promised room ([`Handle::reserve`]) is never refused: what answers a question is
//!    posted, from any thread, however full the mailbox is.
//! 5. [`Core::alone`] tells whether the inline fast path may be taken: nothing else of this turn waits.
//! 6. An idle connection owns no buffer and no task: a slot (at most 48 bytes beside its entry) and the
//!    kernel's socket.
//! 7. A short adaptive spin before sleeping, never with one processor, and it can be switched off; a
//!    connection that was ready alone is looked at directly meanwhile, the kernel after every few such looks.
//!    For a source that says where its peers run: never for one on this processor, which is let run instead,
//!    at most twice.
//! 8. A reactor never blocks but in `epoll_wait`; what may wait for a disk is done by a [`Pool`].
//! 9. A reactor can be embedded in a foreign loop: [`Reactor::descriptor`] is readable whenever
//!    [`Reactor::turn`] has something to do.
#![forbid(unsafe_code)]

mod buffers;
mod chunks;
mod core;
mod handle;
mod key;
mod ordered;
mod pool;
mod slab;
mod spin;
mod topics;
mod turn;
mod waiting;
mod wheel;

pub use crate::buffers::{Buffer, BufferConfig};
pub use crate::core::{Core, RejectReason, Rejected, Released, RemovedEntry, Unsubscribed};
pub use crate::handle::{Activity, Full, Handle, Permit};
pub use crate::key::{Interest, Key, Readiness};
pub use crate::ordered::{Ordered, Sequence};
pub use crate::pool::{Crew, Job, Pool};
pub use crate::slab::slot_bytes;
pub use crate::turn::{Config, Reactor, Wait};

/// What a reactor calls: one value per reactor, on its thread only.
///
/// A handler must not block. It may do anything to its [`Core`] at any time, removing the very
/// connection it is called for included.
pub trait Handler: Sized {
    /// What belongs to one connection. Lives inside the slab slot: keep it small.
    type Entry;
    /// What connections subscribe to. Kept once per subscribed topic on this reactor.
    type Topic;
    /// What other threads, and the reactor itself, may send.
    type Message: Send + 'static;

    /// A descriptor is ready. Level-triggered: it comes again next turn while it stays ready.
    fn ready(&mut self, core: &mut Core<Self>, key: Key, readiness: Readiness);

    /// The connection was all that was ready in the last turn with something ready, and the reactor looks
    /// again before it sleeps: whether it has something already, which is handled here, without asking the
    /// kernel which connection is ready. It may not be ready. Cheap: it is asked again and again.
    fn glance(&mut self, core: &mut Core<Self>, key: Key) -> bool {
        let _ = (core, key);
        false
    }

    /// A message, from the mailbox or from the ready queue.
    fn message(&mut self, core: &mut Core<Self>, message: Self::Message);

    /// Another thread has something that is no message ([`Handle::nudge`]).
    fn nudged(&mut self, core: &mut Core<Self>) {
        let _ = core;
    }

    /// The connection's one timer came due, never early. It is disarmed.
    fn timer(&mut self, core: &mut Core<Self>, key: Key);

    /// After each turn's batch. Sources that no descriptor announces are handled here.
    fn turn_ended(&mut self, core: &mut Core<Self>) {
        let _ = core;
    }

    /// Polls sources that no descriptor announces, such as rings in shared memory whose peers are up.
    /// Cheap: it is asked again and again.
    fn busy_poll(&mut self, core: &mut Core<Self>) -> BusyPoll {
        let _ = core;
        BusyPoll::Asleep
    }

    /// The reactor is about to sleep: such sources have to ring a descriptor from here on. `false`: one of
    /// them has something already, so do not.
    fn prepare_to_sleep(&mut self, core: &mut Core<Self>) -> bool {
        let _ = core;
        true
    }
}

/// What [`Handler::busy_poll`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyPoll {
    /// There are none, or all of them will ring a descriptor.
    Asleep,
    /// Nothing is there now; what may bring something runs on other processors.
    Quiet,
    /// Nothing is there now; other threads of this program are at work on what will be, and may want this
    /// processor.
    Working,
    /// Nothing is there now, and nothing will be before another thread gets this processor.
    Sharing,
    /// Something is there.
    Ready,
}

#[cfg(test)]
mod tests;
