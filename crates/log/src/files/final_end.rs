//! How far a store's files are final: where nothing changes any more that a caller might look at.
//!
//! Purpose: a caller that looks through the segments of a store that another process may be writing borrows
//! bytes of a shared map, and what is borrowed must not change. The writer says in the control file how far
//! its batches are in their files (`file_end`) and stores nothing in front of that again. What lies behind is
//! left out while a process has the store open. Where none has, it is what a crash left: it is copied before
//! it is looked at, because a process may open the store at any moment, and blanks what it discards.
//!
//! `file_end` counts only in the run of the machine that stored it: a power cut may leave the word ahead of
//! the batches that it speaks of. What is known to be durable is never taken back. *Checked by* the tests of
//! stores that are looked at while they are written.

use crate::control::Control;
use crate::format::SegmentHeader;
use crate::{Position, place_of, segment_of};
use std::path::Path;
use thalweg_sys::disk::Disk;

/// The file that a process has locked while it has the store open.
pub(crate) const LOCK_NAME: &str = "lock";

/// Where what is final ends, and what becomes of the bytes behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FinalEnd {
    at: Position,
    /// What lies behind it is copied; otherwise it is left out.
    copies: bool,
}

impl FinalEnd {
    /// All there is: the caller has the store locked, and changes nothing while it looks.
    pub(crate) fn of_own() -> FinalEnd {
        FinalEnd::at(Position::MAX)
    }

    /// Up to a position that the writer has published; the rest is left out.
    pub(crate) fn at(position: Position) -> FinalEnd {
        FinalEnd { at: position, copies: false }
    }

    /// Of segments of which no control file says anything: each is copied.
    pub(crate) fn unknown() -> FinalEnd {
        FinalEnd { at: 0, copies: true }
    }

    /// Of the store in a directory, as its control file says now. To be asked before the files are listed.
    pub(crate) fn of(disk: &Disk, directory: &Path, control: &Control) -> FinalEnd {
        // Where it cannot be told, what is copied is no less sound.
        let is_open = disk.is_locked(&directory.join(LOCK_NAME)).unwrap_or(false);
        // Acquire, by the words: a thread that has read this end sees what the writer stored in front of it.
        FinalEnd { at: control.final_end(), copies: !is_open }
    }

    /// Where a process has the store open, the end of what there is to be looked at.
    pub(crate) fn of_open(&self) -> Option<Position> {
        (!self.copies).then_some(self.at)
    }

    /// Whether a segment is looked at: not one behind the end of a store that a process has open.
    pub(crate) fn reaches(&self, number: u32) -> bool {
        self.copies || number <= segment_of(self.at)
    }

    pub(crate) fn copies(&self) -> bool {
        self.copies
    }

    /// Bytes of a segment's file that are final, of `length` that are there.
    pub(crate) fn bytes_of(&self, header: &SegmentHeader, length: u32) -> u32 {
        // One that was compacted got its name when all of it was written.
        match header.number.cmp(&segment_of(self.at)) {
            _ if header.is_compacted() => length,
            std::cmp::Ordering::Less => length,
            std::cmp::Ordering::Equal => place_of(self.at).min(length),
            std::cmp::Ordering::Greater => 0,
        }
    }
}
