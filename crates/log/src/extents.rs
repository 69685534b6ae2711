//! Where a log's payload lies: runs of batches that hold nothing else, in offset order.

use crate::{Offset, Position, byte_of, segment_of};
use smallvec::SmallVec;
use std::ops::Range;

/// Batches that follow each other in one segment and touch this log alone. Payload is walked, never
/// searched, inside an extent, so its span is bounded.
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
}

const SPAN_MAX: u32 = 64 * 1024;

impl Extent {
    pub(crate) fn end(&self) -> Offset {
        self.offset + u64::from(self.length)
    }

    /// The bytes of its segment.
    pub(crate) fn bytes(&self) -> Range<u32> {
        let start = byte_of(self.position);
        start..start + self.span
    }
}

/// A log's extents. Most logs of a store with many have none or one, kept inline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extents {
    list: SmallVec<[Extent; 1]>,
}

impl Extents {
    /// Adds the payload of one more batch, joining it to the last extent where it follows that directly.
    pub(crate) fn push(&mut self, extent: Extent) {
        if extent.length == 0 {
            return;
        }
        if let Some(last) = self.list.last_mut() {
            let follows = segment_of(last.position) == segment_of(extent.position)
                && u64::from(byte_of(last.position)) + u64::from(last.span)
                    == u64::from(byte_of(extent.position));
            if follows && last.end() == extent.offset && last.span + extent.span <= SPAN_MAX {
                last.length += extent.length;
                last.span += extent.span;
                return;
            }
        }
        self.list.push(extent);
    }

    /// The extents that hold bytes of `from..to`.
    pub(crate) fn covering(&self, from: Offset, to: Offset) -> &[Extent] {
        let first = self.list.partition_point(|extent| extent.end() <= from);
        let last = self.list.partition_point(|extent| extent.offset < to);
        &self.list[first..last.max(first)]
    }

    /// Where the first extent lies that holds anything at or behind a position.
    pub(crate) fn behind(&self, position: Position) -> Option<Position> {
        let next = self.list.partition_point(|extent| extent.position + u64::from(extent.span) <= position);
        self.list.get(next).map(|extent| extent.position.max(position))
    }

    /// Where the last extent ends that begins in front of a position, or the position if that is within it.
    pub(crate) fn before(&self, position: Position) -> Option<Position> {
        let behind = self.list.partition_point(|extent| extent.position < position);
        let last = self.list.get(behind.checked_sub(1)?)?;
        Some((last.position + u64::from(last.span)).min(position))
    }

    pub(crate) fn all(&self) -> &[Extent] {
        &self.list
    }

    /// Forgets the extents that end at or below an offset.
    pub(crate) fn drop_below(&mut self, offset: Offset) -> SmallVec<[Extent; 1]> {
        let count = self.list.partition_point(|extent| extent.end() <= offset);
        self.list.drain(..count).collect()
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
                extents.push(Extent { position: position(1, at), offset, length: *payload, span: payload + 80 });
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
                prop_assert!(starts.contains(&(extent.offset, byte_of(extent.position))));
                prop_assert!(extent.span <= SPAN_MAX);
            }
            prop_assert_eq!(extents.all().last().unwrap().end(), offset);
        }
    }
}
