//! What group commits come to, for others to read while they go on.

use crate::store::Store;
use thalweg_sync::meter::{Distribution, Histogram};

/// The syncs since a store was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncStats {
    /// Batches made durable by each.
    pub batches: Distribution,
    /// How long each took, microseconds.
    pub took_us: Distribution,
}

/// Written under the lock that lets one group be synced at a time, so by one writer at a time.
#[derive(Debug, Default)]
pub(crate) struct GroupMeters {
    batches: Histogram,
    took_us: Histogram,
}

impl GroupMeters {
    pub(crate) fn note(&self, batches: u64, took_us: u64) {
        self.batches.note(batches);
        self.took_us.note(took_us);
    }
}

impl Store {
    /// How many batches each sync made durable, and how long it took. Empty unless the store's mode is
    /// `sync`.
    ///
    /// ```
    /// use thalweg_log::{Disk, Durability, Options, Store};
    /// let directory = tempfile::tempdir()?;
    /// let options = Options { durability: Durability::Sync, ..Options::default() };
    /// let (store, _) = Store::open(&Disk::Real, directory.path(), options)?;
    /// let log = store.log(b"steps")?;
    /// store.append(&log, b"step", 1)?;
    /// store.close()?;
    /// let groups = store.groups();
    /// assert!(groups.batches.sum >= 1 && groups.took_us.buckets.last().is_some_and(|(_, syncs)| *syncs >= 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn groups(&self) -> SyncStats {
        let meters = &self.shared.group_meters;
        SyncStats { batches: meters.batches.read(), took_us: meters.took_us.read() }
    }
}
