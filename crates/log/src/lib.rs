//! Records that last: one commit order for any number of logs.
//!
//! Owns stores, segments, group commit, the catalogue, extents, checkpoints, recovery and verification.
//! Never knows networks or what a payload means.
//!
//! A *store* is a directory of *segments* in one commit order; a segment is a run of *batches*, each one
//! commit, chained by checksum; a batch holds *frames*, and everything that changes is a frame. A commit
//! is copied into the mapped segment under one short lock ([`writer`](self)), becomes durable with its
//! group ([`committer`](self)), and is then visible. The byte layout is in `files/format.rs`, the proof of where
//! a log ends in `files/scan.rs`.
//!
//! The store and its logs stand at the top; around them, each with a list of what is in it: [`writing`](self), the way in;
//! [`reading`](self), the way out; [`keeping`](self), what is done about what is there; [`files`](self), what stands in the files.
//!
//! ```
//! use thalweg_log::{Commit, Config, Lifetime, Options, Store};
//! let store = Store::memory(Options::default())?;
//! let config = Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited };
//! let (log, _) = store.create(b"greetings", &config, None, &Commit { payload: b"hello", ..Commit::default() }, None)?;
//! let read = store.read(&log, 0, 1024)?;
//! assert_eq!(read.pieces.concat(), b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod catalogue;
mod closable;
mod error;
mod extents;
mod files;
mod fork;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod heirs;
mod keeping;
mod log;
mod names;
mod open;
mod opened;
mod options;
mod places;
mod probes;
mod rare;
mod reading;
mod store;
mod watch;
mod words;
mod writing;

#[cfg(test)]
mod tests;

// Paths within the crate leave the folder out.
pub(crate) use files::{
    control, credible, format, index, lacking, layout, parse, runs, scan, segment, segment_file, settled,
    signal, times, verify,
};
pub(crate) use keeping::{
    backup, checkpoint, expiry, harm, pace, purge, reclaim, recover, retention, settle, working,
};
pub(crate) use reading::{
    attach, back, births, cursor, follower, found, gather, maps, place, presence, progress, query, read,
    reader, records, route, source, view, walk, warm,
};
pub(crate) use writing::{
    ahead, append, batch, commit, committer, groups, packing, reserve, sizes, soon, spare, tip, writer,
};

pub use append::{Hold, Transaction, now};
pub use attach::Attached;
pub use back::EntriesBack;
pub use backup::{Backup, BackupError, backup, restore};
pub use births::Births;
pub use closable::{Closable, Closing, InUse};
pub use commit::{Commit, NOTES_BYTES_MAX, Receipt};
pub use cursor::Cursor;
pub use error::{CommitError, Damage, OpenError, ReadError};
pub use fork::Fork;
pub use format::{Config, Kind, Lifetime, Producer};
pub use gather::{Columns, Gathered};
pub use groups::Groups;
pub use layout::LAYOUT;
pub use log::{ClosedBy, Log, Note, State};
pub use maps::{Held, Mapped, MappedSegment, Maps};
pub use open::Recovered;
pub use opened::Opened;
pub use options::{Durability, Options};
pub use packing::Runs;
pub use parse::{BatchPiece, EndPiece, FramePiece, Parse, Piece, SegmentPiece, parse};
pub use place::Place;
pub use progress::{Ended, Unsure};
pub use purge::{Purge, Purged};
pub use query::{Entry, Query, Start};
pub use read::{LENT_BYTES_MIN, Read, ReadPiece};
pub use reader::{Entries, Reader};
pub use retention::RETAIN_NOTE;
pub use store::{Stats, Store};
/// Where a store's files live.
pub use thalweg_sys::disk::Disk;
#[cfg(feature = "sim")]
pub use thalweg_sys::disk::sim;
pub use verify::{Report, verify};
pub use warm::Warming;
pub use watch::{Watch, WatcherId};

/// Identity of a log within its store. Never reused.
pub type LogId = u64;
/// Logical payload bytes within a log.
pub type Offset = u64;
/// A place in a store's commit order: segment number in the high half, byte in the segment in the low.
pub type Position = u64;
/// Microseconds since the Unix epoch.
pub type Time = u64;

pub(crate) const fn position(segment: u32, place: u32) -> Position {
    (segment as u64) << 32 | place as u64
}

pub(crate) const fn segment_of(position: Position) -> u32 {
    (position >> 32) as u32
}

/// A position's place in its segment. In one that was written anew it is not the byte in the file: that is
/// [`Segment::byte_of`](segment::Segment::byte_of).
pub(crate) const fn place_of(position: Position) -> u32 {
    position as u32
}
