//! Watchers that ask for maintenance on the very thread that does some, and callers that ask beside it.

use super::store::{open, small};
use crate::{Disk, Durability, Options, Purge, Store, Watch};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Nobody waits as long, whatever the machine is doing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Calls the store as soon as something is durable, once.
struct CallsBack {
    store: Mutex<Option<Store>>,
    call: fn(&Store),
}

impl Watch for CallsBack {
    fn complete(&self, _: u64) {
        if let Some(store) = self.store.lock().take() {
            (self.call)(&store);
        }
    }
    fn failed(&self) {}
    fn advanced(&self, _: u64) {}
}

/// A store with several segments, in which nothing becomes durable by itself.
fn filled(directory: &Path) -> Store {
    let options = Options { durability: Durability::Sync, committer_thread: false, ..small() };
    let store = open(directory, options);
    let log = store.log(b"a").unwrap();
    for time in 1..=400 {
        store.append(&log, &[7; 100], time).unwrap();
    }
    store.flush().unwrap();
    store
}

fn segment_files(directory: &Path) -> usize {
    let names = Disk::Real.names(directory).unwrap();
    names.iter().filter(|name| name.starts_with("segment-")).count()
}

/// Has a watcher call the store while a checkpoint makes durable what it speaks of.
fn within_a_checkpoint(call: fn(&Store)) -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path());
    let watch = Arc::new(CallsBack { store: Mutex::new(Some(store.clone())), call });
    let watcher = store.watcher(watch.clone());
    let log = store.find(b"a").unwrap();
    let version = log.staged().unwrap().version;
    store.commit(&log, version, &super::store::payload(b"more"), watcher).unwrap();
    let (done, ended) = channel();
    let same = store.clone();
    std::thread::spawn(move || {
        let written = same.checkpoint();
        // The directory is free once the last clone is gone.
        drop(same);
        done.send(written)
    });
    ended.recv_timeout(PATIENCE).expect("the thread waits for itself").unwrap();
    assert!(watch.store.lock().is_none(), "it was told");
    (directory, store)
}

#[test]
fn a_watcher_that_asks_for_a_checkpoint_within_one_does_not_wait_for_itself() {
    let (_directory, store) = within_a_checkpoint(|store| store.checkpoint().unwrap());
    assert_eq!(store.shared.checkpoints.lock().len(), 1);
    store.checkpoint().unwrap();
    assert_eq!(store.shared.checkpoints.lock().len(), 1, "nothing was written since");
}

#[test]
fn a_watcher_that_purges_within_a_checkpoint_has_the_files_removed_by_a_later_one() {
    let (directory, store) = within_a_checkpoint(|store| {
        assert_eq!(store.purge(&Purge::default()).unwrap().len(), 1);
    });
    assert!(segment_files(directory.path()) > 3);
    for _ in 0..2 {
        store.shared.make_room().unwrap();
        store.checkpoint().unwrap();
    }
    assert_eq!(segment_files(directory.path()), 1);
}

#[test]
fn a_watcher_that_keeps_house_or_closes_within_a_checkpoint_does_not_wait_for_itself() {
    let (_directory, store) = within_a_checkpoint(|store| _ = store.maintain(1_000).unwrap());
    drop(store);
    let (directory, store) = within_a_checkpoint(|store| store.close().unwrap());
    drop(store);
    let (store, found) = Store::open(&Disk::Real, directory.path(), small()).unwrap();
    assert!(found.clean && found.damage.is_empty());
    assert_eq!(super::store::content(&store, b"a").len(), 400 * 100 + 4);
}

#[test]
fn a_purge_beside_other_maintenance_removes_its_files_before_it_returns() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path());
    assert!(segment_files(directory.path()) > 3);
    let maintenance = store.shared.maintenance_locks.replacing.lock();
    std::thread::scope(|scope| {
        let purge = scope.spawn(|| store.purge(&Purge::default()));
        // Long enough for one that would not wait.
        std::thread::sleep(Duration::from_millis(100));
        drop(maintenance);
        assert_eq!(purge.join().unwrap().unwrap().len(), 1);
    });
    assert_eq!(segment_files(directory.path()), 1);
}
