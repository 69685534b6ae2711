//! The end of a store's files.
//!
//! The process that removes them holds the store's lock meanwhile. The files that mark a store go last:
//! `control`, so that what a crash leaves is still recognized as a store, and then `lock`, so that no other
//! store begins among files that are about to go. The newest segment goes first: by that a reader in another
//! process knows that what is left is not all.

use crate::error::{Result, failure};
use std::io;
use std::path::Path;
use thalweg_log::Disk;

/// Removes the files that make up a store and nothing else.
pub(crate) fn remove(directory: &Path) -> Result<()> {
    let what = directory.display();
    removed(&Disk::Real, directory).map_err(|error| failure("IO", format!("cannot remove {what}: {error}")))
}

fn removed(disk: &Disk, directory: &Path) -> io::Result<()> {
    let ours = |name: &str| {
        ["segment-", "settled-", "spare-", "checkpoint-"].iter().any(|prefix| name.starts_with(prefix))
            || ["reserve", "signal"].contains(&name)
    };
    let mut names = disk.names(directory)?;
    names.retain(|name| ours(name));
    names.sort_unstable_by(|a, b| b.cmp(a));
    for name in names {
        disk.unlink(&directory.join(name))?;
    }
    disk.unlink(&directory.join("control"))?;
    disk.unlink(&directory.join("lock"))?;
    disk.sync_directory(directory)
}
