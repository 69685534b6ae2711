//! Checkpoints: the catalogue and the extents as of a position, so that opening replays only what follows.
//!
//! ```text
//! format   what stands in the file, to the byte, and how it is read
//! write    when one is due, and how it is written while commits go on
//! ```
//!
//! Two checkpoints are kept, so that a damaged one costs replay time and nothing else. Segments are removed
//! only behind the older of them ([`removal`](super::removal)).

mod format;
mod write;

pub(crate) use format::{Checkpoint, read};

use crate::Position;

/// Checkpoints that are kept.
pub(crate) const KEPT: usize = 2;
const PREFIX: &str = "checkpoint-";

pub(crate) fn file_name(start: Position) -> String {
    format!("{PREFIX}{start:016x}")
}

pub(crate) fn start_of(name: &str) -> Option<Position> {
    name.strip_prefix(PREFIX)
        .filter(|digits| digits.len() == 16)
        .and_then(|d| u64::from_str_radix(d, 16).ok())
}
