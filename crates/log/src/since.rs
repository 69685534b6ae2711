//! From a time to an offset.

use crate::error::ReadError;
use crate::log::Log;
use crate::query::{Query, Start};
use crate::store::Store;
use crate::{Offset, Time};
use std::sync::Arc;

impl Store {
    /// Offset of a log's first visible entry of a time or a later one; `None` if every entry is older. Complexity: a
    /// search of the time index, which is extended first where nobody has asked before, and a walk over what lies
    /// between the place it names and the entry. May wait for the disk.
    ///
    /// ```
    /// use thalweg_log::{Options, Store};
    /// let store = Store::memory(Options::default())?;
    /// let log = store.log(b"steps")?;
    /// for time in [10, 20, 30] {
    ///     store.append(&log, b"step", time)?;
    /// }
    /// assert_eq!((store.since(&log, 15)?, store.since(&log, 31)?), (Some(4), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReadError::Damaged`] when damage hides the entry: what it took is not taken for older.
    /// [`ReadError::Deleted`].
    pub fn since(&self, log: &Arc<Log>, time: Time) -> Result<Option<Offset>, ReadError> {
        let mut reader = self.reader(log);
        let first = reader.entries(&Query::from(Start::Time(time))).next().transpose()?;
        Ok(first.map(|entry| entry.offset))
    }
}
