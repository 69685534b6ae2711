//! Who commits in turns leads its groups itself, unless somebody is at it or it would take long.

use super::store::{config, open, payload, small};
use crate::committer::SYNC_NS_MAX;
use crate::{Options, Receipt, Store, Watch, WatcherId};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Syncs of no more than this are quick, whatever the machine is doing: the average is set.
const QUICK_NS: u64 = 1;

#[derive(Default)]
struct Told(Mutex<Vec<u64>>);

impl Watch for Told {
    fn complete(&self, up_to: u64) {
        self.0.lock().push(up_to);
    }
    fn failed(&self) {}
    fn advanced(&self, _: u64) {}
}

fn carrying(store: &Store) -> (Arc<Told>, Option<WatcherId>) {
    let told = Arc::new(Told::default());
    (told.clone(), store.watcher(told).map(WatcherId::carrying))
}

fn create(store: &Store, name: &[u8], watcher: Option<WatcherId>) -> Receipt {
    store.create(name, &config(), None, &payload(b"1"), watcher).unwrap().1
}

/// A store that has synced before, whose syncs are said to take so long.
fn store(path: &std::path::Path, options: Options, sync_ns: u64) -> Store {
    let store = open(path, options);
    create(&store, b"before", None);
    store.flush().unwrap();
    store.shared.writer.lock().lead.sync_ns = sync_ns;
    store
}

#[test]
fn the_end_of_a_turn_makes_its_commits_durable_in_one_group() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), Options { committer_thread: false, ..small() }, QUICK_NS);
    let groups = store.groups().batches.sum;
    let (told, watcher) = carrying(&store);
    create(&store, b"a", watcher);
    let last = create(&store, b"b", watcher);
    assert!(!store.shared.writer.lock().lead.owed, "nobody else is asked");
    assert!(store.durable() < last.ticket);
    store.carry();
    assert_eq!((store.durable(), &told.0.lock()[..]), (last.ticket, &[last.ticket][..]));
    store.carry();
    assert_eq!(store.groups().batches.sum, groups + 2, "there was nothing more to do");
}

#[test]
fn where_syncs_take_long_the_committer_is_asked_and_the_turn_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), Options { committer_thread: false, ..small() }, SYNC_NS_MAX);
    let (told, watcher) = carrying(&store);
    let receipt = create(&store, b"a", watcher);
    store.carry();
    assert!(store.shared.writer.lock().lead.owed && told.0.lock().is_empty());
    store.flush().unwrap();
    assert!(!store.shared.writer.lock().lead.owed);
    assert_eq!(told.0.lock()[..], [receipt.ticket]);
}

#[test]
fn whoever_finds_a_group_under_way_is_told_of_its_end_and_leads_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), Options { committer_thread: false, ..small() }, QUICK_NS);
    let ((_, first), (told, second)) = (carrying(&store), carrying(&store));
    let led = create(&store, b"a", first);
    let meanwhile = {
        let store = store.clone();
        move || {
            create(&store, b"b", second);
            store.carry();
            assert!(!store.shared.writer.lock().lead.owed, "whoever leads sees to it");
        }
    };
    *store.shared.before_sync.lock() = Some(Box::new(meanwhile));
    store.shared.lead(led.ticket).unwrap();
    assert_eq!((store.durable(), &told.0.lock()[..]), (led.ticket, &[led.ticket][..]));
    store.shared.writer.lock().lead.sync_ns = QUICK_NS;
    store.carry();
    assert_eq!(told.0.lock().len(), 2, "and now of its own");
    assert_eq!(store.durable(), store.stats().written);
}

/// Tells a thread that sleeps on a channel, as a reactor sleeps on its mailbox.
struct Bell(Sender<u64>);

impl Watch for Bell {
    fn complete(&self, up_to: u64) {
        let _ = self.0.send(up_to);
    }
    fn failed(&self) {}
    fn advanced(&self, _: u64) {}
}

/// Turns of three at once, beside commits that the committer sees to, across segments: nobody is left asleep.
#[test]
fn nobody_who_carries_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), small());
    std::thread::scope(|scope| {
        for reactor in 0..3u8 {
            let store = &store;
            scope.spawn(move || {
                let (bell, rung) = channel();
                let watcher = store.watcher(Arc::new(Bell(bell))).map(WatcherId::carrying);
                for turn in 0..200u16 {
                    // Now and then syncs are found to take long, now and then not.
                    store.shared.writer.lock().lead.sync_ns =
                        if turn % 7 < 4 { QUICK_NS } else { SYNC_NS_MAX };
                    let name = [&[reactor][..], &turn.to_le_bytes()].concat();
                    let receipt = create(store, &name, watcher);
                    store.carry();
                    while store.durable() < receipt.ticket {
                        rung.recv_timeout(Duration::from_secs(60)).expect("told of the end of a group");
                        store.carry();
                    }
                }
            });
        }
        scope.spawn(|| {
            for turn in 0..200u16 {
                create(&store, &[b"other", &turn.to_le_bytes()[..]].concat(), None);
            }
        });
    });
    store.close().unwrap();
}
