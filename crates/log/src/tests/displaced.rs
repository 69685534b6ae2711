//! A store whose directory is moved while it is open, and another put in its place: it goes on in its own,
//! and nothing becomes of the other's files.

use super::{compact, settle};
use crate::{Disk, Purge, Store};
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
    assert!(files(&at("here")) == others, "the other's files are others");
    drop((stays, store));
    assert!(files(&at("here")) == others, "the other's files are others since it was closed");
    for (place, logs) in [("here", 1), ("away", report.logs), ("copy", report.logs)] {
        assert_eq!(compact::open(&at(place)).stats().logs, logs, "{place}");
    }
}

#[test]
fn its_own_files_are_removed_and_not_those_of_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let (store, others) = displaced(directory.path());
    compact::fill(&store);
    store.remove().unwrap();
    drop(store);
    assert!(files(&directory.path().join("here")) == others);
    assert_eq!(files(&directory.path().join("away")), Files::new());
}
