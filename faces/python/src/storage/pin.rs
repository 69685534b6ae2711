//! Bytes of a map, kept where they are.
//!
//! Purpose: a payload keeps the segment that it lies in, and nothing else: not the store, not the
//! reader. So a `memoryview` may outlive an iterator, a closed store and a purge. Invariant: what is lent was
//! given out by a reader, so it lies below what is published and is never stored to again. Checked by the
//! tests of Python.

use std::sync::Arc;
use thalweg_log::Mapped;

/// A segment that stays mapped for as long as this lives.
#[derive(Debug)]
pub(crate) struct Pin(Mapped);

// SAFETY: a `Mapped` is an address and an owner that is `Send + Sync`; through a `Pin` only bytes are read
// that nothing writes to any more.
unsafe impl Send for Pin {}
// SAFETY: as above.
unsafe impl Sync for Pin {}

impl Pin {
    pub(crate) fn new(mapped: Mapped) -> Arc<Pin> {
        Arc::new(Pin(mapped))
    }

    pub(crate) fn start(&self) -> *const u8 {
        self.0.start().as_ptr().cast_const()
    }

    /// Whether it is the same map.
    pub(crate) fn is_of(&self, mapped: &Mapped) -> bool {
        self.0.start() == mapped.start()
    }

    /// Where in the map bytes begin that a reader gave out; `None` when they lie elsewhere.
    #[inline]
    pub(crate) fn place_of(&self, address: usize, length: usize) -> Option<u32> {
        let place = address.checked_sub(self.start().addr())?;
        let inside = place + length <= self.0.length();
        if inside { u32::try_from(place).ok() } else { None }
    }
}

/// A payload, with what keeps it mapped.
#[derive(Clone, Debug)]
pub(crate) struct PinnedBytes {
    pub(crate) pin: Arc<Pin>,
    pub(crate) place: u32,
    pub(crate) length: u32,
}

impl PinnedBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `place` and `length` are those of a slice that a reader gave out and that lies in this map
        // (`Pin::place_of`); the map lives as long as the pin, and what was published is never stored to
        // again.
        unsafe { std::slice::from_raw_parts(self.pin.start().add(self.place as usize), self.length as usize) }
    }
}
