//! A pair of byte streams through shared memory, one each way, and how either side sleeps.
//!
//! # Shape
//!
//! Two sides, two rings. Ring *n* is written by side *n* and read by the other; each is exactly a socket's
//! byte stream: a write takes what fits, a read gives what is there, and what is larger than the ring flows
//! through it in pieces. Where messages begin and end is the reader's business, from a private copy.
//!
//! # The words
//!
//! | word | written by | with | read by | with |
//! |---|---|---|---|---|
//! | `tail` of a ring: bytes ever written | its writer, once per write | `Release` | its reader | `Acquire` |
//! | `head` of a ring: bytes ever read | its reader, once per read | `Release` | its writer | `Acquire` |
//! | `asleep` of a side: wants to be woken when there is something to read | the side: 1 before it sleeps, 0 once it is up; the other: 0 when it takes on the wake | `Relaxed` | the other | `Relaxed` |
//! | `wants_space` of a side: wants to be woken when half of its ring is free | the same | `Relaxed` | the other | `Relaxed` |
//! | `cpu` of a side: where it last ran | the side | `Relaxed` | the other | `Relaxed` |
//!
//! `tail` is how bytes travel: who sees it sees what was written below it. `head` is how room travels: who
//! sees it knows that what lay below it has been copied out. Both count without end and are taken modulo the
//! ring.
//!
//! # Sleeping
//!
//! The handshake of [`crate::handshake`], twice: the words of work are `tail` for `asleep` and `head` for
//! `wants_space`. A side writes and reads as much as it likes and then asks once ([`End::bell_wanted`])
//! whether it owes the other a wake: one fence for everything since the last question. How a sleeper sleeps
//! and how it is woken is the caller's; a wake that comes before the sleep must not be lost.
//!
//! A writer that found the ring full is woken when half of it is free, not at the first byte, which a reader
//! in small steps would do at every step. It waits for no more than it is going to get: a reader that has
//! read everything has freed the whole ring.
//!
//! # What costs
//!
//! A line that one side wrote takes as long to come to the other as everything else of a short message
//! together. So a write stores and loads nothing: `tail` and the lines of its bytes are all that travels,
//! once each. A side that has read is likely to write next, so the lines that a write goes to, that of
//! `tail` with them, are asked for as soon as bytes were taken out and come while the answer is made; asked
//! for earlier, the peer's looks take them away again. A reader that looks for `tail` again and again asks
//! for the lines behind its head together with it ([`End::anticipate`]), so that they travel beside `tail`
//! and not after it. (Figures, and what was tried: `bench/README.md`.)
//!
//! # Invariants
//!
//! 1. Bytes arrive in order, each once, unchanged.
//! 2. *No lost wake*: who sleeps behind [`End::prepare_to_sleep`] and is owed a wake by the above gets it.
//! 3. While both sides are up, neither makes a system call on the other's account.
//! 4. *A peer is a stranger.* Each side keeps its own `tail` and `head` to itself and only ever writes them
//!    out; the peer's are checked whenever they are read: they never go back, and never farther than there is
//!    room or there are bytes. One that lies is told as [`Broken`], and costs neither a panic nor an access
//!    outside the rings (`copy` says why not either when the bytes change while they are copied). A lie that
//!    keeps to these rules is garbage that the peer could as well have written properly; the words of sleep
//!    can only cost wakes.
//!
//! The models in `models/ring.rs` check 1 and 2 and refute each ordering and each fence when it is weakened.
//! The tests beside this file compare with a plain queue over any splits and sizes, and put a hostile peer at
//! the other end. `transport`, which owns the way a side is woken, has threads and processes do it in
//! numbers.

mod copy;
mod header;
mod place;
mod stream;

#[cfg(not(loom))]
pub use place::{Foreign, Shared};
pub use place::{Place, RING_BYTES, map_bytes};
pub use stream::{Broken, Word};

pub use header::Header;

use crate::handshake::{self, Strong};
use crate::primitives::atomic::Ordering;
use std::io::IoSlice;
use std::marker::PhantomData;
use stream::{Incoming, Outgoing};

#[cfg(not(loom))]
#[cfg(test)]
mod tests;

/// What a side that is about to sleep is to be woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Something to read.
    Bytes,
    /// Something to read, or half of the ring that this side writes.
    BytesOrSpace,
    /// Half of the ring that this side writes: what there may be to read is not wanted now.
    Space,
}

impl Wanted {
    /// What a reader waits for: room as well, while it has bytes unsent.
    #[inline]
    pub const fn beside_unsent(unsent: bool) -> Self {
        if unsent { Self::BytesOrSpace } else { Self::Bytes }
    }

    /// Whether something to read ends the wait.
    #[inline]
    pub const fn bytes(self) -> bool {
        !matches!(self, Self::Space)
    }

    /// Whether room to write ends the wait.
    #[inline]
    pub const fn space(self) -> bool {
        !matches!(self, Self::Bytes)
    }
}

/// The fences of the handshake, and how the words of a ring are published and seen. Production code uses
/// [`Strong`]; the models use weaker tables to show that each entry is needed.
pub trait Orderings: handshake::Orderings {
    /// The writer's store of `tail`, behind the bytes.
    const TAIL_PUBLISHED: Ordering;
    /// The reader's load of `tail`, before the bytes.
    const TAIL_SEEN: Ordering;
    /// The reader's store of `head`, behind its copy.
    const HEAD_PUBLISHED: Ordering;
    /// The writer's load of `head`, before it writes over what was there.
    const HEAD_SEEN: Ordering;
}

impl Orderings for Strong {
    const TAIL_PUBLISHED: Ordering = Ordering::Release;
    const TAIL_SEEN: Ordering = Ordering::Acquire;
    const HEAD_PUBLISHED: Ordering = Ordering::Release;
    const HEAD_SEEN: Ordering = Ordering::Acquire;
}

/// One side's end of a pair of rings.
///
/// ```
/// # use thalweg_sync::ring::{End, Shared, map_bytes};
/// # use thalweg_sys::memory;
/// # use std::io::IoSlice;
/// # use std::os::fd::AsFd;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let bytes = map_bytes(4096).unwrap();
/// let memory = memory::sealed("example", bytes, 0)?;
/// let mut ours: End<_> = End::founder(Shared::found(memory::map(memory.as_fd())?, 4096)?);
/// let mut theirs: End<_> = End::joiner(Shared::join(memory::map(memory.as_fd())?)?);
/// assert_eq!(ours.write(&[IoSlice::new(b"hello "), IoSlice::new(b"there")])?, 11);
/// let mut heard = Vec::with_capacity(64);
/// assert_eq!(theirs.read(&mut heard)?, 11);
/// assert_eq!(heard, b"hello there");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct End<P, O = Strong> {
    place: P,
    side: usize,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Written, or read, since the last question for a bell.
    wrote: bool,
    freed: bool,
    /// What our `cpu` word says.
    cpu: u32,
    orderings: PhantomData<O>,
}

impl<P: Place, O: Orderings> End<P, O> {
    /// The end of the side that laid the rings out.
    pub fn founder(place: P) -> Self {
        Self::of_side(place, 0)
    }

    /// The end of the side that joined.
    pub fn joiner(place: P) -> Self {
        Self::of_side(place, 1)
    }

    fn of_side(place: P, side: usize) -> Self {
        Self {
            outgoing: Outgoing::new(side),
            incoming: Incoming::new(1 - side),
            place,
            side,
            wrote: false,
            freed: false,
            cpu: 0,
            orderings: PhantomData,
        }
    }

    /// Bytes that each of the two rings holds.
    pub fn ring_bytes(&self) -> usize {
        std::mem::size_of_val(self.place.bytes(0))
    }

    /// Reads into a vector's spare room, which it never grows; how many bytes. Fewer than there was room for
    /// means that no more was there.
    ///
    /// # Errors
    /// The peer's word lies.
    #[inline]
    pub fn read(&mut self, into: &mut Vec<u8>) -> Result<usize, Broken> {
        let count = self.incoming.read::<P, O>(&self.place, into)?;
        if count > 0 {
            self.freed = true;
            self.outgoing.claim(&self.place);
        }
        Ok(count)
    }

    /// Writes as much of the pieces as fits and publishes it at once; how many bytes. Fewer than there are
    /// means that the ring is full.
    ///
    /// # Errors
    /// The peer's word lies.
    #[inline]
    pub fn write(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, Broken> {
        let count = self.outgoing.write::<P, O>(&self.place, pieces)?;
        self.wrote |= count > 0;
        Ok(count)
    }

    /// Whether there is something to read. One load; also `true` when the peer's word lies, which the next
    /// read says.
    #[inline]
    pub fn pending(&self) -> bool {
        self.incoming.pending(&self.place)
    }

    /// For a reader that spins, right before each look: prefetches the lines that the next bytes will be in,
    /// so that they come together with the word that announces them. Prefetched a moment earlier, they are
    /// likely to come as they were.
    #[inline]
    pub fn anticipate(&self) {
        self.incoming.anticipate(&self.place);
    }

    /// Whether half of the ring that we write is free, or the peer's word lies, which the next write says.
    #[inline]
    pub fn has_space(&self) -> bool {
        self.outgoing.has_space(&self.place)
    }

    /// Whether there is what is wanted, or the peer's word lies.
    #[inline]
    pub fn has(&self, wanted: Wanted) -> bool {
        wanted.bytes() && self.pending() || wanted.space() && self.has_space()
    }

    /// Bytes that were written and the peer has not read: what it read it took before it says so. One load.
    #[inline]
    pub fn unread_bytes(&self) -> u64 {
        self.outgoing.unread_bytes(&self.place)
    }

    /// After reads and writes: whether the peer declared itself asleep for what was done since the last such
    /// question, and this side took on to wake it.
    #[inline]
    pub fn bell_wanted(&mut self) -> bool {
        if !self.wrote && !self.freed {
            return false;
        }
        handshake::publish::<O>();
        let theirs = &self.place.header().sides[1 - self.side];
        let for_data = std::mem::take(&mut self.wrote) && handshake::take(&theirs.asleep);
        // A tail older than the declaration makes the room look larger: a bell too many, never one too few.
        let for_space = std::mem::take(&mut self.freed)
            && theirs.wants_space.load(Ordering::Relaxed) == 1
            && self.incoming.has_freed_enough(&self.place)
            && handshake::take(&theirs.wants_space);
        for_data || for_space
    }

    /// Declares that this side is about to sleep until there is what is wanted, and looks once more. `true`:
    /// nothing is there, sleep and call [`End::wake_up`] when up. `false`: there is work, and this side
    /// counts as up. `cpu` is where the thread runs.
    #[inline]
    pub fn prepare_to_sleep(&mut self, wanted: Wanted, cpu: u32) -> bool {
        self.runs_on(cpu);
        let ours = &self.place.header().sides[self.side];
        match wanted {
            Wanted::Bytes => handshake::declare::<O>(&ours.asleep),
            Wanted::BytesOrSpace => {
                ours.wants_space.store(1, Ordering::Relaxed);
                handshake::declare::<O>(&ours.asleep);
            }
            Wanted::Space => handshake::declare::<O>(&ours.wants_space),
        }
        if self.has(wanted) {
            self.wake_up();
            return false;
        }
        true
    }

    /// Is up again: the peer rings no bell from here on.
    #[inline]
    pub fn wake_up(&mut self) {
        let ours = &self.place.header().sides[self.side];
        ours.asleep.store(0, Ordering::Relaxed);
        ours.wants_space.store(0, Ordering::Relaxed);
    }

    /// Says where this side runs now.
    #[inline]
    pub fn runs_on(&mut self, cpu: u32) {
        if self.cpu != cpu {
            self.cpu = cpu;
            self.place.header().sides[self.side].cpu.store(cpu, Ordering::Relaxed);
        }
    }

    /// Where the peer last said that it runs.
    #[inline]
    pub fn peer_cpu(&self) -> u32 {
        self.place.header().sides[1 - self.side].cpu.load(Ordering::Relaxed)
    }
}
