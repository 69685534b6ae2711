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
    pub fn unindexed_bytes(&self, query: &Query) -> u32 {
        match query.start {
            Start::Time(time) | Start::Exact(time) => self.unindexed_bytes_for(time, query.uncommitted),
            Start::After(time) => self.unindexed_bytes_for(time.saturating_add(1), query.uncommitted),
            Start::First | Start::Offset(_) | Start::Tail | Start::Checkpoint => 0,
        }
    }

    fn unindexed_bytes_for(&self, time: Time, uncommitted: bool) -> u32 {
        let limit = self.source.limit(uncommitted);
        let searched = |number| number <= segment_of(limit);
        let unindexed = self.source.ask_present_view(|view| {
            let segment = view.all().get(view.place_of_time(time));
            segment
                .filter(|segment| !segment.is_lost() && searched(segment.header.number))
                .map_or(0, |segment| segment.end(limit).saturating_sub(segment.indexed()))
        });
        // The search does not begin where the list is not known.
        unindexed.unwrap_or(0)
    }
}

impl Cursor {
    /// The same for [`Cursor::seek`]. The cursor stays where it is, and keeps the segments that it has.
    #[inline]
    pub fn unindexed_bytes(&self, query: &Query) -> u32 {
        self.reader.unindexed_bytes(query)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Attached, Cursor, Durability, Log, Options, Query, Start, Store};
    use std::sync::Arc;
    use thalweg_sys::disk::Disk;

    /// A store whose first segment holds one log and whose next two hold another one's entries, of the times
    /// from 0 up to 20.
    fn store(directory: &std::path::Path) -> (Store, Arc<Log>) {
        let options = Options { durability: Durability::Os, ..Options::default() };
        let (store, _) = Store::open(&Disk::Real, directory, options).unwrap();
        let (first, log) = (store.log(b"first").unwrap(), store.log(b"log").unwrap());
        store.append(&first, b"to be trimmed", 0).unwrap();
        for half in [0..10, 10..20] {
            store.rotate().unwrap();
            for time in half {
                store.append(&log, b"entry", time).unwrap();
            }
        }
        (store, log)
    }

    fn remove_first_segment(store: &Store) {
        let first = store.find(b"first").unwrap();
        store.trim(&first, first.visible().unwrap().tail, 20).unwrap();
        for time in 20..22 {
            store.rotate().unwrap();
            store.append(&first, b"later", time).unwrap();
            store.checkpoint().unwrap();
        }
        assert_eq!(store.shared.segments.numbers()[0], 2, "the first segment is gone");
    }

    fn times(cursor: &mut Cursor, count: usize) -> Vec<u64> {
        let times = std::iter::from_fn(|| cursor.next().unwrap().map(|entry| entry.time));
        times.take(count).collect()
    }

    #[test]
    fn a_cursor_goes_on_where_it_stood_after_it_was_asked_what_another_search_costs() {
        let directory = tempfile::tempdir().unwrap();
        let (store, log) = store(directory.path());
        let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
        let theirs = attached.find(b"log").unwrap().unwrap();
        let (own, other) = (store.reader(&log), attached.reader(&theirs));
        let query = Query::default();
        let mut cursors = [
            own.clone().follow(&query),
            own.cursor_up_to_now(&query),
            other.clone().follow(&query),
            other.cursor_up_to_now(&query),
        ];
        for cursor in &mut cursors {
            assert_eq!(times(cursor, 5), [0, 1, 2, 3, 4]);
        }
        remove_first_segment(&store);
        for cursor in &mut cursors {
            assert!(cursor.unindexed_bytes(&Query::from(Start::Time(15))) > 0);
            assert_eq!(times(cursor, 20), Vec::from_iter(5..20));
        }
    }
}
