//! How large the next segment is.
//!
//! Purpose: a segment costs a descriptor and a map whatever its size, and what is let go goes a segment at a
//! time. So a store begins with a small one and doubles, up to what its options say; one that is bounded as a
//! whole, up to a part of its bound, so that what goes at a time is little of what is kept, and what waits to
//! be removed is little beside it. Where what retention leaves alone holds on to many segments all the same,
//! the next ones are larger again, so that their number stays in proportion.
//!
//! Invariants: no size is beyond the options' largest, and whatever batch that one has room for gets a
//! segment that it fits in. *Checked by* the tests here and those of reclaiming.

use crate::error::CommitError;
use crate::format::SEGMENT_HEADER_BYTES;
use crate::options::{BOUND_PARTS, PAGE_BYTES};
use crate::spare::SegmentPurpose;
use crate::writer::Writer;

/// A bounded store that has more segments than this makes the next one larger.
const PARTS_MAX: usize = 4 * BOUND_PARTS as usize;

impl Writer {
    /// Capacity of the segment after the active one: doubles up to what is due, unless less than half of this
    /// one was used and they are few, or the store is to begin anew.
    pub(crate) fn next_capacity(&self, needed: u32) -> u32 {
        let crowd = u32::try_from(self.live_bytes.len() / PARTS_MAX).unwrap_or(u32::MAX).max(1);
        let capacity = self.active.header.capacity;
        let doubled = match self.shrink_next {
            true => 0,
            false if crowd == 1 && self.segment_tail.end() < capacity / 2 => capacity,
            false => capacity.saturating_mul(2),
        };
        let due = self.options.segment_bytes_due().saturating_mul(crowd).min(self.options.segment_bytes_max);
        doubled.clamp(self.options.segment_bytes_first(), due).max(least_capacity(needed))
    }

    /// Seals the active segment, unless nothing is in it, and begins one as small as a store's first.
    pub(crate) fn begin_anew(&mut self) -> Result<(), CommitError> {
        self.drop_spare();
        self.shrink_next = true;
        let begun = self.begin_next(SegmentPurpose::ToLetGo);
        self.shrink_next = false;
        begun
    }
}

/// The smallest segment that a batch fits in.
pub(crate) fn least_capacity(batch_bytes: u32) -> u32 {
    batch_bytes.saturating_add(SEGMENT_HEADER_BYTES).next_multiple_of(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Store};

    fn bounded(retain_bytes: u64) -> Options {
        Options { retain_bytes: Some(retain_bytes), ..Options::default() }
    }

    #[test]
    fn a_batch_that_a_part_has_no_room_for_gets_a_segment_of_its_own() {
        let store = Store::memory(bounded(16 << 20)).unwrap();
        let log = store.log(b"a").unwrap();
        store.append(&log, &vec![7; 9 << 20], 1).unwrap();
        assert_eq!(store.stats().segment_bytes, (1 << 20) + (9 << 20) + 4096);
        store.append(&log, b"small", 1).unwrap();
        store.append(&log, &[7; 4096], 1).unwrap();
        assert_eq!(store.stats().segment_bytes, (1 << 20) + (9 << 20) + 4096 + (1 << 20));
    }

    #[test]
    fn many_segments_that_stay_have_larger_ones_follow() {
        let store = Store::memory(bounded(1 << 20)).unwrap();
        let log = store.log(b"a").unwrap();
        let mut capacities = Vec::new();
        for time in 0..5 * PARTS_MAX as u64 {
            store.append(&log, b"stays", time).unwrap();
            capacities.extend(store.shared.segments.latest().all().last().map(|last| last.header.capacity));
            store.rotate().unwrap();
        }
        assert!(capacities[..2 * PARTS_MAX].iter().all(|capacity| *capacity == 1 << 20));
        assert!(capacities.is_sorted() && capacities.last() == Some(&(4 << 20)), "{:?}", capacities.last());
    }
}
