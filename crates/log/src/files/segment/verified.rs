//! How far a segment is verified, and what of it is damaged.
//!
//! Checksums are verified once per process. `trusted_from` says where what this process wrote or replayed
//! begins, which needs no look; `looked_at` how far the rest has been looked at, and `clean` how far nothing
//! was wrong. Spans found damaged are remembered, so that they cost only the logs that lie in them.
//!
//! Invariants: a mark never covers bytes whose damage is not noted yet; `clean` never passes damage. A reader
//! below `clean` or behind `trusted_from` takes no lock. *Checked by* the damage tests, and the tests of
//! flipped bits.

use super::{Segment, file_name};
use crate::error::{Damage, ReadError};
use crate::format::{SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES};
use crate::scan::{Step, Unseen};
use parking_lot::Mutex;
use std::ops::Range;
use thalweg_sync::region::Published;
use thalweg_sys::disk::Residency;

/// Bytes verified under the lock at a time.
const STEP_BYTES: u32 = 1 << 20;

/// Bytes that can be read next, or why not.
pub(crate) enum Readable {
    /// Whole batches up to here.
    To(u32),
    /// The bytes at hand are damaged; the next batch that stands begins here.
    Damaged(Box<Damage>, u32),
}

#[derive(Debug)]
pub(super) struct Verified {
    trusted_from: u32,
    looked_at: Published,
    clean: Published,
    damage: Mutex<Vec<(Range<u32>, Damage)>>,
}

impl Verified {
    /// Of a segment that was not looked at in front of `trusted_from`.
    pub(super) fn none(trusted_from: u32) -> Verified {
        let (looked_at, clean) = (Published::new(SEGMENT_HEADER_BYTES), Published::new(SEGMENT_HEADER_BYTES));
        Verified { trusted_from, looked_at, clean, damage: Mutex::default() }
    }

    /// Of a segment that is not there: all of it is damaged.
    pub(super) fn lost(damage: Damage) -> Verified {
        let damage = vec![(SEGMENT_HEADER_BYTES..SEGMENT_BYTES_MAX, damage)].into();
        let lost = Verified { damage, ..Verified::none(u32::MAX) };
        lost.looked_at.publish(SEGMENT_BYTES_MAX);
        lost
    }

    #[inline]
    pub(super) fn trusted_from(&self) -> u32 {
        self.trusted_from
    }

    /// How far the segment has been looked at.
    pub(super) fn looked_at(&self) -> u32 {
        self.looked_at.bytes()
    }

    /// Whether everything in a range was verified and nothing is wrong with it.
    #[inline]
    fn is_clean(&self, from: u32, to: u32) -> bool {
        from >= self.trusted_from || to <= self.clean.bytes()
    }

    /// What is known to be wrong in a range.
    fn hit(&self, range: Range<u32>) -> Option<(Range<u32>, Damage)> {
        let damage = self.damage.lock();
        damage.iter().find(|(span, _)| span.start < range.end && range.start < span.end).cloned()
    }

    /// Moves the marks over bytes that stand.
    fn looked(&self, from: u32, to: u32, undamaged: bool) {
        // What replay verified on from here needs no second look.
        if undamaged && self.clean.bytes() >= from {
            self.clean.publish(to);
        }
        self.looked_at.publish(to);
    }
}

impl Segment {
    /// From this byte on nothing needs to be verified.
    pub(crate) fn trusted_from(&self) -> u32 {
        self.verified.trusted_from()
    }

    /// Makes sure that the batches in a range match their checksums, looking at each once per process.
    pub(crate) fn verify(&self, range: Range<u32>) -> Result<(), ReadError> {
        if range.end > self.region.published() {
            // All that a shortened file has lost.
            let from = self.position_of(self.region.published());
            return Err(ReadError::Damaged(Box::new(Damage::at(file_name(self.header.number), from))));
        }
        if self.verified.is_clean(range.start, range.end) {
            return Ok(());
        }
        self.look_up_to(range.end);
        self.verified.hit(range).map_or(Ok(()), |(_, damage)| Err(ReadError::Damaged(Box::new(damage))))
    }

    /// How far one may read from `from`, where a batch begins, towards `to`, at most what is published. What
    /// is not verified yet is verified on the way, a step at a time.
    #[inline]
    pub(crate) fn readable(&self, from: u32, to: u32) -> Readable {
        if self.needs_no_look(from, to) {
            return Readable::To(to);
        }
        self.look_and_read(from, to)
    }

    /// Whether everything there was verified and nothing is wrong with it.
    #[inline]
    pub(crate) fn needs_no_look(&self, from: u32, to: u32) -> bool {
        self.verified.is_clean(from, to)
    }

    /// How far what begins at a byte, and ends in front of `to`, needs no look.
    #[inline]
    pub(crate) fn needs_no_look_to(&self, from: u32, to: u32) -> u32 {
        if from >= self.verified.trusted_from { to } else { to.min(self.verified.clean.bytes()) }
    }

    #[cold]
    fn look_and_read(&self, from: u32, to: u32) -> Readable {
        self.look_up_to(to.min(from.saturating_add(STEP_BYTES)));
        // Behind what was looked at lies what needs no look.
        let looked_at = self.verified.looked_at();
        let to = if looked_at >= self.verified.trusted_from { to } else { to.min(looked_at) };
        match self.verified.hit(from..to) {
            Some((span, damage)) if span.start <= from => Readable::Damaged(Box::new(damage), span.end),
            Some((span, _)) => Readable::To(span.start),
            None => Readable::To(to),
        }
    }

    pub(super) fn look_up_to(&self, to: u32) {
        let to = to.min(self.verified.trusted_from).min(self.batches_end());
        while self.verified.looked_at() < to {
            self.verify_next();
        }
    }

    /// Whether reading a range would neither verify anything nor wait for the disk.
    pub(crate) fn is_warm(&self, range: Range<u32>, residency: &mut Residency<'_>) -> bool {
        if range.end > self.region.published() {
            // Not there at all: the read says so without waiting.
            return true;
        }
        let trusted_from = self.verified.trusted_from;
        let verified =
            range.start >= trusted_from || self.verified.looked_at() >= range.end.min(trusted_from);
        verified && residency.has(range.start as usize..range.end as usize)
    }

    /// Brings a range into memory and verifies it, waiting for the disk.
    pub(crate) fn warm(&self, range: Range<u32>) -> Result<(), ReadError> {
        let verified = self.verify(range.clone());
        let end = range.end.min(self.region.published());
        self.region.touch(range.start.min(end)..end);
        verified
    }

    /// Verifies one run of batches that stand, and whatever damage follows it.
    fn verify_next(&self) {
        let Verified { trusted_from, looked_at, damage, .. } = &*self.verified;
        let mut damage = damage.lock();
        let start = looked_at.bytes();
        // Once: in a process that is attached another thread may move the mark meanwhile.
        let end = self.batches_end().min(*trusted_from);
        if start >= end {
            return;
        }
        let undamaged = damage.is_empty();
        let link = (start == SEGMENT_HEADER_BYTES).then_some(self.header.previous);
        // Pages that hold something verified are left out: it stays what it was, or ends the process that
        // reads it.
        let page = u32::try_from(thalweg_sys::machine::page_bytes()).unwrap_or(u32::MAX);
        let from = if start == SEGMENT_HEADER_BYTES { 0 } else { start.next_multiple_of(page) };
        let unseen = Unseen::new(&self.region, from..end.min(trusted_from / page * page));
        let mut scan = self.walk(start, end, link).over(unseen);
        let stop = loop {
            match scan.step() {
                Step::Batch(batch) if batch.end() >= end || batch.end() - start > STEP_BYTES => {
                    return self.verified.looked(start, batch.end(), undamaged);
                }
                Step::Batch(_) => {}
                Step::Stop(stop) => break stop,
            }
        };
        self.verified.looked(start, stop.at, undamaged);
        let lost = |successor| stop.link.is_some_and(|link| link != successor);
        if stop.blank && !self.successor.is_some_and(lost) {
            // Zeros at the end of a sealed segment: nothing was ever there to be read.
            return self.verified.looked(stop.at, end, undamaged);
        }
        let found = stop.damage(file_name(self.header.number), self.header.number);
        let (resumes, found) = match stop.resumes {
            Some(resumes) => (resumes.at, found),
            None => (end, found.up_to(self.position_of(end))),
        };
        damage.push((stop.at..resumes, found));
        looked_at.publish(resumes);
    }
}
