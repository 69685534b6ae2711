//! A process that goes from one directory to another takes none of its stores along. In a program of its own:
//! where a process is concerns all of it.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

use std::env::set_current_dir;
use std::path::Path;
use thalweg_log::{Attached, Disk, Durability, Options, Query, Store};

fn open() -> Store {
    let options = Options { durability: Durability::Os, ..Options::default() };
    Store::open(&Disk::Real, Path::new("data"), options).unwrap().0
}

/// Appends enough for segments to come and go.
fn fill(store: &Store, with: &[u8]) {
    let log = store.log(b"log").unwrap();
    for _ in 0..4 {
        store.append(&log, with, 1).unwrap();
        store.rotate().unwrap();
        store.maintain(2).unwrap();
    }
}

fn holds(store: &Store, what: &[u8]) {
    let mut reader = store.reader(&store.find(b"log").unwrap());
    let read: Vec<Vec<u8>> =
        reader.entries(&Query::default()).map(|entry| entry.unwrap().data.to_vec()).collect();
    assert_eq!(read, vec![what.to_vec(); 4]);
}

#[test]
fn a_store_stays_where_it_was_opened() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    set_current_dir(here.path()).unwrap();
    let first = open();
    let neighbour = Attached::open(&Disk::Real, Path::new("data")).unwrap();
    set_current_dir(there.path()).unwrap();
    let second = open();
    fill(&second, b"second");
    fill(&first, b"first");
    let log = neighbour.find(b"log").unwrap().unwrap();
    assert_eq!(neighbour.reader(&log).entries(&Query::default()).count(), 4);
    drop(neighbour);
    drop((first, second));
    holds(&open(), b"second");
    set_current_dir(here.path()).unwrap();
    holds(&open(), b"first");
}
