//! Where a pair of rings lives: in a map that two processes share, or wherever a model wants it.
//!
//! Ownership: a [`Shared`] owns its map of the memory; the memory itself is freed with the last map of it.
//!
//! Invariants: a map is as long as its header says that the rings are; the header's word was read once,
//! checked, and is never read again, since a peer may change it at any time.

use super::header::{HEADER_BYTES, Header};
use crate::primitives::atomic::AtomicU64;
use std::ops::Range;

#[cfg(not(loom))]
pub use shared::{Foreign, Shared};

/// The words and bytes of a pair of rings.
pub trait Place {
    /// The words.
    fn header(&self) -> &Header;

    /// The bytes of a ring, a power of two of them.
    fn bytes(&self, ring: usize) -> &[AtomicU64];

    /// Told before bytes at these places are read: for models that watch for races.
    #[inline]
    fn reads(&self, ring: usize, places: Range<usize>) {
        let _ = (ring, places);
    }

    /// Told before bytes at these places are written: for models that watch for races.
    #[inline]
    fn writes(&self, ring: usize, places: Range<usize>) {
        let _ = (ring, places);
    }
}

/// The fewest and the most bytes that a ring may have.
pub const RING_BYTES: std::ops::RangeInclusive<u32> = 4096..=1 << 30;

/// Bytes of a map with a header and two rings of this size; `None` for a size that no ring has.
pub fn map_bytes(ring_bytes: u32) -> Option<usize> {
    let valid = ring_bytes.is_power_of_two() && RING_BYTES.contains(&ring_bytes);
    valid.then(|| HEADER_BYTES + 2 * ring_bytes as usize)
}

// Loom's words cannot live in a map: its models have a place of their own.
#[cfg(not(loom))]
mod shared {
    use super::*;
    use crate::primitives::atomic::Ordering;
    use crate::ring::copy::WORD;
    use crate::ring::header::{MAGIC, VERSION};
    use std::fmt;
    use thalweg_sys::disk::Map;

    /// A pair of rings in a map.
    #[derive(Debug)]
    pub struct Shared {
        map: Map,
        ring_bytes: usize,
    }

    /// A map that holds no pair of rings that we understand.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Foreign {
        /// The first word is not the magic one.
        Magic(u64),
        /// A layout of another version.
        Version(u32),
        /// A ring of a size that none has.
        RingBytes(u32),
        /// The map is not as long as its rings.
        Length {
            /// Bytes mapped.
            found: usize,
            /// Bytes that rings of the stated size take.
            stated: usize,
        },
    }

    impl fmt::Display for Foreign {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Foreign::Magic(found) => write!(formatter, "no pair of rings: the first word is {found:#x}"),
                Foreign::Version(found) => {
                    write!(formatter, "a pair of rings of version {found}, this side speaks {VERSION}")
                }
                Foreign::RingBytes(found) => write!(
                    formatter,
                    "rings of {found} bytes: a power of two from {} to {} is allowed",
                    RING_BYTES.start(),
                    RING_BYTES.end()
                ),
                Foreign::Length { found, stated } => {
                    write!(formatter, "memory of {found} bytes for a pair of rings that takes {stated}")
                }
            }
        }
    }

    impl std::error::Error for Foreign {}

    impl Shared {
        /// Lays a pair of rings out in zeroed memory.
        ///
        /// # Errors
        /// A size that no ring has, or a map that is not [`map_bytes`] long.
        pub fn found(map: Map, ring_bytes: u32) -> Result<Shared, Foreign> {
            let shared = Shared::over(map, ring_bytes)?;
            let about = &shared.header().about;
            about.version.store(VERSION, Ordering::Relaxed);
            about.ring_bytes.store(ring_bytes, Ordering::Relaxed);
            about.magic.store(MAGIC, Ordering::Release);
            Ok(shared)
        }

        /// Joins a pair of rings that a peer laid out.
        ///
        /// # Errors
        /// What the memory holds is something else.
        pub fn join(map: Map) -> Result<Shared, Foreign> {
            if map.length() < HEADER_BYTES {
                return Err(Foreign::Length { found: map.length(), stated: HEADER_BYTES });
            }
            let about = &header(&map).about;
            match about.magic.load(Ordering::Acquire) {
                MAGIC => {}
                found => return Err(Foreign::Magic(found)),
            }
            match about.version.load(Ordering::Relaxed) {
                VERSION => {}
                found => return Err(Foreign::Version(found)),
            }
            let ring_bytes = about.ring_bytes.load(Ordering::Relaxed);
            Shared::over(map, ring_bytes)
        }

        fn over(map: Map, ring_bytes: u32) -> Result<Shared, Foreign> {
            let stated = map_bytes(ring_bytes).ok_or(Foreign::RingBytes(ring_bytes))?;
            if map.length() != stated {
                return Err(Foreign::Length { found: map.length(), stated });
            }
            Ok(Shared { map, ring_bytes: ring_bytes as usize })
        }
    }

    /// The caller has checked that the map is long enough.
    fn header(map: &Map) -> &Header {
        // SAFETY: both callers made sure that the map has as many bytes; maps are page-aligned, which is more
        // than a header asks for; it consists of atomics, for which any bytes are a value and which any other
        // process may change at any time.
        unsafe { map.start().cast::<Header>().as_ref() }
    }

    impl Place for Shared {
        #[inline]
        fn header(&self) -> &Header {
            header(&self.map)
        }

        #[inline]
        fn bytes(&self, ring: usize) -> &[AtomicU64] {
            let position = HEADER_BYTES + (ring & 1) * self.ring_bytes;
            // SAFETY: either ring lies inside the map by the check in `over`, its place is a multiple of a
            // page, and it is only ever accessed as atomics, for which any bytes are a value.
            unsafe {
                let first = self.map.start().as_ptr().add(position).cast::<AtomicU64>();
                std::slice::from_raw_parts(first, self.ring_bytes / WORD)
            }
        }
    }
}
