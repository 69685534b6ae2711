//! Which entries are appended together, where many come one after the other.
//!
//! Purpose: a commit costs the same for one entry as for hundreds, so a writer of many appends them in runs
//! ([`Store::append_timed`]). A run is bounded: by what takes its place in any segment without one being made
//! for it, and by what others wait for who append meanwhile.

use crate::format::frame_bytes;
use crate::store::Store;
use std::fmt;
use std::iter::Peekable;

/// Longer runs save nothing, and keep what they began with from being seen.
const RUN_BYTES_MAX: u64 = 256 << 10;
const RUN_ENTRIES_MAX: usize = 1024;
/// A run takes such a part of the largest segment.
const SEGMENT_PARTS: u64 = 4;

impl Store {
    /// Cuts entries into runs of which each fits into one commit, if each of its entries does: what
    /// `payload_bytes` says is the length of an entry's payload. An entry that is large is a run of its own.
    /// Nothing is taken of `entries` before it is needed, but for one that begins the next run.
    ///
    /// ```
    /// use thalweg_log::{Options, Query, Store};
    /// let store = Store::memory(Options::default())?;
    /// let log = store.log(b"readings")?;
    /// let readings = (0..100_000).map(|time| (time, b"21.5".as_slice()));
    /// for run in store.runs(readings, |(_, payload)| payload.len()) {
    ///     store.append_timed(&log, &run)?;
    /// }
    /// assert!(store.stats().batches < 200);
    /// assert_eq!(store.reader(&log).entries(&Query::default()).count(), 100_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn runs<I: IntoIterator, F: Fn(&I::Item) -> usize>(
        &self,
        entries: I,
        payload_bytes: F,
    ) -> Runs<I::IntoIter, F> {
        let part = u64::from(self.shared.options.segment_bytes_max) / SEGMENT_PARTS;
        Runs { entries: entries.into_iter().peekable(), payload_bytes, bytes_max: part.min(RUN_BYTES_MAX) }
    }
}

/// Entries in runs that are appended together: made by [`Store::runs`]. It keeps nothing of the store open.
pub struct Runs<I: Iterator, F> {
    entries: Peekable<I>,
    payload_bytes: F,
    bytes_max: u64,
}

impl<I: Iterator, F> fmt::Debug for Runs<I, F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Runs").field("bytes_max", &self.bytes_max).finish_non_exhaustive()
    }
}

impl<I: Iterator, F: Fn(&I::Item) -> usize> Iterator for Runs<I, F> {
    type Item = Vec<I::Item>;

    fn next(&mut self) -> Option<Vec<I::Item>> {
        let Runs { entries, payload_bytes, bytes_max } = self;
        let cost = |entry: &I::Item| frame_bytes(payload_bytes(entry) as u64);
        let first = entries.next()?;
        let mut bytes = cost(&first);
        let mut run = vec![first];
        while run.len() < RUN_ENTRIES_MAX
            && let Some(next) = entries.next_if(|next| bytes + cost(next) <= *bytes_max)
        {
            bytes += cost(&next);
            run.push(next);
        }
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Options, Query, Store};

    fn store(segment_bytes_max: u32) -> Store {
        Store::memory(Options { segment_bytes_min: 4096, segment_bytes_max, ..Options::default() }).unwrap()
    }

    #[test]
    fn a_run_is_a_part_of_the_largest_segment_and_no_longer_than_pays() {
        let lengths = |segment_bytes_max, payload_bytes: usize, count: usize| -> Vec<usize> {
            let entries = std::iter::repeat_n(vec![7; payload_bytes], count);
            store(segment_bytes_max).runs(entries, Vec::len).map(|run| run.len()).collect()
        };
        // 32 bytes of each are its header, and lengths are rounded up to 8.
        assert_eq!(lengths(8192, 32, 70), [32, 32, 6]);
        assert_eq!(lengths(8192, 25, 33), [32, 1]);
        assert_eq!(lengths(64 << 20, 480, 1000), [512, 488]);
        assert_eq!(lengths(64 << 20, 1, 2000), [1024, 976]);
        assert_eq!(lengths(8192, 4000, 3), [1, 1, 1], "more than a part each");
        assert_eq!(lengths(8192, 1, 0), [0; 0]);
    }

    #[test]
    fn nothing_is_taken_before_it_is_needed_but_one() {
        let taken = std::cell::Cell::new(0);
        let entries = std::iter::repeat_with(|| taken.set(taken.get() + 1));
        let mut runs = store(8192).runs(entries, |()| 1000);
        assert_eq!((runs.next().map(|run| run.len()), taken.get()), (Some(1), 2));
        assert_eq!((runs.next().map(|run| run.len()), taken.get()), (Some(1), 3));
    }

    #[test]
    fn every_run_fits_whatever_is_in_the_segment() {
        let store = store(8192);
        let log = store.log(b"a").unwrap();
        let entries = (0..2000_u64).map(|time| (time, vec![7; time as usize % 300 + 1]));
        for run in store.runs(entries, |(_, payload)| payload.len()) {
            let run: Vec<_> = run.iter().map(|(time, payload)| (*time, &payload[..])).collect();
            store.append_timed(&log, &run).unwrap();
        }
        assert_eq!(store.reader(&log).entries(&Query::default()).count(), 2000);
    }
}
