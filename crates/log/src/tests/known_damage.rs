//! Logs that lost something: told of once, by the first reader that comes upon it, and deleted like any
//! other.

use super::store::{config, content, payload};
use crate::{
    CommitError, Durability, Fork, LogId, Options, Position, Query, Recovered, Store, Touched, Watch, verify,
};
use parking_lot::Mutex;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::Disk;

fn open(directory: &Path, durability: Durability) -> (Store, Recovered) {
    let (segment_bytes_min, segment_bytes_max) = (4096, 65_536);
    let sizes = Options { segment_bytes_min, segment_bytes_max, ..Options::default() };
    Store::open(&Disk::Real, directory, Options { durability, ..sizes }).unwrap()
}

/// Two logs of three entries each, of which the second of `lost` does not read as it was written.
fn damaged(directory: &Path, durability: Durability, clean: bool) {
    let store = open(directory, durability).0;
    for name in [b"kept".as_slice(), b"lost"] {
        store.create(name, &config(), None, &payload(b""), None).unwrap();
    }
    for name in ["kept", "lost"] {
        let log = store.find(name.as_bytes()).unwrap();
        (1..=3)
            .for_each(|time| assert!(store.append(&log, format!("{name}-{time},").as_bytes(), time).is_ok()));
    }
    store.flush().unwrap();
    if clean {
        store.close().unwrap();
    }
    drop(store);
    let path = directory.join(crate::segment::file_name(1));
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(6).position(|window| window == b"lost-2").unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn delete(store: &Store, name: &[u8]) {
    let log = store.find(name).unwrap();
    store.delete(&log, log.staged().unwrap().version, 7, None).unwrap();
    store.flush().unwrap();
}

#[test]
fn a_log_that_lost_something_is_deleted_for_good_and_the_store_is_whole_without_it() {
    for durability in [Durability::Sync, Durability::Os] {
        let directory = tempfile::tempdir().unwrap();
        damaged(directory.path(), durability, false);
        let (store, report) = open(directory.path(), durability);
        assert_eq!((report.damage.len(), report.unnamed), (1, None));
        let lost = store.find(b"lost").unwrap();
        let version = lost.staged().unwrap().version;
        assert!(matches!(store.commit(&lost, version, &payload(b"!"), None), Err(CommitError::Damaged(_))));
        store.checkpoint().unwrap();
        assert!(store.shared.checkpoints.lock().is_empty(), "what is put back must find all as it was");
        delete(&store, b"lost");
        assert!(store.find(b"lost").is_none());
        assert_eq!(store.append(&lost, b"!", 8), Err(CommitError::Deleted));
        drop((store, lost));
        let (store, report) = open(directory.path(), durability);
        assert_eq!(report.damage.len(), 1, "the bytes are there, and nobody misses them");
        assert!(store.find(b"lost").is_none(), "it stays deleted");
        store.create(b"lost", &config(), None, &payload(b"anew"), None).unwrap();
        store.close().unwrap();
        drop(store);
        let (store, report) = open(directory.path(), durability);
        assert_eq!((report.damage.len(), report.clean), (0, true), "a checkpoint lies behind it");
        assert_eq!(content(&store, b"lost"), b"anew");
        assert_eq!(content(&store, b"kept"), b"kept-1,kept-2,kept-3,");
    }
}

/// Whether a read by offset is refused, and so are a commit, an append and a fork.
fn is_harmed(store: &Store, name: &[u8]) -> bool {
    let log = store.find(name).unwrap();
    let version = log.staged().unwrap().version;
    let fork = Fork { parent: log.clone(), at: 0, asked: [0; 2] };
    let tried = [
        store.read(&log, 0, 1).is_err(),
        store.commit(&log, version, &payload(b"!"), None).is_err(),
        store.append(&log, b"!", 9).is_err(),
        store.create(&[name, b"-fork"].concat(), &config(), Some(&fork), &payload(b""), None).is_err(),
    ];
    assert!(tried.iter().all(|refused| *refused == tried[0]), "{tried:?}");
    tried[0]
}

/// What comes upon the damage.
type Finder = fn(&Store);

const FINDERS: [Finder; 6] = [
    |store| assert!(store.read(&store.find(b"lost").unwrap(), 0, 100).is_err()),
    // In the same run of batches, of which each is verified with the others.
    |store| assert!(store.read(&store.find(b"lost").unwrap(), 14, 100).is_err()),
    |store| walk(store, b"lost"),
    // A walk that passes it, though it is another log's.
    |store| walk(store, b"kept"),
    |store| {
        let mut reader = store.reader(&store.find(b"lost").unwrap());
        let mut entries = reader.entries_back(&Query::default());
        while entries.next().is_some() {
            entries.resume();
        }
    },
    |store| assert!(store.since(&store.find(b"lost").unwrap(), 2).is_err()),
];

fn walk(store: &Store, name: &[u8]) {
    let mut reader = store.reader(&store.find(name).unwrap());
    let mut entries = reader.entries(&Query::default());
    while entries.next().is_some() {
        entries.resume();
    }
}

#[test]
fn what_a_read_comes_upon_is_counted_once_and_harms_whom_it_touches() {
    for (place, find) in FINDERS.iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        damaged(directory.path(), Durability::Os, true);
        let (store, report) = open(directory.path(), Durability::Os);
        assert!(report.clean && report.damage.is_empty(), "a clean open reads no payload");
        (0..3).for_each(|_| find(&store));
        let known = store.damage();
        let lost = store.find(b"lost").unwrap();
        assert_eq!(known.len(), 1, "{place}: {known:?}");
        assert_eq!(known[0].logs, Touched::These(vec![lost.id()]), "{place}");
        assert!(is_harmed(&store, b"lost") && !is_harmed(&store, b"kept"), "{place}");
        let checkpoints = store.shared.checkpoints.lock().clone();
        store.checkpoint().unwrap();
        assert_eq!(*store.shared.checkpoints.lock(), checkpoints, "as beside what recovery comes upon");
        let theirs = verify(&Disk::Real, directory.path()).unwrap().damage;
        assert_eq!((known[0].from, known[0].resumes), (theirs[0].from, theirs[0].resumes));
        drop((lost, store));

        // Killed: the damage lies in front of the checkpoint, and recovery reads what lies behind it.
        let (store, report) = open(directory.path(), Durability::Os);
        assert!(!report.clean && report.damage.is_empty() && store.damage().is_empty());
        find(&store);
        assert!(is_harmed(&store, b"lost"));
        delete(&store, b"lost");
        store.create(b"lost", &config(), None, &payload(b"anew"), None).unwrap();
        assert_eq!(content(&store, b"lost"), b"anew");
        drop(store);
        let store = open(directory.path(), Durability::Os).0;
        assert_eq!(content(&store, b"lost"), b"anew", "it stays deleted");
        store.close().unwrap();
        drop(store);
        let (store, report) = open(directory.path(), Durability::Os);
        assert!(report.clean, "nobody misses anything any more");
        assert_eq!(content(&store, b"kept")[..21], *b"kept-1,kept-2,kept-3,");
    }
}

#[test]
fn what_recovery_came_upon_is_not_told_of_again_by_a_read() {
    for find in FINDERS {
        let directory = tempfile::tempdir().unwrap();
        damaged(directory.path(), Durability::Os, false);
        let (store, report) = open(directory.path(), Durability::Os);
        find(&store);
        assert_eq!(store.damage(), report.damage);
        assert!(is_harmed(&store, b"lost") && !is_harmed(&store, b"kept"));
    }
}

#[derive(Default)]
struct Told(Mutex<Vec<LogId>>);

impl Watch for Told {
    fn complete(&self, _: Position) {}
    fn failed(&self) {}
    fn advanced(&self, log: LogId) {
        self.0.lock().push(log);
    }
}

#[test]
fn a_fork_is_served_what_lies_behind_its_source_damage_and_whoever_follows_is_told() {
    let directory = tempfile::tempdir().unwrap();
    damaged(directory.path(), Durability::Os, true);
    let store = open(directory.path(), Durability::Os).0;
    let lost = store.find(b"lost").unwrap();
    let fork = Fork { parent: lost.clone(), at: 21, asked: [0; 2] };
    let (fork, _) = store.create(b"fork", &config(), Some(&fork), &payload(b"own"), None).unwrap();
    let told = Arc::new(Told::default());
    let watcher = store.watcher(told.clone()).unwrap();
    lost.watch(watcher);
    fork.watch(watcher);
    assert!(store.read(&fork, 0, 100).is_err(), "what it inherits is damaged");
    assert_eq!(*told.0.lock(), [lost.id()]);
    assert!(is_harmed(&store, b"lost"));
    assert_eq!(store.read(&fork, 21, 100).unwrap().pieces.concat(), b"own");
    store.append(&fork, b", and more", 9).unwrap();
    delete(&store, b"lost");
    assert!(lost.is_tombstone() && store.shared.is_damaged(), "the fork misses something");
    delete(&store, b"fork");
    assert!(store.find(b"lost").is_none() && !store.shared.is_damaged());
}
