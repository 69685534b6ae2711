//! Pages that are brought in ahead of the writer.

use super::store::{append, content, open, os};
use crate::ahead::prefault_bytes;
use crate::{Disk, Options, Store, now, verify};
use std::time::Duration;

const CAPACITY: u32 = 65_536;

fn store(directory: &tempfile::TempDir, committer_thread: bool) -> Store {
    let options = Options { segment_bytes_min: CAPACITY, committer_thread, ..os() };
    let store = open(directory.path(), options);
    store.log(b"a").unwrap();
    store
}

fn ready(store: &Store) -> u32 {
    store.shared.writer.lock().ahead.ready
}

#[test]
fn an_order_that_nobody_has_begun_is_taken_back() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(&directory, false);
    let (stretch, before) = (prefault_bytes(CAPACITY), ready(&store));
    assert!(before > 0 && before.is_multiple_of(stretch), "{before}");
    assert!(store.shared.writer.lock().ahead.is_wanted(), "the next one is ordered");
    append(&store, b"a", &vec![b'x'; stretch as usize]);
    assert!(ready(&store) > before && store.shared.writer.lock().ahead.is_wanted());
    assert_eq!(content(&store, b"a"), vec![b'x'; stretch as usize]);
}

#[test]
fn an_append_waits_for_who_is_at_work_and_nothing_that_it_stores_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(&directory, false);
    let order = store.shared.writer.lock().ahead.begin().unwrap();
    assert!(!store.shared.writer.lock().ahead.is_wanted(), "one at a time");
    let payload = vec![b'x'; prefault_bytes(CAPACITY) as usize];
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| append(&store, b"a", &payload));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!appending.is_finished(), "it stores to a stretch that is being written over");
        order.bring_in();
    });
    assert_eq!(content(&store, b"a"), payload);
}

#[test]
fn a_segment_is_left_only_when_nobody_is_at_work_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(&directory, false);
    let (order, first) = {
        let mut writer = store.shared.writer.lock();
        (writer.ahead.begin().unwrap(), writer.active.header.number)
    };
    std::thread::scope(|scope| {
        let leaving = scope.spawn(|| {
            let shared = &store.shared;
            shared.writer.lock().begin_next(crate::spare::SegmentPurpose::ToGrow).unwrap();
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!leaving.is_finished());
        order.bring_in();
    });
    assert_eq!(store.shared.writer.lock().active.header.number, first + 1);
    append(&store, b"a", b"behind");
    assert_eq!(content(&store, b"a"), b"behind");
}

#[test]
fn who_brings_in_pages_while_others_append_writes_over_nothing() {
    const THREADS: usize = 3;
    const EACH: usize = 2_000;
    let directory = tempfile::tempdir().unwrap();
    let store = store(&directory, true);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let log = store.log(format!("log {thread}").as_bytes()).unwrap();
                (0..EACH).for_each(|at| _ = store.append(&log, &entry(thread, at), now()).unwrap());
            });
        }
    });
    store.close().unwrap();
    drop(store);
    let store = open(directory.path(), os());
    assert_eq!(verify(&Disk::Real, directory.path()).unwrap().damage, []);
    for thread in 0..THREADS {
        let expected: Vec<u8> = (0..EACH).flat_map(|at| entry(thread, at)).collect();
        assert!(content(&store, format!("log {thread}").as_bytes()) == expected, "log {thread}");
    }
}

fn entry(thread: usize, at: usize) -> Vec<u8> {
    vec![b'a' + thread as u8; 1 + at % 300]
}
