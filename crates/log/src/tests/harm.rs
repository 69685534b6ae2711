//! Logs that lost something: told of once, by whoever comes upon it, and deleted like any other.

use super::store::{append, config, content, payload};
use crate::{CommitError, Durability, Options, Recovered, Store};
use std::fs;
use std::path::Path;
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
    for round in ["1", "2", "3"] {
        append(&store, b"kept", format!("kept-{round},").as_bytes());
        append(&store, b"lost", format!("lost-{round},").as_bytes());
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
