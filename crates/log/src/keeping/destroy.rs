//! The end of a store's files.
//!
//! The process that removes them holds the store's lock meanwhile, and nothing else of it has the store but
//! readers, which write nothing. The files that mark a store go last:
//! `control`, so that what a crash leaves is still recognized as a store, and then `lock`, so that no other
//! store begins among files that are about to go. Of the segments the newest goes first: by that a reader in
//! another process knows that what is left is not all.

use crate::Store;
use crate::file_names::{MARKS, is_ours};
use std::io;
use std::sync::Arc;

impl Store {
    /// [Closes](Store::close) the store and removes its files, and the directory if nothing else is in it
    /// and it was not moved.
    /// Readers and cursors still have what they have mapped. Nobody else opens a store there until the files
    /// are gone.
    ///
    /// ```
    /// # use thalweg_log::{Disk, Options, Store};
    /// # let directory = tempfile::tempdir()?;
    /// let place = directory.path().join("store");
    /// let (store, _) = Store::open(&Disk::Real, &place, Options::default())?;
    /// store.append(&store.log(b"steps")?, b"one", 1)?;
    /// let clone = store.clone();
    /// assert!(clone.remove().is_err(), "somebody else has it");
    /// store.remove()?;
    /// assert!(!place.exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `ResourceBusy`: it has other clones, for which it is as it was. Or whatever the file system says: what
    /// is left is still recognized as a store.
    pub fn remove(self) -> io::Result<()> {
        let Store { shared, guard } = self;
        let Some(guard) = Arc::into_inner(guard) else {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "the store has other clones: drop them first",
            ));
        };
        let store = Store { shared, guard: Arc::new(guard) };
        // Of what that fails to write nothing is needed any more.
        let _ = store.close();
        let disk = &store.shared.disk;
        let Some(directory) = &store.shared.directory else { return Ok(()) };
        let mut names = disk.names(directory)?;
        names.retain(|name| is_ours(name) && !MARKS.contains(&&**name));
        // Of the segments the newest first.
        names.reverse();
        names.extend(MARKS.map(str::to_owned));
        names.iter().try_for_each(|name| disk.unlink(&directory.join(name)))?;
        disk.sync_directory(directory)?;
        let _ = disk.remove_directory(directory);
        Ok(())
    }
}
