//! Readers that rest at the end of their log, and segments that are removed meanwhile: mapped, a removed file
//! keeps its disk space.

use super::reader::block_on;
use super::store::{open, os, small};
use crate::{Attached, Cursor, Durability, Log, Options, Purge, Query, Start, Store};
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::Disk;

/// Files below a directory that are removed and that this process still has mapped.
fn removed_and_mapped(directory: &Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of_store = |line: &&str| line.contains(directory.to_str().unwrap()) && line.ends_with("(deleted)");
    maps.lines().filter(of_store).count()
}

/// A log in which nothing happens, and beside it one that fills segments and is emptied again.
struct Emptied {
    store: Store,
    quiet: Arc<Log>,
    busy: Arc<Log>,
}

impl Emptied {
    fn new(directory: &Path, options: Options) -> Emptied {
        let store = open(directory, options);
        let (quiet, busy) = (store.log(b"quiet").unwrap(), store.log(b"busy").unwrap());
        let log = Emptied { store, quiet, busy };
        log.fill();
        log
    }

    fn fill(&self) {
        for time in 0..200 {
            self.store.append(&self.busy, &[7; 100], time).unwrap();
        }
        self.store.append(&self.quiet, b"rare", 200).unwrap();
        self.store.flush().unwrap();
    }

    /// Purges everything of the busy log, and writes the first of the two checkpoints behind which files go.
    fn purge(&self) {
        let first = self.busy.visible().unwrap().tail;
        self.store.trim(&self.busy, first, 300).unwrap();
        self.store.rotate().unwrap();
        self.store.checkpoint().unwrap();
        self.store.append(&self.busy, b"step", 300).unwrap();
        self.store.flush().unwrap();
    }

    /// Writes the second checkpoint, and removes the files of what was purged: nothing is committed by that.
    fn remove(&self) {
        let visible = self.store.maps().visible();
        self.store.checkpoint().unwrap();
        assert!(self.store.stats().freed_bytes > 0);
        assert_eq!(self.store.maps().visible(), visible);
    }
}

fn drain(cursor: &mut Cursor) -> usize {
    std::iter::from_fn(|| cursor.next().unwrap().map(drop)).count()
}

fn both() -> [Options; 2] {
    [os(), Options { durability: Durability::Sync, ..small() }]
}

#[test]
fn a_cursor_that_is_polled_at_its_end_keeps_no_removed_segment() {
    for options in both() {
        let directory = tempfile::tempdir().unwrap();
        let log = Emptied::new(directory.path(), options);
        let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
        let theirs = attached.find(b"quiet").unwrap().unwrap();
        let mut cursors = [attached.reader(&theirs), log.store.reader(&log.quiet)]
            .map(|reader| reader.follow(&Query::from(Start::First)));
        assert_eq!(cursors.each_mut().map(drain), [1; 2]);
        log.purge();
        assert_eq!(cursors.each_mut().map(drain), [0; 2]);
        log.remove();
        assert!(removed_and_mapped(directory.path()) > 0);
        assert_eq!(cursors.each_mut().map(drain), [0; 2]);
        assert_eq!(removed_and_mapped(directory.path()), 0);
        log.fill();
        assert_eq!(cursors.each_mut().map(drain), [1; 2], "they go on where they were");
    }
}

#[test]
fn a_cursor_whose_log_ended_keeps_no_removed_segment() {
    let directory = tempfile::tempdir().unwrap();
    let log = Emptied::new(directory.path(), os());
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    let theirs = attached.find(b"quiet").unwrap().unwrap();
    let mut cursor = attached.reader(&theirs).follow(&Query::default());
    log.store.purge(&Purge { log: Some(b"quiet"), destroy: true, time: 250, ..Purge::default() }).unwrap();
    assert!(
        std::iter::from_fn(|| Some(cursor.next().map(|entry| entry.is_none()))).any(|next| next.is_err())
    );
    log.purge();
    log.remove();
    assert!(removed_and_mapped(directory.path()) > 0);
    assert!(cursor.next().unwrap().is_none());
    assert_eq!(removed_and_mapped(directory.path()), 0);
}

/// Nobody commits anything, so only the removal can wake them.
#[test]
fn whoever_sleeps_at_the_end_of_a_log_is_woken_to_let_go_of_removed_segments() {
    let directory = tempfile::tempdir().unwrap();
    let log = Emptied::new(directory.path(), os());
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    let theirs = attached.find(b"quiet").unwrap().unwrap();
    let cursor = || attached.reader(&theirs).follow(&Query::from(Start::First));
    let (mut blocked, mut task, mut own) =
        (cursor(), cursor(), log.store.reader(&log.quiet).follow(&Query::default()));
    log.purge();
    assert_eq!([&mut blocked, &mut task, &mut own].map(drain), [1; 3]);
    std::thread::scope(|scope| {
        for cursor in [&mut blocked, &mut own] {
            scope.spawn(|| {
                assert!(cursor.wait(None));
                assert_eq!(drain(cursor), 0);
            });
        }
        scope.spawn(|| {
            block_on(task.changed()).unwrap();
            assert_eq!(drain(&mut task), 0);
        });
        log.remove();
    });
    assert_eq!(removed_and_mapped(directory.path()), 0);
}

#[test]
fn a_store_that_is_read_along_lets_go_of_removed_segments_when_it_is_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let log = Emptied::new(directory.path(), os());
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    log.purge();
    log.remove();
    assert!(removed_and_mapped(directory.path()) > 0);
    attached.release(1);
    assert_eq!(removed_and_mapped(directory.path()), 0);
}

#[test]
fn whoever_sleeps_until_a_log_is_created_lets_go_of_removed_segments() {
    let directory = tempfile::tempdir().unwrap();
    let log = Emptied::new(directory.path(), os());
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    log.purge();
    let mut new_logs = attached.new_logs(false).unwrap();
    assert!(new_logs.next().unwrap().is_none());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(new_logs.wait(None));
            assert!(new_logs.next().unwrap().is_none());
        });
        log.remove();
    });
    assert_eq!(removed_and_mapped(directory.path()), 0);
}
