//! What frames and checkpoints may say. A checksum proves that bytes are as they were written, not that a
//! sane program wrote them: no value that is read may overflow when it is added up, or lead out of a segment.
//!
//! The bounds leave room: a segment's bytes added to an offset within them, or one added to an id, cannot
//! overflow.

use crate::extents::Extent;
use crate::format::{self, Created, Frame, Kind, SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES};
use crate::{LogId, Offset, Position, place_of};

/// Upper bound of ids, excluded: they are counted up from the time of the store's creation.
pub(crate) const ID_END: LogId = 1 << 63;
/// Upper bound of offsets, included. It would take more segments than there are numbers to write as much.
pub(crate) const OFFSET_MAX: Offset = 1 << 62;

/// Whether a frame's values are possible.
pub(crate) fn is_plausible(frame: &Frame<'_>) -> bool {
    let end = frame.offset.checked_add(frame.payload.len() as u64);
    let says = match frame.kind {
        Kind::Data => end.is_some_and(|end| end <= OFFSET_MAX),
        Kind::Create => format::decode_create(frame.payload).is_some_and(|created| branches_off(&created)),
        Kind::Trim => format::decode_trim(frame.payload).is_some_and(|at| at <= frame.offset),
        Kind::Producer => format::decode_producer(frame.payload).is_some(),
        Kind::Note => format::decode_notes(frame.payload).is_some(),
        _ => true,
    };
    says && frame.log < ID_END && frame.offset <= OFFSET_MAX
}

/// Whether what a create frame says of a fork is possible.
pub(crate) fn branches_off(created: &Created<'_>) -> bool {
    created.branch.as_ref().is_none_or(|branch| branch.first <= branch.base && branch.base <= OFFSET_MAX)
}

/// Whether a batch may begin there.
pub(crate) fn is_place(position: Position) -> bool {
    let byte = place_of(position);
    (SEGMENT_HEADER_BYTES..=SEGMENT_BYTES_MAX).contains(&byte) && byte.is_multiple_of(8)
}

/// Whether a log that ends at `tail`, and of which no batch lies behind `last`, can have these extents, in
/// this order.
pub(crate) fn are_plausible(extents: &[Extent], last: Position, tail: Offset) -> bool {
    let lies = |extent: &Extent| {
        // Payload is a part of the batches that hold it, so all that is in one segment can be added up.
        let said = extent.length <= extent.span && (extent.places == 0 || is_place(extent.places));
        let in_segment = place_of(extent.position).checked_add(extent.span);
        said && is_place(extent.position) && in_segment.is_some_and(|end| end <= SEGMENT_BYTES_MAX)
    };
    // Looked at before any is added up.
    let each = |extent: &Extent| extent.offset <= OFFSET_MAX && lies(extent);
    let follows =
        |pair: &[Extent]| pair[0].end() <= pair[1].offset && pair[0].end_position() <= pair[1].position;
    tail <= OFFSET_MAX
        && extents.iter().all(each)
        && extents.windows(2).all(follows)
        && extents.last().is_none_or(|newest| newest.end() <= tail && newest.end_position() <= last)
}
