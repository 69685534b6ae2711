//! The end of a store's files.
//!
//! The process that removes them holds the store's lock meanwhile. The files that mark a store go last:
//! `control`, so that what a crash leaves is still recognized as a store, and then `lock`, so that no other
//! store begins among files that are about to go. Of the segments the newest goes first: by that a reader in
//! another process knows that what is left is not all.

use crate::final_end::LOCK_NAME;
use crate::working::Working;
use crate::{Store, checkpoint, control, reserve, segment, settled, signal, spare};
use std::io;

/// What marks a store, in the order in which they go.
const MARKS: [&str; 2] = [control::FILE_NAME, LOCK_NAME];

/// Whether it is the name of one of a store's other files.
fn is_ours(name: &str) -> bool {
    segment::number_of(name).is_some()
        || settled::number_of(name).is_some()
        || checkpoint::start_of(name).is_some()
        || spare::is_spare(name)
        || Working::is_leftover(name)
        || [reserve::FILE_NAME, signal::FILE_NAME].contains(&name)
}

impl Store {
    /// [Closes](Store::close) the store and removes its files, and nothing else that is in its directory.
    /// What readers have mapped they still can read. Nobody else opens one there until the files are gone.
    ///
    /// ```
    /// # use thalweg_log::{Disk, Options, Store};
    /// # let directory = tempfile::tempdir()?;
    /// std::fs::write(directory.path().join("notes"), "somebody else's")?;
    /// let (store, _) = Store::open(&Disk::Real, directory.path(), Options::default())?;
    /// store.append(&store.log(b"steps")?, b"one", 1)?;
    /// store.remove()?;
    /// assert_eq!(std::fs::read_dir(directory.path())?.count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Whatever the file system says; what is left is still recognized as a store.
    pub fn remove(&self) -> io::Result<()> {
        // Of what that fails to write nothing is needed any more.
        let _ = self.close();
        let disk = &self.shared.disk;
        let Some(directory) = &self.shared.directory else { return Ok(()) };
        let mut names = disk.names(directory)?;
        names.retain(|name| is_ours(name));
        // Of the segments the newest first.
        names.reverse();
        names.extend(MARKS.map(str::to_owned));
        names.iter().try_for_each(|name| disk.unlink(&directory.join(name)))?;
        disk.sync_directory(directory)
    }
}
