//! What stands in a store's files, to the byte, and what proves it.
//!
//! ```text
//! format, layout     batches and frames; the same as numbers, for readers in other languages
//! checksum           the sums of these, short ones by the processor
//! segment            a segment's file or memory, mapped, and how far it is verified
//! view               which segments there are, as readers see it, and what of them stays in memory
//! segment_file       a segment's file, for a caller that looks through all of it
//! checkpoint         the catalogue and the extents as of a position
//! mapping            every map of a file, and why its bytes may be borrowed: the crate's unsafe code
//! slice              bytes of a map that are lent out
//! working, pace      a file that is put in place whole, and the share of the time that writing it takes
//! file_names         which of the files in a directory are a store's
//! final_end          how far the files of a store that another process may write can be looked at
//! scan               walking batches: the proof of where a log ends
//! index, times       where in a segment to begin looking for a time
//! runs, settled      a segment that was written anew, and the file of one that has each log's bytes together
//! needed_segments    which segments a store needs, and which of them are not there
//! control, signal    the store's words, and where readers sleep: mapped by every process
//! plausible          what may stand there, whatever checksums hold
//! continuity         whether each log's entries go on where those in front of them end
//! verify, parse      all of it looked at from outside: every bit, or piece by piece
//! going_on           asking the caller of such work, between two pieces, whether to go on
//! ```
//!
//! Knows no callers. It tells its caller what is wrong, and leaves what follows from that to the caller. What
//! it decides is what of a store's files is damage (`verify`, `parse`), which segments stay in memory
//! (`view`), and when a writer in the background rests (`pace`).

pub(crate) mod checkpoint;
pub(crate) mod checksum;
pub(crate) mod continuity;
pub(crate) mod control;
pub(crate) mod file_names;
pub(crate) mod final_end;
pub(crate) mod format;
pub(crate) mod going_on;
pub(crate) mod index;
pub(crate) mod layout;
#[expect(unsafe_code, reason = "what other processes do to a mapped file is no type's to prove")]
pub(crate) mod mapping;
pub(crate) mod needed_segments;
pub(crate) mod pace;
pub(crate) mod parse;
pub(crate) mod plausible;
pub(crate) mod runs;
pub(crate) mod scan;
pub(crate) mod segment;
pub(crate) mod segment_file;
pub(crate) mod settled;
pub(crate) mod signal;
pub(crate) mod slice;
pub(crate) mod times;
pub(crate) mod verify;
pub(crate) mod view;
pub(crate) mod working;
