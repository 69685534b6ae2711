//! The layout as numbers, for readers in other languages: their constants are generated from here, so that
//! they cannot drift from what this crate writes.

use crate::control::{DURABLE, FILE_END, LATENESS, SEGMENTS, VISIBLE};
use crate::format::{
    BATCH_HEADER_BYTES, BATCH_MAGIC, FLAG_LAST, FORMAT_VERSION, FRAME_HEADER_BYTES, Kind,
    SEGMENT_HEADER_BYTES, TOUCHED_BYTES,
};
use crate::index::{BLOCK_BYTES, ENTRIES, NONE};

/// What a walk over a segment and a search of its time index have to know: bytes and word numbers by name.
///
/// ```
/// let (_, header) = thalweg_log::LAYOUT.iter().find(|(name, _)| *name == "FRAME_HEADER_BYTES").unwrap();
/// assert_eq!(*header, 32);
/// ```
pub const LAYOUT: &[(&str, u64)] = &[
    ("FORMAT_VERSION", FORMAT_VERSION as u64),
    ("SEGMENT_HEADER_BYTES", SEGMENT_HEADER_BYTES as u64),
    ("BATCH_MAGIC", BATCH_MAGIC as u64),
    ("BATCH_HEADER_BYTES", BATCH_HEADER_BYTES as u64),
    ("TOUCHED_BYTES", TOUCHED_BYTES as u64),
    ("FRAME_HEADER_BYTES", FRAME_HEADER_BYTES as u64),
    ("FLAG_LAST", FLAG_LAST as u64),
    ("KIND_DATA", Kind::Data as u64),
    ("KIND_CLOSE", Kind::Close as u64),
    ("KIND_DELETE", Kind::Delete as u64),
    ("WORD_SEGMENTS", SEGMENTS as u64),
    ("WORD_FILE_END", FILE_END as u64),
    ("WORD_DURABLE", DURABLE as u64),
    ("WORD_VISIBLE", VISIBLE as u64),
    ("WORD_LATENESS", LATENESS as u64),
    ("INDEX_BLOCK_BYTES", BLOCK_BYTES as u64),
    ("INDEX_ENTRIES", ENTRIES as u64),
    ("INDEX_NONE", NONE),
];
