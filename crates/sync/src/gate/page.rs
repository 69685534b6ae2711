//! A gate's words in a map, and the kernel's sleep on one of them.
//!
//! Ownership: the page owns its map. The two words have a cache line each: sleepers read the one that moves
//! with every wake, the publisher reads the other with every announcement.
//!
//! Who may not write to the publisher's words cannot declare itself, so nobody would wake it. It has words of
//! its own, and no sleep there is longer than a bound.

// Loom's words cannot live in a map: its models have a place of their own.
#![cfg_attr(loom, allow(dead_code))]

#[cfg(not(loom))]
use crate::primitives::atomic::AtomicU32;
use std::time::Duration;
use thalweg_sys::disk::Map;

const SLEEPERS: usize = 0;
const SEQUENCE: usize = 64;

/// The words of a gate at the beginning of a map.
#[derive(Debug)]
pub struct Page {
    map: Map,
    /// The longest sleep.
    sleep_max: Duration,
}

impl Page {
    /// Bytes that the words take.
    pub const BYTES: usize = SEQUENCE + 4;

    /// The words in a writable map.
    pub(super) fn new(map: Map) -> Page {
        Page::within(map, Duration::MAX)
    }

    /// Words that no publisher knows of.
    pub(super) fn apart(sleep_max: Duration) -> std::io::Result<Page> {
        Ok(Page::within(Map::anonymous(Page::BYTES)?, sleep_max))
    }

    fn within(map: Map, sleep_max: Duration) -> Page {
        assert!(map.length() >= Page::BYTES, "a map too short for a gate's words");
        Page { map, sleep_max }
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

    fn sleep(&self, seen: u32, timeout: Option<Duration>) {
        let timeout = match self.sleep_max {
            Duration::MAX => timeout,
            most => Some(timeout.map_or(most, |timeout| timeout.min(most))),
        };
        // Whatever ended the sleep, the sleeper looks again.
        let _ = thalweg_sys::futex::wait(&self.map, SEQUENCE, seen, timeout);
    }

    fn wake_all(&self) {
        thalweg_sys::futex::wake_all(&self.map, SEQUENCE);
    }
}
