//! Where batches are put down: what a turn commits is staged until its sync, and is nowhere to be missed
//! meanwhile.

use super::store::{append, config, content, open, payload, small};
use crate::{Commit, CommitError, Options, Query, ReadError, Store, Watch, WatcherId};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::Disk;
use thalweg_sys::disk::sim::SimDisk;

struct Deaf;

impl Watch for Deaf {
    fn complete(&self, _: u64) {}
    fn failed(&self) {}
    fn advanced(&self, _: u64) {}
}

/// A store whose syncs are said to be quick, and who commits to it in turns.
fn turns(path: &Path) -> (Store, WatcherId) {
    begun(open(path, Options { committer_thread: false, ..small() }))
}

fn begun(store: Store) -> (Store, WatcherId) {
    store.create(b"a", &config(), None, &payload(b"0"), None).unwrap();
    store.flush().unwrap();
    store.shared.writer.lock().lead.sync_ns = 0;
    let watcher = store.watcher(Arc::new(Deaf)).unwrap().commits_in_turns();
    (store, watcher)
}

fn stage(store: &Store, bytes: &[u8], watcher: WatcherId) {
    let log = store.find(b"a").unwrap();
    let version = log.staged().unwrap().version;
    store.commit(&log, version, &payload(bytes), Some(watcher)).unwrap();
}

/// What somebody reads who does not wait for syncs.
fn uncommitted(store: &Store) -> Vec<u8> {
    let mut reader = store.reader(&store.find(b"a").unwrap());
    let query = Query { uncommitted: true, ..Query::default() };
    reader.entries(&query).flat_map(|entry| entry.unwrap().data.to_vec()).collect()
}

#[test]
fn what_a_turn_commits_comes_into_the_file_at_its_end_and_by_one_call() {
    let directory = tempfile::tempdir().unwrap();
    let (store, watcher) = turns(directory.path());
    let (written, before) = (store.shared.control.file_end(), store.staged_end());
    for byte in b"123" {
        stage(&store, &[*byte], watcher);
    }
    assert!(store.staged_end() > before, "it moves with every commit");
    assert_eq!((store.shared.control.file_end(), uncommitted(&store)), (written, b"0".to_vec()));
    assert_eq!(content(&store, b"a"), b"0", "the extent goes on behind what is there");
    store.end_turn(watcher);
    assert_eq!(store.shared.control.file_end(), store.staged_end());
    assert_eq!((content(&store, b"a"), uncommitted(&store)), (b"0123".to_vec(), b"0123".to_vec()));
}

#[test]
fn whoever_judges_by_what_is_staged_may_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let (store, watcher) = turns(directory.path());
    stage(&store, b"judged", watcher);
    let record = store.record(&store.find(b"a").unwrap(), 1).unwrap();
    assert_eq!(record.pieces.concat(), b"judged");
    assert_eq!(content(&store, b"a"), b"0", "which shows it to nobody else");
}

#[test]
fn what_is_committed_otherwise_goes_behind_what_is_staged() {
    let directory = tempfile::tempdir().unwrap();
    let (store, watcher) = turns(directory.path());
    stage(&store, b"1", watcher);
    append(&store, b"a", b"2");
    assert_eq!(uncommitted(&store), b"012");
    stage(&store, b"3", watcher);
    // More than is ever staged, and more than is left of the segment.
    for _ in 0..3 {
        stage(&store, &[b'x'; 9000], watcher);
    }
    stage(&store, b"4", watcher);
    let wanted = [&b"0123"[..], &[b'x'; 27_000], b"4"].concat();
    assert_eq!(uncommitted(&store), wanted[..wanted.len() - 1]);
    assert!(store.stats().segments > 1);
    drop(store);
    // The process that died had not been told of it.
    assert_eq!(content(&open(directory.path(), small()), b"a"), wanted[..wanted.len() - 1]);
}

/// Counts what it is told.
#[derive(Default)]
struct Told {
    complete: Mutex<u32>,
    failed: Mutex<u32>,
}

impl Watch for Told {
    fn complete(&self, _: u64) {
        *self.complete.lock() += 1;
    }
    fn failed(&self) {
        *self.failed.lock() += 1;
    }
    fn advanced(&self, _: u64) {}
}

/// The call of a turn's end, that of a batch of its own, and the one in front of another segment.
#[test]
fn a_call_that_fails_stops_the_store_and_nothing_that_it_was_to_write_is_acknowledged() {
    type Act = fn(&Store) -> Result<(), CommitError>;
    let commit = |store: &Store| store.append(&store.find(b"a").unwrap(), &[b'x'; 300], 1).map(drop);
    let ways: [(&str, Act); 3] =
        [("turn", |_| Ok(())), ("batch", commit), ("segment", |store| store.rotate())];
    for seed in 0..32 {
        for (way, act) in ways {
            let sim = SimDisk::new(seed, 8 << 20);
            let options = Options { committer_thread: false, ..small() };
            let open = |sim: &SimDisk| {
                Store::open(&Disk::Sim(sim.clone()), Path::new("/store"), options.clone()).unwrap().0
            };
            let (store, watcher) = begun(open(&sim));
            let told = Arc::new(Told::default());
            store.watcher(told.clone()).unwrap();
            b"123".iter().for_each(|byte| stage(&store, &[*byte], watcher));
            sim.fail_write_after(0);
            assert!(act(&store).is_ok() == (way == "turn"), "{way}");
            store.end_turn(watcher);
            assert!(!sim.fails_a_write(), "no call was made");
            assert!(store.flush().is_err());
            assert_eq!((*told.failed.lock(), *told.complete.lock()), (1, 0), "{way}");
            // The disk may say what it likes from now on.
            sim.mend();
            assert!(matches!(commit(&store), Err(CommitError::Failed(_))), "{way}");
            assert!(store.persist(store.staged_end()).is_err() && store.flush().is_err());
            assert!(store.has_failed() && store.stats().failed);
            assert_eq!((content(&store, b"a"), uncommitted(&store)), (b"0".to_vec(), b"0".to_vec()), "{way}");
            let record = store.record(&store.find(b"a").unwrap(), 1);
            assert!(matches!(record, Err(ReadError::Io { .. })), "it is in no file");
            assert_eq!(*told.failed.lock(), 1, "{way}");
            // Nobody was told of it, so it may be there or not.
            let found = content(&open(&sim.crash()), b"a");
            let wanted = [&b"0123"[..], &[b'x'; 300]].concat();
            assert!(found.starts_with(b"0") && wanted.starts_with(&found), "{way}, seed {seed}");
        }
    }
}

#[test]
fn a_close_makes_what_is_staged_durable() {
    let directory = tempfile::tempdir().unwrap();
    let (store, watcher) = turns(directory.path());
    stage(&store, b"1", watcher);
    store.close().unwrap();
    drop(store);
    assert_eq!(content(&open(directory.path(), small()), b"a"), b"01");
}

/// Two turns at once fill the store together, while others read what is durable: never less, never torn.
#[test]
fn readers_beside_turns_see_whole_prefixes() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = turns(directory.path());
    let done = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u8)
            .map(|writer| {
                let store = store.clone();
                scope.spawn(move || {
                    let watcher = store.watcher(Arc::new(Deaf)).unwrap().commits_in_turns();
                    let name = [b'w', writer];
                    store.create(&name, &config(), None, &Commit::default(), Some(watcher)).unwrap();
                    let log = store.find(&name).unwrap();
                    for turn in 0..200u32 {
                        for entry in 0..turn % 5 {
                            let version = log.staged().unwrap().version;
                            let bytes = [(turn % 251) as u8; 40];
                            let commit = payload(&bytes[..10 + entry as usize]);
                            store.commit(&log, version, &commit, Some(watcher)).unwrap();
                        }
                        store.end_turn(watcher);
                        if turn % 16 == 15 {
                            store.flush().unwrap();
                        }
                    }
                })
            })
            .collect();
        let store = &store;
        let reader = scope.spawn(move || {
            let mut reads = 0;
            while !writers.iter().all(|writer| writer.is_finished()) {
                for name in [[b'w', 0], [b'w', 1]] {
                    let Some(log) = store.find(&name).filter(|log| log.visible().is_some()) else { continue };
                    let seen = log.visible().unwrap().tail;
                    let read = store.read(&log, 0, usize::MAX).unwrap();
                    assert!(read.at_tail && read.next >= seen);
                    assert!(read.pieces.concat().is_sorted_by(|a, b| a <= b || *b == 0));
                    reads += 1;
                }
            }
            reads
        });
        reader.join().unwrap()
    });
    assert!(done > 0);
    store.flush().unwrap();
    for name in [[b'w', 0], [b'w', 1]] {
        let wanted: usize =
            (0..200).map(|turn: usize| (0..turn % 5).map(|entry| 10 + entry).sum::<usize>()).sum();
        assert_eq!(content(&store, &name).len(), wanted);
    }
}

/// A caller that asks for the record at the staged end, while others stage behind it, gets it or what there
/// is by now.
#[test]
fn a_record_is_found_however_others_stage_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let (store, watcher) = turns(directory.path());
    let (log, done) = (store.find(b"a").unwrap(), std::sync::Mutex::new(false));
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let mut records = 0;
            while !*done.lock().unwrap() {
                let from = log.staged().unwrap().tail;
                let read = store.record(&log, from).unwrap();
                assert!(read.pieces.concat().iter().all(|byte| *byte == b'r'));
                records += usize::from(read.next > from);
            }
            records
        });
        for turn in 0..20_000u32 {
            stage(&store, b"rrrr", watcher);
            if turn % 8 == 7 {
                store.end_turn(watcher);
            }
        }
        *done.lock().unwrap() = true;
        asks.join().unwrap();
    });
}
