//! What a thread counts for others to read: counters, and histograms of powers of two.
//!
//! # Shape
//!
//! Every word has one writer at a time and any number of readers. The writer adds with a load and a store,
//! which cost what plain ones do; writers that take turns under a lock are one writer. Readers see each word
//! whole, late by no more than the hardware's delay; two words read one after the other need not be of the
//! same moment, so nothing may be concluded from their difference but a trend. Nothing is published by them:
//! every ordering is relaxed.

use crate::primitives::atomic::{AtomicU64, Ordering};

/// Buckets of a histogram: one for 0, then one per power of two, the last for all above.
const BUCKETS: usize = 33;

/// Counters of one writer, by number.
#[derive(Debug)]
pub struct Meter<const N: usize>([AtomicU64; N]);

impl<const N: usize> Meter<N> {
    /// All at 0.
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Adds. The writer only. Complexity: a load and a store.
    ///
    /// # Panics
    /// There is no such counter.
    #[inline]
    pub fn add(&self, counter: usize, count: u64) {
        self.set(counter, self.read(counter).wrapping_add(count));
    }

    /// Takes away again. The writer only.
    ///
    /// # Panics
    /// There is no such counter.
    #[inline]
    pub fn take(&self, counter: usize, count: u64) {
        self.set(counter, self.read(counter).wrapping_sub(count));
    }

    /// Says a value of another origin. The writer only.
    ///
    /// # Panics
    /// There is no such counter.
    #[inline]
    pub fn set(&self, counter: usize, value: u64) {
        self.0[counter].store(value, Ordering::Relaxed);
    }

    /// Adds; other threads may add at the same time.
    ///
    /// # Panics
    /// There is no such counter.
    #[inline]
    pub fn add_shared(&self, counter: usize, count: u64) {
        self.0[counter].fetch_add(count, Ordering::Relaxed);
    }

    /// What a counter stands at. Anybody.
    ///
    /// # Panics
    /// There is no such counter.
    #[inline]
    pub fn read(&self, counter: usize) -> u64 {
        self.0[counter].load(Ordering::Relaxed)
    }
}

impl<const N: usize> Default for Meter<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// How often values of each size were noted, and their sum.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: Meter<BUCKETS>,
    sum: Meter<1>,
}

/// A histogram as it stood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// Values up to and with each bound, which is a power of two less one; ascending. The last bucket has no
    /// bound.
    pub buckets: Vec<(Option<u64>, u64)>,
    /// The sum of all values.
    pub sum: u64,
}

impl Histogram {
    /// Notes a value. The writer only.
    #[inline]
    pub fn note(&self, value: u64) {
        self.note_times(value, 1);
    }

    /// Notes a value `times` times. The writer only.
    #[inline]
    pub fn note_times(&self, value: u64, times: u64) {
        let bucket = (u64::BITS - value.leading_zeros()) as usize;
        self.buckets.add(bucket.min(BUCKETS - 1), times);
        self.sum.add(0, value.wrapping_mul(times));
    }

    /// How the values lie. Anybody.
    pub fn read(&self) -> Distribution {
        let mut total = 0;
        let buckets = (0..BUCKETS).map(|bucket| {
            total += self.buckets.read(bucket);
            ((bucket < BUCKETS - 1).then(|| (1 << bucket) - 1), total)
        });
        Distribution { buckets: buckets.collect(), sum: self.sum.read(0) }
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_counts_by_number_and_is_read_from_elsewhere() {
        let meter = Meter::<3>::new();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..1_000).for_each(|_| meter.add(0, 2)));
            scope.spawn(|| {
                let mut last = 0;
                while last < 2_000 {
                    let now = meter.read(0);
                    assert!(now >= last && now.is_multiple_of(2));
                    last = now;
                }
            });
        });
        meter.take(0, 1_999);
        meter.set(1, 7);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1_000).for_each(|_| meter.add_shared(2, 1)));
            }
        });
        assert_eq!([0, 1, 2].map(|counter| meter.read(counter)), [1, 7, 4_000]);
    }

    #[test]
    fn a_value_counts_in_every_bucket_that_it_does_not_exceed() {
        let histogram = Histogram::default();
        let values = [0, 1, 2, 3, 4, 1_000, u64::from(u32::MAX), u64::from(u32::MAX) + 1, 1 << 50];
        values.into_iter().for_each(|value| histogram.note(value));
        let Distribution { buckets, sum } = histogram.read();
        for (bound, count) in &buckets {
            let expected = values.iter().filter(|value| bound.is_none_or(|bound| **value <= bound)).count();
            // Values above the last bound are in the bucket without one alone.
            let expected = if *bound == Some(u64::from(u32::MAX)) { 7 } else { expected };
            assert_eq!(*count, expected as u64, "{bound:?}");
        }
        assert_eq!(sum, values.iter().sum::<u64>());
        assert_eq!(buckets.last(), Some(&(None, 9)));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_two_add_at_once_is_all_counted() {
        loom::model(|| {
            let meter = Arc::new(Meter::<1>::new());
            let rival = meter.clone();
            let rival = loom::thread::spawn(move || rival.add_shared(0, 1));
            meter.add_shared(0, 2);
            rival.join().unwrap();
            assert_eq!(meter.read(0), 3);
        });
    }
}
