//! The way that a read of payload takes: from what lies together to what lies among others', and back.
//!
//! Purpose: whoever reads and whoever looks whether a read would wait go the same way. A log's extents say where its records are, each
//! in its segment; of a segment that is [`settled`](crate::settled) what a read asks for is a range of a file, whatever extents it has.
//! Owns nothing. Invariant: legs follow each other without a gap, up to where the read ends or something is missing, and each begins
//! and ends where a record does, but where the read itself begins inside one or a fork branches off. *Checked by* the tests of
//! settling, and the crash simulation, which reads everything in parts.

use crate::extents::Extent;
use crate::fork::{Span, Spans};
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
    /// A range of a file, as it is, and the offset of its first byte.
    Together { settled: &'v Arc<Settled>, from: u32, to: u32, offset: Offset },
    /// Records of a log that lie in an extent, from an offset on and none behind the cut.
    Among { log: LogId, extent: &'v Extent, offset: Offset, cut: Offset },
}

/// From one offset to another, leg by leg.
#[derive(Clone, Debug)]
pub(crate) struct Route<'v> {
    view: &'v View,
    extents: SmallVec<[(&'v Span, &'v Extent); 8]>,
    at: usize,
    next: Offset,
    to: Offset,
    ended: bool,
}

impl<'v> Route<'v> {
    /// Through what a read of `from..to` found.
    pub(crate) fn new(view: &'v View, spans: &'v Spans, from: Offset, to: Offset) -> Route<'v> {
        let in_order = spans.iter().rev();
        let extents =
            in_order.flat_map(|span| span.extents.iter().map(move |extent| (span, extent))).collect();
        Route { view, extents, at: 0, next: from, to, ended: false }
    }

    /// Goes on from an earlier offset again: that of the last leg, which could not be gone.
    pub(crate) fn again(&mut self, from: Offset) {
        (self.next, self.ended) = (from, false);
    }

    /// Settled segments that it may lead through, some more than once.
    pub(crate) fn settled(&self) -> impl Iterator<Item = &'v Arc<Settled>> + use<'v, '_> {
        let segments = self.extents.iter().filter_map(|(_, extent)| self.segment(extent));
        segments.filter_map(|segment| segment.settled())
    }

    /// The extent that is so many ahead of the one that the last leg led through.
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
        let passed = |(span, extent): &(&Span, &Extent)| extent.end().min(span.cut) <= self.next;
        self.at += self.extents[self.at..].iter().take_while(|one| passed(one)).count();
        let (span, extent) = *self.extents.get(self.at)?;
        if self.ended || !extent.holds(self.next, self.to) {
            return None;
        }
        let (log, offset) = (span.log, self.next);
        let settled = self.segment(extent).and_then(|segment| segment.settled());
        let way = settled.and_then(|settled| Some((settled, settled.way(log, offset, span.cut, self.to)?)));
        let cut = match way {
            Some((settled, Way::Together { bytes: Range { start: from, end: to }, all })) => {
                (self.next, self.ended) = (offset + u64::from(to - from), !all);
                return Some(Leg::Together { settled, from, to, offset });
            }
            Some((_, Way::Apart(bound))) => bound.min(span.cut),
            None => span.cut,
        };
        self.next = extent.end().min(cut);
        Some(Leg::Among { log, extent, offset, cut })
    }
}
