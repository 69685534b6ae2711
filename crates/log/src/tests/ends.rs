//! The end of a store, and who waits for more of it.

use super::store::{open, payload, small};
use crate::{Cursor, Durability, Ended, Options, Query, Start, Store, Watch};
use parking_lot::{Condvar, Mutex};
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use thalweg_sys::disk::Disk;
use thalweg_sys::disk::sim::SimDisk;

/// Nobody waits as long, whatever the machine is doing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether a task was woken.
#[derive(Default)]
struct Woken {
    is_woken: Mutex<bool>,
    wakes: Condvar,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.is_woken.lock() = true;
        self.wakes.notify_all();
    }
}

/// Has a task begin to wait, the store end, and the task go on. A task and not a thread, since of a task it
/// is known that it sleeps.
fn sleeps_until<T: Future>(waits: T, end: impl FnOnce()) -> T::Output {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    let mut waits = pin!(waits);
    assert!(waits.as_mut().poll(&mut context).is_pending(), "it sleeps");
    end();
    loop {
        let mut is_woken = woken.is_woken.lock();
        let slept = woken.wakes.wait_while_for(&mut is_woken, |is_woken| !*is_woken, PATIENCE);
        assert!(!slept.timed_out(), "nobody woke it");
        *is_woken = false;
        drop(is_woken);
        // It may have been woken for something else.
        if let Poll::Ready(done) = waits.as_mut().poll(&mut context) {
            return done;
        }
    }
}

fn stores() -> impl Iterator<Item = (tempfile::TempDir, Store)> {
    [Durability::Memory, Durability::Os, Durability::Sync].into_iter().map(|durability| {
        let directory = tempfile::tempdir().unwrap();
        let store = match durability {
            Durability::Memory => Store::memory(small()).unwrap(),
            _ => open(directory.path(), Options { durability, ..small() }),
        };
        (directory, store)
    })
}

/// A cursor that has read everything there is.
fn at_the_end(store: &Store) -> Cursor {
    let log = store.log(b"a").unwrap();
    store.flush().unwrap();
    let mut tail = store.reader(&log).follow(&Query::from(Start::Tail));
    assert_eq!(tail.next(), Ok(None));
    tail
}

#[test]
fn whoever_waits_is_told_that_the_last_who_had_the_store_let_go_of_it() {
    for (directory, store) in stores() {
        let mut tail = at_the_end(&store);
        let durability = store.durability();
        sleeps_until(tail.changed(), || drop(store)).unwrap();
        assert_eq!(tail.next(), Ok(None));
        assert_eq!(tail.ended(), Some(Ended::StoreClosed), "{durability:?}");
        drop(tail);
        if durability != Durability::Memory {
            open(directory.path(), Options { durability, ..small() });
        }
    }
}

/// Nobody is left who would make it durable, and visible with that.
#[test]
fn whoever_waits_for_what_is_not_durable_is_told_when_nobody_is_left_to_sync_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { committer_thread: false, ..small() });
    let mut tail = at_the_end(&store);
    store.append(&store.log(b"a").unwrap(), b"lost", 1).unwrap();
    sleeps_until(tail.changed(), || drop(store)).unwrap();
    assert_eq!(tail.next(), Ok(None));
    assert_eq!(tail.ended(), Some(Ended::StoreClosed));
}

/// Lets go of the store that it has, on the thread that tells it of a commit, once somebody sleeps.
struct Last {
    store: Mutex<Option<Store>>,
    told: Mutex<Sender<()>>,
    sleeps: Mutex<Receiver<()>>,
}

impl Watch for Last {
    fn complete(&self, _: u64) {
        let Some(store) = self.store.lock().take() else { return };
        self.told.lock().send(()).unwrap();
        self.sleeps.lock().recv().unwrap();
        drop(store);
    }
    fn failed(&self) {}
    fn advanced(&self, _: u64) {}
}

/// The committer is the last to have the store, also while another commit waits for it that it cannot sync.
#[test]
fn whoever_waits_is_told_when_the_committer_is_the_last_to_have_the_store() {
    for fails in [false, true] {
        let sim = SimDisk::new(0, 1 << 30);
        let (store, _) = Store::open(&Disk::Sim(sim.clone()), Path::new("/store"), small()).unwrap();
        let mut tail = at_the_end(&store);
        let ((told, tells), (sleeps, is_asleep)) = (channel(), channel());
        let last = Last { store: Mutex::default(), told: Mutex::new(told), sleeps: Mutex::new(is_asleep) };
        let last = Arc::new(last);
        let watcher = store.watcher(last.clone());
        *last.store.lock() = Some(store.clone());
        store.create(b"b", &super::store::config(), None, &payload(b"x"), watcher).unwrap();
        tells.recv_timeout(PATIENCE).unwrap();
        if fails {
            sim.fail_sync_after(0);
            store.append(&store.find(b"a").unwrap(), b"lost", 1).unwrap();
        }
        drop((store, last));
        assert_eq!(tail.next(), Ok(None));
        sleeps_until(tail.changed(), || sleeps.send(()).unwrap()).unwrap();
        assert_eq!(tail.next(), Ok(None));
        assert_eq!(tail.ended(), Some(Ended::StoreClosed), "{fails}");
    }
}

#[test]
fn whoever_waits_for_new_logs_is_told_that_the_store_was_closed() {
    for (_directory, store) in stores() {
        let mut new_logs = store.new_logs(false);
        store.log(b"a").unwrap();
        store.flush().unwrap();
        assert!(new_logs.next().unwrap().is_some() && new_logs.next().unwrap().is_none());
        assert_eq!(new_logs.ended(), None);
        sleeps_until(new_logs.changed(), || store.close().unwrap()).unwrap();
        assert!(new_logs.wait(None) && new_logs.next().unwrap().is_none());
        assert_eq!(new_logs.ended(), Some(Ended::StoreClosed));
        let mut late = store.new_logs(true);
        assert!(late.ended().is_none() && late.next().unwrap().is_some() && late.ended().is_some());
    }
}
