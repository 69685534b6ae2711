//! What a neighbour cannot list, or cannot follow, is said, and never passed over or taken for lost.

use super::store::{open, os};
use crate::segment::file_name;
use crate::{Attached, Columns, Cursor, Log, Purge, Query, ReadError, Start, Store, Time, checkpoint};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thalweg_sys::disk::Disk;

/// A file in whose place stands what no process can read: a reader fails as one without descriptors
/// does.
struct Unreadable {
    file: PathBuf,
    away: PathBuf,
}

impl Unreadable {
    fn new(directory: &Path, name: &str) -> Unreadable {
        let (file, away) = (directory.join(name), directory.join("away"));
        std::fs::rename(&file, &away).unwrap();
        std::fs::create_dir(&file).unwrap();
        Unreadable { file, away }
    }

    fn mend(self) {
        std::fs::remove_dir(&self.file).unwrap();
        std::fs::rename(&self.away, &self.file).unwrap();
    }
}

fn starts() -> [Query; 6] {
    let starts =
        [Start::Time(0), Start::Time(2), Start::Exact(2), Start::Offset(0), Start::Offset(7), Start::Tail];
    starts.map(Query::from)
}

/// A store with an entry, and a neighbour.
fn begun(directory: &Path) -> (Store, Attached, Arc<Log>) {
    let store = open(directory, os());
    let log = store.log(b"a").unwrap();
    store.append(&log, b"before", 1).unwrap();
    let attached = Attached::open(&Disk::Real, directory).unwrap();
    let theirs = attached.find(b"a").unwrap().unwrap();
    (store, attached, theirs)
}

/// Begins another segment with an entry in it.
fn go_on(store: &Store) -> String {
    store.rotate().unwrap();
    store.append(&store.log(b"a").unwrap(), b"behind", 2).unwrap();
    file_name(*store.shared.segments.numbers().last().unwrap())
}

fn is_io<T>(outcome: &Result<T, ReadError>) -> bool {
    matches!(outcome, Err(ReadError::Io { .. }))
}

#[test]
fn segments_that_cannot_be_listed_are_not_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let (store, attached, theirs) = begun(directory.path());
    let log = store.log(b"a").unwrap();
    let mut early = attached.reader(&theirs).follow(&Query::default());
    assert_eq!(early.next().unwrap().map(|entry| entry.time), Some(1));
    assert_eq!(early.next(), Ok(None));
    let mut new_logs = attached.new_logs(false).unwrap();
    let unreadable = Unreadable::new(directory.path(), &go_on(&store));
    let mut late: Vec<Cursor> = starts().iter().map(|query| attached.reader(&theirs).follow(query)).collect();
    let mut reader = attached.reader(&theirs);
    for _ in 0..2 {
        assert!(is_io(&early.next()) && early.wait(Some(Duration::ZERO)), "it sleeps in front of an entry");
        for cursor in &mut late {
            assert!(is_io(&cursor.next()) && cursor.ended().is_none());
            assert!(cursor.wait(Some(Duration::ZERO)));
        }
        for query in starts() {
            let (mut found, mut back) = (Vec::new(), Vec::new());
            let mut entries = reader.entries(&query);
            found.extend(entries.by_ref().map(|entry| is_io(&entry)));
            entries.resume();
            assert_eq!((found, entries.count()), (vec![true], 0), "{query:?}");
            let mut entries = reader.entries_back(&query);
            back.extend(entries.by_ref().map(|entry| is_io(&entry)));
            entries.resume();
            assert_eq!((back, entries.count()), (vec![true], 0), "{query:?}");
        }
        assert!(is_io(&reader.at(early_place())));
        assert!(is_io(&attached.find(b"a")) && is_io(&attached.visit(|_| panic!("one was visited"))));
        assert!(is_io(&new_logs.next()) && is_io(&attached.new_logs(true).and_then(|mut new| new.next())));
    }
    store.append(&store.log(b"b").unwrap(), b"of another", 3).unwrap();
    store.append(&log, b"last", 4).unwrap();
    unreadable.mend();
    let times = |cursor: &mut Cursor| -> Vec<Time> {
        std::iter::from_fn(|| cursor.next().unwrap().map(|entry| entry.time)).collect()
    };
    assert_eq!(times(&mut early), [2, 4]);
    // A reader that stood at the end then goes on from there.
    let expected: [&[Time]; 6] = [&[1, 2, 4], &[2, 4], &[2, 4], &[1, 2, 4], &[2, 4], &[4]];
    for (cursor, expected) in late.iter_mut().zip(expected) {
        assert_eq!(times(cursor), expected);
    }
    assert_eq!(
        reader.entries(&Query::default()).map(|entry| entry.unwrap().time).collect::<Vec<_>>(),
        [1, 2, 4]
    );
    assert_eq!(new_logs.next().unwrap().map(|log| log.name().to_vec()), Some(b"b".to_vec()));
}

/// A place that no entry has.
fn early_place() -> crate::Place {
    crate::Place { offset: 0, position: 0 }
}

#[test]
fn columns_are_filled_once_segments_can_be_listed() {
    let directory = tempfile::tempdir().unwrap();
    let (store, attached, theirs) = begun(directory.path());
    let unreadable = Unreadable::new(directory.path(), &go_on(&store));
    let mut cursor = attached.reader(&theirs).follow(&Query::from(Start::Offset(6)));
    let (mut times, mut offsets, mut lengths, mut places) = ([0; 8], [0; 8], [0; 8], [0; 8]);
    let (times, offsets, lengths, places) = (&mut times, &mut offsets, &mut lengths, &mut places);
    let mut columns = Columns { times, offsets, lengths, places };
    assert!(is_io(&cursor.gather(&mut columns)));
    unreadable.mend();
    assert_eq!(cursor.gather(&mut columns).unwrap().count, 1);
    assert_eq!((columns.times[0], columns.offsets[0]), (2, 6));
}

/// Segments went that a neighbour has not followed, so that it begins anew from a checkpoint, which it cannot
/// read.
#[test]
fn what_went_while_a_neighbour_cannot_begin_anew_is_not_taken_for_lost() {
    let directory = tempfile::tempdir().unwrap();
    let (store, attached, theirs) = begun(directory.path());
    let log = store.log(b"a").unwrap();
    let queries = [Query::default(), Query::from(Start::Offset(0)), Query::from(Start::Time(0))];
    let mut cursors = queries.map(|query| attached.reader(&theirs).follow(&query));
    for time in 2..60 {
        store.append(&log, &[7; 3000], time).unwrap();
    }
    store.purge(&Purge { log: Some(b"a"), before: Some(50), time: 100, ..Purge::default() }).unwrap();
    for time in 60..62 {
        store.rotate().unwrap();
        store.append(&log, b"last", time).unwrap();
        store.checkpoint().unwrap();
    }
    assert!(store.shared.segments.numbers()[0] > 2, "no segment went");
    let names = Disk::Real.names(directory.path()).unwrap();
    let newest = names.into_iter().filter(|name| checkpoint::start_of(name).is_some()).max().unwrap();
    let unreadable = Unreadable::new(directory.path(), &newest);
    let mut reader = attached.reader(&theirs);
    for (query, cursor) in queries.iter().zip(&mut cursors) {
        // What it has mapped it may go on with, as far as that goes.
        let stop =
            std::iter::from_fn(|| cursor.next().map(|entry| entry.map(|entry| entry.time)).transpose())
                .find_map(Result::err);
        assert!(is_io(&stop.clone().map_or(Ok(()), Err)), "{query:?}: {stop:?}");
        let read: Vec<_> = reader.entries(query).map(|entry| entry.map(|entry| entry.time)).collect();
        assert!(is_io(&read[0]) && read.len() == 1, "{query:?}: {read:?}");
    }
    unreadable.mend();
    let expected: Vec<Time> = (50..62).collect();
    for (query, cursor) in queries.iter().zip(&mut cursors) {
        let read: Vec<Time> = reader.entries(query).map(|entry| entry.unwrap().time).collect();
        assert_eq!(read, expected, "{query:?}");
        let rest: Vec<Time> = std::iter::from_fn(|| cursor.next().unwrap().map(|entry| entry.time)).collect();
        // Who was on the way meets what was purged where it still lies.
        assert!(rest.ends_with(&expected) && rest.is_sorted(), "{query:?}: {rest:?}");
    }
}
