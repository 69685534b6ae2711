//! Where a log's payload lies: runs of batches that hold nothing else, in offset order.
//!
//! Of a log whose entries lie among others', each is an extent of its own. So that memory does not grow with
//! history, extents that have become many are *folded*: a batch of the log lists where they lie
//! ([`places`](crate::places)), and one extent that knows this batch stands for them.
//!
//! Invariants: extents are ordered, each begins where the one before it ends unless something between them is
//! lost or was let go of behind what a fork inherits, and a folded one stands for extents of one segment.
//! What is folded is decided by what was written, so that recovery and attached processes, which replay it,
//! come to the same list. *Checked by* the tests below and those of `places`.

use crate::places::{Places, RUN};
use crate::{Offset, Position, place_of, segment_of};
use smallvec::SmallVec;
use std::ops::Range;

/// Batches that follow each other in one segment and touch this log alone, or, if it is folded, many of such.
/// Payload is walked, never searched, inside one that is not folded, so its span is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Start of the first batch.
    pub(crate) position: Position,
    /// Offset of the first payload byte.
    pub(crate) offset: Offset,
    /// Payload bytes.
    pub(crate) length: u32,
    /// Bytes of segment from the first batch's start to the last one's end.
    pub(crate) span: u32,
    /// Start of the batch that lists what it stands for, if it is folded; else 0.
    pub(crate) places: Position,
}

const SPAN_MAX: u32 = 64 * 1024;
/// Payload that is folded into one extent, and so what is kept at most of what a log has let go. Where there
/// is more of it, extents are few.
const FOLDED_BYTES_MAX: u32 = 256 << 10;
/// Fewer than this are not worth it: at the end of a segment.
const FOLDED_MIN: usize = if RUN / 8 > 2 { RUN / 8 } else { 2 };

impl Extent {
    pub(crate) fn end(&self) -> Offset {
        self.offset + u64::from(self.length)
    }

    /// The bytes of its segment.
    pub(crate) fn bytes(&self) -> Range<u32> {
        let start = place_of(self.position);
        start..start + self.span
    }

    /// Where its last batch ends.
    pub(crate) fn end_position(&self) -> Position {
        self.position + u64::from(self.span)
    }

    pub(crate) fn is_folded(&self) -> bool {
        self.places != 0
    }

    /// Whether it holds bytes of `from..to`.
    pub(crate) fn holds(&self, from: Offset, to: Offset) -> bool {
        self.end() > from && self.offset < to
    }
}

/// A log's extents. Most logs of a store with many have none or one, kept inline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extents {
    list: SmallVec<[Extent; 1]>,
}

impl Extents {
    /// Adds the payload of one more batch, joining it to the last extent where it follows that directly.
    /// Answers whether some extents are to be folded now.
    pub(crate) fn push(&mut self, extent: Extent) -> bool {
        if extent.length == 0 {
            return self.foldable().is_some();
        }
        if let Some(last) = self.list.last_mut().filter(|last| !last.is_folded()) {
            let follows = segment_of(last.position) == segment_of(extent.position)
                && last.end_position() == extent.position;
            if follows && last.end() == extent.offset && last.span + extent.span <= SPAN_MAX {
                last.length += extent.length;
                last.span += extent.span;
                return false;
            }
        }
        self.list.push(extent);
        self.foldable().is_some()
    }

    /// The extents that are to be folded next: of the latest, once they are many, those of one segment.
    pub(crate) fn foldable(&self) -> Option<&[Extent]> {
        let first = self.list.len().checked_sub(RUN)?;
        let latest = &self.list[first..];
        if latest[0].is_folded() {
            return None;
        }
        let segment = segment_of(latest[0].position);
        let (mut next, most) = (latest[0].offset, latest[0].offset + u64::from(FOLDED_BYTES_MAX));
        let folds = |extent: &&Extent| {
            let follows = extent.offset == std::mem::replace(&mut next, extent.end()) && next <= most;
            follows && segment_of(extent.position) == segment && Places::can_list(extent)
        };
        let count = latest.iter().take_while(folds).count();
        (count >= FOLDED_MIN).then_some(&latest[..count])
    }

    /// Has one extent stand for those whose places the batch at `listed_at` lists. Does nothing if they are
    /// not in this list as that batch has them.
    pub(crate) fn fold(&mut self, places: &Places<'_>, listed_at: Position) {
        let first = self.list.partition_point(|extent| extent.offset < places.first());
        let Some(found) = self.list.get(first..first + places.count()) else { return };
        let (Some(begins), Some(ends)) = (found.first().copied(), found.last().copied()) else { return };
        if !places.iter().eq(found.iter().copied()) {
            return;
        }
        let length = found.iter().map(|extent| extent.length).sum();
        let span = place_of(ends.position) + ends.span - place_of(begins.position);
        self.list[first] = Extent { length, span, places: listed_at, ..begins };
        self.list.drain(first + 1..first + places.count());
    }

    /// The extents that hold bytes of `from..to`.
    pub(crate) fn covering(&self, from: Offset, to: Offset) -> &[Extent] {
        let first = self.list.partition_point(|extent| extent.end() <= from);
        let last = self.list.partition_point(|extent| extent.offset < to);
        &self.list[first..last.max(first)]
    }

    /// The first extent that holds anything at or behind a position.
    pub(crate) fn behind(&self, position: Position) -> Option<&Extent> {
        self.list.get(self.list.partition_point(|extent| extent.end_position() <= position))
    }

    /// The last extent that begins in front of a position.
    pub(crate) fn before(&self, position: Position) -> Option<&Extent> {
        self.list[..self.list.partition_point(|extent| extent.position < position)].last()
    }

    pub(crate) fn all(&self) -> &[Extent] {
        &self.list
    }

    /// Those that lie in a segment.
    pub(crate) fn of_segment(&self, number: u32) -> &[Extent] {
        let first = self.list.partition_point(|extent| segment_of(extent.position) < number);
        let rest = &self.list[first..];
        &rest[..rest.partition_point(|extent| segment_of(extent.position) == number)]
    }

    /// Takes over what a checkpoint knows, in order.
    pub(crate) fn restore(&mut self, extent: Extent) {
        self.list.push(extent);
    }

    /// Places of those that hold something of a range and end in front of an offset, or there.
    pub(crate) fn places(&self, range: &Range<Offset>, to: Offset) -> Range<usize> {
        let first = self.list.partition_point(|extent| extent.end() <= range.start);
        let last = self.list.partition_point(|extent| extent.offset < range.end && extent.end() <= to);
        first..last.max(first)
    }

    /// Forgets runs of them, given by their places in order. Answers what went.
    pub(crate) fn remove(
        &mut self,
        runs: impl DoubleEndedIterator<Item = Range<usize>>,
    ) -> SmallVec<[Extent; 1]> {
        let mut gone = SmallVec::new();
        runs.rev().for_each(|run| gone.extend(self.list.drain(run)));
        gone
    }

    pub(crate) fn take(&mut self) -> SmallVec<[Extent; 1]> {
        std::mem::take(&mut self.list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_is_covered_by_its_extent_whatever_was_joined(
            batches in proptest::collection::vec((1u32..5000, prop::bool::ANY), 1..60), from: prop::sample::Index, length in 1u64..3000,
        ) {
            let mut extents = Extents::default();
            let (mut at, mut offset) = (64u32, 0u64);
            let mut starts = Vec::new();
            for (payload, gap) in &batches {
                at += if *gap { 800 } else { 0 };
                extents.push(Extent { position: position(1, at), offset, length: *payload, span: payload + 80, places: 0 });
                starts.push((offset, at));
                at += payload + 80;
                offset += u64::from(*payload);
            }
            let from = from.index(usize::try_from(offset).unwrap()) as u64;
            let to = (from + length).min(offset);
            let covering = extents.covering(from, to);
            prop_assert!(covering[0].offset <= from && covering.last().unwrap().end() >= to);
            prop_assert!(covering.windows(2).all(|pair| pair[0].end() == pair[1].offset));
            prop_assert!(covering[0].end() > from && covering.last().unwrap().offset < to);
            for extent in extents.all() {
                prop_assert!(starts.contains(&(extent.offset, place_of(extent.position))));
                prop_assert!(extent.span <= SPAN_MAX);
            }
            prop_assert_eq!(extents.all().last().unwrap().end(), offset);
        }
    }
}
