//! What has become true of each of many parts, and stays so.
//!
//! Any thread that finds it out sets the mark; two that find it out at once set the same. Nothing is
//! published by a mark, so no ordering is asked of it: a thread that does not see one yet finds out for
//! itself. *Checked by* the test below.

use crate::primitives::atomic::{AtomicU64, Ordering};
use std::ops::Range;

/// A mark for each part.
#[derive(Debug)]
pub struct Marks(Box<[AtomicU64]>);

impl Marks {
    /// No mark set, for this many parts.
    pub fn new(parts: u32) -> Self {
        Self((0..parts.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Whether a part is marked; no part that there is not.
    #[inline]
    pub fn has(&self, part: u32) -> bool {
        let word = self.0.get((part / u64::BITS) as usize);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (part % u64::BITS) & 1 == 1)
    }

    /// Marks a part. Lock-free, from any thread.
    ///
    /// # Panics
    /// There is no such part.
    pub fn set(&self, part: u32) {
        self.0[(part / u64::BITS) as usize].fetch_or(1 << (part % u64::BITS), Ordering::Relaxed);
    }

    /// Whether all of some parts are marked.
    pub fn has_all(&self, mut parts: Range<u32>) -> bool {
        parts.all(|part| self.has(part))
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_marked_is_marked_whoever_else_marks() {
        const PARTS: u32 = 1000;
        let marks = Marks::new(PARTS);
        std::thread::scope(|scope| {
            for first in 0..2 {
                let marks = &marks;
                scope.spawn(move || (first..PARTS).step_by(3).for_each(|part| marks.set(part)));
            }
        });
        for part in 0..PARTS {
            assert_eq!(marks.has(part), part % 3 < 2, "{part}");
        }
        assert!(marks.has_all(300..302) && !marks.has_all(300..303) && marks.has_all(5..5));
        assert!(!marks.has(PARTS + 64));
    }
}
