//! Watchers that do on the spot what they may.

use super::refusals::entries;
use super::store::{config, open, payload, small};
use crate::{Durability, Log, Options, Purge, Store, Watch, WatcherId};
use parking_lot::Mutex;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Nobody waits as long, whatever the machine is doing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Looks at the log that moved, and writes to another.
struct Echo {
    store: Mutex<Option<Store>>,
    logs: Mutex<Vec<Weak<Log>>>,
    to: Arc<Log>,
    said: Mutex<Vec<String>>,
}

impl Watch for Echo {
    fn complete(&self, _: u64) {}
    fn failed(&self) {}
    fn advanced(&self, id: u64) {
        let Some(store) = self.store.lock().clone() else { return };
        let logs: Vec<_> = self.logs.lock().iter().filter_map(Weak::upgrade).collect();
        let log = logs.iter().find(|log| log.id() == id).unwrap();
        let watcher = store.watcher(Arc::new(Deaf)).unwrap();
        log.watch(watcher);
        log.unwatch(watcher);
        store.dismiss(watcher);
        let said = match log.visible() {
            Some(state) => format!("{} {} {}", state.first, state.tail, state.closed),
            None => "gone".to_owned(),
        };
        store.append(&self.to, said.as_bytes(), 1).unwrap();
        let mut transaction = store.transaction(1);
        transaction.append(&self.to, b"beside").unwrap();
        transaction.commit().unwrap();
        self.said.lock().push(said);
    }
}

struct Deaf;

impl Watch for Deaf {
    fn complete(&self, _: u64) {}
    fn failed(&self) {}
    fn advanced(&self, _: u64) {}
}

fn echo(store: &Store, logs: &[Arc<Log>]) -> (Arc<Echo>, WatcherId) {
    let echo = Arc::new(Echo {
        store: Mutex::new(Some(store.clone())),
        logs: Mutex::new(logs.iter().map(Arc::downgrade).collect()),
        to: store.log(b"echo").unwrap(),
        said: Mutex::default(),
    });
    let watcher = store.watcher(echo.clone()).unwrap();
    logs.iter().for_each(|log| log.watch(watcher));
    (echo, watcher)
}

/// What is written without a wait for the disk is told of by the thread that writes it, with no lock held.
#[test]
fn a_watcher_may_look_at_the_log_that_moved_and_write_to_another() {
    let directory = tempfile::tempdir().unwrap();
    for durability in [Durability::Memory, Durability::Os] {
        let store = match durability {
            Durability::Memory => Store::memory(small()).unwrap(),
            _ => open(directory.path(), Options { durability, ..small() }),
        };
        let (done, ends) = channel();
        // A thread that locks what it holds would hang.
        std::thread::spawn(move || {
            done.send(says(&store)).unwrap();
        });
        let said = ends.recv_timeout(PATIENCE).expect("it hangs, or panicked");
        let moves =
            ["0 1 false", "0 2 false", "0 3 false", "0 3 false", "0 4 false", "2 4 false", "2 4 true"];
        assert_eq!(said[..7], moves, "{durability:?}");
        assert_eq!(said[7..], ["gone", "gone"], "{durability:?}");
    }
}

/// Moves logs in every way there is; what was said of it.
fn says(store: &Store) -> Vec<String> {
    let [one, other, third] = [b"1", b"2", b"3"].map(|name| store.log(name).unwrap());
    let (echo, watcher) = echo(store, &[one.clone(), other.clone(), third.clone()]);
    let commit = |commit: &crate::Commit<'_>| {
        one.acknowledge(watcher);
        store.commit(&one, one.staged().unwrap().version, commit, None).unwrap();
    };
    store.append(&one, b"1", 1).unwrap();
    one.acknowledge(watcher);
    store.append_all(&one, &[b"2"], 1).unwrap();
    one.acknowledge(watcher);
    let mut transaction = store.transaction(2);
    transaction.append(&one, b"3").unwrap();
    transaction.append(&other, b"333").unwrap();
    transaction.commit().unwrap();
    commit(&payload(b"4"));
    commit(&crate::Commit { trim: Some(2), ..crate::Commit::default() });
    commit(&crate::Commit { close: true, ..crate::Commit::default() });
    one.acknowledge(watcher);
    store.delete(&one, one.staged().unwrap().version, 3, None).unwrap();
    store.purge(&Purge { log: Some(b"3"), destroy: true, ..Purge::default() }).unwrap();
    // What nobody follows is told to nobody.
    let (quiet, _) = store.create(b"4", &config(), None, &payload(b"x"), None).unwrap();
    store.append(&quiet, b"y", 1).unwrap();
    let said = echo.said.lock().clone();
    let told: Vec<_> = entries(store, &echo.to);
    let expected: Vec<_> =
        said.iter().flat_map(|said| [said.as_bytes().to_vec(), b"beside".to_vec()]).collect();
    assert_eq!(told, expected);
    *echo.store.lock() = None;
    said
}
