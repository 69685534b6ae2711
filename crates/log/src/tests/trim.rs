//! Purging, retention and rotation: beside a plain list, around damage, and seen from elsewhere.

use super::query::{Kept, check, query};
use super::store::{config, content, open, os, payload, small};
use crate::{
    Attached, Commit, CommitError, Durability, Fork, Log, Options, Purge, Query, ReadError, Start, Store,
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::Disk;
use thalweg_sys::disk::sim::SimDisk;

fn append(store: &Store, log: &Arc<Log>, times: std::ops::Range<u64>) {
    for time in times {
        store.append(log, &[time as u8; 100], time).unwrap();
    }
}

fn times(store: &Store, log: &Arc<Log>) -> Vec<u64> {
    store.reader(log).entries(&Query::default()).map(|entry| entry.unwrap().time).collect()
}

fn segment_files(directory: &Path) -> BTreeSet<String> {
    let names =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("segment-")).collect()
}

/// Has what is superfluous removed: a segment goes behind the older of two checkpoints.
fn settle(store: &Store) {
    let log = store.log(b"settled").unwrap();
    for time in 0..2 {
        store.rotate().unwrap();
        store.append(&log, b"x", time).unwrap();
        store.checkpoint().unwrap();
    }
}

fn before(time: u64) -> Purge<'static> {
    Purge { log: Some(b"a"), before: Some(time), count_entries: true, ..Purge::default() }
}

#[test]
fn a_prefix_goes_whatever_the_times_and_only_once() {
    let store = Store::memory(small()).unwrap();
    let log = store.log(b"a").unwrap();
    for time in [5, 9, 7, 3, 8] {
        store.append(&log, b"ten bytes.", time).unwrap();
    }
    let [purged] = &store.purge(&before(8)).unwrap()[..] else { panic!("one log") };
    assert_eq!((purged.first, purged.bytes, purged.entries), (10, 10, Some(1)), "9 keeps what is behind it");
    assert_eq!(times(&store, &log), [9, 7, 3, 8]);
    assert_eq!(store.purge(&before(8)).unwrap(), []);
    assert_eq!(store.read(&log, 5, 100), Err(ReadError::Purged { from: 5, first: 10 }));
    assert_eq!(store.read(&log, 10, 1).unwrap().next, 20);
    let [purged] = &store.purge(&before(10)).unwrap()[..] else { panic!("one log") };
    assert_eq!((purged.first, purged.bytes, purged.entries), (50, 40, Some(4)));
    store.append(&log, b"more", 1).unwrap();
    assert_eq!(times(&store, &log), [1]);
    assert_eq!(store.purge(&before(0)).unwrap(), []);
}

#[test]
fn what_is_purged_gives_its_segments_back_and_stays_purged() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let log = store.log(b"a").unwrap();
    append(&store, &log, 0..1000);
    let before_it = segment_files(directory.path());
    store.purge(&before(900)).unwrap();
    settle(&store);
    let after = segment_files(directory.path());
    assert!(before_it.len() > 5 && before_it.intersection(&after).count() <= 2, "{before_it:?} {after:?}");
    drop((log, store));
    for _ in 0..2 {
        let store = open(directory.path(), os());
        let log = store.find(b"a").unwrap();
        assert_eq!(store.damage(), []);
        assert_eq!(times(&store, &log), (900..1000).collect::<Vec<_>>());
        assert!(matches!(store.read(&log, 0, 1), Err(ReadError::Purged { first: 90_000, .. })));
        drop(store);
    }
}

#[test]
fn forks_keep_what_they_inherited_until_the_last_one_goes() {
    let store = Store::memory(small()).unwrap();
    let log = store.log(b"a").unwrap();
    append(&store, &log, 0..600);
    let fork = Fork { parent: log.clone(), at: 30_000, asked: [0; 2] };
    let forks: Vec<_> = [b"b", b"c"]
        .map(|name| store.create(name, &config(), Some(&fork), &payload(b"own"), None).unwrap().0)
        .into();
    let segments = store.stats().segments;
    store.purge(&before(599)).unwrap();
    store.maintain(0).unwrap();
    assert_eq!(times(&store, &log), [599]);
    assert_eq!(store.stats().segments, segments);
    for fork in &forks {
        assert_eq!(content(&store, fork.name()).len(), 30_003);
        assert_eq!(store.reader(fork).entries(&Query::default()).count(), 301);
    }
    let late = Fork { at: 59_900, ..fork.clone() };
    let (late, _) = store.create(b"late", &config(), Some(&late), &payload(b"!"), None).unwrap();
    assert!(matches!(
        store.create(b"d", &config(), Some(&fork), &payload(b""), None),
        Err(CommitError::Purged { at: 30_000, first: 59_900 })
    ));
    assert!(matches!(store.read(&late, 59_899, 1), Err(ReadError::Purged { .. })));
    assert_eq!(content_from(&store, &late), b"!");
    for fork in forks {
        assert_eq!(store.stats().segments, segments);
        store.delete(&fork, fork.staged().unwrap().version, 0, None).unwrap();
    }
    store.delete(&late, late.staged().unwrap().version, 0, None).unwrap();
    store.maintain(0).unwrap();
    assert!(store.stats().segments <= 2, "{}", store.stats().segments);
    assert_eq!(times(&store, &log), [599]);
}

fn content_from(store: &Store, log: &Arc<Log>) -> Vec<u8> {
    store.read(log, log.visible().unwrap().first, usize::MAX).unwrap().pieces.concat()
}

/// Damage hides what a purge looks for; what cannot be found is not thrown away.
#[test]
fn a_purge_throws_nothing_away_behind_damage() {
    for own in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), os());
        let (log, other) = (store.log(b"a").unwrap(), store.log(b"other").unwrap());
        append(&store, &log, 0..800);
        let hit = if own { &log } else { &other };
        store.append(hit, &[0xee; 300], 800).unwrap();
        append(&store, &log, 801..1000);
        store.close().unwrap();
        drop((log, other, store));
        flip(directory.path(), &[0xee; 300]);
        let store = open(directory.path(), os());
        assert_eq!(store.damage(), [], "nobody has looked there yet");
        let log = store.find(b"a").unwrap();
        assert!(matches!(store.purge(&before(801)), Err(CommitError::Damaged(_))), "own {own}");
        assert_eq!(log.visible().unwrap().first, 0);
        assert_eq!(store.purge(&before(700)).unwrap()[0].first, 70_000);
        assert_eq!(store.purge(&before(900)).unwrap()[0].entries, Some(199));
    }
}

/// Flips a bit of whichever segment holds these bytes.
fn flip(directory: &Path, sought: &[u8]) {
    for name in segment_files(directory) {
        let path = directory.join(name);
        let mut bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(sought.len()).position(|window| window == sought) {
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            return;
        }
    }
    panic!("no segment holds it");
}

/// The checkpoint's record of the source is older than the purge, that of the fork younger, and a segment
/// that nobody needed by then is gone.
#[test]
fn a_checkpoint_that_saw_a_log_before_its_purge_and_its_fork_after_is_no_damage() {
    let disk = Disk::Sim(SimDisk::new(1, 8 << 20));
    let options = Options { committer_thread: false, ..small() };
    let (store, _) = Store::open(&disk, Path::new("/store"), options.clone()).unwrap();
    let place = |name: &String| store.shared.catalogue.shard_of(name.as_bytes());
    let mut names: Vec<String> = (0..40).map(|index| format!("log {index}")).collect();
    names.sort_by_key(place);
    let (source, fork) = (names[0].clone(), names[39].clone());
    assert!(place(&source) < place(&fork));
    let log = store.log(source.as_bytes()).unwrap();
    append(&store, &log, 0..50);
    store.flush().unwrap();
    store.rotate().unwrap();
    store.append(&log, b"kept", 50).unwrap();
    store.checkpoint().unwrap();
    store.append(&log, b"kept", 50).unwrap();
    store.flush().unwrap();
    assert_eq!(store.shared.segments.numbers()[0], 1);
    let (ask, asked) = std::sync::mpsc::channel();
    let (answer, answered) = std::sync::mpsc::channel();
    store.shared.options.interleave.set(Some((ask, answered)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            store.checkpoint().unwrap();
            store.shared.options.interleave.set(None);
        });
        let (asked, answer) = (asked, answer);
        let mut shard = 0;
        while asked.recv().is_ok() {
            if shard == place(&source) {
                // What a purge commits. The purge itself would wait for the checkpoint, and that for this
                // thread.
                let first = store.since(&log, 50).unwrap().unwrap();
                store.trim(&log, first, 50).unwrap();
                store.flush().unwrap();
                let at = Fork { parent: log.clone(), at: 5008, asked: [0; 2] };
                store.create(fork.as_bytes(), &config(), Some(&at), &payload(b"own"), None).unwrap();
                store.flush().unwrap();
            }
            shard += 1;
            answer.send(()).unwrap();
        }
    });
    assert_eq!(store.shared.segments.numbers()[0], 1, "the checkpoint speaks of it");
    // Opening such a store copes with its loss nevertheless.
    store.shared.drop_dead_segments();
    assert_ne!(store.shared.segments.numbers()[0], 1, "nobody needs it");
    drop((log, store));
    let (store, report) = Store::open(&disk, Path::new("/store"), options).unwrap();
    assert_eq!(report.damage, []);
    assert_eq!(content_from(&store, &store.find(source.as_bytes()).unwrap()), b"keptkept");
    assert_eq!(content_from(&store, &store.find(fork.as_bytes()).unwrap()), b"keptkeptown");
}

#[test]
fn a_neighbour_sees_what_was_purged_and_takes_it_for_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let log = store.log(b"a").unwrap();
    append(&store, &log, 0..500);
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    let known = attached.find(b"a").unwrap().unwrap();
    let mut reader = attached.reader(&known);
    let mut cursor = reader.clone().follow(&Query::default());
    assert_eq!(cursor.next().unwrap().map(|entry| entry.time), Some(0));
    assert_eq!(reader.entries(&Query::default()).count(), 500);
    append(&store, &log, 500..1000);
    store.purge(&before(900)).unwrap();
    settle(&store);
    assert!(!segment_files(directory.path()).contains(&crate::segment::file_name(1)));
    let found: Result<Vec<_>, _> = reader.entries(&Query::default()).map(|entry| Ok(entry?.time)).collect();
    assert_eq!(found, Ok::<_, ReadError>((900..1000).collect()));
    let back: Result<Vec<_>, _> =
        reader.entries_back(&Query::default()).map(|entry| Ok(entry?.time)).collect();
    assert_eq!(back, Ok::<_, ReadError>((900..1000).rev().collect()));
    let mut last = 0;
    while let Some(entry) = cursor.next().unwrap() {
        assert!(entry.time > last);
        last = entry.time;
    }
    assert_eq!(last, 999);
    let late = Attached::open(&Disk::Real, directory.path()).unwrap();
    assert_eq!(late.damage(), []);
    assert_eq!(late.reader(&late.find(b"a").unwrap().unwrap()).entries(&Query::default()).count(), 100);
}

#[test]
fn a_purge_that_was_answered_survives_a_power_cut() {
    for seed in 0..20 {
        let sim = SimDisk::new(seed, 8 << 20);
        let options = Options { committer_thread: false, ..small() };
        let (store, _) = Store::open(&Disk::Sim(sim.clone()), Path::new("/store"), options.clone()).unwrap();
        let log = store.log(b"a").unwrap();
        append(&store, &log, 0..50);
        store.flush().unwrap();
        assert_eq!(store.purge(&before(40)).unwrap()[0].first, 4000);
        let (store, _) = Store::open(&Disk::Sim(sim.crash()), Path::new("/store"), options).unwrap();
        assert_eq!(times(&store, &store.find(b"a").unwrap()), (40..50).collect::<Vec<_>>());
    }
}

#[test]
fn a_purge_that_is_cut_short_anywhere_takes_all_that_was_asked_for_or_nothing() {
    let (mut done, mut undone, mut freed) = (0, 0, 0);
    for (seed, syncs) in (0..8).flat_map(|seed| (0..14).map(move |syncs| (seed, syncs))) {
        let sim = SimDisk::new(seed, 8 << 20);
        let options = Options { committer_thread: false, ..small() };
        let (store, _) = Store::open(&Disk::Sim(sim.clone()), Path::new("/store"), options.clone()).unwrap();
        let log = store.log(b"a").unwrap();
        append(&store, &log, 0..400);
        store.flush().unwrap();
        // Of several segments, or of all of them with the newest.
        let end = [300, 400][seed as usize % 2];
        sim.fail_sync_after(syncs);
        let answered = store.purge(&before(end));
        freed += u64::from(store.stats().freed_bytes > 0);
        let (store, recovered) =
            Store::open(&Disk::Sim(sim.crash()), Path::new("/store"), options.clone()).unwrap();
        assert_eq!(recovered.damage, [], "{seed} {syncs}");
        let left = times(&store, &store.find(b"a").unwrap());
        let gone = left.len() < 400;
        assert_eq!(left, (if gone { end } else { 0 }..400).collect::<Vec<_>>(), "{seed} {syncs}");
        assert!(gone || answered.is_err(), "{seed} {syncs}");
        (done, undone) = (done + u64::from(gone), undone + u64::from(!gone));
    }
    assert!(done > 8 && undone > 8 && freed > 8, "{done} {undone} {freed}");
}

#[test]
fn nothing_is_destroyed_while_a_transaction_is_pending_on_any_of_it() {
    let store = Store::memory(small()).unwrap();
    let (a, b) = (store.log(b"a").unwrap(), store.log(b"b").unwrap());
    append(&store, &a, 0..3);
    append(&store, &b, 0..3);
    let all = Purge { destroy: true, count_entries: true, ..Purge::default() };
    let mut transaction = store.transaction(5);
    transaction.append(&b, b"late").unwrap();
    assert_eq!(store.purge(&all), Err(CommitError::Pending { count: 1 }));
    assert_eq!((times(&store, &a).len(), times(&store, &b).len()), (3, 3));
    transaction.commit().unwrap();
    let purged = store.purge(&all).unwrap();
    let entries: Vec<_> = purged.iter().map(|purged| (purged.name.as_slice(), purged.entries)).collect();
    assert_eq!(entries, [(b"a".as_slice(), Some(3)), (b"b", Some(4))]);
    assert!(store.logs().is_empty() && store.find(b"a").is_none());
    assert_ne!(store.log(b"a").unwrap().id(), a.id());
}

/// A reader gets whole entries while segments go, or is told what happened.
#[test]
fn readers_outlive_whatever_is_purged_under_them() {
    for destroy in [false, true] {
        let store = Store::memory(small()).unwrap();
        for round in 0..30u64 {
            let log = store.log(b"a").unwrap();
            append(&store, &log, 0..200);
            std::thread::scope(|scope| {
                let reading = scope.spawn(|| {
                    let mut reader = store.reader(&log);
                    for _ in 0..40 {
                        let first = log.visible().map_or(0, |state| state.first);
                        match store.read(&log, first, 3000) {
                            Ok(_) | Err(ReadError::Purged { .. } | ReadError::Deleted) => {}
                            Err(error) => panic!("{error}"),
                        }
                        for entry in reader.entries(&Query::default()) {
                            match entry {
                                Ok(entry) => assert_eq!(entry.data, [entry.time as u8; 100]),
                                Err(ReadError::Deleted) => {}
                                Err(error) => panic!("{error}"),
                            }
                        }
                    }
                });
                for time in (0..200).step_by(5) {
                    let destroy = destroy && time > 150;
                    let purge = Purge { time: round, ..before(time) };
                    let purged = store.purge(&match destroy {
                        true => Purge { destroy, before: None, ..purge },
                        false => purge,
                    });
                    assert!(purged.is_ok() || time > 155 && matches!(purged, Err(CommitError::NoLog { .. })));
                    store.maintain(0).unwrap();
                }
                reading.join().unwrap();
            });
            let _ = store.purge(&Purge { destroy: true, before: None, ..before(0) });
        }
    }
}

#[test]
fn retention_by_age_takes_whole_segments_and_only_when_asked() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { retain_us: Some(300), ..os() });
    let (log, rare) = (store.log(b"a").unwrap(), store.log(b"rare").unwrap());
    append(&store, &rare, 0..1);
    append(&store, &log, 1..1000);
    assert_eq!(times(&store, &log).len(), 999, "nothing goes by itself");
    store.maintain(1000).unwrap();
    let left = times(&store, &log);
    assert!(left[0] > 1 && left[0] <= 700 && left.last() == Some(&999), "{}", left[0]);
    assert!(times(&store, &rare).is_empty());
    settle(&store);
    let files = segment_files(directory.path());
    assert!(!files.contains(&crate::segment::file_name(1)));
    store.append(&rare, b"again", 1001).unwrap();
    assert_eq!(times(&store, &rare), [1001]);
}

/// One of their writers had a wrong clock, or a wrong unit.
#[test]
fn entries_from_the_future_do_not_end_retention_by_age() {
    let directory = tempfile::tempdir().unwrap();
    let options = || Options { retain_us: Some(300), ..os() };
    let (stray, last) = (1 << 60, 3_000);
    let store = open(directory.path(), options());
    let log = store.log(b"a").unwrap();
    append(&store, &log, 1..1000);
    store.append(&log, b"stray", stray).unwrap();
    append(&store, &log, 1000..2000);
    store.rotate().unwrap();
    // One that holds nothing else.
    store.append(&log, b"stray", stray).unwrap();
    store.rotate().unwrap();
    append(&store, &log, 2000..last);
    let check = |store: &Store, log: &Arc<Log>, now: u64, oldest: std::ops::RangeInclusive<u64>| {
        store.maintain(now).unwrap();
        let left = times(store, log);
        assert!(oldest.contains(&left[0]) && left.last() == Some(&(last - 1)), "{} at {now}", left[0]);
        left.contains(&stray)
    };
    assert!(check(&store, &log, 1000, 360..=700));
    check(&store, &log, 1500, 860..=1200);
    store.close().unwrap();
    drop((store, log));
    // A process that opens it remembers nothing of before.
    let store = open(directory.path(), options());
    let log = store.find(b"a").unwrap();
    assert!(!check(&store, &log, last, 2360..=2700));
    assert!(!check(&store, &log, last, 2360..=2700));
}

#[test]
fn retention_by_size_keeps_the_newest_and_what_is_being_written() {
    for limit in [0, 70_000, 200_000] {
        let store = Store::memory(Options { retain_bytes: Some(limit), ..small() }).unwrap();
        let log = store.log(b"a").unwrap();
        for time in 0..5000 {
            store.append(&log, &[7; 100], time).unwrap();
            if time % 100 == 0 {
                store.maintain(time).unwrap();
            }
        }
        store.maintain(5000).unwrap();
        let stats = store.stats();
        assert!(stats.segment_bytes <= limit.max(65_536), "{limit}: {stats:?}");
        assert_eq!(times(&store, &log).last(), Some(&4999));
    }
}

#[test]
fn an_idle_segment_is_sealed_by_age_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let aged = || Options { rotate_after_us: Some(100), ..os() };
    let store = open(directory.path(), aged());
    let log = store.log(b"a").unwrap();
    append(&store, &log, 1000..1010);
    store.maintain(1050).unwrap();
    assert_eq!(store.stats().rotations, 0);
    drop((log, store));
    let store = open(directory.path(), aged());
    store.maintain(1200).unwrap();
    assert_eq!(store.stats().rotations, 1);
    store.maintain(9000).unwrap();
    assert_eq!(store.stats().rotations, 1, "nothing is in it");
    let log = store.find(b"a").unwrap();
    append(&store, &log, 1010..1020);
    assert_eq!(times(&store, &log), (1000..1020).collect::<Vec<_>>());
    store.close().unwrap();
    drop((log, store));
    let store = open(directory.path(), aged());
    assert_eq!(times(&store, &store.find(b"a").unwrap()), (1000..1020).collect::<Vec<_>>());
}

#[test]
fn handles_and_cursors_go_on_over_many_rotations() {
    for store in [Store::memory(small()).unwrap(), {
        let directory = tempfile::tempdir().unwrap().keep();
        open(&directory, Options { durability: Durability::Sync, ..small() })
    }] {
        let log = store.log(b"a").unwrap();
        let mut cursor = store.reader(&log).follow(&Query { uncommitted: true, ..Query::default() });
        for time in 0..50 {
            store.rotate().unwrap();
            store.rotate().unwrap();
            store.append(&log, b"x", time).unwrap();
            assert_eq!(cursor.next().unwrap().map(|entry| entry.time), Some(time));
            assert_eq!(cursor.next(), Ok(None));
        }
        assert_eq!(store.stats().rotations, 50);
        store.flush().unwrap();
        assert_eq!(times(&store, &log).len(), 50);
    }
}

#[derive(Clone, Debug)]
enum Act {
    Append { log: usize, time: u64, bytes: usize },
    Fork { log: usize, at: prop::sample::Index },
    Purge { log: usize, before: u64 },
    Destroy { log: usize },
    Rotate,
    Settle,
    Reopen,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        30 => (0usize..6, 0u64..300, 1usize..700).prop_map(|(log, time, bytes)| Act::Append { log, time, bytes }),
        3 => (0usize..6, any::<prop::sample::Index>()).prop_map(|(log, at)| Act::Fork { log, at }),
        5 => (0usize..6, 0u64..320).prop_map(|(log, before)| Act::Purge { log, before }),
        1 => (0usize..6).prop_map(|log| Act::Destroy { log }),
        1 => Just(Act::Rotate),
        1 => Just(Act::Settle),
        1 => Just(Act::Reopen),
    ]
}

struct Modelled {
    name: String,
    first: u64,
    kept: Vec<Kept>,
}

struct World {
    store: Store,
    place: Option<std::path::PathBuf>,
    logs: Vec<Modelled>,
    created: usize,
}

impl World {
    fn log(&self, log: usize) -> Arc<Log> {
        self.store.find(self.logs[log].name.as_bytes()).unwrap()
    }

    fn tail(&self, log: usize) -> u64 {
        let Modelled { kept, first, .. } = &self.logs[log];
        kept.last().map_or(*first, |entry| entry.0 + entry.2.len() as u64)
    }

    fn create(&mut self, fork: Option<&Fork>, first: u64, kept: Vec<Kept>) {
        let name = format!("log {}", self.created);
        self.created += 1;
        self.store.create(name.as_bytes(), &config(), fork, &payload(b""), None).unwrap();
        self.logs.push(Modelled { name, first, kept });
    }

    fn purge(&mut self, log: usize, before: u64) {
        let (name, tail) = (self.logs[log].name.clone(), self.tail(log));
        let purge = Purge {
            log: Some(name.as_bytes()),
            before: Some(before),
            count_entries: true,
            ..Purge::default()
        };
        let answer = self.store.purge(&purge).unwrap();
        let Modelled { kept, first, .. } = &mut self.logs[log];
        let gone = kept.iter().position(|entry| entry.1 >= before).unwrap_or(kept.len());
        let begin = kept.get(gone).map_or(tail, |entry| entry.0);
        kept.drain(..gone);
        let answer = answer.first().map(|purged| (purged.first, purged.bytes, purged.entries));
        assert_eq!(answer, (gone > 0).then_some((begin, begin - *first, Some(gone as u64))));
        *first = begin;
    }

    fn fork(&mut self, log: usize, at: prop::sample::Index) {
        let (parent, first) = (self.log(log), self.logs[log].first);
        let at = first + at.index(usize::try_from(self.tail(log) - first).unwrap() + 1) as u64;
        let mut kept: Vec<Kept> = self.logs[log].kept.iter().filter(|entry| entry.0 < at).cloned().collect();
        if let Some((offset, _, bytes)) = kept.last_mut() {
            bytes.truncate(usize::try_from(at - *offset).unwrap());
        }
        self.create(Some(&Fork { parent, at, asked: [0; 2] }), first, kept);
    }

    fn perform(&mut self, act: &Act) {
        let place = |log: usize| log % self.logs.len();
        match act {
            Act::Append { log, time, bytes } => {
                let (log, data) = (place(*log), vec![*bytes as u8; *bytes]);
                let offset = self.tail(log);
                assert_eq!(self.store.append(&self.log(log), &data, *time).unwrap().first, offset);
                self.logs[log].kept.push((offset, *time, data));
            }
            Act::Fork { log, at } => self.fork(place(*log), *at),
            Act::Purge { log, before } => self.purge(place(*log), *before),
            Act::Destroy { log } if self.logs.len() > 2 => {
                let gone = self.logs.remove(place(*log));
                let purge = Purge { log: Some(gone.name.as_bytes()), destroy: true, ..Purge::default() };
                assert_eq!(self.store.purge(&purge).unwrap().len(), 1);
            }
            Act::Destroy { .. } => {}
            Act::Rotate => self.store.rotate().unwrap(),
            Act::Settle if self.place.is_some() => settle(&self.store),
            Act::Settle => drop(self.store.maintain(0).unwrap()),
            Act::Reopen => {
                if let Some(path) = &self.place {
                    let gone = std::mem::replace(&mut self.store, Store::memory(small()).unwrap());
                    drop(gone);
                    self.store = open(path, os());
                    assert_eq!(self.store.damage(), []);
                }
            }
        }
    }

    fn check(&self, queries: &[Query], attached: Option<&Attached>) {
        for (index, model) in self.logs.iter().enumerate() {
            let log = self.log(index);
            assert_eq!(log.visible().unwrap().first, model.first);
            let bytes: Vec<u8> = model.kept.iter().flat_map(|entry| entry.2.clone()).collect();
            assert_eq!(content_from(&self.store, &log), bytes);
            if let Some(below) = model.first.checked_sub(1) {
                let refused = ReadError::Purged { from: below, first: model.first };
                assert_eq!(self.store.read(&log, below, 1), Err(refused));
            }
            for query in queries {
                check(self.store.reader(&log), &model.kept, query);
                if let Some(attached) = attached {
                    check(attached.reader(&attached.find(log.name()).unwrap().unwrap()), &model.kept, query);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn purges_leave_what_a_list_would_in_any_log_and_process(
        acts in proptest::collection::vec(act(), 1..200), more in proptest::collection::vec(act(), 1..60),
        queries in proptest::collection::vec(query(), 6),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        for (store, place) in [(Store::memory(small()).unwrap(), None), (open(&path, os()), Some(path))] {
            let mut world = World { store, place, logs: Vec::new(), created: 0 };
            world.create(None, 0, Vec::new());
            world.create(None, 0, Vec::new());
            acts.iter().for_each(|act| world.perform(act));
            let attached = world.place.as_ref().map(|path| Attached::open(&Disk::Real, path).unwrap());
            world.check(&queries, attached.as_ref());
            // It stays attached, whatever comes.
            more.iter().filter(|act| !matches!(act, Act::Reopen)).for_each(|act| world.perform(act));
            world.check(&queries, attached.as_ref());
        }
    }
}

#[test]
fn an_empty_commit_that_trims_nothing_is_none() {
    let store = Store::memory(small()).unwrap();
    let log = store.log(b"a").unwrap();
    let beyond = Commit { trim: Some(1), ..Commit::default() };
    assert_eq!(
        store.commit(&log, log.staged().unwrap().version, &beyond, None),
        Err(CommitError::PastEnd { at: 1, tail: 0 })
    );
    assert_eq!(store.reader(&log).entries(&Query::from(Start::First)).count(), 0);
}

/// Segments go behind the older of two checkpoints, whether a neighbour has read them or not.
#[test]
fn a_neighbour_that_slept_through_checkpoints_catches_up() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let (a, gone) = (store.log(b"a").unwrap(), store.log(b"gone").unwrap());
    append(&store, &a, 0..10);
    append(&store, &gone, 0..10);
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    let (known, known_gone) =
        (attached.find(b"a").unwrap().unwrap(), attached.find(b"gone").unwrap().unwrap());
    let mut cursor = attached.reader(&known).follow(&Query::default());
    assert_eq!(cursor.next().unwrap().map(|entry| entry.time), Some(0));
    let first = segment_files(directory.path()).first().cloned();
    append(&store, &a, 10..20);
    store.purge(&before(15)).unwrap();
    store.purge(&Purge { log: Some(b"gone"), destroy: true, ..Purge::default() }).unwrap();
    let empty = store.create(b"empty", &config(), None, &payload(b""), None).unwrap().0.id();
    let at = Fork { parent: a.clone(), at: 1700, asked: [0; 2] };
    store.create(b"fork", &config(), Some(&at), &payload(b"own"), None).unwrap();
    append(&store, &a, 20..400);
    store.purge(&before(390)).unwrap();
    for _ in 0..2 {
        settle(&store);
    }
    store.delete(&store.find(b"fork").unwrap(), 1, 0, None).unwrap();
    settle(&store);
    assert!(!segment_files(directory.path()).contains(&first.unwrap()));
    assert!(Arc::ptr_eq(&attached.find(b"a").unwrap().unwrap(), &known));
    assert_eq!(known.visible().unwrap().first, 39_000);
    assert_eq!(attached.find(b"empty").unwrap().unwrap().id(), empty);
    assert!(attached.find(b"gone").unwrap().is_none() && attached.find(b"fork").unwrap().is_none());
    assert!(known_gone.visible().is_none());
    let mut times = Vec::new();
    while let Some(entry) = cursor.next().unwrap() {
        times.push(entry.time);
    }
    assert_eq!(times[times.len() - 10..], (390..400).collect::<Vec<_>>());
    let read: Vec<u64> =
        attached.reader(&known).entries(&Query::default()).map(|entry| entry.unwrap().time).collect();
    assert_eq!(read, (390..400).collect::<Vec<_>>());
}

/// Bytes of a file that this process has in memory, as the kernel counts them.
fn resident_bytes(file: &Path) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut ours, mut kib) = (false, 0);
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("Rss:"), Some(size)) if ours => kib += size.parse::<u64>().unwrap(),
            (Some(word), _) if !word.ends_with(':') => ours = line.ends_with(&*file.to_string_lossy()),
            _ => {}
        }
    }
    kib << 10
}

#[test]
fn cold_segments_give_their_memory_back_and_are_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let log = store.log(b"a").unwrap();
    append(&store, &log, 0..3000);
    let first = directory.path().join(crate::segment::file_name(3));
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    let known = attached.find(b"a").unwrap().unwrap();
    let readers = [store.reader(&log), attached.reader(&known)];
    for mut reader in readers {
        let read = |reader: &mut crate::Reader| -> Vec<u64> {
            reader.entries(&Query::between(0, 2990)).map(|entry| entry.unwrap().time).collect()
        };
        assert_eq!(read(&mut reader), (0..2990).collect::<Vec<_>>());
        assert_eq!(reader.entries_back(&Query::default()).count(), 3000);
        assert!(resident_bytes(&first) >= 16_384, "{}", resident_bytes(&first));
        let kept = reader.clone();
        let weak = Arc::downgrade(&kept.source.view().all()[2]);
        store.release(1);
        attached.release(1);
        assert_eq!(resident_bytes(&first), 0);
        assert!(store.stats().index_bytes < 10_000, "{}", store.stats().index_bytes);
        let mut entries = reader.entries(&Query::between(0, 2990));
        store.release(1);
        attached.release(1);
        assert_eq!(entries.next().unwrap().unwrap().time, 0);
        assert_eq!(entries.count(), 2989);
        assert_eq!(reader.entries_back(&Query::default()).count(), 3000);
        assert!(weak.upgrade().is_some(), "one reader has not looked since");
        drop((kept, reader));
        assert!(weak.upgrade().is_none());
    }
}
