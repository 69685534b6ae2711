//! Purging, retention, rotation and news of logs, through the public interface.

use super::store::{config, open, os, payload, small};
use crate::{
    Attached, Commit, CommitError, Durability, Ended, Fork, NewLogs, Options, Purge, Query, ReadError,
    Reader, Start, Store,
};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use thalweg_sys::disk::Disk;

fn times(store: &Store, name: &[u8]) -> Vec<u64> {
    let mut reader = store.reader(&store.find(name).unwrap());
    reader.entries(&Query::default()).map(|entry| entry.unwrap().time).collect()
}

fn filled(store: &Store, name: &[u8], count: u64) {
    let log = store.log(name).unwrap();
    for time in 1..=count {
        store.append(&log, &[7; 100], time).unwrap();
    }
}

fn before(time: u64) -> Purge<'static> {
    Purge { before: Some(time), ..Purge::default() }
}

#[test]
fn a_trim_has_readers_look_again_and_copies_no_list_of_segments() {
    let store = Store::memory(small()).unwrap();
    filled(&store, b"a", 300);
    let log = store.find(b"a").unwrap();
    let mut reader = store.reader(&log);
    assert_eq!(reader.entries(&Query::default()).count(), 300);
    let list = store.shared.segments.latest();
    store.trim(&log, 1_000, 1).unwrap();
    assert!(Arc::ptr_eq(&list, &store.shared.segments.latest()));
    assert_eq!(reader.entries(&Query::default()).count(), 290);
}

#[test]
fn a_purge_takes_a_prefix_counts_it_and_outlives_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    filled(&store, b"a", 500);
    let purged = store.purge(&Purge { count_entries: true, ..before(400) }).unwrap();
    assert_eq!((purged[0].entries, purged[0].bytes, purged[0].first), (Some(399), 39_900, 39_900));
    assert_eq!(store.purge(&before(400)).unwrap(), []);
    let log = store.find(b"a").unwrap();
    assert_eq!(store.read(&log, 0, 10), Err(ReadError::Purged { from: 0, first: 39_900 }));
    drop((log, store));
    let store = open(directory.path(), os());
    assert_eq!(times(&store, b"a"), (400..=500).collect::<Vec<_>>());
    store.close().unwrap();
    drop(store);
    assert_eq!(times(&open(directory.path(), os()), b"a").len(), 101);
}

/// Two callers that purge the same at once are told together what went, and not each of all.
#[test]
fn what_another_has_let_go_of_is_not_counted_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { committer_thread: false, ..small() });
    filled(&store, b"a", 10);
    filled(&store, b"b", 10);
    store.flush().unwrap();
    let let_go = |name: &[u8], first| {
        let log = store.find(name).unwrap();
        let commit = Commit { trim: Some(first), ..Commit::default() };
        store.commit(&log, log.staged().unwrap().version, &commit, None).unwrap();
    };
    // Nobody sees it yet, and yet it was another's.
    let_go(b"a", 300);
    let_go(b"b", 500);
    let purged = store.purge(&Purge { count_entries: true, ..before(6) }).unwrap();
    let [purged] = &purged[..] else { panic!("{purged:?}") };
    assert_eq!((&purged.name[..], purged.bytes, purged.entries), (&b"a"[..], 200, Some(2)));
    let log = store.find(b"a").unwrap();
    store.delete(&log, log.staged().unwrap().version, 20, None).unwrap();
    let purged = store.purge(&Purge { destroy: true, count_entries: true, ..Purge::default() }).unwrap();
    let [purged] = &purged[..] else { panic!("{purged:?}") };
    assert_eq!((&purged.name[..], purged.bytes, purged.entries), (&b"b"[..], 500, Some(5)));
}

#[test]
fn a_purge_of_every_log_passes_over_one_that_is_on_its_way_out() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { committer_thread: false, ..small() });
    let (going, staying) = (store.log(b"going").unwrap(), store.log(b"staying").unwrap());
    for log in [&going, &staying] {
        store.append(log, b"entry", 1).unwrap();
    }
    store.flush().unwrap();
    store.delete(&going, going.staged().unwrap().version, 2, None).unwrap();
    let named = Purge { log: Some(b"going"), ..Purge::default() };
    assert_eq!(store.purge(&named), Err(CommitError::Deleted));
    let purged = store.purge(&Purge::default()).unwrap();
    assert_eq!(purged.into_iter().map(|purged| purged.name).collect::<Vec<_>>(), [b"staying"]);
}

#[test]
fn a_purge_frees_segments_and_readers_at_work_read_on() {
    let store = Store::memory(small()).unwrap();
    filled(&store, b"a", 2000);
    let log = store.find(b"a").unwrap();
    let mut reader = store.reader(&log);
    let mut entries = reader.entries(&Query::default());
    assert!(entries.next().is_some());
    let mut cursor = store.reader(&log).follow(&Query::default());
    assert_eq!(cursor.next().unwrap().map(|entry| entry.time), Some(1));
    let segments = store.stats().segments;
    store.purge(&before(1990)).unwrap();
    store.maintain(0).unwrap();
    assert!(store.stats().segments < segments);
    assert_eq!(entries.count(), 1999, "what it had it keeps");
    filled(&store, b"b", 1);
    let mut rest = Vec::new();
    while let Some(entry) = cursor.next().unwrap() {
        rest.push(entry.time);
    }
    assert!(rest.ends_with(&(1990..=2000).collect::<Vec<_>>()), "nothing that is left is passed over");
    let missed = 1999 - rest.len() as u64;
    assert_eq!(cursor.skipped_bytes(), missed * 100);
    let mut late = store.reader(&log);
    assert_eq!(late.entries(&Query::from(Start::Offset(5))).next().unwrap().unwrap().time, 1990);
}

/// Of a cursor that had met no entry before the first was purged.
#[test]
fn a_cursor_at_the_end_counts_what_came_and_went_before_it_looked() {
    let directory = tempfile::tempdir().unwrap();
    let stores = [Store::memory(small()).unwrap(), open(directory.path(), os())];
    for store in stores {
        filled(&store, b"a", 10);
        let log = store.find(b"a").unwrap();
        let mut cursor = store.reader(&log).follow(&Query::from(Start::Tail));
        assert_eq!(cursor.next().unwrap(), None);
        filled(&store, b"a", 2000);
        store.purge(&Purge::default()).unwrap();
        store.append(&log, b"left", 2001).unwrap();
        let mut read = 0;
        while let Some(entry) = cursor.next().unwrap() {
            read += entry.data.len() as u64;
        }
        assert_eq!(cursor.skipped_bytes(), 2000 * 100 + 4 - read);
        assert!(read < 200_000, "some segments were removed");
    }
}

/// Segment files of a store, and the bytes they take.
fn files(directory: &std::path::Path) -> (u64, u64) {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let segments = entries.filter(|entry| entry.file_name().to_str().unwrap().starts_with("segment-"));
    segments.fold((0, 0), |(count, bytes), entry| (count + 1, bytes + entry.metadata().unwrap().len()))
}

#[test]
fn what_a_purge_takes_gives_its_files_back_at_once() {
    for durability in [Durability::Os, Durability::Sync] {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { durability, committer_thread: false, ..os() };
        let store = open(directory.path(), options.clone());
        filled(&store, b"a", 1000);
        filled(&store, b"b", 1000);
        store.flush().unwrap();
        let (count, bytes) = files(directory.path());
        assert!(count > 4);
        // The first half of one of two logs: what both lie in stays.
        store.purge(&Purge { log: Some(b"a"), ..before(500) }).unwrap();
        let stats = store.stats();
        assert_eq!((stats.segments, stats.segment_bytes), files(directory.path()));
        assert!(stats.freed_bytes > 0 && stats.segment_bytes < bytes, "{stats:?}");
        assert!((150_000..150_000 + 2 * (64 << 10)).contains(&stats.live_bytes), "{stats:?}");
        // All of it: nothing is left but the segment that was begun for that.
        store.purge(&Purge::default()).unwrap();
        let stats = store.stats();
        assert_eq!((stats.segments, stats.live_bytes, stats.purges), (1, 0, 2));
        assert_eq!((stats.segment_bytes, stats.mapped_bytes), (4096, 4096), "as small as a new store");
        assert_eq!((stats.segments, stats.segment_bytes), files(directory.path()));
        filled(&store, b"a", 3);
        store.flush().unwrap();
        for lost in 0..2 {
            let copy = tempfile::tempdir().unwrap();
            for entry in std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap()) {
                std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
            }
            let store = open(copy.path(), options.clone());
            assert_eq!((times(&store, b"a"), times(&store, b"b")), (vec![1, 2, 3], vec![]));
            assert_eq!(store.damage().len(), lost, "{:?}", store.damage());
            assert!(store.damage().iter().all(|damage| damage.file.starts_with("checkpoint-")));
            // As if the newest checkpoint were lost.
            let checkpoints = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
            let newest = checkpoints.filter(|path| path.to_str().unwrap().contains("checkpoint-")).max();
            std::fs::write(newest.unwrap(), b"lost").unwrap();
        }
    }
}

#[test]
fn files_stay_as_long_as_anything_in_them_is_needed_and_the_newest_is_ended_only_when_nothing_is() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    filled(&store, b"a", 20);
    filled(&store, b"b", 1);
    let rotations = store.stats().rotations;
    store.purge(&Purge { log: Some(b"a"), ..Purge::default() }).unwrap();
    assert_eq!((store.stats().segments, store.stats().rotations), (1, rotations), "b is in it");
    assert_eq!(store.stats().live_bytes, 100);
    store.purge(&Purge { log: Some(b"b"), destroy: true, ..Purge::default() }).unwrap();
    assert_eq!((store.stats().segments, store.stats().rotations), (1, rotations + 1));
    assert_eq!(files(directory.path()).0, 1);
    // Nothing goes, and nothing is done for it.
    store.purge(&Purge::default()).unwrap();
    assert_eq!(store.stats().rotations, rotations + 1);
    let memory = Store::memory(small()).unwrap();
    filled(&memory, b"a", 2000);
    memory.purge(&Purge::default()).unwrap();
    assert_eq!(memory.stats().segments, 1);
}

#[test]
fn a_purge_of_a_log_that_is_not_there_says_so() {
    let store = Store::memory(small()).unwrap();
    filled(&store, b"a", 3);
    let purge = Purge { log: Some(b"b"), destroy: true, ..Purge::default() };
    assert_eq!(store.purge(&purge), Err(CommitError::NoLog { name: "b".into() }));
    assert_eq!(times(&store, b"a"), [1, 2, 3]);
}

/// Between what it has read and the frame that says so lies what went with the log.
#[test]
fn a_cursor_whose_log_is_destroyed_is_told_so_and_not_of_damage() {
    for another_stays in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), Options { durability: Durability::Os, ..small() });
        filled(&store, b"a", 5);
        let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
        let theirs = attached.find(b"a").unwrap().unwrap();
        let mut cursors = [
            store.reader(&store.find(b"a").unwrap()).follow(&Query::default()),
            attached.reader(&theirs).follow(&Query::default()),
        ];
        for cursor in &mut cursors {
            assert_eq!(std::iter::from_fn(|| cursor.next().unwrap().map(|entry| entry.time)).count(), 5);
        }
        filled(&store, b"a", 200);
        if another_stays {
            filled(&store, b"b", 1);
        }
        store.purge(&Purge { log: Some(b"a"), destroy: true, ..Purge::default() }).unwrap();
        for cursor in &mut cursors {
            assert_eq!(cursor.next().err(), Some(ReadError::Deleted), "another stays: {another_stays}");
            assert_eq!(cursor.ended(), Some(Ended::Deleted));
        }
        assert!(store.damage().is_empty() && attached.damage().is_empty());
    }
}

#[test]
fn a_log_with_a_transaction_under_way_is_not_destroyed() {
    let store = Store::memory(small()).unwrap();
    filled(&store, b"a", 10);
    let log = store.find(b"a").unwrap();
    let mut transaction = store.transaction(11);
    transaction.append(&log, b"x").unwrap();
    let destroy = Purge { destroy: true, ..Purge::default() };
    assert_eq!(store.purge(&destroy), Err(CommitError::Pending { count: 1 }));
    assert_eq!(store.stats().transactions, 1);
    transaction.abort();
    assert!(store.purge(&destroy).unwrap()[0].destroyed);
    assert!(store.find(b"a").is_none());
    assert_eq!(store.append(&log, b"x", 12), Err(CommitError::Deleted));
}

#[test]
fn a_log_is_not_destroyed_from_under_somebody_who_just_came_to_hold_it() {
    let store = Store::memory(small()).unwrap();
    let stopped = Mutex::new(false);
    let destroy = Purge { log: Some(b"a"), destroy: true, ..Purge::default() };
    let (mut held, mut lost) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !*stopped.lock() {
                let _ = store.purge(&destroy);
            }
        });
        for _ in 0..50_000 {
            let log = store.log(b"a").unwrap();
            let _hold = store.hold(&log).unwrap();
            if log.staged().is_some() {
                (0..100).for_each(|_| std::hint::spin_loop());
                held += 1;
                lost += u32::from(log.staged().is_none());
            }
        }
        *stopped.lock() = true;
    });
    assert!(held > 0 && lost == 0, "{lost} of {held}");
}

#[test]
fn who_reads_elsewhere_while_a_purge_becomes_durable_begins_behind_it_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { committer_thread: false, ..small() });
    filled(&store, b"a", 10);
    store.flush().unwrap();
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    let mut reader = attached.reader(&attached.find(b"a").unwrap().unwrap());
    let mut early = reader.clone();
    let first =
        |reader: &mut Reader| reader.entries(&Query::default()).next().map(|entry| entry.unwrap().time);
    let looks = move || assert_eq!(first(&mut early), Some(1));
    *store.shared.probes.before_words.lock() = Some(Box::new(looks));
    store.purge(&before(5)).unwrap();
    assert!(store.shared.probes.before_words.lock().is_none());
    assert_eq!(first(&mut reader), Some(5));
}

#[test]
fn what_a_fork_inherits_is_not_purged_from_under_it() {
    let store = Store::memory(small()).unwrap();
    filled(&store, b"a", 300);
    let fork = Fork { parent: store.find(b"a").unwrap(), at: 20_000, asked: [0; 2] };
    store.create(b"fork", &config(), Some(&fork), &payload(b"own"), None).unwrap();
    store.purge(&Purge { log: Some(b"a"), ..before(250) }).unwrap();
    store.maintain(0).unwrap();
    assert_eq!((times(&store, b"a").len(), times(&store, b"fork").len()), (51, 201));
    let late = Fork { at: 100, ..fork };
    let refused = store.create(b"late", &config(), Some(&late), &payload(b""), None).map(drop);
    assert_eq!(refused, Err(CommitError::Purged { at: 100, first: 24_900 }));
    let grandchild = Fork { parent: store.find(b"a").unwrap(), at: 25_000, asked: [0; 2] };
    store.create(b"grandchild", &config(), Some(&grandchild), &payload(b""), None).unwrap();
    assert_eq!(times(&store, b"grandchild"), [250]);
}

#[test]
fn retention_lets_whole_segments_go_and_nothing_is_purged_until_it_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { retain_bytes: Some(200_000), ..os() };
    let store = open(directory.path(), options);
    filled(&store, b"a", 5000);
    assert_eq!(times(&store, b"a").len(), 5000);
    for _ in 0..3 {
        store.maintain(1).unwrap();
        store.checkpoint().unwrap();
        filled(&store, b"b", 1);
    }
    let kept = times(&store, b"a");
    assert!(kept.len() > 500 && kept.len() < 1500 && kept.ends_with(&[5000]), "{}", kept.len());
    assert!(store.stats().segment_bytes <= 265_000, "{}", store.stats().segment_bytes);
    let aged = Store::memory(Options { retain_us: Some(1000), ..small() }).unwrap();
    filled(&aged, b"a", 5000);
    aged.maintain(5000).unwrap();
    let kept = times(&aged, b"a");
    assert!(kept[0] <= 4000 && kept[0] > 3000, "older ones go by the segment: {}", kept[0]);
}

#[test]
fn an_idle_segment_is_sealed_by_age_and_by_request() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { rotate_after_us: Some(100), ..os() });
    store.maintain(1_000_000).unwrap();
    let log = store.log(b"a").unwrap();
    let empty = store.stats().segments;
    store.append(&log, b"x", 500).unwrap();
    store.maintain(550).unwrap();
    assert_eq!(store.stats().segments, empty);
    store.maintain(601).unwrap();
    assert_eq!(store.stats().segments, empty + 1);
    store.rotate().unwrap();
    assert_eq!(store.stats().segments, empty + 1, "nothing is in it");
    store.append(&log, b"y", 700).unwrap();
    store.rotate().unwrap();
    store.append(&log, b"z", 800).unwrap();
    assert_eq!((store.stats().segments, times(&store, b"a")), (empty + 2, vec![500, 700, 800]));
    assert_eq!((store.stats().rotations, store.stats().entries), (2, 3));
}

fn aged(durability: Durability, directory: &std::path::Path, options: Options) -> Store {
    match durability {
        Durability::Memory => Store::memory(options).unwrap(),
        _ => open(directory, Options { durability, ..options }),
    }
}

#[test]
fn what_is_too_old_goes_also_where_nothing_is_appended_any_more() {
    for durability in [Durability::Os, Durability::Sync, Durability::Memory] {
        let directory = tempfile::tempdir().unwrap();
        let store = aged(durability, directory.path(), Options { retain_us: Some(1000), ..small() });
        let log = store.log(b"a").unwrap();
        for time in [10, 200, 900] {
            store.append(&log, b"x", time).unwrap();
        }
        store.flush().unwrap();
        store.maintain(1_900).unwrap();
        assert_eq!(times(&store, b"a"), [10, 200, 900], "{durability:?}");
        store.maintain(1_901).unwrap();
        store.flush().unwrap();
        assert_eq!(times(&store, b"a"), [0; 0], "{durability:?}");
        // And again, in the same segment.
        store.append(&log, b"x", 3_000).unwrap();
        store.flush().unwrap();
        store.maintain(3_500).unwrap();
        assert_eq!(times(&store, b"a"), [3_000], "{durability:?}");
        store.maintain(4_001).unwrap();
        store.flush().unwrap();
        assert_eq!(times(&store, b"a"), [0; 0], "{durability:?}");
    }
}

#[test]
fn what_is_appended_while_everything_else_goes_for_its_age_stays() {
    let store = Store::memory(Options { retain_us: Some(1000), ..small() }).unwrap();
    let (log, other) = (store.log(b"a").unwrap(), store.log(b"b").unwrap());
    store.append(&other, b"x", 100).unwrap();
    store.append(&log, b"x", 100).unwrap();
    let keep_from = store.shared.retained_from(5_000).unwrap();
    // Right behind what is too old, and so in one extent with it.
    store.append(&log, b"new", 5_000).unwrap();
    store.retain_up_to(keep_from, 5_000).unwrap();
    assert_eq!((times(&store, b"b"), times(&store, b"a").last()), (vec![], Some(&5_000)));
    store.maintain(6_001).unwrap();
    assert_eq!(times(&store, b"a"), [0; 0]);
}

#[test]
fn what_is_too_old_goes_a_little_later_where_little_is_appended_and_few_segments_are_begun() {
    const HOUR: u64 = 3_600_000_000;
    for durability in [Durability::Os, Durability::Memory] {
        let directory = tempfile::tempdir().unwrap();
        let options =
            Options { retain_us: Some(12 * HOUR), retain_except: vec![b"kept-".to_vec()], ..small() };
        let store = aged(durability, directory.path(), options);
        let log = store.log(b"a").unwrap();
        for hour in 1..100 {
            // The times of entries are their writers' business: only retention looks at them.
            store.append(&log, b"x", hour * HOUR).unwrap();
            for look in 0..10 {
                store.maintain(hour * HOUR + look * HOUR / 10).unwrap();
            }
            let oldest = times(&store, b"a").first().copied().unwrap();
            assert!(oldest + 17 * HOUR >= hour * HOUR, "{durability:?}: {oldest} at {hour}");
        }
        let segments = store.stats().segments;
        assert!(segments <= 40, "{durability:?}: {segments}");
        // What is left alone has no segment sealed.
        store.delete(&log, log.staged().unwrap().version, 0, None).unwrap();
        let kept = store.log(b"kept-a").unwrap();
        let before = store.stats().rotations;
        for hour in 100..200 {
            store.append(&kept, b"x", hour * HOUR).unwrap();
            store.maintain(hour * HOUR).unwrap();
        }
        assert!(
            store.stats().rotations <= before + 2,
            "{durability:?}: {}",
            store.stats().rotations - before
        );
        assert_eq!(times(&store, b"kept-a").len(), 100);
    }
}

#[test]
fn every_log_is_heard_of_once_when_it_is_visible() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { committer_thread: false, ..small() });
    store.log(b"first").unwrap();
    let mut new_logs = store.new_logs(true);
    assert!(new_logs.next().unwrap().is_none(), "not durable yet");
    store.flush().unwrap();
    let name = |log: std::sync::Arc<crate::Log>| String::from_utf8_lossy(log.name()).into_owned();
    assert_eq!(new_logs.next().unwrap().map(name).as_deref(), Some("first"));
    store.log(b"second").unwrap();
    store.log(b"third").unwrap();
    assert!(new_logs.next().unwrap().is_none());
    store.flush().unwrap();
    assert!(new_logs.wait(Some(std::time::Duration::ZERO)));
    let rest: Vec<String> = std::iter::from_fn(|| new_logs.next().unwrap().map(name)).collect();
    assert_eq!(rest, ["second", "third"]);
    assert!(!new_logs.wait(Some(std::time::Duration::from_millis(1))));
}

#[test]
fn a_neighbour_hears_of_every_log_too_also_of_one_that_takes_an_old_name() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let first = store.log(b"first").unwrap();
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    let (mut all, mut new) = (attached.new_logs(true).unwrap(), attached.new_logs(false).unwrap());
    let told = |new_logs: &mut NewLogs| -> Vec<u64> {
        std::iter::from_fn(|| new_logs.next().unwrap()).map(|log| log.id()).collect()
    };
    assert_eq!((told(&mut all), told(&mut new)), (vec![first.id()], vec![]));
    assert!(!new.wait(Some(Duration::ZERO)), "nothing was committed since");
    // Over segments that the neighbour has not seen, and among logs that come and go.
    for round in 0..40u8 {
        let name = [b'a' + round % 3];
        store.append(&first, &[1; 3000], 1).unwrap();
        let log = store.log(&name).unwrap();
        assert!(new.wait(Some(Duration::from_secs(60))));
        assert_eq!((told(&mut all), told(&mut new)), (vec![log.id()], vec![log.id()]), "{round}");
        store.delete(&log, log.staged().unwrap().version, 0, None).unwrap();
    }
    assert_eq!((told(&mut all), told(&mut new)), (vec![], vec![]));
    assert!(store.stats().rotations > 2);
}

#[test]
fn logs_made_by_many_at_once_are_heard_of_once_each_by_whoever_listens() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), small());
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    let hear = |mut new_logs: NewLogs| {
        let mut heard = Vec::new();
        while heard.len() < 120 {
            new_logs.wait(Some(Duration::from_secs(60)));
            heard.extend(std::iter::from_fn(|| new_logs.next().unwrap()).map(|log| log.name().to_vec()));
        }
        heard.sort_unstable();
        heard
    };
    let make = |from: usize| {
        (from..120)
            .step_by(3)
            .for_each(|number| drop(store.log(format!("log {number:03}").as_bytes()).unwrap()));
        store.flush().unwrap();
    };
    let made: Vec<Vec<u8>> = (0..120).map(|number| format!("log {number:03}").into_bytes()).collect();
    std::thread::scope(|scope| {
        let heard = [store.new_logs(false), attached.new_logs(false).unwrap()]
            .map(|new_logs| scope.spawn(move || hear(new_logs)));
        (0..3).for_each(|from| drop(scope.spawn(move || make(from))));
        heard.into_iter().for_each(|heard| assert_eq!(heard.join().unwrap(), made));
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn purges_leave_what_a_list_would(
        acts in proptest::collection::vec((0u8..4, 0u64..200, 1usize..400), 1..150),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = open(directory.path(), os());
        let mut model: Vec<(u64, Vec<u8>)> = Vec::new();
        store.log(b"a").unwrap();
        for (act, time, bytes) in acts {
            let log = store.find(b"a").unwrap();
            match act {
                0 | 1 => {
                    store.append(&log, &vec![bytes as u8; bytes], time).unwrap();
                    model.push((time, vec![bytes as u8; bytes]));
                }
                2 => {
                    store.purge(&before(time)).unwrap();
                    let first = model.iter().position(|entry| entry.0 >= time).unwrap_or(model.len());
                    model.drain(..first);
                }
                _ => {
                    store.checkpoint().unwrap();
                    drop((log, store));
                    store = open(directory.path(), os());
                }
            }
            let mut reader = store.reader(&store.find(b"a").unwrap());
            let seen: Vec<(u64, Vec<u8>)> =
                reader.entries(&Query::default()).map(|entry| entry.map(|e| (e.time, e.data.to_vec())).unwrap()).collect();
            prop_assert_eq!(&seen, &model);
        }
    }
}
