//! A store whose directory is moved while it is open, and another put in its place: it goes on in its own,
//! and nothing becomes of the other's files.

use super::{compact, settle};
use crate::{BackupError, Disk, Purge, Store};
use std::collections::BTreeMap;
use std::fs::rename;
use std::path::Path;

type Files = BTreeMap<String, Vec<u8>>;

fn files(directory: &Path) -> Files {
    let names = Disk::Real.names(directory).unwrap();
    names.into_iter().map(|name| (name.clone(), std::fs::read(directory.join(&name)).unwrap())).collect()
}

/// A store that was opened at `here` and is at `away`, and the files of the one that is at `here` by now.
fn displaced(place: &Path) -> (Store, Files) {
    let store = compact::open(&place.join("here"));
    store.append(&store.log(b"early").unwrap(), b"entry", 1).unwrap();
    store.backup(&place.join("backup")).unwrap();
    rename(place.join("here"), place.join("away")).unwrap();
    rename(place.join("backup"), place.join("here")).unwrap();
    (store, files(&place.join("here")))
}

#[test]
fn all_that_it_does_about_files_it_does_in_its_own_directory() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (store, others) = displaced(directory.path());
    // Segments come and go, are written anew, and settled; checkpoints are written and removed.
    let (stays, _) = compact::fill(&store);
    store.purge(&Purge { log: Some(b"goes"), before: Some(1_590), ..Purge::default() }).unwrap();
    compact::reclaim(&store);
    compact::stays(&stays, &store);
    settle::fill(&store, 4_000, 600);
    assert!(settle::settle(&store) > 0, "nothing was settled");
    store.maintain(10_000).unwrap();
    let report = store.verify().unwrap();
    assert_eq!((report.logs, report.damage), (store.stats().logs, vec![]));
    store.backup(&at("copy")).unwrap();
    // A path of its own directory that was is one of the other's.
    store.backup(&at("here").join("copy")).unwrap();
    assert!(matches!(store.backup(&at("here")), Err(BackupError::Occupied { .. })));
    std::fs::rename(at("here").join("copy"), at("second")).unwrap();
    assert!(files(&at("here")) == others, "the other's files are others");
    drop((stays, store));
    assert!(files(&at("here")) == others, "the other's files are others since it was closed");
    for (place, logs) in [("here", 1), ("away", report.logs), ("copy", report.logs), ("second", report.logs)]
    {
        assert_eq!(compact::open(&at(place)).stats().logs, logs, "{place}");
    }
}

#[test]
fn its_own_files_are_removed_and_not_those_of_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let (store, others) = displaced(directory.path());
    compact::fill(&store);
    store.remove().unwrap();
    assert!(files(&directory.path().join("here")) == others);
    assert_eq!(files(&directory.path().join("away")), Files::new());
}

#[test]
fn a_copy_of_it_is_put_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = compact::open(&at("here"));
    let (stays, _) = compact::fill(&store);
    rename(at("here"), at("away")).unwrap();
    store.backup(&at("here")).unwrap();
    drop((stays, store));
    let copy = compact::open(&at("here"));
    compact::stays(&copy.find(b"stays").unwrap(), &copy);
}

#[test]
fn a_store_that_others_have_is_not_removed_and_what_is_not_its_own_stays() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (store, clone) = (compact::open(directory.path()), compact::open(&at("another")).clone());
    let (other, log) = (store.clone(), store.log(b"log").unwrap());
    let refused = store.remove().unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ResourceBusy, "{refused}");
    other.append(&log, b"entry", 1).unwrap();
    let mut reader = other.reader(&log);
    std::fs::create_dir(at("backup.new")).unwrap();
    std::fs::write(at("notes.new"), "").unwrap();
    other.remove().unwrap();
    assert_eq!(Disk::Real.names(directory.path()).unwrap(), ["another", "backup.new", "notes.new"]);
    assert_eq!(reader.entries(&crate::Query::default()).count(), 1, "what is mapped stays");
    clone.remove().unwrap();
    assert!(!at("another").exists());
}
