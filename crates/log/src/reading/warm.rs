//! What a read would have to wait for.
//!
//! Purpose: a reactor never waits for a disk. It asks first, has what is cold brought in and verified by
//! another thread, and asks again. It goes by the read's own [`route`](crate::route), so exactly what the
//! read will touch is looked at. Owns nothing but the files it is to bring in. *Checked by* the tests of
//! reading and of settling.

use crate::error::ReadError;
use crate::fork::read_parts;
use crate::log::Log;
use crate::places::{Unfolded, Unfolder, listing_of};
use crate::route::{Leg, Route};
use crate::segment::Segment;
use crate::settled::Settled;
use crate::store::{Shared, Store};
use crate::view::View;
use crate::{Offset, segment_of};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use thalweg_sys::disk::Residency;

/// What has to be read from the disk, and verified, before a read of the same bytes can do without waiting.
/// To be run on a thread that may wait for the disk.
pub struct Prefetch {
    spans: SmallVec<[Cold; 4]>,
    shared: Arc<Shared>,
}

/// Something that is not in memory, or not verified.
enum Cold {
    /// Bytes of a segment.
    Segment(Arc<Segment>, Range<u32>),
    /// Bytes of a settled file; or, with an empty range, its tables.
    Settled(Arc<Settled>, Range<u32>),
}

impl Prefetch {
    /// Reads and verifies, waiting for the disk.
    pub fn run(self) {
        for cold in self.spans {
            match cold {
                // The read that follows reports the damage; which logs it harms is found out here.
                Cold::Segment(segment, range) => {
                    if let Err(ReadError::Damaged(damage)) = segment.warm(range) {
                        self.shared.note_damage_read(&damage);
                    }
                }
                Cold::Settled(settled, range) => settled.warm(range),
            }
        }
    }
}

/// Looks for cold ranges in files; cheapest if they are asked for in order.
struct Probe<'v> {
    view: &'v View,
    segment: Option<(&'v Arc<Segment>, Residency<'v>)>,
    settled: Option<&'v Arc<Settled>>,
    spans: SmallVec<[Cold; 4]>,
}

impl<'v> Probe<'v> {
    fn new(view: &'v View) -> Self {
        Self { view, segment: None, settled: None, spans: SmallVec::new() }
    }

    /// Notes a range of places if it is cold. What is not in the file at all is left to the read, which fails
    /// without waiting.
    fn look(&mut self, number: u32, places: Range<u32>) {
        if self.segment.as_ref().is_none_or(|(segment, _)| segment.header.number != number) {
            let of = |segment: &'v Arc<Segment>| (segment, segment.residency(segment.region().published()));
            self.segment = self.view.find(number).map(of);
        }
        if let Some((segment, residency)) = &mut self.segment
            && let Some(range) = segment.runs().bytes_of(places)
        {
            let there = range.end <= segment.region().published();
            if there && !segment.is_warm(range.clone(), residency) {
                self.spans.push(Cold::Segment(Arc::clone(segment), range));
            }
        }
    }

    /// Notes the tables of a settled file, if a look-up in them would wait.
    fn look_up(&mut self, settled: &'v Arc<Settled>) {
        let known = self.settled.replace(settled).is_some_and(|known| Arc::ptr_eq(known, settled));
        if !known && !settled.tells_at_once() {
            self.spans.push(Cold::Settled(settled.clone(), 0..0));
        }
    }

    /// Notes a range of a settled file if it is cold.
    fn look_together(&mut self, settled: &'v Arc<Settled>, range: Range<u32>) {
        if !settled.is_warm(range.clone()) {
            self.spans.push(Cold::Settled(settled.clone(), range));
        }
    }

    fn found(self, shared: &Arc<Shared>) -> Option<Prefetch> {
        (!self.spans.is_empty()).then(|| Prefetch { spans: self.spans, shared: shared.clone() })
    }
}

impl Store {
    /// What a read of the same bytes would have to wait for; `None` if it would not wait. After
    /// [`Prefetch::run`] the caller asks again, because a frame or table that says where the rest lies may
    /// have been part of it. The newest segment is always warm.
    pub fn needs_disk(&self, log: &Log, from: Offset, limit: usize) -> Option<Prefetch> {
        let to = from.saturating_add(limit.max(1) as u64);
        let found = {
            let inner = log.lock();
            self::read_parts(log, &inner, from, to.min(inner.tail_visible), inner.tail_visible)
                .unwrap_or_default()
        };
        let (view, limit) = (self.shared.segments.latest(), self.shared.control.file_end());
        let (newest, unfolder) = (segment_of(limit), Unfolder { view: &view, limit });
        let mut said = Probe::new(&view);
        let route = Route::new(&view, &found, from, to);
        route.settled().for_each(|settled| said.look_up(settled));
        if let Some(prefetch) = said.found(&self.shared) {
            return Some(prefetch);
        }
        let sealed = |leg: &Leg<'_>| !matches!(leg, Leg::Among { extent, .. } if segment_of(extent.position) == newest);
        let legs: SmallVec<[Leg<'_>; 8]> = route.filter(sealed).collect();
        let mut said = Probe::new(&view);
        for leg in &legs {
            let Leg::Among { extent, .. } = leg else { continue };
            if !extent.is_folded() {
                continue;
            }
            let (number, places) = listing_of(extent);
            let there = view.find(number).map_or(0, |segment| segment.places_end());
            if number != newest && places.start < there {
                said.look(number, places.start..places.end.min(there));
            }
        }
        if let Some(prefetch) = said.found(&self.shared) {
            // The rest is looked at once it is known where it lies.
            return Some(prefetch);
        }
        let mut probe = Probe::new(&view);
        for leg in legs {
            match leg {
                Leg::Together { settled, from, to, .. } => probe.look_together(settled, from..to),
                Leg::Among { log, extent, offset, cut } => {
                    // If the folding batch cannot be read, the read walks the whole extent.
                    let listed = extent.is_folded().then(|| unfolder.listed(log, extent)).flatten();
                    let each = listed.map_or_else(|| Unfolded::itself(*extent), Unfolded::Listed);
                    for one in each.filter(|one| one.holds(offset, to.min(cut))) {
                        probe.look(segment_of(one.position), one.bytes());
                    }
                }
            }
        }
        probe.found(&self.shared)
    }
}
