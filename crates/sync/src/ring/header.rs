//! The words of a pair of rings, as they lie at the beginning of a shared map.
//!
//! Ownership: none; a [`Header`] is a view of memory that two processes write. Who writes which word is said
//! in [`crate::ring`]. Every word that one side writes while the other reads has a stretch of [`APART_BYTES`]
//! to itself, so that neither takes a cache line from the other without need.
//!
//! Invariants: the layout is the same for every build that calls itself [`VERSION`]; the assertion below
//! holds it to [`HEADER_BYTES`].

use crate::primitives::atomic::{AtomicU32, AtomicU64};

/// Bytes before the first ring: a page.
pub(super) const HEADER_BYTES: usize = 4096;

/// Processors fetch cache lines in neighbouring pairs.
#[cfg(not(loom))]
const APART_BYTES: usize = 128;

/// What the first word of a map says that holds a pair of rings: `twegring`, as little-endian bytes.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"twegring");

/// The layout of this file.
pub(super) const VERSION: u32 = 1;

/// The words of a pair of rings.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    pub(super) about: About,
    /// Ring 0 is written by side 0, ring 1 by side 1.
    pub(super) rings: [RingWords; 2],
    pub(super) sides: [SideWords; 2],
}

/// Written once by the founder, before the map is handed over.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct About {
    pub(super) magic: AtomicU64,
    pub(super) version: AtomicU32,
    /// What each of the two rings holds.
    pub(super) ring_bytes: AtomicU32,
}

/// How far a ring has been written and read.
#[derive(Debug)]
#[repr(C)]
pub(super) struct RingWords {
    pub(super) tail: Apart,
    pub(super) head: Apart,
}

/// A word with no neighbours.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Apart(pub(super) AtomicU64);

/// What a side says of itself when it goes to sleep.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct SideWords {
    pub(super) asleep: AtomicU32,
    pub(super) wants_space: AtomicU32,
    pub(super) cpu: AtomicU32,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Header>() == 7 * APART_BYTES && size_of::<Header>() <= HEADER_BYTES);
    assert!(align_of::<Header>() == APART_BYTES && size_of::<SideWords>() == APART_BYTES);
};

#[cfg(loom)]
impl Header {
    /// The words of rings that live in no map.
    pub(crate) fn new() -> Header {
        let apart = || Apart(AtomicU64::new(0));
        let ring = || RingWords { tail: apart(), head: apart() };
        let side = || SideWords {
            asleep: AtomicU32::new(0),
            wants_space: AtomicU32::new(0),
            cpu: AtomicU32::new(0),
        };
        let about = About {
            magic: AtomicU64::new(MAGIC),
            version: AtomicU32::new(VERSION),
            ring_bytes: AtomicU32::new(0),
        };
        Header { about, rings: [ring(), ring()], sides: [side(), side()] }
    }
}
