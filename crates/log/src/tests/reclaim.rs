//! Reclaiming: files follow what is live, and what is spent on that follows what was let go.

use super::store::{config, os, payload};
use crate::{
    Attached, Commit, Config, Durability, Lifetime, Log, Options, Piece, Purge, Query, RETAIN_NOTE, Store,
    Time, Touched, parse, verify,
};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::Disk;

const SECOND: Time = 1_000_000;
const MINUTE: Time = 60 * SECOND;
const MIB: u64 = 1 << 20;

fn open(directory: &Path, options: Options) -> Store {
    let (store, report) = Store::open(&Disk::Real, directory, Options { rest_parts: 0, ..options }).unwrap();
    assert_eq!(report.damage, []);
    store
}

fn both() -> [Options; 2] {
    [Durability::Sync, Durability::Os].map(|durability| Options { durability, ..Options::default() })
}

/// Bytes that a store's files take.
fn files(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    // The committer renames what it prepared at the same time.
    entries.filter_map(|entry| Some(entry.metadata().ok()?.blocks() * 512)).sum()
}

/// The same, once the committer is done with a segment that it was preparing: at most this many.
#[track_caller]
fn files_come_to(directory: &Path, most: u64) {
    let begun = std::time::Instant::now();
    while files(directory) > most && begun.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(files(directory) <= most, "{} bytes of files, {most} allowed", files(directory));
}

fn fill(store: &Store, name: &[u8], count: usize, bytes: usize) -> Arc<Log> {
    let log = store.log(name).unwrap();
    for _ in 0..count {
        store.append(&log, &vec![7; bytes], 1).unwrap();
    }
    store.flush().unwrap();
    log
}

fn delete(store: &Store, log: &Arc<Log>) {
    store.delete(log, log.staged().unwrap().version, 1, None).unwrap();
    store.flush().unwrap();
}

/// Housekeeping every so often; answers how many checkpoints it wrote.
fn keep_house(store: &Store, times: impl Iterator<Item = Time>) -> u64 {
    let mut checkpoints = 0;
    let newest = || store.shared.checkpoints.lock().last().copied();
    for now in times {
        let before = newest();
        store.maintain(now).unwrap();
        store.flush().unwrap();
        checkpoints += u64::from(newest() != before);
    }
    checkpoints
}

fn minutes(from: u64, to: u64) -> impl Iterator<Item = Time> {
    (from * 12..to * 12).map(|look| look * 5 * SECOND)
}

fn kept(store: &Store, name: &[u8]) -> u64 {
    let state = store.find(name).unwrap().visible().unwrap();
    state.tail - state.first
}

/// Housekeeping writes batches of its own, which are nobody's commits.
#[test]
fn what_housekeeping_writes_is_not_counted_as_a_commit() {
    let directory = tempfile::tempdir().unwrap();
    let store = super::store::open(directory.path(), super::store::os());
    let log = store.log(b"a").unwrap();
    store.append(&log, b"one", 1).unwrap();
    store.checkpoint().unwrap();
    let (before, end) = (store.stats(), store.staged_end());
    store.shared.make_room().unwrap();
    assert!(store.staged_end() > end, "a mark was written");
    let after = store.stats();
    assert_eq!((after.batches, after.batch_bytes), (before.batches, before.batch_bytes));
    store.append(&log, b"two", 2).unwrap();
    let after = store.stats();
    assert_eq!((after.batches, after.entries), (before.batches + 1, before.entries + 1));
}

#[test]
fn a_bounded_store_keeps_most_of_its_bound_and_its_files_stay_near_it() {
    const BOUND: u64 = 20_000_000;
    for options in both() {
        for records_between in [1, 7, 70] {
            let directory = tempfile::tempdir().unwrap();
            let store = open(directory.path(), Options { retain_bytes: Some(BOUND), ..options.clone() });
            let mut looks = (1..).map(|look| look * 5 * SECOND);
            for _ in 0..70 / records_between {
                fill(&store, b"a", records_between, 1_000_000);
                keep_house(&store, looks.by_ref().take(1));
                assert!(records_between == 70 || files(directory.path()) <= 2 * BOUND + 4 * MIB);
            }
            keep_house(&store, looks.by_ref().take(2));
            let kept = kept(&store, b"a");
            assert!((BOUND * 6 / 10..=BOUND).contains(&kept), "{kept} bytes kept");
            files_come_to(directory.path(), BOUND * 5 / 4 + 4 * MIB);
        }
    }
}

#[test]
fn a_bound_holds_for_small_records_of_many_streams() {
    const BOUND: u64 = 8 << 20;
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { retain_bytes: Some(BOUND), ..os() });
    let store_files = || files(directory.path());
    let logs: Vec<_> = (0..500).map(|log| store.log(format!("{log}").as_bytes()).unwrap()).collect();
    for round in 0..400 {
        for log in &logs {
            store.append(log, &[7; 100], round).unwrap();
        }
        keep_house(&store, std::iter::once(round * 5 * SECOND));
        assert!(store_files() <= 2 * BOUND + 4 * MIB, "{} bytes of files in round {round}", store_files());
    }
    let kept: u64 = logs.iter().map(|log| kept(&store, log.name())).sum();
    // An entry's headers take as much again.
    assert!(kept * 3 > BOUND, "{kept}");
}

#[test]
fn when_everything_is_deleted_little_is_left_of_the_files() {
    for options in both() {
        for (count, deletes) in [(1, true), (3, true), (40, true), (100, true), (100, false)] {
            let directory = tempfile::tempdir().unwrap();
            let store = open(directory.path(), options.clone());
            let log = fill(&store, b"a", count, 1_000_000);
            if deletes {
                delete(&store, &log);
            } else {
                store.trim(&log, log.staged().unwrap().tail, 1).unwrap();
                store.flush().unwrap();
            }
            let checkpoints = keep_house(&store, minutes(1, 5));
            files_come_to(directory.path(), 13 * MIB);
            assert!((1..=4).contains(&checkpoints), "{count}: {checkpoints}");
            assert_eq!(keep_house(&store, minutes(5, 500)), 0, "nothing more is let go");
            assert_eq!(store.stats().live_bytes, 0);
            drop((log, store));
            let store = open(directory.path(), options.clone());
            assert_eq!(store.find(b"a").is_none(), deletes);
            assert_eq!(keep_house(&store, minutes(500, 1_000)), 0);
        }
    }
}

#[test]
fn what_was_let_go_before_a_store_was_closed_is_reclaimed_when_it_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options::default());
    let log = fill(&store, b"a", 60, 1_000_000);
    fill(&store, b"stays", 1, 1_000);
    delete(&store, &log);
    store.close().unwrap();
    drop((log, store));
    assert!(files(directory.path()) > 50 * MIB);
    let store = open(directory.path(), Options::default());
    keep_house(&store, minutes(1, 6));
    files_come_to(directory.path(), 13 * MIB);
    assert_eq!(kept(&store, b"stays"), 1_000);
}

#[test]
fn what_stays_beside_much_that_went_does_not_hold_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { durability: Durability::Os, ..Options::default() });
    for round in 0..50 {
        fill(&store, b"stays", 1, 1_000);
        let log = fill(&store, b"goes", 1, 1_000_000);
        if round % 10 == 9 {
            delete(&store, &log);
        }
    }
    keep_house(&store, minutes(1, 6));
    assert_eq!(kept(&store, b"stays"), 50_000);
    files_come_to(directory.path(), 13 * MIB);
    let read = store.read(&store.find(b"stays").unwrap(), 0, usize::MAX).unwrap();
    assert!(read.pieces.concat() == [7; 50_000]);
}

/// Streams that keep their newest bytes, or what is young, or are deleted, or expire: whichever way it goes,
/// the files follow.
#[test]
fn small_streams_give_back_what_retention_deletion_and_expiry_let_go() {
    for way in ["size", "age", "delete", "expiry"] {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), Options { durability: Durability::Os, ..Options::default() });
        let bounds = match way {
            "size" => [0, 1_000u64],
            "age" => [MINUTE, 0],
            _ => [0, 0],
        };
        let value = bounds.map(u64::to_le_bytes).concat();
        let notes: &[(&[u8], &[u8])] = if bounds == [0, 0] { &[] } else { &[(RETAIN_NOTE, &value)] };
        let lifetime = match way {
            "expiry" => Lifetime::Until { expires_us: MINUTE },
            _ => Lifetime::Unlimited,
        };
        let config = Config { lifetime, ..config() };
        for log in 0..40 {
            let first = Commit { notes, ..Commit::default() };
            let (log, _) = store.create(format!("{log}").as_bytes(), &config, None, &first, None).unwrap();
            for _ in 0..60 {
                store.append(&log, &[7; 10_000], SECOND).unwrap();
            }
        }
        let before = files(directory.path());
        assert!(before > 24_000_000);
        if way == "delete" {
            store.logs().iter().for_each(|log| delete(&store, log));
        }
        keep_house(&store, minutes(2, 8));
        let live = store.stats().live_bytes;
        let after = files(directory.path());
        assert!(live <= if way == "size" { 40 * (64 << 10) } else { 0 }, "{way}: {live} bytes are needed");
        assert!(after <= 2 * live + 9 * MIB, "{way}: {before} bytes of files became {after}");
    }
}

#[test]
fn nothing_is_written_for_what_is_not_worth_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { durability: Durability::Os, ..Options::default() });
    let log = fill(&store, b"a", 100, 10_000);
    assert_eq!(keep_house(&store, minutes(1, 100)), 0, "nothing was let go");
    let small = fill(&store, b"small", 30, 100);
    delete(&store, &small);
    assert_eq!(keep_house(&store, minutes(100, 1_000)), 0, "it is a trifle");
    let written = store.staged_end();
    fill(&store, b"small", 30, 100);
    delete(&store, &store.find(b"small").unwrap());
    assert!(store.staged_end() > written);
    assert_eq!(keep_house(&store, minutes(1_000, 2_000)), 2, "together they are not");
    let written = store.staged_end();
    assert_eq!(keep_house(&store, minutes(2_000, 4_000)), 0);
    assert_eq!(store.staged_end(), written);
    assert_eq!(kept(&store, log.name()), 1_000_000);
}

#[test]
fn a_checkpoint_of_many_logs_waits_until_more_was_let_go() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { durability: Durability::Os, ..Options::default() });
    for log in 0..20_000 {
        let first = Commit { payload: b"here", ..Commit::default() };
        store.create(format!("{log}").as_bytes(), &config(), None, &first, None).unwrap();
    }
    store.checkpoint().unwrap();
    let bytes = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap());
    let bytes: u64 = bytes
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("checkpoint-"))
        .map(|entry| entry.metadata().unwrap().len())
        .sum();
    assert!(bytes > 2_000_000, "{bytes}");
    let log = fill(&store, b"goes", 1, 6_000);
    delete(&store, &log);
    assert_eq!(keep_house(&store, minutes(1, 180)), 0, "a record of 6 KB is not worth it");
    assert_eq!(keep_house(&store, minutes(180, 24 * 60)), 2, "in the course of a day it is");
    let mut checkpoints = 0;
    for hour in 24..48 {
        let log = fill(&store, b"goes", 1, 6_000);
        delete(&store, &log);
        checkpoints += keep_house(&store, minutes(hour * 60, hour * 60 + 60));
    }
    assert!((4..16).contains(&checkpoints), "{checkpoints} in a day");
    let log = fill(&store, b"goes", 30, 100_000);
    delete(&store, &log);
    assert_eq!(
        keep_house(&store, minutes(48 * 60, 48 * 60 + 5)),
        2,
        "it is worth twice what a checkpoint takes"
    );
}

#[test]
fn a_store_that_is_trimmed_all_the_time_writes_a_checkpoint_in_a_while() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { durability: Durability::Os, ..Options::default() });
    let mut checkpoints = 0;
    for minute in 1..60 {
        let log = fill(&store, b"a", 1, 10_000);
        store.trim(&log, log.staged().unwrap().tail, 1).unwrap();
        checkpoints += keep_house(&store, minutes(minute, minute + 1));
    }
    assert!((20..=60).contains(&checkpoints), "{checkpoints} checkpoints");
    assert!(files(directory.path()) <= 5 * MIB);
}

/// What is written so that a checkpoint begins somewhere else is nothing to anybody.
#[test]
fn a_mark_is_passed_over_by_whoever_reads_follows_and_recovers() {
    for options in both() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), options.clone());
        let log = fill(&store, b"a", 3, 100);
        let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
        let own = store.reader(&log).follow(&Query::default());
        let theirs = attached.reader(&attached.find(b"a").unwrap().unwrap()).follow(&Query::default());
        let mut cursors = [own, theirs];
        for round in 0..4 {
            for cursor in &mut cursors {
                while cursor.next().unwrap().is_some() {}
            }
            store.checkpoint().unwrap();
            for _ in 0..round {
                let before = store.staged_end();
                store.shared.make_room().unwrap();
                store.checkpoint().unwrap();
                assert!(store.staged_end() > before && store.durable() == store.staged_end());
                cursors.iter_mut().for_each(|cursor| assert_eq!(cursor.next(), Ok(None)));
            }
            store.append(&log, b"more", round).unwrap();
            store.flush().unwrap();
            for cursor in &mut cursors {
                assert_eq!(cursor.next().unwrap().map(|entry| entry.time), Some(round));
            }
        }
        let late = Attached::open(&Disk::Real, directory.path()).unwrap();
        assert_eq!(late.reader(&late.find(b"a").unwrap().unwrap()).entries(&Query::default()).count(), 7);
        drop((attached, late, cursors, log, store));
        let report = verify(&Disk::Real, directory.path()).unwrap();
        assert_eq!(report.damage, []);
        let pieces = parse(&Disk::Real, directory.path()).unwrap();
        assert!(pieces.map(Result::unwrap).all(|piece| !matches!(piece, Piece::Damage(_))));
        // From either checkpoint, and from none.
        for _ in 0..3 {
            let (store, report) = Store::open(&Disk::Real, directory.path(), options.clone()).unwrap();
            assert!(report.damage.iter().all(|damage| damage.logs == Touched::Nobody), "{report:?}");
            let log = store.find(b"a").unwrap();
            assert_eq!(store.reader(&log).entries(&Query::default()).count(), 7);
            drop((log, store));
            let names = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
            let checkpoints = names.filter(|path| path.to_string_lossy().contains("checkpoint-"));
            checkpoints.max().into_iter().for_each(|newest| std::fs::remove_file(newest).unwrap());
        }
    }
}

#[test]
fn a_purge_leaves_nothing_for_housekeeping_to_repeat() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options::default());
    fill(&store, b"a", 30, 1_000_000);
    fill(&store, b"b", 1, 1_000);
    store.purge(&Purge { log: Some(b"a"), ..Purge::default() }).unwrap();
    assert!(keep_house(&store, minutes(1, 10)) <= 2);
    assert_eq!(keep_house(&store, minutes(10, 500)), 0);
    files_come_to(directory.path(), 13 * MIB);
    store.create(b"c", &config(), None, &payload(b"still"), None).unwrap();
}
