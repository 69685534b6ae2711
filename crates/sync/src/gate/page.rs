//! A gate's words in a map, and the kernel's sleep on one of them.
//!
//! Ownership: the page owns its map. The two words have a cache line each: sleepers read the one that moves
//! with every wake, the publisher reads the other with every announcement.

// Loom's words cannot live in a map: its models have a place of their own.
#![cfg_attr(loom, allow(dead_code))]

#[cfg(not(loom))]
use crate::primitives::atomic::AtomicU32;
use thalweg_sys::disk::Map;

const SLEEPERS: usize = 0;
const SEQUENCE: usize = 64;

/// The words of a gate at the beginning of a map.
#[derive(Debug)]
pub struct Page {
    map: Map,
}

impl Page {
    /// Bytes that the words take.
    pub const BYTES: usize = SEQUENCE + 4;

    /// The words in a writable map.
    pub(super) fn new(map: Map) -> Page {
        assert!(map.length() >= Page::BYTES, "a map too short for a gate's words");
        Page { map }
    }
}

#[cfg(not(loom))]
impl Page {
    fn word(&self, position: usize) -> &AtomicU32 {
        // SAFETY: in bounds by the check in `new`, aligned because maps are page-aligned (and simulated ones
        // 8-aligned), and only ever accessed as an atomic.
        unsafe { AtomicU32::from_ptr(self.map.start().as_ptr().add(position).cast()) }
    }
}

#[cfg(not(loom))]
impl super::Place for Page {
    #[inline]
    fn sleepers(&self) -> &AtomicU32 {
        self.word(SLEEPERS)
    }

    #[inline]
    fn sequence(&self) -> &AtomicU32 {
        self.word(SEQUENCE)
    }

    fn sleep(&self, seen: u32, timeout: Option<std::time::Duration>) {
        // Whatever ended the sleep, the sleeper looks again.
        let _ = thalweg_sys::futex::wait(&self.map, SEQUENCE, seen, timeout);
    }

    fn wake_all(&self) {
        thalweg_sys::futex::wake_all(&self.map, SEQUENCE);
    }
}
