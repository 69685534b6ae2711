//! Reading an entry again, where it was.
//!
//! Purpose: random reads at the cost of the bytes. A caller that has read an entry keeps its [`Place`]; the
//! header that stands there now says whether it is still that entry: of this log, at this offset. Offsets are
//! never reused and published bytes do not change, so a header that agrees is the entry's. If it does not
//! agree, the entry is found by its offset. Owns nothing; reads by the reader's own view.

use crate::entry_frame::EntryFrame;
use crate::error::ReadError;
use crate::query::{Entry, Query, Start};
use crate::reader::Reader;
use crate::{Offset, Position, segment_of};

/// Which entry, and where it lies: 16 bytes to find it again by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Offset of its first byte within the log.
    pub offset: Offset,
    /// Where it lies in the store's commit order.
    pub position: Position,
}

impl Entry<'_> {
    /// Where to find it again: see [`Reader::at`].
    #[inline]
    pub fn place(&self) -> Place {
        Place { offset: self.offset, position: self.position }
    }
}

impl Reader {
    /// The visible entry that holds the place's offset, from that offset on; `None` if there is none, or none
    /// any more. Complexity: a few nanoseconds where the place is an entry's; else as a query that starts at
    /// the offset.
    ///
    /// A place is trusted. One that was not read but made up, so that it points into a payload which looks
    /// like an entry of this log, is believed.
    ///
    /// ```
    /// use thalweg_log::{Options, Query, Store};
    /// let store = Store::memory(Options::default())?;
    /// let log = store.log(b"steps")?;
    /// store.append_timed(&log, &[(10, b"one"), (20, b"two")])?;
    /// let mut reader = store.reader(&log);
    /// let places: Vec<_> = reader.entries(&Query::default()).flatten().map(|entry| entry.place()).collect();
    /// assert_eq!(reader.at(places[1])?.map(|entry| (entry.time, entry.data)), Some((20, &b"two"[..])));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReadError`]: the entry, or something in front of it, cannot be read.
    #[inline]
    pub fn at(&mut self, place: Place) -> Result<Option<Entry<'_>>, ReadError> {
        let limit = self.source.limit(false);
        self.source.refresh()?;
        match self.stands(place, limit) {
            Some((found, at)) => {
                let segment = &self.source.view().all()[at];
                // The entry ends within what is published.
                let bytes = segment.region().bytes(0..found.end());
                Ok(Some(found.entry(place.position, bytes)))
            }
            None => self.search(place.offset),
        }
    }

    /// The entry, if its header is where the place says, and the index in the view of its segment.
    #[inline]
    fn stands(&self, place: Place, limit: Position) -> Option<(EntryFrame, usize)> {
        let (log, from) = self.source.own()?;
        let view = self.source.view();
        let number = segment_of(place.position);
        let at = view.place(number);
        // A segment that is missing has an end and no bytes.
        let segment = view.all().get(at).filter(|here| here.header.number == number && !here.is_lost())?;
        let byte = segment.byte_of(place.position);
        let bound = segment.needs_no_look_to(byte, segment.end(limit));
        let found = EntryFrame::read(segment.region().bytes(0..bound), byte, log)?;
        let is_whole = found.end() <= bound;
        (is_whole && found.offset == place.offset && place.offset >= from).then_some((found, at))
    }

    #[cold]
    fn search(&mut self, offset: Offset) -> Result<Option<Entry<'_>>, ReadError> {
        let mut entries = self.entries(&Query::from(Start::Offset(offset)));
        match entries.next().transpose()? {
            Some(entry) if entry.offset == offset => Ok(Some(entry)),
            // A later entry is there, so this one was purged or is missing.
            Some(_) => entries.missing(offset).map_or(Ok(None), Err),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Commit, Config, Disk, Durability, Fork, Lifetime, Options, Purge, Store, Time, place_of};

    fn small() -> Options {
        let (segment_bytes_min, segment_bytes_max) = (4096, 65_536);
        Options { segment_bytes_min, segment_bytes_max, durability: Durability::Os, ..Options::default() }
    }

    type Row = (Offset, Time, Vec<u8>);

    fn row(entry: &Entry<'_>) -> Row {
        (entry.offset, entry.time, entry.data.to_vec())
    }

    fn all(reader: &mut Reader) -> Vec<(Place, Row)> {
        reader.entries(&Query::default()).map(|entry| entry.unwrap()).map(|e| (e.place(), row(&e))).collect()
    }

    fn at(reader: &mut Reader, place: Place) -> Option<Row> {
        reader.at(place).unwrap().map(|entry| row(&entry))
    }

    /// Two logs across segments, entries of many lengths.
    fn filled() -> Store {
        let store = Store::memory(small()).unwrap();
        let (a, b) = (store.log(b"a").unwrap(), store.log(b"b").unwrap());
        for time in 0..900u64 {
            store.append(&a, &vec![time as u8; 1 + time as usize % 70], time).unwrap();
            store.append(&b, b"another log's", time).unwrap();
        }
        assert!(store.stats().segments > 3);
        store
    }

    #[test]
    fn every_place_leads_to_its_entry_and_a_wrong_position_harms_nothing() {
        let store = filled();
        let mut reader = store.reader(&store.log(b"a").unwrap());
        let held = all(&mut reader);
        for (index, (place, row)) in held.iter().enumerate() {
            assert_eq!(
                reader.stands(*place, store.maps().visible()).map(|(found, _)| found.offset),
                Some(row.0)
            );
            assert_eq!(at(&mut reader, *place).as_ref(), Some(row));
            for wrong in [held[(index + 1) % held.len()].0.position, place.position + 8, 0, Position::MAX] {
                assert_eq!(
                    at(&mut reader, Place { position: wrong, ..*place }).as_ref(),
                    Some(row),
                    "{wrong}"
                );
            }
        }
        let (place, (offset, time, data)) = &held[60];
        let inside = at(&mut reader, Place { offset: offset + 5, ..*place });
        assert_eq!(inside, Some((offset + 5, *time, data[5..].to_vec())));
        let (last, (_, _, data)) = held.last().unwrap();
        let end = Place { offset: last.offset + data.len() as u64, ..*last };
        assert_eq!(at(&mut reader, end), None);
    }

    #[test]
    fn what_was_purged_is_gone_though_its_bytes_are_there() {
        let store = filled();
        let mut reader = store.reader(&store.log(b"a").unwrap());
        let held = all(&mut reader);
        let purge =
            Purge { log: Some(b"a"), before: Some(10), destroy: false, count_entries: false, time: 1000 };
        assert_eq!(store.purge(&purge).unwrap()[0].first, held[10].0.offset);
        for (index, (place, row)) in held.iter().enumerate() {
            assert_eq!(at(&mut reader, *place).as_ref(), Some(row).filter(|_| index >= 10), "{index}");
        }
    }

    #[test]
    fn a_fork_reads_what_it_inherits_and_what_is_its_own() {
        let store = filled();
        let parent = store.log(b"a").unwrap();
        let held = all(&mut store.reader(&parent));
        let fork = Fork { parent, at: held[40].0.offset + 3, asked: [0; 2] };
        let config = Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited };
        let own = Commit { payload: b"own", time: 5, ..Commit::default() };
        let (child, _) = store.create(b"c", &config, Some(&fork), &own, None).unwrap();
        let mut reader = store.reader(&child);
        let rows = all(&mut reader);
        assert_eq!((rows.len(), rows[40].1.2.len(), rows[41].1.2.as_slice()), (42, 3, &b"own"[..]));
        for (place, row) in &rows {
            assert_eq!(at(&mut reader, *place).as_ref(), Some(row));
        }
        assert_eq!(at(&mut reader, held[41].0), None);
    }

    #[test]
    fn what_nobody_has_verified_is_verified_before_it_is_served() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&Disk::Real, directory.path(), small()).unwrap().0;
        let log = store.log(b"a").unwrap();
        for time in 0..300 {
            store.append(&log, &[7; 100], time).unwrap();
        }
        let held = all(&mut store.reader(&log));
        store.close().unwrap();
        drop((store, log));
        let path = directory.path().join("segment-0000000001");
        let mut bytes = std::fs::read(&path).unwrap();
        let damaged = held[3].0;
        bytes[place_of(damaged.position) as usize + 40] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let store = Store::open(&Disk::Real, directory.path(), small()).unwrap().0;
        let mut reader = store.reader(&store.log(b"a").unwrap());
        let refused = reader.at(damaged);
        assert!(matches!(refused, Err(ReadError::Damaged(_))), "{refused:?}");
        assert!(matches!(reader.at(damaged), Err(ReadError::Damaged(_))), "nor the second time");
        let (last, row) = held.last().unwrap();
        assert_eq!(at(&mut reader, *last).as_ref(), Some(row));
    }
}
