//! Where earlier entries of a log lie, listed by a later batch of the same log.
//!
//! ```text
//! first offset 8 | segment 4 | count 4 | count times: byte / 8 in the low 27 bits, bytes of batches / 8 in 17, bytes of payload in 20
//! ```
//!
//! Purpose: memory that does not grow with history. An extent costs 32 bytes, and a log whose entries lie
//! among others' has one for each. So when [`RUN`] have come together, the next batch of the log lists where
//! they lie, in a frame of its own in front of its entries, and one extent stands for them
//! ([`Extents::fold`](crate::extents::Extents::fold)). The list is part of a batch like any other: it is
//! durable, replayed, verified, backed up and followed as everything else is, and needs no file of its own.
//!
//! Such a batch holds payload behind everything that it lists, and a log lets go of its payload front
//! first. So a reader that needs one of the places finds the batch, too; the last places of what forks
//! inherit may be an exception. Where the batch cannot be read, the segment is walked instead: one
//! damaged batch takes no other with it. *Checked by* the tests below, those of `extents`, and the crash
//! simulation, which folds early.

use crate::error::ReadError;
use crate::extents::Extent;
use crate::format::{self, BATCH_HEADER_BYTES, BatchHeader, FRAME_HEADER_BYTES, Kind, word32, word64};
use crate::scan::{Scan, Step, Stop};
use crate::segment::{Segment, file_name};
use crate::view::View;
use crate::{LogId, Offset, Position, place_of, position, segment_of};
use std::ops::Range;

/// Extents that are folded at a time. Tests fold early.
pub(crate) const RUN: usize = if cfg!(test) { 8 } else { 64 };
const HEADER_BYTES: usize = 16;
const WORD_BYTES: usize = 8;
/// The list lies within this many bytes of the batch's beginning if the batch is of one log. If it is of many
/// logs, a reader may have to wait for some of it.
const LISTING_BYTES_MAX: u32 = BATCH_HEADER_BYTES
    + format::TOUCHED_BYTES
    + FRAME_HEADER_BYTES
    + (HEADER_BYTES + RUN * WORD_BYTES) as u32;
const UNIT: u32 = 8;
const BYTE_BITS: u32 = 27;
const SPAN_BITS: u32 = 17;
const LENGTH_BITS: u32 = 20;
const _: () = assert!(BYTE_BITS + SPAN_BITS + LENGTH_BITS == u64::BITS);
const _: () = assert!(format::SEGMENT_BYTES_MAX / UNIT <= 1 << BYTE_BITS);

/// Extents that an extent stands for, or itself if it is not folded, in order.
#[derive(Clone, Debug)]
pub(crate) enum Unfolded<'v> {
    Itself(std::option::IntoIter<Extent>),
    Listed(Listed<'v>),
    Walked(std::vec::IntoIter<Extent>),
}

impl Unfolded<'_> {
    /// An extent as it is.
    pub(crate) fn itself(extent: Extent) -> Self {
        Unfolded::Itself(Some(extent).into_iter())
    }
}

impl Iterator for Unfolded<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        match self {
            Unfolded::Itself(extent) => extent.next(),
            Unfolded::Listed(listed) => listed.next(),
            Unfolded::Walked(walked) => walked.next(),
        }
    }
}

/// Extents as a batch lists them.
#[derive(Clone, Debug)]
pub(crate) struct Listed<'a> {
    next: Offset,
    segment: u32,
    words: std::slice::ChunksExact<'a, u8>,
}

impl Iterator for Listed<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let word = word64(self.words.next()?, 0);
        let field = |from: u32, bits: u32| (word >> from) as u32 & ((1 << bits) - 1);
        let length = field(BYTE_BITS + SPAN_BITS, LENGTH_BITS);
        let offset = self.next;
        self.next += u64::from(length);
        let at = position(self.segment, field(0, BYTE_BITS) * UNIT);
        Some(Extent { position: at, offset, length, span: field(BYTE_BITS, SPAN_BITS) * UNIT, places: 0 })
    }
}

/// The list of places in a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'a> {
    first: Offset,
    segment: u32,
    words: &'a [u8],
}

impl<'a> Places<'a> {
    /// Whether an extent fits into a word of the list.
    pub(crate) fn can_list(extent: &Extent) -> bool {
        let fits = extent.span / UNIT < 1 << SPAN_BITS && extent.length < 1 << LENGTH_BITS;
        fits && extent.span.is_multiple_of(UNIT) && !extent.is_folded()
    }

    /// Writes down extents of one segment that follow each other: one or more, each of which
    /// [can be listed](Places::can_list).
    pub(crate) fn encode(extents: &[Extent], into: &mut Vec<u8>) {
        let Some(first) = extents.first() else { return };
        into.extend_from_slice(&first.offset.to_le_bytes());
        into.extend_from_slice(&segment_of(first.position).to_le_bytes());
        into.extend_from_slice(&u32::try_from(extents.len()).unwrap_or(u32::MAX).to_le_bytes());
        for extent in extents {
            let byte = u64::from(place_of(extent.position) / UNIT);
            let span = u64::from(extent.span / UNIT) << BYTE_BITS;
            let word = byte | span | u64::from(extent.length) << (BYTE_BITS + SPAN_BITS);
            into.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Reads the payload of a frame; `None` if it is no such list.
    pub(crate) fn decode(payload: &'a [u8]) -> Option<Places<'a>> {
        let (header, words) = payload.split_at_checked(HEADER_BYTES)?;
        let listed = words.len() / WORD_BYTES;
        let whole =
            words.len().is_multiple_of(WORD_BYTES) && listed == word32(header, 12) as usize && listed > 0;
        let first = word64(header, 0);
        // Whatever the lengths are, no offset is beyond the last there is.
        first.checked_add((listed as u64) << LENGTH_BITS)?;
        whole.then_some(Places { first, segment: word32(header, 8), words })
    }

    pub(crate) fn first(&self) -> Offset {
        self.first
    }

    pub(crate) fn count(&self) -> usize {
        self.words.len() / WORD_BYTES
    }

    /// The extents, in order.
    pub(crate) fn iter(&self) -> Listed<'a> {
        Listed { next: self.first, segment: self.segment, words: self.words.chunks_exact(WORD_BYTES) }
    }
}

/// Where the places of a folded extent are listed: a segment, and the bytes of it that a reader of the list
/// has to have in memory.
pub(crate) fn listing_of(extent: &Extent) -> (u32, Range<u32>) {
    let at = place_of(extent.places);
    (segment_of(extent.places), at..at + LISTING_BYTES_MAX)
}

/// Finds the extents that a folded one stands for: the segments, and how far they may be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unfolder<'v> {
    pub(crate) view: &'v View,
    pub(crate) limit: Position,
}

impl<'v> Unfolder<'v> {
    /// The extents of a log that one of its extents stands for. Complexity: a step for each, and nothing is
    /// copied; where the batch that says it cannot be read, a step for each batch that lies between them.
    ///
    /// # Errors
    /// [`ReadError`]: a segment is missing.
    #[inline]
    pub(crate) fn unfold(self, log: LogId, extent: &Extent) -> Result<Unfolded<'v>, ReadError> {
        if !extent.is_folded() {
            return Ok(Unfolded::itself(*extent));
        }
        match self.listed(log, extent) {
            Some(listed) => Ok(Unfolded::Listed(listed)),
            None => self.walked(log, extent).map(|walked| Unfolded::Walked(walked.into_iter())),
        }
    }

    /// The same, none where the segment is missing.
    pub(crate) fn known(self, log: LogId, extent: &Extent) -> impl Iterator<Item = Extent> + use<'v> {
        self.unfold(log, extent).into_iter().flatten()
    }

    /// Position of the log's first batch that ends behind `from`, or `from` if that lies inside it. `extent`
    /// ends behind `from`. A lower bound where damage hides the batch.
    pub(crate) fn behind(self, log: LogId, extent: &Extent, from: Position) -> Position {
        let next = self.known(log, extent).find(|one| one.end_position() > from);
        next.map_or(extent.position, |one| one.position).max(from)
    }

    /// End of the log's last batch that begins in front of `to`, or `to` if that lies inside it. `extent`
    /// begins in front of `to`. An upper bound where damage hides the batch.
    pub(crate) fn before(self, log: LogId, extent: &Extent, to: Position) -> Position {
        let last = self.known(log, extent).take_while(|one| one.position < to).last();
        last.map_or(extent.end_position(), |one| one.end_position()).min(to)
    }

    /// End of the log's last batch in `extent` that begins below the offset `cut`, as the extent does. An
    /// upper bound where damage hides the batch.
    pub(crate) fn end_below(self, log: LogId, extent: &Extent, cut: Offset) -> Position {
        let last = self.known(log, extent).take_while(|one| one.offset < cut).last();
        last.map_or(extent.end_position(), |one| one.end_position())
    }

    /// Position of the log's batch that holds an offset of `extent`. A lower bound where damage hides it.
    pub(crate) fn holding(self, log: LogId, extent: &Extent, offset: Offset) -> Position {
        let holds = self.known(log, extent).find(|one| one.end() > offset);
        holds.map_or(extent.position, |one| one.position)
    }

    fn bytes(self, segment: &'v Segment) -> &'v [u8] {
        let end = segment.end(self.limit);
        segment.region().bytes(0..end.min(segment.region().published()))
    }

    pub(crate) fn segment(self, number: u32) -> Result<&'v Segment, ReadError> {
        let missing = || ReadError::Io { file: file_name(number), why: "the segment is missing".to_owned() };
        self.view.find(number).map(|segment| &**segment).ok_or_else(missing)
    }

    /// The same, as a later batch lists them; `None` where that cannot be read.
    pub(crate) fn listed(self, log: LogId, extent: &Extent) -> Option<Listed<'v>> {
        let segment = self.view.find(segment_of(extent.places))?;
        let at = segment.byte_of(extent.places);
        segment.verify(at..at.checked_add(1)?).ok()?;
        let rest = self.bytes(segment).get(at as usize..)?;
        let header = BatchHeader::claimed(rest).filter(|header| header.touched > 0)?;
        segment.verify(at..at.checked_add(header.length)?).ok()?;
        let body = rest.get(header.body_start() as usize..header.length as usize)?;
        let said = |frame: &format::Frame<'_>| frame.kind == Kind::Places && frame.log == log;
        let listed = Places::decode(format::frames(body).find(said)?.payload)?.iter();
        stands_for(extent, listed.clone()).then_some(listed)
    }

    /// As the batches themselves say, each of them verified. What cannot be found has an extent, too, so that
    /// only a reader of just that range meets the damage.
    #[cold]
    fn walked(self, log: LogId, extent: &Extent) -> Result<Vec<Extent>, ReadError> {
        let segment = self.segment(segment_of(extent.position))?;
        let (from, to) = (segment.byte_of(extent.position), segment.byte_of(extent.end_position()));
        let to = to.min(segment.end(self.limit));
        let found = walk(|at| segment.scan(at, to, None), segment.header.number, from, log);
        let (mut unfolded, mut at, mut next) = (Vec::new(), extent.position, extent.offset);
        let behind =
            Extent { position: extent.end_position(), offset: extent.end(), length: 0, span: 0, places: 0 };
        for one in found.into_iter().chain([behind]).filter(|one| one.offset >= extent.offset) {
            if one.offset > next {
                let length = u32::try_from(one.offset - next).unwrap_or(u32::MAX);
                let span = place_of(one.position).saturating_sub(place_of(at));
                unfolded.push(Extent { position: at, offset: next, length, span, places: 0 });
            }
            if one.length > 0 {
                unfolded.push(one);
            }
            (at, next) = (one.end_position(), one.end());
        }
        Ok(unfolded)
    }
}

fn walk<'v>(begin: impl Fn(u32) -> Scan<'v>, number: u32, from: u32, log: LogId) -> Vec<Extent> {
    let mut scan = begin(from);
    let mut unfolded = Vec::new();
    loop {
        let batch = match scan.step() {
            Step::Batch(batch) => batch,
            // Another log's may be damaged.
            Step::Stop(Stop { resumes: Some(resumes), .. }) => {
                scan = begin(resumes.at);
                continue;
            }
            Step::Stop(_) => return unfolded,
        };
        let ours = |frame: &format::Frame<'_>| frame.kind == Kind::Data && frame.log == log;
        let mut entries = format::frames(batch.body).filter(ours).peekable();
        let Some(first) = entries.peek().map(|frame| frame.offset) else { continue };
        let length = entries.map(|frame| frame.payload.len() as u32).sum();
        let (at, span) = (position(number, batch.place), batch.header.length);
        unfolded.push(Extent { position: at, offset: first, length, span, places: 0 });
    }
}

/// Whether these, in order and without a gap, are what an extent stands for.
fn stands_for(extent: &Extent, listed: Listed<'_>) -> bool {
    let (mut next, mut first, mut ends) = (extent.offset, None, None);
    for one in listed {
        if one.offset != next {
            return false;
        }
        first.get_or_insert(one.position);
        (next, ends) = (one.end(), Some(one.end_position()));
    }
    next == extent.end() && first == Some(extent.position) && ends == Some(extent.end_position())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_said_is_what_is_there(
            first in 0u64..1 << 60, segment in 1u32.., steps in proptest::collection::vec((0u32..1000, 1u32..1 << 20, 0u32..4000), 1..40),
        ) {
            let (mut offset, mut at, mut extents) = (first, 64, Vec::new());
            for (gap, length, beside) in steps {
                let span = (length + beside).next_multiple_of(UNIT);
                let extent = Extent { position: position(segment, at), offset, length, span, places: 0 };
                if !Places::can_list(&extent) {
                    prop_assert!(span >> 20 > 0);
                    continue;
                }
                extents.push(extent);
                (offset, at) = (extent.end(), at + span + gap * UNIT);
            }
            let mut said = Vec::new();
            Places::encode(&extents, &mut said);
            let places = Places::decode(&said);
            prop_assert_eq!(places.is_some(), !extents.is_empty());
            if let Some(places) = places {
                prop_assert_eq!((places.first(), places.count()), (first, extents.len()));
                prop_assert_eq!(places.iter().collect::<Vec<_>>(), extents);
                prop_assert!((0..said.len()).all(|cut| Places::decode(&said[..cut]).is_none()));
            }
        }

        #[test]
        fn garbage_says_nothing_that_harms(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(places) = Places::decode(&bytes) {
                prop_assert!(places.iter().all(|extent| extent.end() >= places.first()));
            }
        }
    }

    #[test]
    fn no_offset_is_beyond_the_last() {
        let mut said = Vec::new();
        let extent =
            Extent { position: position(1, 64), offset: Offset::MAX - 8, length: 8, span: 64, places: 0 };
        Places::encode(&[extent], &mut said);
        assert!(Places::decode(&said).is_none());
    }
}
