//! Records that last: one commit order for any number of logs.
//!
//! Owns stores, segments, group commit, the catalogue, extents, checkpoints, recovery and verification.
//! Never knows networks or what a payload means.
//!
//! ```
//! use thalweg_log::{Options, Query, Store};
//! let store = Store::memory(Options::default())?;
//! let orders = store.log(b"orders")?;
//! store.append(&orders, b"one espresso", 1)?;
//! for entry in store.reader(&orders).entries(&Query::default()) {
//!     assert_eq!(entry?.data, b"one espresso");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A *store* is a directory of *segments* in one commit order; a segment is a run of *batches*, each one
//! commit, chained by checksum; a batch holds *frames*, and everything that changes is a frame. A commit
//! is copied into the mapped segment under one short lock (`writing/writer.rs`), becomes durable with its
//! group (`writing/committer.rs`), and is then visible. The byte layout is in `files/format.rs`, the proof of
//! where a log ends in `files/scan.rs`.
//!
//! The code lies in four folders, in three layers, of which `writing/` and `reading/` are the middle one. A
//! folder names only those of lower layers, which `cargo xtask tidy` checks; each has a list of its files in
//! its `mod.rs`:
//!
//! ```text
//! files/     the bytes of each file: how they are laid out, mapped, and proved to stand
//! writing/   the way in: from a commit to the newest segment, and durable
//! reading/   the way out: from segments to a reader
//! keeping/   what is done about what is there: let go, written anew, noted down, recovered, copied
//! ```
//!
//! Beside the folders is what all of them are about, the logs, and what is made of them, a store:
//!
//! ```text
//! log, uncommon       one log: its staged and its visible view; what few logs have
//! catalogue           the logs by name
//! order, names, births   an order of theirs that is kept once it was asked for: of names, of creation
//! fork, fork_needs    logs whose first bytes are another log's; what a log keeps for its forks
//! log_numbers         the logs of one batch
//! extents, places     where a log's payload lies; batches that say where earlier ones lie, to bound memory
//! watch               who is told when something becomes durable
//! options, error, words   how a store is opened; what can go wrong; the word by which each language tells it
//! store, open, guard  a store; how it is opened, and how it ends
//! attach              a store that another process writes, for reading
//! any_store, closable a store of this process or of another; one that is closed under its handles
//! probes, fuzzing     where tests look in; what the fuzz targets call
//! ```
#![deny(unsafe_code)]

mod any_store;
mod attach;
mod births;
mod catalogue;
mod closable;
mod error;
mod extents;
mod files;
mod fork;
mod fork_needs;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod keeping;
mod log;
mod log_numbers;
mod names;
mod open;
mod options;
mod order;
mod places;
mod probes;
mod reading;
mod store;
mod uncommon;
mod watch;
mod words;
mod writing;

#[cfg(test)]
mod tests;

// Paths within the crate leave the folder out.
pub(crate) use files::{
    checkpoint, checksum, continuity, control, file_names, final_end, format, going_on, index, layout,
    mapping, needed_segments, pace, parse, plausible, runs, scan, segment, segment_file, settled, signal,
    slice, times, verify, view, working,
};
pub(crate) use keeping::{backup, expiry, known_damage, purge, reclaim, recover, replacing, retention};
pub(crate) use reading::{
    back, cursor, entry_frame, gather, maps, new_logs, place, progress, query, read, reader, records, route,
    source, walk, warm,
};
pub(crate) use writing::{
    ahead, append, batch, commit, committer, groups, packing, parts, reserve, segment_tail, sizes, spare,
    spin_lock, transaction, writer,
};

// For everybody: a store, its logs, appending and reading, here or in another process.
pub use any_store::AnyStore;
pub use append::now;
pub use attach::Attached;
pub use back::EntriesBack;
pub use closable::{Closable, Closing, InUse};
pub use cursor::Cursor;
pub use error::{CommitError, Damage, OpenError, ReadError, Touched};
pub use log::{ClosedBy, Log, Note, State};
pub use new_logs::NewLogs;
pub use open::Recovered;
pub use options::{Durability, Options};
pub use place::Place;
pub use progress::{Ended, NotKnownYet};
pub use purge::{Purge, Purged};
pub use query::{Entry, Query, Start};
pub use reader::{Entries, Reader};
pub use retention::RETAIN_NOTE;
pub use store::{Stats, Store};
/// Where a store's files live.
pub use thalweg_sys::disk::Disk;
#[cfg(feature = "sim")]
pub use thalweg_sys::disk::sim;
pub use transaction::{AppendIntent, Transaction};

// For servers: conditional commits of one log, payload by offset, and who is told of what became durable.
pub use commit::{Commit, NOTES_BYTES_MAX, Receipt};
pub use fork::Fork;
pub use format::{Config, Lifetime, Producer};
pub use groups::SyncStats;
pub use read::{Read, ReadPiece};
pub use warm::Prefetch;
pub use watch::{Watch, WatcherId};

// For tools that look at a store from outside.
pub use backup::{Backup, BackupError, backup, backup_while, restore, restore_while};
pub use format::Kind;
pub use going_on::GoOn;
pub use parse::{BatchPiece, EndPiece, FramePiece, Parse, Piece, SegmentPiece, parse};
pub use verify::{Report, verify, verify_while};

// For readers in other languages: entries in columns, the maps, and the layout of what is in them.
pub use gather::{Columns, Gathered};
pub use layout::LAYOUT;
pub use maps::{Held, Mapped, MappedSegment, Maps};
pub use packing::Runs;

/// Identity of a log within its store. Never reused.
pub type LogId = u64;
/// Logical payload bytes within a log.
pub type Offset = u64;
/// A point in a store's commit order: the segment's number in the high half, the *place* in it in the low. A
/// place is the byte at which something was first written: it stays the same when compaction moves the byte.
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
