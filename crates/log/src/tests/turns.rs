//! Who commits in turns leads its groups itself, unless somebody is at it or it would take long.

use super::store::{config, open, payload, small};
use crate::committer::{Lead, QUICK_NS_MAX, SLOW_NS};
use crate::log::Log;
use crate::{CommitError, Options, Receipt, Store, Watch, WatcherId};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use thalweg_sys::disk::Disk;
use thalweg_sys::disk::sim::SimDisk;

/// Nobody waits as long, whatever the machine is doing.
const PATIENCE: Duration = Duration::from_secs(60);
/// Syncs of no more than this are quick, whatever the machine is doing: the average is set.
const QUICK_NS: u64 = 1;

/// What was told: completions, and how often that the store failed.
#[derive(Default)]
struct Told(Mutex<Vec<u64>>, Mutex<usize>);

impl Watch for Told {
    fn complete(&self, up_to: u64) {
        self.0.lock().push(up_to);
    }
    fn failed(&self) {
        *self.1.lock() += 1;
    }
    fn advanced(&self, _: u64) {}
}

fn in_turns(store: &Store) -> (Arc<Told>, WatcherId) {
    let told = Arc::new(Told::default());
    (told.clone(), store.watcher(told).unwrap().commits_in_turns())
}

fn create(store: &Store, name: &[u8], watcher: impl Into<Option<WatcherId>>) -> Receipt {
    store.create(name, &config(), None, &payload(b"1"), watcher.into()).unwrap().1
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
fn nobody_is_told_of_a_ticket_that_no_commit_has() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), Options { committer_thread: false, ..small() }, QUICK_NS);
    let (_, watcher) = in_turns(&store);
    let last = create(&store, b"a", watcher).ticket;
    assert_eq!(store.wait_for(last, Some(watcher)), Ok(last));
    let ticket = last + 1;
    assert_eq!(store.wait_for(ticket, Some(watcher)), Err(CommitError::NoTicket { ticket, last }));
    assert_eq!(store.persist(ticket), Err(CommitError::NoTicket { ticket, last }));
}

#[test]
fn the_end_of_a_turn_makes_its_commits_durable_in_one_group() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), Options { committer_thread: false, ..small() }, QUICK_NS);
    let groups = store.groups().batches.sum;
    let (told, watcher) = in_turns(&store);
    create(&store, b"a", watcher);
    let last = create(&store, b"b", watcher);
    assert!(!store.shared.writer.lock().lead.owed, "nobody else is asked");
    assert!(store.durable() < last.ticket);
    store.end_turn(watcher);
    assert_eq!((store.durable(), &told.0.lock()[..]), (last.ticket, &[last.ticket][..]));
    store.end_turn(watcher);
    assert_eq!(store.groups().batches.sum, groups + 2, "there was nothing more to do");
}

#[test]
fn where_syncs_take_long_the_committer_is_asked_and_the_turn_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), Options { committer_thread: false, ..small() }, SLOW_NS);
    let (told, watcher) = in_turns(&store);
    let receipt = create(&store, b"a", watcher);
    store.end_turn(watcher);
    assert!(store.shared.writer.lock().lead.owed && told.0.lock().is_empty());
    store.flush().unwrap();
    assert!(!store.shared.writer.lock().lead.owed);
    assert_eq!(told.0.lock()[..], [receipt.ticket]);
}

#[test]
fn whoever_finds_a_group_under_way_is_told_of_its_end_and_leads_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), Options { committer_thread: false, ..small() }, QUICK_NS);
    let ((_, first), (told, second)) = (in_turns(&store), in_turns(&store));
    let led = create(&store, b"a", first);
    let meanwhile = {
        let store = store.clone();
        move || {
            create(&store, b"b", second);
            store.end_turn(second);
            assert!(!store.shared.writer.lock().lead.owed, "the leader sees to it");
        }
    };
    *store.shared.probes.before_sync.lock() = Some(Box::new(meanwhile));
    store.shared.lead(led.ticket).unwrap();
    assert_eq!((store.durable(), &told.0.lock()[..]), (led.ticket, &[led.ticket][..]));
    store.shared.writer.lock().lead.sync_ns = QUICK_NS;
    store.end_turn(second);
    assert_eq!(told.0.lock().len(), 2, "and now of its own");
    assert_eq!(store.durable(), store.stats().staged_end);
}

/// Otherwise the committer would sleep between any two groups, until somebody who was told of the first woke
/// it.
#[test]
fn behind_a_slow_group_the_committer_goes_on_with_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), Options { committer_thread: false, ..small() }, SLOW_NS);
    let (_, watcher) = in_turns(&store);
    create(&store, b"a", watcher);
    let meanwhile = {
        let store = store.clone();
        move || {
            create(&store, b"b", watcher);
            assert!(!store.shared.writer.lock().lead.owed);
            store.end_turn(watcher);
            assert!(store.shared.writer.lock().lead.owed);
        }
    };
    *store.shared.probes.before_sync.lock() = Some(Box::new(meanwhile));
    store.flush().unwrap();
    assert!(store.shared.writer.lock().lead.owed);
}

/// Between the claim and the sync somebody else may sync: what came later still is somebody's, but not this
/// turn's.
#[test]
fn whoever_is_overtaken_does_not_sync_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), Options { committer_thread: false, ..small() }, QUICK_NS);
    let (told, watcher) = in_turns(&store);
    let receipt = create(&store, b"a", watcher);
    let ticket = store.shared.leads(watcher).unwrap();
    store.shared.commit_group().unwrap();
    let later = create(&store, b"b", None);
    store.shared.lead(ticket).unwrap();
    assert_eq!((store.durable(), &told.0.lock()[..]), (receipt.ticket, &[receipt.ticket][..]));
    assert!(later.ticket > receipt.ticket && store.shared.writer.lock().lead.owed);
}

#[test]
fn a_turn_that_committed_nothing_waits_for_nobody_elses_commits() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), Options { committer_thread: false, ..small() }, QUICK_NS);
    let ((told, writes), (_, reads)) = (in_turns(&store), in_turns(&store));
    let receipt = create(&store, b"a", writes);
    store.end_turn(reads);
    assert!(store.durable() < receipt.ticket && told.0.lock().is_empty());
    assert_eq!(store.wait_for(receipt.ticket, Some(reads)), Ok(receipt.ticket), "now it waits for them too");
    store.end_turn(reads);
    assert_eq!((store.durable(), &told.0.lock()[..]), (receipt.ticket, &[receipt.ticket][..]));
    store.end_turn(writes);
    create(&store, b"b", None);
    store.end_turn(reads);
    assert_eq!(store.durable(), receipt.ticket, "what it waited for is over");
}

/// A disk that takes its time once: the turn that finds it slow is the only one it stops.
#[test]
fn after_one_slow_sync_the_committer_has_the_job() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), Options { committer_thread: false, ..small() }, QUICK_NS);
    let (told, watcher) = in_turns(&store);
    let slow = create(&store, b"a", watcher);
    let takes_its_time = || std::thread::sleep(Duration::from_nanos(2 * QUICK_NS_MAX));
    *store.shared.probes.before_sync.lock() = Some(Box::new(takes_its_time));
    store.end_turn(watcher);
    assert_eq!(told.0.lock()[..], [slow.ticket], "nobody could know before");
    let next = create(&store, b"b", watcher);
    store.end_turn(watcher);
    assert!(store.durable() < next.ticket, "the turn went on");
    assert!(store.shared.writer.lock().lead.owed);
}

#[test]
fn one_slow_sync_counts_for_several_however_quick_those_before_were() {
    for slow_ns in [QUICK_NS_MAX + 1, 1 << 40] {
        let mut lead = Lead { sync_ns: 0, ..Lead::default() };
        lead.note(slow_ns);
        for quick in 0..5 {
            assert!(!lead.is_quick(), "after {quick}");
            lead.note(0);
        }
        assert!(lead.is_quick());
        // A machine whose every sync is just quick enough comes back as well.
        lead.note(slow_ns);
        (0..100).for_each(|_| lead.note(QUICK_NS_MAX));
        assert!(lead.is_quick(), "{}", lead.sync_ns);
    }
}

#[test]
fn a_sync_that_fails_at_the_end_of_a_turn_stops_all_writing() {
    let disk = SimDisk::new(7, 64 << 20);
    let path = std::path::Path::new("/data");
    let options = Options { committer_thread: false, ..small() };
    let (store, _) = Store::open(&Disk::Sim(disk.clone()), path, options).unwrap();
    create(&store, b"before", None);
    store.flush().unwrap();
    store.shared.writer.lock().lead.sync_ns = QUICK_NS;
    let ((told, watcher), (others, other)) = (in_turns(&store), in_turns(&store));
    let lost = create(&store, b"a", watcher);
    disk.fail_sync_after(0);
    store.end_turn(watcher);
    assert!(store.durable() < lost.ticket && told.0.lock().is_empty() && others.0.lock().is_empty());
    assert_eq!((*told.1.lock(), *others.1.lock()), (1, 1), "everybody is told once that it failed");
    disk.mend();
    store.end_turn(watcher);
    store.end_turn(other);
    assert!(store.durable() < lost.ticket, "it is not tried again");
    let refused = store.create(b"b", &config(), None, &payload(b"1"), Some(watcher));
    assert!(matches!(refused, Err(CommitError::Failed(_))));
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

/// Turns of three at once, beside commits that the committer sees to, across segments: nobody is
/// left asleep.
#[test]
fn no_watcher_that_commits_in_turns_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), small());
    std::thread::scope(|scope| {
        for reactor in 0..3u8 {
            let store = &store;
            scope.spawn(move || {
                let (bell, rung) = channel();
                let watcher = store.watcher(Arc::new(Bell(bell))).unwrap().commits_in_turns();
                for turn in 0..200u16 {
                    // Now and then syncs are found to take long, now and then not.
                    store.shared.writer.lock().lead.sync_ns = if turn % 7 < 4 { QUICK_NS } else { SLOW_NS };
                    let name = [&[reactor][..], &turn.to_le_bytes()].concat();
                    let receipt = create(store, &name, watcher);
                    store.end_turn(watcher);
                    while store.durable() < receipt.ticket {
                        rung.recv_timeout(Duration::from_secs(60)).expect("told of the end of a group");
                        store.end_turn(watcher);
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

/// Makes something else durable when it is told of something that is, and then panics.
struct Reckless(Mutex<Option<(Arc<Store>, Arc<Log>)>>);

impl Watch for Reckless {
    fn complete(&self, _: u64) {
        // Not in the condition, where the lock would be held for longer.
        let taken = self.0.lock().take();
        if let Some((store, log)) = taken {
            let receipt = store.append(&log, b"behind it", 2).unwrap();
            store.persist(receipt.ticket).unwrap();
            panic!("on purpose");
        }
    }
    fn failed(&self) {}
    fn advanced(&self, _: u64) {}
}

#[test]
fn who_is_told_may_make_something_durable_there_and_its_panic_is_its_own() {
    let directory = tempfile::tempdir().unwrap();
    for committer_thread in [false, true] {
        let options = Options { committer_thread, ..small() };
        let path = directory.path().join(committer_thread.to_string());
        let store = Arc::new(store(&path, options, QUICK_NS));
        let log = store.log(b"log").unwrap();
        let reckless = Arc::new(Reckless(Mutex::new(Some((store.clone(), log)))));
        let first = store.watcher(reckless.clone()).unwrap();
        let told = Arc::new(Told::default());
        let second = store.watcher(told.clone()).unwrap();
        let (done, is_done) = channel();
        let theirs = store.clone();
        std::thread::spawn(move || {
            create(&theirs, b"a", first);
            let last = create(&theirs, b"b", second);
            theirs.persist(last.ticket).unwrap();
            done.send(last).unwrap();
        });
        let last = is_done.recv_timeout(PATIENCE).expect("it does not wait for itself");
        let is_told =
            || reckless.0.lock().is_none() && told.0.lock().iter().any(|up_to| *up_to >= last.ticket);
        let begun = std::time::Instant::now();
        while !is_told() {
            assert!(begun.elapsed() < PATIENCE, "the other was not told");
            std::thread::yield_now();
        }
        // And the store goes on.
        let receipt = create(&store, b"c", None);
        store.persist(receipt.ticket).unwrap();
        assert!(store.durable() >= receipt.ticket);
    }
}
