//! How much of the time index a search would have to make first.

use crate::cursor::Cursor;
use crate::query::{Query, Start};
use crate::reader::Reader;
use crate::{Time, segment_of};

impl Reader {
    /// Bytes of a segment that a search for the query's time indexes before it begins, 0 for a query that
    /// begins elsewhere. A search walks over them from header to header, and waits for the disk where they
    /// are not in memory; later searches do not. For a caller that holds a lock which others need meanwhile.
    ///
    /// ```
    /// use thalweg_log::{Options, Query, Start, Store};
    /// let store = Store::memory(Options::default())?;
    /// let log = store.log(b"steps")?;
    /// store.append(&log, b"one", 1)?;
    /// let (mut reader, query) = (store.reader(&log), Query::from(Start::Time(1)));
    /// assert!(reader.unindexed_bytes(&query) > 0);
    /// assert_eq!(reader.entries(&query).count(), 1);
    /// assert_eq!(reader.unindexed_bytes(&query), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn unindexed_bytes(&mut self, query: &Query) -> u32 {
        match query.start {
            Start::Time(time) | Start::Exact(time) => self.unindexed_bytes_for(time, query.uncommitted),
            Start::After(time) => self.unindexed_bytes_for(time.saturating_add(1), query.uncommitted),
            Start::First | Start::Offset(_) | Start::Tail | Start::Checkpoint => 0,
        }
    }

    fn unindexed_bytes_for(&mut self, time: Time, uncommitted: bool) -> u32 {
        if self.source.refresh().is_err() {
            // The search does not begin then.
            return 0;
        }
        let limit = self.source.limit(uncommitted);
        let view = self.source.view();
        let segment = view.all().get(view.place_of_time(time));
        let searched = |number| number <= segment_of(limit);
        segment
            .filter(|segment| !segment.is_lost() && searched(segment.header.number))
            .map_or(0, |segment| segment.end(limit).saturating_sub(segment.indexed()))
    }
}

impl Cursor {
    /// The same for [`Cursor::seek`].
    #[inline]
    pub fn unindexed_bytes(&mut self, query: &Query) -> u32 {
        self.reader.unindexed_bytes(query)
    }
}
