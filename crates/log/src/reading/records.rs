//! The records of a log in one of its extents.
//!
//! Purpose: the one walk over payload by offset, for reads and for settling. What is walked is verified
//! first. Owns nothing.

use crate::error::ReadError;
use crate::extents::Extent;
use crate::format::{self, BatchHeader, Kind};
use crate::places::Unfolder;
use crate::segment::{Segment, file_name};
use crate::{LogId, Offset, segment_of};
use std::ops::Range;

/// What is to be read of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Offset of the first byte.
    pub(crate) offset: Offset,
    /// Bytes of its segment.
    pub(crate) range: Range<u32>,
    /// The first of them is not the record's first.
    pub(crate) inside: bool,
}

/// Visits the records of a log in an extent that is not folded, from the offset `next` on and up to `cut`,
/// and moves `next` on. `false`: the visitor wanted no more.
///
/// # Errors
/// [`ReadError`].
pub(crate) fn each_record<'v>(
    unfolder: Unfolder<'v>,
    log: LogId,
    extent: &Extent,
    cut: Offset,
    next: &mut Offset,
    mut visit: impl FnMut(&'v Segment, Record) -> bool,
) -> Result<bool, ReadError> {
    let number = segment_of(extent.position);
    let segment = unfolder.segment(number)?;
    let Range { start, mut end } = segment.bytes_of(extent)?;
    if extent.end_position() > unfolder.limit {
        // Its last batches were staged when this read began.
        end = end.min(segment.end(unfolder.limit).max(start));
    }
    segment.verify(start..end)?;
    let bytes = segment.region().bytes(0..end);
    let mut at = start;
    while at < end {
        let rest = &bytes[at as usize..];
        let header = BatchHeader::claimed(rest).filter(|header| header.touched > 0);
        let body_of = |header: &BatchHeader| rest.get(header.body_start() as usize..header.length as usize);
        let Some((header, body)) = header.and_then(|header| Some((header, body_of(&header)?))) else {
            return Err(ReadError::Io { file: file_name(number), why: format!("no batch at byte {at}") });
        };
        let body_at = at + header.body_start();
        for frame in format::frames(body) {
            let end = (frame.offset + frame.payload.len() as u64).min(cut);
            if frame.log != log || frame.kind != Kind::Data || end <= *next {
                continue;
            }
            if frame.offset > *next {
                let why = format!("the bytes from {next} on are not where they should be, at byte {at}");
                return Err(ReadError::Io { file: file_name(number), why });
            }
            let byte = |offset: Offset| u32::try_from(offset - frame.offset).unwrap_or(0);
            let payload_at = body_at + frame.payload_at;
            let range = payload_at + byte(*next)..payload_at + byte(end);
            if !visit(segment, Record { offset: *next, range, inside: frame.offset < *next }) {
                return Ok(false);
            }
            *next = end;
        }
        at += header.length;
    }
    Ok(true)
}

/// The error where an extent holds less than its offsets say.
pub(crate) fn nothing_holds(offset: Offset, extent: &Extent) -> ReadError {
    let why = format!("nothing holds offset {offset} there");
    ReadError::Io { file: file_name(segment_of(extent.position)), why }
}
