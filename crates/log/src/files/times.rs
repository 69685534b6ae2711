//! What is known of the times of entries: the largest, and how far one ever lay behind an earlier one.
//!
//! Purpose: queries with an end rely on both (see `source`). A batch sums up its own times before the
//! writer's lock is taken, and the writer joins that to what it knows. Invariant: joining the sums of batches
//! comes to the same as noting every entry, which is what recovery does. Checked by the property test below.

use crate::Time;

/// The times of many entries, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// The largest of them.
    pub(crate) latest: Time,
    /// How far one ever lay behind an earlier one.
    pub(crate) lateness: Time,
}

impl Times {
    /// Takes the next entry's.
    pub(crate) fn note(&mut self, time: Time) {
        self.lateness = self.lateness.max(self.latest.saturating_sub(time));
        self.latest = self.latest.max(time);
    }

    /// Takes those of a batch.
    pub(crate) fn join(&mut self, span: &EntryTimes) {
        let behind = self.latest.saturating_sub(span.least);
        self.lateness = self.lateness.max(span.times.lateness).max(behind);
        self.latest = self.latest.max(span.times.latest);
    }
}

/// The times of a batch's entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryTimes {
    pub(crate) first: Time,
    least: Time,
    times: Times,
}

impl EntryTimes {
    /// Begins with one entry's.
    pub(crate) fn of(time: Time) -> EntryTimes {
        EntryTimes { first: time, least: time, times: Times { latest: time, lateness: 0 } }
    }

    /// Takes the next entry's.
    #[inline]
    pub(crate) fn note(&mut self, time: Time) {
        self.least = self.least.min(time);
        self.times.note(time);
    }

    /// The largest.
    pub(crate) fn latest(&self) -> Time {
        self.times.latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn batches_joined_come_to_the_same_as_entries_one_by_one(
            batches in proptest::collection::vec(proptest::collection::vec(0u64..50, 1..6), 0..8),
        ) {
            let (mut joined, mut noted) = (Times::default(), Times::default());
            for batch in &batches {
                let mut span = EntryTimes::of(batch[0]);
                batch[1..].iter().for_each(|time| span.note(*time));
                joined.join(&span);
                batch.iter().for_each(|time| noted.note(*time));
                prop_assert_eq!(span.latest(), *batch.iter().max().unwrap());
            }
            prop_assert_eq!(joined, noted);
        }
    }
}
