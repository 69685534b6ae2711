//! Room that is set aside, so that a store whose disk is full can let go of what no log needs.
//!
//! Purpose: what is let go gives its room back behind two checkpoints. Those take room themselves, and so
//! does a segment that says what was let go. So a file in which nothing ever is holds some of the disk back:
//! as much as the checkpoints that are missing and one more take. Where the disk is full the file goes, for
//! such work alone, and comes back with whatever room there is then; until it is whole again, nothing else
//! begins a segment.
//!
//! Ownership: the writer's, behind its lock; a checkpoint or a compaction borrows the room and gives it back.
//! The file stays when a store is closed and is found when it is opened.
//!
//! Invariants: the file is lent to one borrower at a time, though any writer may take the room meanwhile;
//! what could not be set aside is tried for again with each segment that is wanted and with each
//! housekeeping. *Checked by* its own tests and by the crash simulation, whose disk fills.

use crate::error::is_full;
use crate::file_names::RESERVE;
use crate::options::PAGE_BYTES;
use crate::store::Shared;
use std::io;
use std::path::{Path, PathBuf};
use thalweg_sys::disk::{Allocation, Disk};

/// What checkpoints of a small store and a few small segments take.
const BYTES_MIN: u64 = if cfg!(test) { 16 << 10 } else { 128 << 10 };
/// Less is not set aside.
const PIECE_BYTES_MIN: u64 = PAGE_BYTES as u64;

/// The room, if there is any.
#[derive(Debug)]
pub(crate) struct Reserve {
    /// `None`: the store has no files.
    place: Option<(Disk, PathBuf)>,
    held_bytes: u64,
    wanted_bytes: u64,
    lent: bool,
}

impl Reserve {
    /// What was set aside when the store was last open.
    pub(crate) fn found(disk: &Disk, directory: Option<&Path>) -> Reserve {
        let place = directory.map(|directory| (disk.clone(), directory.join(RESERVE)));
        let mut reserve = Reserve { place, held_bytes: 0, wanted_bytes: BYTES_MIN, lent: false };
        reserve.held_bytes = reserve.length();
        reserve
    }

    /// Sets the target size: `bytes` is what reclaiming may need before it frees anything.
    pub(crate) fn foresee(&mut self, bytes: u64) {
        let least = BYTES_MIN.saturating_add(bytes);
        // Not anew for each log: what is held will do, or what was wanted.
        let enough = least..=least.saturating_mul(2);
        if enough.contains(&self.held_bytes) {
            self.wanted_bytes = self.held_bytes;
        } else if !enough.contains(&self.wanted_bytes) {
            self.wanted_bytes = least.saturating_add(bytes / 4);
        }
    }

    /// Whether there is enough of it for others to take more of the disk.
    pub(crate) fn is_whole(&self) -> bool {
        !self.lent && (self.place.is_none() || self.held_bytes >= self.wanted_bytes)
    }

    /// Sets aside what is missing, or as much of it as there is, and lets go of what is too much. Whether it
    /// is whole then.
    pub(crate) fn restore(&mut self) -> bool {
        if self.held_bytes > self.wanted_bytes.saturating_mul(2) {
            self.give_up();
        }
        if self.lent || self.is_whole() {
            return self.is_whole();
        }
        let mut bytes = self.wanted_bytes;
        while self.held_bytes < bytes {
            let refused = self.extend(bytes).err();
            self.held_bytes = self.length();
            match refused {
                None => break,
                Some(error) if is_full(&error) && bytes / 2 >= PIECE_BYTES_MIN => bytes /= 2,
                // What says nothing about room does not stand in anybody's way.
                Some(error) => return !is_full(&error),
            }
        }
        self.is_whole()
    }

    /// Gives the room up for a caller that lets go of something. Whether there was any.
    pub(crate) fn lend(&mut self) -> bool {
        if self.held_bytes == 0 {
            return false;
        }
        self.lent = self.give_up();
        self.lent
    }

    /// Whether there was a file: if another process removed it, the room is gone as well.
    fn give_up(&mut self) -> bool {
        self.held_bytes = 0;
        self.place.as_ref().is_some_and(|(disk, path)| disk.unlink(path).is_ok())
    }

    /// Notes that the borrower is done.
    pub(crate) fn give_back(&mut self) {
        if std::mem::take(&mut self.lent) {
            self.restore();
        }
    }

    /// Makes the file as large as that; where that is refused it may be somewhat larger than it was.
    fn extend(&self, bytes: u64) -> io::Result<()> {
        let Some((disk, path)) = &self.place else { return Ok(()) };
        // One that is there and empty was begun and never got any room.
        let file = match disk.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(path),
            opened => opened,
        };
        file?.allocate(bytes, Allocation::Reserved).inspect_err(|_| {
            if self.held_bytes == 0 && self.length() == 0 {
                let _ = disk.unlink(path);
            }
        })
    }

    fn length(&self) -> u64 {
        let Some((disk, path)) = &self.place else { return 0 };
        disk.open_read_only(path).and_then(|file| file.length()).unwrap_or(0)
    }
}

impl Shared {
    /// Does what takes room on the disk; on a full one once more, with the room that is set aside.
    pub(crate) fn with_reserve<T>(&self, mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let done = match work() {
            Err(error) if is_full(&error) && self.writer.lock().reserve.lend() => work(),
            done => return done,
        };
        self.writer.lock().reserve.give_back();
        done
    }
}
