//! The store on the real disk, through its public interface.

use crate::{
    Commit, CommitError, Config, Durability, Lifetime, OpenError, Options, Producer, Query, ReadError, Store,
    Touched, Watch,
};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::Disk;
use thalweg_sys::disk::sim::SimDisk;

pub(super) fn config() -> Config {
    Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited }
}

pub(super) fn payload(bytes: &[u8]) -> Commit<'_> {
    Commit { payload: bytes, ..Commit::default() }
}

pub(super) fn open(path: &Path, options: Options) -> Store {
    Store::open(&Disk::Real, path, options).unwrap().0
}

pub(super) fn small() -> Options {
    Options { segment_bytes_min: 4096, segment_bytes_max: 65_536, ..Options::default() }
}

pub(super) fn os() -> Options {
    Options { durability: Durability::Os, ..small() }
}

pub(super) fn append(store: &Store, name: &[u8], bytes: &[u8]) {
    let log = store.find(name).unwrap();
    let version = log.staged().unwrap().version;
    store.commit(&log, version, &payload(bytes), None).unwrap();
}

pub(super) fn content(store: &Store, name: &[u8]) -> Vec<u8> {
    store.read(&store.find(name).unwrap(), 0, usize::MAX).unwrap().pieces.concat()
}

#[test]
fn what_was_committed_reads_back_in_every_mode_and_across_segments() {
    let directory = tempfile::tempdir().unwrap();
    let sync = open(&directory.path().join("sync"), small());
    let written = open(&directory.path().join("os"), os());
    for store in [sync, written, Store::memory(small()).unwrap()] {
        for name in [b"a", b"b"] {
            store.create(name, &config(), None, &payload(b""), None).unwrap();
        }
        let mut expected = Vec::new();
        for index in 0..500u32 {
            let record = format!("record {index};").into_bytes();
            append(&store, b"a", &record);
            append(&store, if index % 3 == 0 { b"b" } else { b"a" }, b"x");
            expected.extend(record);
            expected.extend(if index % 3 == 0 { &b""[..] } else { b"x" });
        }
        store.flush().unwrap();
        assert_eq!(content(&store, b"a"), expected);
        assert_eq!(content(&store, b"b"), vec![b'x'; 167]);
        assert!(store.stats().segments > 1);
    }
}

#[test]
fn reads_end_on_record_boundaries_and_resume_anywhere() {
    let store = Store::memory(small()).unwrap();
    let (log, _) = store.create(b"a", &config(), None, &payload(b"first"), None).unwrap();
    append(&store, b"a", b"second");
    append(&store, b"a", &[b'l'; 9000]);
    let read = store.read(&log, 0, 8).unwrap();
    assert_eq!((read.pieces.concat(), read.next, read.at_tail), (b"first".to_vec(), 5, false));
    let read = store.read(&log, 7, 4).unwrap();
    assert_eq!((read.pieces.concat(), read.next), (b"cond".to_vec(), 11));
    let read = store.read(&log, 11, 1).unwrap();
    assert_eq!((read.pieces.concat().len(), read.next, read.at_tail), (9000, 9011, true));
    let read = store.read(&log, 9011, 1).unwrap();
    assert!(read.pieces.is_empty() && read.at_tail);
    assert_eq!(store.read(&log, 9012, 1), Err(ReadError::PastEnd { from: 9012, tail: 9011 }));
}

#[test]
fn a_commit_against_an_old_version_changes_nothing() {
    let store = Store::memory(small()).unwrap();
    let (log, _) = store.create(b"a", &config(), None, &payload(b"x"), None).unwrap();
    store.commit(&log, 1, &payload(b"y"), None).unwrap();
    assert_eq!(
        store.commit(&log, 1, &payload(b"z"), None),
        Err(CommitError::Conflict { expected: 1, found: 2 })
    );
    assert_eq!(content(&store, b"a"), b"xy");
    assert!(matches!(store.create(b"a", &config(), None, &payload(b""), None), Err(CommitError::Exists)));
}

#[test]
fn a_deleted_name_comes_back_as_another_log() {
    let store = Store::memory(small()).unwrap();
    let (old, _) = store.create(b"a", &config(), None, &payload(b"old"), None).unwrap();
    store.delete(&old, 1, 0, None).unwrap();
    assert!(store.find(b"a").is_none());
    assert_eq!(store.read(&old, 0, 10), Err(ReadError::Deleted));
    assert_eq!(store.commit(&old, 2, &payload(b"z"), None), Err(CommitError::Deleted));
    let (new, _) = store.create(b"a", &config(), None, &payload(b"new"), None).unwrap();
    assert_ne!(old.id(), new.id());
    assert_eq!(content(&store, b"a"), b"new");
}

#[derive(Default)]
struct Heard {
    events: Mutex<Vec<String>>,
}

impl Watch for Heard {
    fn complete(&self, up_to: u64) {
        self.events.lock().push(format!("complete {up_to}"));
    }
    fn failed(&self) {
        self.events.lock().push("failed".into());
    }
    fn advanced(&self, log: u64) {
        self.events.lock().push(format!("advanced {log}"));
    }
}

#[test]
fn visible_implies_durable_and_watchers_hear_once_per_group() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { committer_thread: false, ..small() });
    let heard = Arc::new(Heard::default());
    let watcher = store.watcher(heard.clone());
    let (log, _) = store.create(b"a", &config(), None, &payload(b"1"), watcher).unwrap();
    assert_eq!((log.visible(), log.staged().unwrap().tail), (None, 1));
    assert_eq!(store.read(&log, 0, 10), Err(ReadError::Deleted));
    store.flush().unwrap();
    log.watch(watcher.unwrap());
    append(&store, b"a", b"2");
    let receipt = store.commit(&log, 2, &payload(b"3"), watcher).unwrap();
    assert_eq!(content(&store, b"a"), b"1");
    heard.events.lock().clear();
    store.flush().unwrap();
    assert_eq!(content(&store, b"a"), b"123");
    assert_eq!(
        *heard.events.lock(),
        [format!("advanced {}", log.id()), format!("complete {}", receipt.ticket)]
    );
    append(&store, b"a", b"4");
    heard.events.lock().clear();
    store.flush().unwrap();
    assert!(heard.events.lock().is_empty(), "not acknowledged, so not announced again");
}

#[test]
fn what_is_durable_is_shown_to_whoever_waited_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { committer_thread: false, ..small() });
    let (log, created) = store.create(b"a", &config(), None, &payload(b"1"), None).unwrap();
    let (own, theirs) = (store.clone(), log.clone());
    let looks = move || {
        assert_eq!(theirs.visible().map(|state| state.tail), Some(1), "shown");
        assert_eq!(own.since(&theirs, 0), Ok(Some(0)), "and found by its time");
        assert_eq!(own.wait_for(created.ticket, None), Ok(created.ticket), "before anybody stops waiting");
    };
    *store.shared.probes.before_words.lock() = Some(Box::new(looks));
    store.flush().unwrap();
    assert!(store.shared.probes.before_words.lock().is_none());
    assert_eq!(store.wait_for(created.ticket, None), Ok(0));
}

#[test]
fn a_log_whose_deletion_waits_for_the_disk_is_not_handed_out_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { committer_thread: false, ..small() });
    let log = store.log(b"a").unwrap();
    store.append(&log, b"old", 1).unwrap();
    store.flush().unwrap();
    store.delete(&log, log.staged().unwrap().version, 2, None).unwrap();
    let anew = store.log(b"a").unwrap();
    assert!(anew.id() > log.id());
    store.append(&anew, b"new", 3).unwrap();
    store.flush().unwrap();
    assert_eq!(content(&store, b"a"), b"new");
    assert!(Arc::ptr_eq(&store.log(b"a").unwrap(), &anew));
}

#[test]
fn the_committer_thread_makes_commits_durable_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), small());
    let heard = Arc::new(Heard::default());
    let watcher = store.watcher(heard.clone());
    store.create(b"a", &config(), None, &payload(b"1"), watcher).unwrap();
    let started = std::time::Instant::now();
    while heard.events.lock().is_empty() {
        assert!(started.elapsed().as_secs() < 60, "no group was committed");
        std::thread::yield_now();
    }
    assert_eq!(content(&store, b"a"), b"1");
}

#[test]
fn many_writers_interleave_without_loss() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), small());
    for name in [b"a", b"b", b"c", b"d"] {
        store.create(name, &config(), None, &payload(b""), None).unwrap();
    }
    std::thread::scope(|scope| {
        for name in [b"a", b"b", b"c", b"d"] {
            let store = store.clone();
            scope.spawn(move || (0..300u32).for_each(|index| append(&store, name, &index.to_le_bytes())));
        }
    });
    store.flush().unwrap();
    let expected: Vec<u8> = (0..300u32).flat_map(u32::to_le_bytes).collect();
    for name in [b"a", b"b", b"c", b"d"] {
        assert_eq!(content(&store, name), expected);
    }
}

#[test]
fn a_clean_close_reopens_without_replay_and_with_everything() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), small());
    let (log, _) = store.create(b"a", &config(), None, &payload(b"kept"), None).unwrap();
    let producer = Producer { epoch: 3, seq: 4 };
    let commit = Commit {
        producer: Some((b"p", producer)),
        writer_seq: Some(b"w1"),
        close: true,
        ..Commit::default()
    };
    store.commit(&log, 1, &commit, None).unwrap();
    store.close().unwrap();
    for (late, error) in [(&b""[..], CommitError::Closed), (b"late", CommitError::LogClosed)] {
        assert_eq!(store.commit(&log, 2, &payload(late), None), Err(error));
    }
    drop((log, store));
    let (store, report) = Store::open(&Disk::Real, directory.path(), small()).unwrap();
    assert_eq!((report.logs, report.batches, report.clean, report.discarded_bytes), (1, 0, true, 0));
    let log = store.find(b"a").unwrap();
    let state = log.staged().unwrap();
    assert_eq!(
        (state.tail, state.closed, state.version, state.writer_seq.as_deref()),
        (4, true, 2, Some(&b"w1"[..]))
    );
    assert_eq!((log.producer(b"p"), state.closed_by.unwrap().producer), (Some(producer), producer));
    assert_eq!(content(&store, b"a"), b"kept");
}

#[test]
fn a_second_opener_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let _store = open(directory.path(), os());
    let error = Store::open(&Disk::Real, directory.path(), os()).err().unwrap();
    assert!(matches!(error, OpenError::Held { .. }));
    assert!(error.to_string().contains("held by this process"), "{error}");
}

#[test]
fn a_newer_store_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path(), os()));
    let control = directory.path().join("control");
    let mut bytes = std::fs::read(&control).unwrap();
    bytes[8] = 99;
    std::fs::write(&control, &bytes).unwrap();
    let error = Store::open(&Disk::Real, directory.path(), os()).err().unwrap();
    assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
    assert_eq!(std::fs::read(&control).unwrap(), bytes);
}

/// A store of two logs, closed uncleanly, and the place of the second's payload in its segment.
fn damaged(directory: &Path, needle: &[u8]) {
    let store = open(directory, os());
    for name in [b"a", b"b", b"c"] {
        store.create(name, &config(), None, &payload(b""), None).unwrap();
    }
    append(&store, b"a", b"alpha");
    append(&store, b"b", b"beta!");
    append(&store, b"c", b"gamma");
    store.flush().unwrap();
    drop(store);
    let segment = directory.join("segment-0000000001");
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
}

#[test]
fn damage_is_named_and_only_the_logs_it_touches_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    damaged(directory.path(), b"beta!");
    let report = crate::verify(&Disk::Real, directory.path()).unwrap();
    assert_eq!(report.damage.len(), 1, "{report:?}");
    let (store, report) = Store::open(&Disk::Real, directory.path(), os()).unwrap();
    let log = store.find(b"b").unwrap();
    assert_eq!(report.damage.len(), 1);
    assert_eq!(report.damage[0].logs, Touched::These(vec![log.id()]));
    assert!(report.damage[0].resumes.is_some() && report.damage[0].file == "segment-0000000001");
    assert!(matches!(store.read(&log, 0, 10), Err(ReadError::Damaged(_))));
    assert!(matches!(
        store.commit(&log, log.staged().unwrap().version, &payload(b"x"), None),
        Err(CommitError::Damaged(_))
    ));
    assert_eq!((content(&store, b"a"), content(&store, b"c")), (b"alpha".to_vec(), b"gamma".to_vec()));
    append(&store, b"a", b"+");
    assert_eq!(content(&store, b"a"), b"alpha+");
}

#[test]
fn damage_behind_a_checkpoint_is_found_by_the_first_read() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    store.create(b"a", &config(), None, &payload(b"alpha"), None).unwrap();
    store.close().unwrap();
    drop(store);
    let segment = directory.path().join("segment-0000000001");
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(5).position(|window| window == b"alpha").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let store = open(directory.path(), os());
    let log = store.find(b"a").unwrap();
    assert!(matches!(store.read(&log, 0, 10), Err(ReadError::Damaged(_))));
}

#[test]
fn segments_nobody_needs_are_removed_behind_the_checkpoints() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    store.create(b"keep", &config(), None, &payload(b"kept"), None).unwrap();
    for round in 0..40u32 {
        let name = round.to_le_bytes();
        let (log, _) = store.create(&name, &config(), None, &payload(&[7; 8000]), None).unwrap();
        store.delete(&log, 1, 0, None).unwrap();
    }
    let before = store.stats().segments;
    store.checkpoint().unwrap();
    assert_eq!(store.stats().segments, before, "one checkpoint alone might turn out damaged");
    store.create(b"more", &config(), None, &payload(b""), None).unwrap();
    store.checkpoint().unwrap();
    assert!(store.stats().segments < before, "{before}");
    let files = std::fs::read_dir(directory.path()).unwrap().count() as u64;
    // Control, signal, lock, the reserve, and two checkpoints.
    assert!(files <= store.stats().segments + 6, "{files}");
    drop(store);
    assert_eq!(content(&open(directory.path(), os()), b"keep"), b"kept");
}

#[test]
fn a_commit_that_no_segment_holds_is_refused_whole() {
    let store = Store::memory(small()).unwrap();
    let (log, _) = store.create(b"a", &config(), None, &payload(b""), None).unwrap();
    let error = store.commit(&log, 1, &payload(&vec![1; 70_000]), None).unwrap_err();
    assert!(matches!(error, CommitError::TooLarge { limit: 65_472, .. }), "{error}");
    assert_eq!(log.staged().unwrap().version, 1);
}

#[test]
fn what_nobody_accesses_is_deleted_when_its_time_is_over_and_not_before() {
    let store = Store::memory(small()).unwrap();
    let lifetime = |lifetime| Config { content_type: "text/plain".into(), lifetime };
    let at = |time| Commit { time, ..Commit::default() };
    store.create(b"sliding", &lifetime(Lifetime::Sliding { ttl_s: 2 }), None, &at(1_000_000), None).unwrap();
    store.create(b"renewed", &lifetime(Lifetime::Sliding { ttl_s: 2 }), None, &at(1_000_000), None).unwrap();
    store
        .create(b"until", &lifetime(Lifetime::Until { expires_us: 5_000_000 }), None, &at(1_000_000), None)
        .unwrap();
    store.create(b"forever", &lifetime(Lifetime::Unlimited), None, &at(1_000_000), None).unwrap();
    store.find(b"renewed").unwrap().touch(2_500_000);
    assert_eq!(store.expire(2_999_999), 0);
    assert_eq!(store.expire(3_000_000), 1);
    assert!(store.find(b"sliding").is_none() && store.find(b"renewed").is_some());
    assert_eq!(store.expire(4_499_999), 0);
    assert_eq!(store.expire(5_000_000), 2);
    assert_eq!(store.stats().logs, 1);
}

#[test]
fn what_is_appended_to_while_it_is_judged_is_not_deleted() {
    let store = Store::memory(small()).unwrap();
    let config = Config { content_type: "text/plain".into(), lifetime: Lifetime::Sliding { ttl_s: 1 } };
    let (log, _) = store.create(b"a", &config, None, &payload(b"1"), None).unwrap();
    let (own, theirs) = (store.clone(), log.clone());
    let appends = move || assert!(own.append(&theirs, b"2", 5_000_000).is_ok());
    *store.shared.probes.before_verdict.lock() = Some(Box::new(appends));
    assert_eq!(store.expire(5_000_000), 0);
    assert_eq!(content(&store, b"a"), b"12");
    assert_eq!((store.expire(5_999_999), store.expire(6_000_000)), (0, 1));
}

#[test]
fn cold_bytes_are_known_before_they_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let (log, _) = store.create(b"a", &config(), None, &payload(&[7; 9000]), None).unwrap();
    assert!(store.needs_disk(&log, 0, 10).is_none(), "just written");
    (0..20).for_each(|_| append(&store, b"a", &[8; 9000]));
    store.close().unwrap();
    drop((log, store));
    let store = open(directory.path(), os());
    let log = store.find(b"a").unwrap();
    let prefetch = store.needs_disk(&log, 0, 10).expect("never read by this process");
    prefetch.run();
    assert!(store.needs_disk(&log, 0, 10).is_none());
    assert_eq!(store.read(&log, 0, 10).unwrap().pieces.concat(), vec![7; 9000]);
}

#[test]
fn memory_that_no_log_needs_is_given_back() {
    let store = Store::memory(small()).unwrap();
    for round in 0..200u32 {
        let (log, _) =
            store.create(&round.to_le_bytes(), &config(), None, &payload(&[7; 30_000]), None).unwrap();
        store.delete(&log, 1, 0, None).unwrap();
    }
    assert!(store.stats().segments <= 2, "{:?}", store.stats());
    assert!(
        store.shared.writer.lock().next_group.sealed.is_empty(),
        "segments are kept for a sync that never comes"
    );
}

#[test]
fn opening_counts_as_an_access() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let config = Config { lifetime: Lifetime::Sliding { ttl_s: 2 }, ..config() };
    store.create(b"a", &config, None, &Commit { time: 1_000_000, ..Commit::default() }, None).unwrap();
    drop(store);
    let store = open(directory.path(), Options { opened_at: 9_000_000, ..os() });
    assert_eq!(store.find(b"a").unwrap().accessed(), 9_000_000);
    assert_eq!((store.expire(10_999_999), store.expire(11_000_000)), (0, 1));
}

#[test]
fn a_damaged_checkpoint_costs_replay_time_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    store.create(b"keep", &config(), None, &payload(b"kept"), None).unwrap();
    store.checkpoint().unwrap();
    for round in 0..20u32 {
        let (log, _) =
            store.create(&round.to_le_bytes(), &config(), None, &payload(&[7; 8000]), None).unwrap();
        store.delete(&log, 1, 0, None).unwrap();
    }
    append(&store, b"keep", b" well");
    store.close().unwrap();
    drop(store);
    let names = std::fs::read_dir(directory.path()).unwrap().flatten().map(|entry| entry.path());
    let newest = names.filter(|path| path.to_string_lossy().contains("checkpoint-")).max().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&newest, bytes).unwrap();
    let (store, report) = Store::open(&Disk::Real, directory.path(), os()).unwrap();
    assert!(report.batches > 20 && report.unnamed.is_none(), "{report:?}");
    assert_eq!(content(&store, b"keep"), b"kept well");
}

#[test]
fn whoever_begins_to_wait_while_a_group_is_under_way_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { committer_thread: false, ..small() });
    let (writes, waits) = (store.watcher(Arc::new(Heard::default())), Arc::new(Heard::default()));
    let waiter = store.watcher(waits.clone());
    let (_, receipt) = store.create(b"a", &config(), None, &payload(b""), writes).unwrap();
    let late = store.clone();
    let begins =
        move || assert_eq!(late.wait_for(receipt.ticket, waiter), Ok(receipt.ticket), "not durable yet");
    *store.shared.probes.before_sync.lock() = Some(Box::new(begins));
    store.flush().unwrap();
    assert!(store.shared.probes.before_sync.lock().is_none(), "it began while the group was under way");
    assert_eq!(*waits.events.lock(), [format!("complete {}", receipt.ticket)]);
    assert_eq!(store.wait_for(receipt.ticket, waiter), Ok(0), "nothing is left to wait for");
}

#[test]
fn a_new_store_does_not_give_out_the_ids_of_an_earlier_one() {
    for opened_at in [1_700_000_000_000_000, 1_800_000_000_000_000] {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { opened_at, ..os() };
        for store in [Store::memory(options.clone()).unwrap(), open(directory.path(), options)] {
            let (log, _) = store.create(b"a", &config(), None, &payload(b""), None).unwrap();
            assert!(log.id() >= opened_at);
        }
    }
}

#[test]
fn what_is_visible_stays_so_when_a_sync_began_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let log = store.log(b"a").unwrap();
    store.append(&log, b"one", 1).unwrap();
    let (own, theirs) = (store.clone(), log.clone());
    let meanwhile = move || assert!(own.append(&theirs, b"two", 2).is_ok());
    *store.shared.probes.before_sync.lock() = Some(Box::new(meanwhile));
    store.flush().unwrap();
    let mut reader = store.reader(&log);
    assert_eq!(reader.entries(&Query::default()).filter_map(Result::ok).count(), 2);
}

#[test]
fn segments_are_made_of_whole_pages_whatever_their_bounds() {
    for (min, max) in [(1_003_520, 1_003_520), (4096, 8192), (8192, 12_288), (1 << 30, 1 << 30)] {
        let options = Options { segment_bytes_min: min, segment_bytes_max: max, ..Options::default() };
        let store = Store::memory(options).unwrap();
        let log = store.log(b"a").unwrap();
        for round in 0..40 {
            store.append(&log, &[round; 4_000], 1).unwrap();
        }
        assert_eq!(content(&store, b"a").len(), 160_000);
    }
}

#[test]
fn a_commit_to_more_logs_than_one_may_have_is_refused_whole() {
    let store = Store::memory(Options::default()).unwrap();
    let mut transaction = store.transaction(1);
    for number in 0..=u16::MAX {
        let log = store.log(format!("log-{number}").as_bytes()).unwrap();
        transaction.append(&log, b"x").unwrap();
    }
    let error = transaction.commit().unwrap_err();
    assert_eq!(error, CommitError::TooManyLogs { logs: 65_536, limit: 65_535 });
    let log = store.find(b"log-0").unwrap();
    assert_eq!((log.visible().unwrap().tail, log.staged().unwrap().tail), (0, 0));
    store.append(&log, b"goes on", 2).unwrap();
    assert_eq!(content(&store, b"log-0"), b"goes on");
}

#[test]
fn whoever_begins_to_wait_for_a_store_that_failed_is_told_so() {
    let disk = SimDisk::new(3, 64 << 20);
    let options = Options { committer_thread: false, ..small() };
    let (store, _) = Store::open(&Disk::Sim(disk.clone()), Path::new("/store"), options).unwrap();
    let watcher = store.watcher(Arc::new(Heard::default()));
    let log = store.log(b"a").unwrap();
    let receipt = store.append(&log, b"x", 1).unwrap();
    assert_eq!(store.wait_for(receipt.ticket, watcher), Ok(receipt.ticket));
    disk.fail_sync_after(0);
    store.flush().unwrap_err();
    assert!(matches!(store.wait_for(receipt.ticket, watcher), Err(CommitError::Failed(_))));
}

#[test]
fn the_place_of_a_watcher_that_was_dismissed_is_the_next_ones() {
    let store = Store::memory(small()).unwrap();
    let watchers: Vec<_> = (0..32).map(|_| store.watcher(Arc::new(Heard::default())).unwrap()).collect();
    assert_eq!(store.watcher(Arc::new(Heard::default())), None);
    store.dismiss(watchers[7]);
    assert_eq!(store.watcher(Arc::new(Heard::default())), Some(watchers[7]));
}

#[test]
fn verification_counts_the_logs_that_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), small());
    for name in [b"a", b"b", b"c", b"d"] {
        store.create(name, &config(), None, &payload(b"old"), None).unwrap();
    }
    let delete = |name: &[u8]| {
        let log = store.find(name).unwrap();
        store.delete(&log, log.staged().unwrap().version, 0, None).unwrap();
    };
    delete(b"a");
    for _ in 0..2 {
        append(&store, b"b", b"more");
        store.rotate().unwrap();
        store.checkpoint().unwrap();
    }
    assert_eq!(crate::verify(&Disk::Real, directory.path()).unwrap().logs, 3);
    delete(b"b");
    store.create(b"e", &config(), None, &payload(b"new"), None).unwrap();
    append(&store, b"c", b"new");
    store.flush().unwrap();
    assert_eq!(crate::verify(&Disk::Real, directory.path()).unwrap().logs, store.stats().logs);
}

/// Of a log that a power cut took, whose id somebody may have been told.
#[test]
fn ids_that_a_power_cut_took_are_not_given_out_again() {
    let path = Path::new("/store");
    let options = |opened_at| Options { opened_at, committer_thread: false, ..os() };
    let opened = |disk: &SimDisk, at| Store::open(&Disk::Sim(disk.clone()), path, options(at)).unwrap().0;
    let cut = |seed| {
        let disk = SimDisk::new(seed, 8 << 20);
        let store = opened(&disk, 1_000);
        store.log(b"kept").unwrap();
        store.flush().unwrap();
        let lost = store.log(b"lost").unwrap().id();
        (disk.crash(), lost)
    };
    let forgets = |(disk, lost): &(SimDisk, u64)| {
        // Nothing is under way to this one, so that another crash changes nothing.
        let probe = opened(&disk.crash(), 0);
        probe.find(b"lost").is_none() && probe.log(b"probe").unwrap().id() == *lost
    };
    let (disk, lost) = (1..100).map(cut).find(forgets).unwrap();
    for closes_first in [false, true] {
        let disk = disk.crash();
        if closes_first {
            opened(&disk, 2_000_000).close().unwrap();
        }
        // As of its opening before, should it have been one.
        let store = opened(&disk, if closes_first { 0 } else { 2_000_000 });
        assert!(
            store.log(b"other").unwrap().id() >= 2_000_000,
            "{lost}, after a close first: {closes_first}"
        );
    }
}
