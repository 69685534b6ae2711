//! A store that a process has open, looked at from outside: up to what is published and no further.

use super::store::{open, os, small};
use crate::{
    Durability, EndPiece, Options, Piece, Report, Store, parse, position, segment, segment_of, verify,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use thalweg_sys::disk::Disk;

fn verified(directory: &Path) -> Report {
    verify(&Disk::Real, directory).unwrap()
}

/// The last end, and whether anything is damaged.
fn parsed(directory: &Path) -> (EndPiece, bool) {
    let pieces: Vec<Piece> = parse(&Disk::Real, directory).unwrap().map(Result::unwrap).collect();
    let is_damaged = pieces.iter().any(|piece| matches!(piece, Piece::Damage(_)));
    let Some(Piece::End(end)) = pieces.last() else { panic!("{pieces:?}") };
    (*end, is_damaged)
}

/// Puts something behind the published end of a store: what a batch looks like that is being stored.
fn half_a_batch(directory: &Path, store: &Store) -> u64 {
    let end = store.maps().file_end();
    let path = directory.join(segment::file_name(segment_of(end)));
    Disk::Real.open(&path).unwrap().write_at(&[7; 400], u64::from(crate::place_of(end))).unwrap();
    end
}

#[test]
fn nothing_behind_the_published_end_of_a_store_in_use_is_looked_at() {
    for options in [os(), Options { durability: Durability::Sync, ..small() }] {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), options);
        let log = store.log(b"a").unwrap();
        store.append(&log, b"first", 1).unwrap();
        store.rotate().unwrap();
        store.append(&log, b"second", 2).unwrap();
        store.flush().unwrap();
        let end = half_a_batch(directory.path(), &store);
        let (report, (last, is_damaged)) = (verified(directory.path()), parsed(directory.path()));
        assert_eq!((report.end, report.torn_bytes, report.damage.len()), (end, 0, 0));
        assert_eq!((last.position, last.torn_bytes, is_damaged), (end, 0, false));
        assert!(last.unused_bytes > 400, "it is there nevertheless");
        // A file that lies behind: of a segment that is just begun.
        let next = directory.path().join(segment::file_name(segment_of(end) + 1));
        std::fs::write(&next, [7; 4096]).unwrap();
        assert_eq!((verified(directory.path()).damage.len(), parsed(directory.path()).1), (0, false));
        std::fs::remove_file(&next).unwrap();
    }
}

#[test]
fn what_nobody_has_open_is_looked_at_to_the_last_byte() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    store.append(&store.log(b"a").unwrap(), b"first", 1).unwrap();
    let end = half_a_batch(directory.path(), &store);
    // As a killed process leaves it.
    let copy = tempfile::tempdir().unwrap();
    for name in Disk::Real.names(directory.path()).unwrap() {
        std::fs::copy(directory.path().join(&name), copy.path().join(&name)).unwrap();
    }
    let (report, (last, is_damaged)) = (verified(copy.path()), parsed(copy.path()));
    assert_eq!((report.end, report.torn_bytes, report.damage.len()), (end, 400, 0));
    assert_eq!((last.position, last.torn_bytes, is_damaged), (end, 400, false));
}

#[test]
fn a_writer_that_goes_on_is_never_seen_half_way() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let (log, done) = (store.log(b"a").unwrap(), AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut entry = vec![0; 3_000];
            for time in 1.. {
                entry.fill(time as u8 | 1);
                store.append(&log, &entry, time).unwrap();
                if done.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let look = || {
            let before = store.maps().file_end();
            let (report, last) = (verified(directory.path()), parsed(directory.path()).0);
            (before, report, last, store.maps().file_end())
        };
        let looks: Vec<_> = (0..20).map(|_| look()).collect();
        // In front of what may fail: the writer must end.
        done.store(true, Ordering::Relaxed);
        for (before, report, last, after) in looks {
            assert!((before..=after).contains(&report.end) && report.end > position(1, 0));
            assert!((before..=after).contains(&last.position));
            assert_eq!((report.torn_bytes, last.torn_bytes), (0, 0));
        }
    });
}
