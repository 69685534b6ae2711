//! The signal file: where readers of a store, in any process, sleep until there is more to read.
//!
//! Purpose: the words of a [`Gate`](thalweg_sync::gate::Gate) that several processes share. Readers write to it,
//! and to nothing else of the store, so it is a file of its own: whatever somebody writes there can cost a wake
//! too many or too few and no data. It says nothing about the store and needs no repair.

use std::io;
use std::path::Path;
use thalweg_sys::disk::{Allocation, Disk, Map};

pub(crate) const FILE_NAME: &str = "signal";
pub(crate) const BYTES: usize = 4096;

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

/// Maps the file of a store that somebody else opened.
pub(crate) fn attach(disk: &Disk, directory: &Path) -> io::Result<Map> {
    disk.open(&directory.join(FILE_NAME))?.map(BYTES, true)
}

/// Whether the file has its size, or was never made or never finished, which the next open makes up for.
pub(crate) fn is_sound(disk: &Disk, directory: &Path) -> io::Result<bool> {
    match disk.open_read_only(&directory.join(FILE_NAME)) {
        Ok(file) => file.length().map(|length| length == 0 || length == BYTES as u64),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}
