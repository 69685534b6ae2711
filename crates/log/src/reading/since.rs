//! From a time to an offset.

use crate::error::ReadError;
use crate::log::{Log, Phase};
use crate::query::{Query, Start};
use crate::store::Store;
use crate::{Offset, Time};
use std::sync::Arc;

impl Store {
    /// Offset of a log's first visible entry of a time or a later one; `None` if every entry is older.
    /// Complexity: a search of the time index, which is extended first where it was not searched before, and
    /// a walk from the place it names to the entry. May wait for the disk.
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
    /// [`ReadError::Damaged`] if damage hides the entry: entries lost in it are not taken for older.
    /// [`ReadError::Deleted`].
    pub fn since(&self, log: &Arc<Log>, time: Time) -> Result<Option<Offset>, ReadError> {
        self.first_of(log, Start::Time(time), time)
    }

    /// The same among the entries from an offset on. Complexity: a walk over all of them, without the index.
    ///
    /// # Errors
    /// As [`Store::since`].
    pub fn since_behind(
        &self,
        log: &Arc<Log>,
        from: Offset,
        time: Time,
    ) -> Result<Option<Offset>, ReadError> {
        self.first_of(log, Start::Offset(from), time)
    }

    fn first_of(&self, log: &Arc<Log>, start: Start, time: Time) -> Result<Option<Offset>, ReadError> {
        let tail = {
            let inner = log.lock();
            match inner.phase {
                Phase::Creating | Phase::CreatedAndDeleted => return Ok(None),
                Phase::Live | Phase::Deleting => inner.tail_visible,
                Phase::Deleted => return Err(ReadError::Deleted),
            }
        };
        // A log is shown before `visible` moves. With `uncommitted` the reader may see everything that the
        // log shows already.
        let query = Query { uncommitted: true, ..Query::from(start) };
        let mut reader = self.reader(log);
        for entry in reader.entries(&query) {
            match entry {
                Ok(entry) if entry.offset >= tail => break,
                Ok(entry) if entry.time >= time => return Ok(Some(entry.offset)),
                Ok(_) => {}
                // The log was deleted after this call began, so no entry was found.
                Err(ReadError::Deleted) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}
