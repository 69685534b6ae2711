//! The way that a read of payload takes: through settled files and through segments.
//!
//! Purpose: a read, and the question whether it would wait, take the same way. A log's extents say where its
//! records are, each in its segment. In a segment that is [`settled`](crate::settled) a read is one range of
//! a file, however many extents the log has there. Owns nothing. Invariant: legs follow each other without a
//! gap, up to where the read ends or something is missing; each begins and ends where a record does, except
//! where the read itself begins inside one or a fork branches off. *Checked by* the tests of settling, and
//! the crash simulation, which reads everything in parts.

use crate::extents::Extent;
use crate::fork::{ReadPart, ReadParts};
use crate::segment::Segment;
use crate::settled::{Settled, Way};
use crate::view::View;
use crate::{LogId, Offset, segment_of};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// A part of the way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leg<'v> {
    /// A range of a settled file, and the offset of its first byte.
    Together { settled: &'v Arc<Settled>, from: u32, to: u32, offset: Offset },
    /// Records of a log in an extent of a segment, from an offset on and up to the cut.
    Among { log: LogId, extent: &'v Extent, offset: Offset, cut: Offset },
}

/// From one offset to another, leg by leg.
#[derive(Clone, Debug)]
pub(crate) struct Route<'v> {
    view: &'v View,
    extents: SmallVec<[(&'v ReadPart, &'v Extent); 8]>,
    at: usize,
    next: Offset,
    to: Offset,
    ended: bool,
}

impl<'v> Route<'v> {
    /// The way of a read of `from..to` through the extents that were found for it.
    pub(crate) fn new(view: &'v View, parts: &'v ReadParts, from: Offset, to: Offset) -> Route<'v> {
        let in_order = parts.iter().rev();
        let extents =
            in_order.flat_map(|part| part.extents.iter().map(move |extent| (part, extent))).collect();
        Route { view, extents, at: 0, next: from, to, ended: false }
    }

    /// Goes back to the offset of the last leg, which could not be read.
    pub(crate) fn again(&mut self, from: Offset) {
        (self.next, self.ended) = (from, false);
    }

    /// The settled files that it may lead through, some more than once.
    pub(crate) fn settled(&self) -> impl Iterator<Item = &'v Arc<Settled>> + use<'v, '_> {
        let segments = self.extents.iter().filter_map(|(_, extent)| self.segment(extent));
        segments.filter_map(|segment| segment.settled())
    }

    /// The extent `count` ahead of the one that the last leg led through.
    pub(crate) fn ahead(&self, count: usize) -> Option<&'v Extent> {
        self.extents.get(self.at + count).map(|(_, extent)| *extent)
    }

    fn segment(&self, extent: &Extent) -> Option<&'v Arc<Segment>> {
        self.view.find(segment_of(extent.position))
    }
}

impl<'v> Iterator for Route<'v> {
    type Item = Leg<'v>;

    fn next(&mut self) -> Option<Leg<'v>> {
        let passed = |(part, extent): &(&ReadPart, &Extent)| extent.end().min(part.cut) <= self.next;
        self.at += self.extents[self.at..].iter().take_while(|one| passed(one)).count();
        let (part, extent) = *self.extents.get(self.at)?;
        if self.ended || !extent.holds(self.next, self.to) {
            return None;
        }
        let (log, offset) = (part.log, self.next);
        let settled = self.segment(extent).and_then(|segment| segment.settled());
        let way = settled.and_then(|settled| Some((settled, settled.way(log, offset, part.cut, self.to)?)));
        let cut = match way {
            Some((settled, Way::Together { bytes: Range { start: from, end: to }, all })) => {
                (self.next, self.ended) = (offset + u64::from(to - from), !all);
                return Some(Leg::Together { settled, from, to, offset });
            }
            Some((_, Way::Apart(bound))) => bound.min(part.cut),
            None => part.cut,
        };
        self.next = extent.end().min(cut);
        Some(Leg::Among { log, extent, offset, cut })
    }
}
