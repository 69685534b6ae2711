//! Entries in columns: for callers that read too many of them to look at each.
//!
//! Purpose: a language that is slow at loops has a library for arrays, and gets a batch of entries as a few
//! of them. One call fills them, at the cost of the walk. Owns nothing; goes on where the cursor stands.
//! Invariant: what one call gathers lies in one segment, and in one map of it, so that `places` are bytes of
//! the map that [`Reader::mapped`] answers next.

use crate::cursor::Cursor;
use crate::entry_frame::EntryFrame;
use crate::error::ReadError;
use crate::progress::Progress;
use crate::reader::Reader;
use crate::{Offset, Position, Time, segment_of};

/// Where a cursor puts entries: item `i` of each is of entry `i`.
#[derive(Debug)]
pub struct Columns<'c> {
    /// Times.
    pub times: &'c mut [Time],
    /// Offsets in the log.
    pub offsets: &'c mut [Offset],
    /// Bytes of the payloads.
    pub lengths: &'c mut [u32],
    /// Byte of the segment's map at which each payload begins.
    pub places: &'c mut [u32],
}

/// What was gathered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    /// Entries.
    pub count: usize,
    /// Where the first one lies: see [`Reader::mapped`].
    pub position: Position,
    /// Byte of the segment's map at which the last payload ends.
    pub end: u32,
}

impl Columns<'_> {
    fn room(&self) -> usize {
        self.times.len().min(self.offsets.len()).min(self.lengths.len()).min(self.places.len())
    }

    fn put(&mut self, at: usize, found: &EntryFrame) {
        (self.times[at], self.offsets[at]) = (found.time, found.offset);
        (self.lengths[at], self.places[at]) = (found.length, found.start());
    }
}

impl Cursor {
    /// Takes entries until the columns are full, the segment ends or there are none for now. What is
    /// committed during the call is left to the next one.
    ///
    /// ```
    /// use thalweg_log::{Columns, Options, Query, Store};
    /// let store = Store::memory(Options::default())?;
    /// let log = store.log(b"readings")?;
    /// store.append_timed(&log, &[(10, b"4.7"), (20, b"4.81")])?;
    /// let (mut times, mut offsets, mut lengths, mut places) = ([0; 8], [0; 8], [0; 8], [0; 8]);
    /// let mut columns =
    ///     Columns { times: &mut times, offsets: &mut offsets, lengths: &mut lengths, places: &mut places };
    /// let gathered = store.reader(&log).follow(&Query::default()).gather(&mut columns)?;
    /// assert_eq!((gathered.count, &times[..2], &offsets[..2], &lengths[..2]), (2, &[10, 20][..], &[0, 3][..], &[3, 4][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Cursor::next`], if it is met before the first entry; behind one, the next call reports it.
    pub fn gather(&mut self, columns: &mut Columns<'_>) -> Result<Gathered, ReadError> {
        let room = columns.room();
        let mut gathered = Gathered::default();
        while gathered.count < room {
            // To go back to, if the next entry belongs to the next call.
            let before = self.reader.progress.clone();
            // Only the first entry may take over a new list of segments: that may name another map, without
            // what was gathered.
            let looked = if gathered.count == 0 { self.look() } else { self.look_at_hand() };
            let found = match looked {
                Ok(Some(found)) => found,
                Ok(None) => {
                    self.drained = true;
                    break;
                }
                Err(error) if gathered.count == 0 => return Err(error),
                Err(_) => {
                    self.go_back(before);
                    break;
                }
            };
            self.drained = false;
            let (walk, here) = (&self.reader.progress.walk, self.reader.progress.walk.position_of(found.at));
            if gathered.count > 0 && walk.number != segment_of(gathered.position) {
                self.go_back(before);
                break;
            }
            if gathered.count == 0 {
                gathered.position = here;
            }
            columns.put(gathered.count, &found);
            (gathered.count, gathered.end) = (gathered.count + 1, found.end());
            self.run(columns, &mut gathered);
        }
        Ok(gathered)
    }

    /// Takes plain entries from the run at hand.
    fn run(&mut self, columns: &mut Columns<'_>, gathered: &mut Gathered) {
        let Reader { source, progress } = &mut self.reader;
        let bytes = progress.walk.bytes(source.view());
        let from = gathered.count;
        let Columns { times, offsets, lengths, places } = columns;
        let rows = times[from..].iter_mut().zip(&mut offsets[from..]);
        let rows = rows.zip(&mut lengths[from..]).zip(&mut places[from..]);
        progress.filter.plain_run(bytes, &mut progress.walk.at, rows, (), |(), row, found| {
            let (((time, offset), length), place) = row;
            (*time, *offset, *length, *place) = (found.time, found.offset, found.length, found.start());
            (gathered.count, gathered.end) = (gathered.count + 1, found.end());
        });
        // Each entry ends before the next begins, so it is enough to check the last one.
        assert!(
            gathered.count == from || gathered.end as usize <= bytes.len(),
            "an entry that its run does not hold"
        );
    }

    /// Goes back to where it stood, in the view that there is by now.
    fn go_back(&mut self, before: Progress) {
        let Reader { source, progress } = &mut self.reader;
        *progress = before;
        source.settle(&mut progress.part, &mut progress.filter, &mut progress.walk);
        progress.leapt = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Query, Start, Store};
    use proptest::prelude::*;

    type Row = (Time, Offset, Vec<u8>);

    /// Everything that gathering finds with columns of `room` entries, and into how many batches it came.
    fn gathered(cursor: &mut Cursor, room: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        loop {
            let (mut times, mut offsets) = (vec![0; room], vec![0; room]);
            let (mut lengths, mut places) = (vec![0; room], vec![0; room]);
            let (times, offsets, lengths, places) = (&mut times, &mut offsets, &mut lengths, &mut places);
            let batch = cursor.gather(&mut Columns { times, offsets, lengths, places }).unwrap();
            if batch.count == 0 {
                return rows;
            }
            let view = cursor.reader().source.view();
            let segment = view.find(segment_of(batch.position)).unwrap();
            let bytes = segment.region().bytes(0..batch.end);
            for entry in 0..batch.count {
                let payload = &bytes[places[entry] as usize..][..lengths[entry] as usize];
                rows.push((times[entry], offsets[entry], payload.to_vec()));
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_gathered_is_what_a_cursor_yields(
            transactions in proptest::collection::vec(proptest::collection::vec((0usize..3, 1usize..300), 1..8), 1..80),
            room in 1usize..40, start in 0u64..80, alone: bool,
        ) {
            let options = Options { segment_bytes_min: 4096, segment_bytes_max: 8192, ..Options::default() };
            let store = Store::memory(options).unwrap();
            let logs = [b"a", b"b", b"c"].map(|name| store.log(name).unwrap());
            let queries = [Query::default(), Query::from(Start::Time(start)), Query::between(start, start + 9)];
            let (mut half, mut early) = (0, Vec::new());
            for (time, entries) in transactions.iter().enumerate() {
                let mut transaction = store.transaction(time as Time);
                for (log, length) in entries {
                    let log = if alone { 0 } else { *log };
                    transaction.append(&logs[log], &vec![time as u8; *length]).unwrap();
                }
                transaction.commit().unwrap();
                if time == transactions.len() / 2 {
                    half = store.maps().visible();
                    early.extend(queries.iter().map(|query| store.reader(&logs[0]).cursor_up_to_now(query)));
                }
            }
            for (query, mut early) in queries.iter().zip(early) {
                let mut reader = store.reader(&logs[0]);
                let wanted: Vec<(Position, Row)> = reader
                    .entries(query)
                    .map(|entry| entry.unwrap())
                    .map(|entry| (entry.position, (entry.time, entry.offset, entry.data.to_vec())))
                    .collect();
                let before = wanted.iter().filter(|(position, _)| *position < half).count();
                let rows: Vec<Row> = wanted.into_iter().map(|(_, row)| row).collect();
                prop_assert_eq!(&gathered(&mut early, room), &rows[..before]);
                prop_assert_eq!(gathered(&mut store.reader(&logs[0]).follow(query), room), rows);
            }
        }
    }
}
