//! Reading backwards where not all of a log is known: by a process that is attached, and of a log that is
//! deleted.

use super::store::{config, open, os, small};
use crate::{Attached, Commit, Fork, Log, Options, Purge, Query, ReadError, Reader, Store, Time};
use std::sync::Arc;
use thalweg_sys::disk::Disk;

/// More of another log than is walked over before it is asked where this one has something.
fn pass_over(store: &Store) {
    let other = store.log(b"other").unwrap();
    (0..100).for_each(|time| _ = store.append(&other, &[7; 1000], time).unwrap());
}

fn back(reader: &mut Reader) -> Vec<Result<Time, ReadError>> {
    reader.entries_back(&Query::default()).map(|entry| Ok(entry?.time)).collect()
}

fn destroy(store: &Store, log: &Log) {
    store.purge(&Purge { log: Some(log.name()), destroy: true, ..Purge::default() }).unwrap();
}

/// What an attached process knows of a log ends where it last looked for one by name. What it may read does
/// not.
#[test]
fn what_is_not_known_of_yet_is_not_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    // Whenever a segment is begun, it looks at all.
    let store =
        open(directory.path(), Options { segment_bytes_min: 4 << 20, segment_bytes_max: 4 << 20, ..os() });
    let log = store.log(b"log").unwrap();
    let append = |time| _ = store.append(&log, b"entry", time).unwrap();
    append(1);
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    let mut theirs = attached.reader(&attached.find(b"log").unwrap().unwrap());
    append(2);
    pass_over(&store);
    assert_eq!(back(&mut theirs), [Ok(2), Ok(1)], "behind what is known");
    append(3);
    pass_over(&store);
    append(4);
    assert_eq!(back(&mut theirs), [Ok(4), Ok(3), Ok(2), Ok(1)], "between what is read and what is known");
}

#[test]
fn a_log_that_is_deleted_meanwhile_has_nothing_passed_over_in_silence() {
    let store = Store::memory(small()).unwrap();
    let log = store.log(b"log").unwrap();
    for time in 1..=3 {
        store.append(&log, b"entry", time).unwrap();
        pass_over(&store);
    }
    let mut reader = store.reader(&log);
    let mut entries = reader.entries_back(&Query::default());
    assert_eq!(entries.next().map(|entry| entry.unwrap().time), Some(3));
    destroy(&store, &log);
    let rest: Vec<_> = entries.map(|entry| Ok(entry?.time)).collect();
    let all = [Ok(2), Ok(1), Err(ReadError::Deleted)];
    assert!(all.starts_with(&rest[..rest.len() - 1]), "{rest:?}");
    assert!(rest == all[..2] || rest.last() == all.last(), "{rest:?}");
}

/// Some of what it had is kept for its forks, and may be anything.
#[test]
fn a_log_that_was_deleted_says_so_and_its_forks_have_what_they_inherited() {
    let store = Store::memory(small()).unwrap();
    let log = store.log(b"log").unwrap();
    for time in 1..=4 {
        store.append(&log, b"entry", time).unwrap();
        pass_over(&store);
    }
    let fork = Fork { parent: log.clone(), at: 10, asked: [0; 2] };
    let (fork, _): (Arc<Log>, _) =
        store.create(b"fork", &config(), Some(&fork), &Commit::default(), None).unwrap();
    destroy(&store, &log);
    assert_eq!(back(&mut store.reader(&log)), [Err(ReadError::Deleted)]);
    assert_eq!(back(&mut store.reader(&fork)), [Ok(2), Ok(1)]);
}
