//! The signal file: where readers of a store, in any process, sleep until there is more to read.
//!
//! Purpose: the words of a [`Gate`] that several processes share. Readers write to this file and to no other
//! of the store: whatever is written there can cost a wake too many or too few, and no data. It says nothing
//! about the store and needs no repair.
//!
//! A reader that may not write there cannot announce itself. While it waits it looks at the store's words
//! every [`LOOK_EVERY`].

use std::io;
use std::path::Path;
use std::time::Duration;
use thalweg_sync::gate::Gate;
use thalweg_sys::disk::{Allocation, Disk, Map};

pub(crate) const FILE_NAME: &str = "signal";
pub(crate) const BYTES: usize = 4096;
/// How often a reader looks that waits and cannot be woken: rarely enough to cost next to nothing, often
/// enough for the delay not to be noticed.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Maps the file, made if it is not there.
pub(crate) fn open(disk: &Disk, directory: &Path) -> io::Result<Map> {
    let path = directory.join(FILE_NAME);
    let file = match disk.open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(&path)?,
        Err(error) => return Err(error),
    };
    if file.length()? < BYTES as u64 {
        file.allocate(BYTES as u64, Allocation::Reserved)?;
    }
    file.map(BYTES, true)
}

/// The gate at which to wait for a store that another process opened.
pub(crate) fn attach(disk: &Disk, directory: &Path) -> io::Result<Gate> {
    match disk.open(&directory.join(FILE_NAME)).and_then(|file| file.map(BYTES, true)) {
        Err(error) if is_out_of_reach(error.kind()) => Gate::apart(LOOK_EVERY),
        map => map.map(Gate::new),
    }
}

/// Whether the file may not be written, was never made or never finished.
fn is_out_of_reach(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{InvalidInput, NotFound, PermissionDenied, ReadOnlyFilesystem};
    matches!(kind, PermissionDenied | ReadOnlyFilesystem | NotFound | InvalidInput)
}

/// Whether the file has its size, or was never made or never finished, which the next open makes up for.
pub(crate) fn is_sound(disk: &Disk, directory: &Path) -> io::Result<bool> {
    match disk.open_read_only(&directory.join(FILE_NAME)) {
        Ok(file) => file.length().map(|length| length == 0 || length == BYTES as u64),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}
