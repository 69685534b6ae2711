//! What one transaction does to several logs is seen at once: a reader that sees what it did to one of them
//! sees, when it looks at another after that, what it did there.

use super::store::{open, os, small};
use crate::{Attached, Log, Options, Store};
use std::sync::Arc;
use thalweg_sys::disk::Disk;

const TRANSACTIONS: u64 = 2_000;

fn transact(store: &Store, logs: &[Arc<Log>; 2]) {
    for time in 0..TRANSACTIONS {
        let mut transaction = store.transaction(time);
        logs.iter().for_each(|log| transaction.append(log, b"x").unwrap());
        transaction.commit().unwrap();
    }
}

/// Looks at two logs in turns until all is there, in either order.
fn look(mut tail: impl FnMut(usize) -> u64) {
    for turn in 0.. {
        let [first, second] = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
        let earlier = tail(first);
        let later = tail(second);
        assert!(later >= earlier, "log {first} had {earlier} transactions, and log {second} then {later}");
        if earlier == TRANSACTIONS {
            return;
        }
    }
}

fn modes() -> [Options; 2] {
    [small(), os()]
}

fn two(store: &Store) -> [Arc<Log>; 2] {
    let logs = ["debit", "credit"].map(|name| store.log(name.as_bytes()).unwrap());
    store.flush().unwrap();
    logs
}

#[test]
fn a_transaction_is_seen_in_all_its_logs_by_whoever_sees_it_in_one() {
    for options in modes() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), options);
        let logs = two(&store);
        std::thread::scope(|scope| {
            scope.spawn(|| transact(&store, &logs));
            scope.spawn(|| look(|log| logs[log].visible().unwrap().tail));
            look(|log| store.read(&logs[log], 0, usize::MAX).unwrap().next);
        });
    }
}

#[test]
fn a_transaction_is_seen_in_all_its_logs_in_another_process_too() {
    for options in modes() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), options);
        let logs = two(&store);
        let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
        let theirs = ["debit", "credit"].map(|name| attached.find(name.as_bytes()).unwrap().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| transact(&store, &logs));
            // One thread has the catalogue caught up, and another looks at logs that it knows.
            scope.spawn(|| {
                while theirs[0].visible().unwrap().tail < TRANSACTIONS {
                    attached.find(b"debit").unwrap();
                }
            });
            look(|log| theirs[log].visible().unwrap().tail);
        });
    }
}

/// As many as one commit may be to.
#[test]
fn a_transaction_of_as_many_logs_as_there_may_be_is_there_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let options = || Options { segment_bytes_max: 32 << 20, ..os() };
    let store = open(directory.path(), options());
    let logs: Vec<_> =
        (0..usize::from(u16::MAX)).map(|n| store.log(format!("{n}").as_bytes()).unwrap()).collect();
    let mut transaction = store.transaction(1);
    for round in [b"x", b"y"] {
        logs.iter().for_each(|log| transaction.append(log, round).unwrap());
    }
    transaction.commit().unwrap();
    drop((logs, store));
    let store = open(directory.path(), options());
    let mut read = 0;
    store.visit(|log| read += log.visible().unwrap().tail);
    assert_eq!(read, 2 * u64::from(u16::MAX));
    let log = store.find(b"65534").unwrap();
    assert_eq!(super::refusals::entries(&store, &log), [b"x", b"y"]);
}
