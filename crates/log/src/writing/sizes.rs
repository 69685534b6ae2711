//! How large the next segment is.
//!
//! Purpose: a segment costs a descriptor and a map whatever its size, and what is let go goes a segment at a time. So a store
//! begins with a small one and doubles, up to what its options say; one that is bounded as a whole, up to a part of its bound, so
//! that what goes at a time is little of what is kept, and what waits to be removed is little beside it. Where what retention
//! leaves alone holds on to many segments all the same, the next ones are larger again, so that their number stays in proportion.
//!
//! What no segment can be made of is refused, and never made into something else in silence.
//!
//! Invariants: no size is beyond the options' largest, and whatever batch that one has room for gets a segment that it fits in.
//! *Checked by* the tests here and those of reclaiming.

use crate::error::{CommitError, OpenError};
use crate::format::{SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES};
use crate::open::{Options, PAGE_BYTES};
use crate::spare::Why;
use crate::writer::Writer;

/// A segment holds such a part of what a store may keep.
const BOUND_PARTS: u64 = 16;
/// Whatever the bound, unless the options say less.
const PART_BYTES_MIN: u32 = 1 << 20;
/// Beyond so many segments the next one of a bounded store is larger.
const PARTS_MAX: usize = 4 * BOUND_PARTS as usize;

impl Options {
    /// # Errors
    /// [`OpenError::BadOption`].
    pub(crate) fn check_sizes(&self) -> Result<(), OpenError> {
        let (min, max) = (self.segment_bytes_min, self.segment_bytes_max);
        let check = |option, bytes: u32, least, most: u32, or: &str| {
            if bytes.is_multiple_of(PAGE_BYTES) && (least..=most).contains(&bytes) {
                return Ok(());
            }
            let must = format!("a multiple of {PAGE_BYTES} from {least} to {most}{or}");
            Err(OpenError::BadOption { option, value: bytes.into(), must })
        };
        check("segment_bytes_max", max, 2 * PAGE_BYTES, SEGMENT_BYTES_MAX, "")?;
        check("segment_bytes_min", min, PAGE_BYTES, max, ", which is segment_bytes_max")
    }

    /// The largest segment that is begun unless a batch needs a larger one.
    pub(crate) fn segment_bytes_due(&self) -> u32 {
        let most = self.segment_bytes_max;
        let part = self.retain_bytes.map_or(most, |bound| {
            u32::try_from(bound / BOUND_PARTS).unwrap_or(most).clamp(PART_BYTES_MIN.min(most), most)
        });
        part / PAGE_BYTES * PAGE_BYTES
    }

    /// The first segment of a store.
    pub(crate) fn segment_bytes_first(&self) -> u32 {
        self.segment_bytes_min.min(self.segment_bytes_due())
    }
}

impl Writer {
    /// Capacity of the segment after the active one: doubles up to what is due, unless less than half of this one was used and they are
    /// few, or the store is to begin anew.
    pub(crate) fn next_capacity(&self, needed: u32) -> u32 {
        let crowd = u32::try_from(self.live_bytes.len() / PARTS_MAX).unwrap_or(u32::MAX).max(1);
        let capacity = self.active.header.capacity;
        let doubled = match self.emptied {
            true => 0,
            false if crowd == 1 && self.tip.end() < capacity / 2 => capacity,
            false => capacity.saturating_mul(2),
        };
        let due = self.options.segment_bytes_due().saturating_mul(crowd).min(self.options.segment_bytes_max);
        doubled.clamp(self.options.segment_bytes_first(), due).max(least_capacity(needed))
    }

    /// Seals the active segment, unless nothing is in it, and begins one as small as a store's first.
    pub(crate) fn begin_anew(&mut self) -> Result<(), CommitError> {
        self.drop_spare();
        self.emptied = true;
        let begun = self.begin_next(Why::ToLetGo);
        self.emptied = false;
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
    use crate::Store;

    fn bounded(retain_bytes: u64) -> Options {
        Options { retain_bytes: Some(retain_bytes), ..Options::default() }
    }

    #[test]
    fn segments_are_a_part_of_the_bound_between_the_least_and_the_largest() {
        assert_eq!(Options::default().segment_bytes_due(), 64 << 20);
        for (bound, due) in [(0, 1 << 20), (16 << 20, 1 << 20), (160 << 20, 10 << 20), (1 << 40, 64 << 20)] {
            assert_eq!(bounded(bound).segment_bytes_due(), due, "{bound}");
        }
        let odd = bounded(20_000_000);
        assert_eq!((odd.segment_bytes_due() % PAGE_BYTES, odd.segment_bytes_due() / PAGE_BYTES), (0, 305));
        assert_eq!(odd.segment_bytes_first(), odd.segment_bytes_due());
        assert_eq!(bounded(1 << 40).segment_bytes_first(), 4 << 20);
        let small = Options { segment_bytes_min: 4096, segment_bytes_max: 8192, ..bounded(1 << 30) };
        assert_eq!((small.segment_bytes_due(), small.segment_bytes_first()), (8192, 4096));
    }

    #[test]
    fn sizes_that_no_segment_can_have_are_refused_by_name() {
        let sized =
            |min, max| Options { segment_bytes_min: min, segment_bytes_max: max, ..Options::default() };
        for (min, max) in [(4096, 8192), (8192, 8192), (4096, SEGMENT_BYTES_MAX), (1 << 20, 3 << 20)] {
            sized(min, max).check_sizes().unwrap();
        }
        let min = "segment_bytes_min is {}; it must be a multiple of 4096 from 4096 to 65536, which is segment_bytes_max";
        for bytes in [0, 8, 4095, 4100, 65_536 + 4096, u32::MAX] {
            let refused = Store::memory(sized(bytes, 65_536)).unwrap_err().to_string();
            assert_eq!(refused, min.replace("{}", &bytes.to_string()));
        }
        let max = "segment_bytes_max is {}; it must be a multiple of 4096 from 8192 to 1073741824";
        for bytes in [0, 8, 4096, 1_000_000, SEGMENT_BYTES_MAX + 4096, u32::MAX] {
            let refused = Store::memory(sized(4096, bytes)).unwrap_err().to_string();
            assert_eq!(refused, max.replace("{}", &bytes.to_string()));
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let refused = Store::open(&crate::Disk::Real, &path, sized(8192, 4096));
        assert!(matches!(
            refused,
            Err(OpenError::BadOption { option: "segment_bytes_max", value: 4096, .. })
        ));
        assert!(!path.exists(), "nothing was made");
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
