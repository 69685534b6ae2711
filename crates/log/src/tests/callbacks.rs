//! Watchers that ask for maintenance on the very thread that does some, and callers that ask beside it.

use super::store::{open, small};
use crate::{Disk, Durability, Options, Purge, Store, Watch};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

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
fn a_watcher_that_keeps_house_within_a_checkpoint_leaves_what_is_read_much_to_later_housekeeping() {
    let (_directory, store) = within_a_checkpoint(|store| {
        let log = store.find(b"a").unwrap();
        for _ in 0..8 {
            store.read(&log, 0, usize::MAX).unwrap();
        }
        store.maintain(1_000).unwrap();
    });
    assert_eq!(store.stats().settled_bytes, 0);
    while store.maintain(1_000).unwrap() {}
    let view = store.shared.segments.latest();
    let settled = view.all().iter().filter(|segment| segment.settled().is_some()).count();
    assert_eq!(settled, view.all().len() - 1, "all but the one that is written to");
}

/// Says that it was told, and calls the store once it may.
struct Waits {
    calls: Mutex<Option<Call>>,
}

struct Call {
    store: Store,
    told: Sender<()>,
    may: Receiver<()>,
    call: fn(&Store),
    returned: Sender<()>,
}

impl Watch for Waits {
    fn complete(&self, _: u64) {
        let call = self.calls.lock().take();
        if let Some(Call { store, told, may, call, returned }) = call {
            told.send(()).unwrap();
            may.recv().unwrap();
            call(&store);
            drop(store);
            returned.send(()).unwrap();
        }
    }
    fn failed(&self) {}
    fn advanced(&self, _: u64) {}
}

/// A watcher that is told by the thread that makes the next commit durable.
struct Told {
    told: Receiver<()>,
    may: Sender<()>,
    returned: Receiver<()>,
}

/// Commits for a watcher that calls the store.
fn commit_for_one_that(store: &Store, call: fn(&Store)) -> Told {
    let ((told, is_told), (may_call, may), (returned, has_returned)) = (channel(), channel(), channel());
    let call = Call { store: store.clone(), told, may, call, returned };
    let watcher = store.watcher(Arc::new(Waits { calls: Mutex::new(Some(call)) }));
    let log = store.find(b"a").unwrap();
    let version = log.staged().unwrap().version;
    store.commit(&log, version, &super::store::payload(b"more"), watcher).unwrap();
    Told { told: is_told, may: may_call, returned: has_returned }
}

/// A store with several segments and a committer, and a watcher that it is telling something.
fn telling(directory: &Path, call: fn(&Store)) -> (Store, Told) {
    drop(filled(directory));
    let store = open(directory, Options { durability: Durability::Sync, ..small() });
    let told = commit_for_one_that(&store, call);
    told.told.recv_timeout(PATIENCE).expect("the committer tells it");
    (store, told)
}

/// Looks until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let late = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < late, "{what}");
        std::thread::yield_now();
    }
}

/// The committer waits for the checkpoint, and the thread that writes it for the committer's end.
#[test]
fn a_watcher_that_closes_within_a_checkpoint_does_not_wait_for_one_that_purges_on_the_committer() {
    let directory = tempfile::tempdir().unwrap();
    let (store, purges) = telling(directory.path(), |store| _ = store.purge(&Purge::default()));
    // The committer is busy: it is for the checkpoint to make this durable, and to tell of it.
    let closes = commit_for_one_that(&store, |store| store.close().unwrap());
    let shared = store.shared.clone();
    let (done, ended) = channel();
    std::thread::spawn(move || {
        let written = store.checkpoint();
        drop(store);
        done.send(written)
    });
    closes.told.recv_timeout(PATIENCE).expect("the checkpoint tells it");
    let replacing = &shared.maintenance_locks.replacing;
    let before = *replacing.comers.lock();
    purges.may.send(()).unwrap();
    // Until the purge has come to the files, which the checkpoint is at.
    until("the purge removes no files", || *replacing.comers.lock() != before);
    closes.may.send(()).unwrap();
    closes.returned.recv_timeout(PATIENCE).expect("the one that closes waits for the committer");
    ended.recv_timeout(PATIENCE).expect("the checkpoint ends").unwrap();
    purges.returned.recv_timeout(PATIENCE).expect("the one that purges waits for the checkpoint");
}

#[test]
fn a_watcher_that_closes_while_another_thread_does_ends_with_the_committer() {
    let directory = tempfile::tempdir().unwrap();
    let (store, closes) = telling(directory.path(), |store| store.close().unwrap());
    let (done, ended) = channel();
    let other = store.clone();
    std::thread::spawn(move || {
        let closed = other.close();
        drop(other);
        done.send(closed)
    });
    // The other thread has this lock while it waits for the committer's end.
    until("the other closes nothing", || store.guard.running.try_lock().is_none());
    closes.may.send(()).unwrap();
    closes.returned.recv_timeout(PATIENCE).expect("it waits for the thread that waits for it");
    ended.recv_timeout(PATIENCE).expect("the other closed it, too").unwrap();
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
    let replacing = &store.shared.maintenance_locks.replacing;
    let (maintenance, before) = (replacing.lock(), *replacing.comers.lock());
    let (done, ended) = channel();
    let same = store.clone();
    let purge = std::thread::spawn(move || {
        let purged = same.purge(&Purge::default());
        drop(same);
        done.send(purged)
    });
    // Until it waits, or ends without.
    until("the purge removes no files", || *replacing.comers.lock() != before || purge.is_finished());
    drop(maintenance);
    assert_eq!(ended.recv_timeout(PATIENCE).expect("the purge ends").unwrap().len(), 1);
    assert_eq!(segment_files(directory.path()), 1);
}
