//! Purging what was appended last, too.

use crate::error::CommitError;
use crate::purge::{Purge, Purged};
use crate::store::Store;

impl Store {
    /// [`Store::purge`], of all that was written before the call: what is not durable yet is made so first, for a purge passes over
    /// what nobody sees.
    ///
    /// ```
    /// use thalweg_log::{Disk, Durability, Options, Purge, Store};
    /// let directory = tempfile::tempdir()?;
    /// let options = Options { durability: Durability::Sync, ..Options::default() };
    /// let (store, _) = Store::open(&Disk::Real, directory.path(), options)?;
    /// let log = store.log(b"readings")?;
    /// store.append(&log, b"21.5", 1)?;
    /// assert_eq!(store.purge_written(&Purge::default())?[0].bytes, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::persist`] and [`Store::purge`].
    pub fn purge_written(&self, purge: &Purge<'_>) -> Result<Vec<Purged>, CommitError> {
        self.persist(self.staged_end())?;
        self.purge(purge)
    }
}
