//! The two views: what is seen of commits, forks and drops before and after they are durable.

use super::*;
use crate::fork::{Fork, Moment};
use std::sync::mpsc::channel;
use thalweg_log::CommitError;
use thalweg_log::sim::SimDisk;

#[test]
fn committed_is_what_is_durable_and_pending_what_is_on_its_way() {
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path(), Durability::Sync);
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    let receipt = state.write(main, &put("a", "1"), 1).unwrap();
    assert!(receipt.ticket > 0);
    assert_eq!(state.get(main, View::Pending, "a").unwrap().as_deref(), Some(&b"1"[..]));
    let (told, hear) = channel();
    state.when(receipt.ticket, move |outcome| told.send(outcome).unwrap());
    hear.recv().unwrap().unwrap();
    assert_eq!(state.get(main, View::Committed, "a").unwrap().as_deref(), Some(&b"1"[..]));
    // What is durable already calls back at once.
    let (told, hear) = channel();
    state.when(receipt.ticket, move |outcome| told.send(outcome).unwrap());
    hear.try_recv().unwrap().unwrap();
}

#[test]
fn a_waiter_that_comes_after_the_store_failed_is_told_at_once() {
    let disk = SimDisk::new(1, 64 << 20);
    let options = StoreOptions { durability: Durability::Sync, ..StoreOptions::default() };
    let (store, _) = Store::open(&Disk::Sim(disk.clone()), "/store".as_ref(), options).unwrap();
    let state = State::open(&store, "s", Options::default()).unwrap();
    let told = |ticket| {
        let (told, hear) = channel();
        state.when(ticket, move |outcome| told.send(outcome).unwrap());
        hear
    };
    let kept = state.write(state.main(), &put("a", "1"), 1).unwrap();
    told(kept.ticket).recv().unwrap().unwrap();
    disk.fail_sync_after(0);
    let lost = state.write(state.main(), &put("a", "2"), 1).unwrap();
    assert!(matches!(told(lost.ticket).recv().unwrap(), Err(CommitError::Failed(_))));
    assert!(matches!(told(lost.ticket).try_recv().unwrap(), Err(CommitError::Failed(_))), "and again");
    assert!(state.is_durable(lost.ticket).is_err() && state.is_durable(kept.ticket) == Ok(true));
}

#[test]
fn states_that_come_and_go_give_their_place_to_be_told_back() {
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path(), Durability::Sync);
    for _ in 0..40 {
        State::open(&store, "s", Options::default()).unwrap();
    }
    let names = (0..40).map(|number| format!("s{number}"));
    let open: Vec<_> = names.map(|name| State::open(&store, &name, Options::default())).collect();
    assert_eq!(open.iter().filter(|state| state.is_ok()).count(), 32);
    assert!(matches!(open.last(), Some(Err(Error::Crowded))));
}

#[test]
fn a_caller_that_finds_a_write_durable_sees_it_committed() {
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path(), Durability::Sync);
    let state = State::open(&store, "state", Options::default()).unwrap();
    for number in 0..2_000 {
        let value = number.to_string();
        let receipt = state.write(state.main(), &put("k", &value), 0).unwrap();
        // By asking, as the code that answers a call does, and not by waiting for the announcement.
        while !state.is_durable(receipt.ticket).unwrap() {
            std::hint::spin_loop();
        }
        let seen = state.read_view(state.main(), View::Committed).unwrap();
        assert_eq!(seen.get("k").map(|value| &**value), Some(value.as_bytes()));
    }
}

#[test]
fn what_is_noted_when_it_is_durable_already_is_committed() {
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path(), Durability::Sync);
    let state = State::open(&store, "s", Options::default()).unwrap();
    let ticket = state.write(state.main(), &put("a", "1"), 1).unwrap().ticket;
    while !state.is_durable(ticket).unwrap() {
        std::thread::yield_now();
    }
    let log = state.find(state.main()).unwrap().log.clone();
    let fork = Fork::new(log, ticket, Moment::default(), None);
    let fork = std::sync::Arc::new(fork);
    assert!(fork.moment(View::Committed).is_err());
    state.shared.durable.note(ticket, fork.clone(), || ());
    assert!(fork.moment(View::Committed).is_ok());
}

#[test]
fn nobody_learns_of_a_commit_before_it_is_noted() {
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path(), Durability::Sync);
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    let log = state.find(main).unwrap().log.clone();
    let is_there = |key: &str| state.get(main, View::Pending, key).unwrap().is_some();
    let still = state.shared.durable.stand_still();
    std::thread::scope(|scope| {
        let (state, log) = (&state, &log);
        let first = scope.spawn(move || state.write(main, &put("a", "1"), 1).unwrap());
        while log.staged().unwrap().tail == 0 {
            std::thread::yield_now();
        }
        // It changes nothing, and needs the other's ticket.
        let second = scope.spawn(move || state.write(main, &put("a", "1"), 1).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(100));
        let end = log.staged().unwrap().tail;
        let is_known = is_there("a") || second.is_finished() || state.ticket_at(main, end).is_ok();
        drop(still);
        assert!(!is_known, "it is durable before long, and nobody would see it committed");
        assert_eq!(first.join().unwrap().next, second.join().unwrap().next);
    });
}

#[test]
fn writers_on_many_threads_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path(), Durability::Sync);
    let state = State::open(&store, "s", Options::default()).unwrap();
    let (fork, _) = state.fork(state.main(), 1).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let state = &state;
            scope.spawn(move || {
                for n in 0..50 {
                    let to = if n % 2 == 0 { state.main() } else { fork };
                    let receipt = state.write(to, &put(&format!("{writer}-{n}"), "1"), n).unwrap();
                    let (told, hear) = channel();
                    state.when(receipt.ticket, move |outcome| told.send(outcome).unwrap());
                    hear.recv().unwrap().unwrap();
                    let held = state.get(to, View::Committed, &format!("{writer}-{n}")).unwrap();
                    assert!(held.is_some(), "what was acknowledged is committed");
                }
            });
        }
    });
    drop(state);
    store.close().unwrap();
    drop(store);
    let store = on_disk(directory.path(), Durability::Sync);
    let state = State::open(&store, "s", Options::default()).unwrap();
    for of in [state.main(), fork] {
        assert_eq!(state.map(of, View::Committed).unwrap().len(), 100);
    }
}

#[test]
fn nothing_is_seen_committed_before_it_is_durable() {
    let disk = SimDisk::new(1, 64 << 20);
    let options =
        StoreOptions { durability: Durability::Sync, committer_thread: false, ..StoreOptions::default() };
    let (store, _) = Store::open(&Disk::Sim(disk), "/store".as_ref(), options).unwrap();
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    let durable = state.write(main, &put("a", "1"), 1).unwrap();
    store.flush().unwrap();
    assert_eq!(state.is_durable(durable.ticket), Ok(true));
    assert_eq!(state.at(main, durable.next).unwrap().1, 0);
    let first = state.write(main, &put("a", "2"), 2).unwrap();
    let (fork, made) = state.fork(main, 2).unwrap();
    let second = state.write(main, &put("a", "3"), 2).unwrap();
    let tickets = [(main, first), (main, second), (fork, made)].map(|(of, receipt)| {
        let (_, ticket) = state.at(of, receipt.next).unwrap();
        (ticket, receipt.ticket)
    });
    assert!(tickets.iter().all(|(ticket, receipt)| ticket == receipt && *ticket > 0), "{tickets:?}");
    assert!(matches!(state.at(main, second.next + 1), Err(Error::NoState { .. })));
    assert!(matches!(state.get(fork, View::Committed, "a"), Err(Error::NoFork(of)) if of == fork));
    assert_eq!(state.get(fork, View::Pending, "a").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(state.fork_infos(0, 10).len(), 1);
    store.flush().unwrap();
    assert_eq!(state.is_durable(second.ticket), Ok(true));
    assert_eq!(state.get(fork, View::Committed, "a").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(state.at(main, second.next).unwrap().1, 0);
    assert_eq!(state.fork_infos(0, 10).len(), 2);
}

/// As a commit is: nobody hears that a fork is gone which is there again after a crash.
#[test]
fn a_fork_is_seen_as_committed_until_its_drop_is_durable() {
    let disk = SimDisk::new(1, 64 << 20);
    let open = |disk: &SimDisk| {
        let options = StoreOptions { committer_thread: false, ..StoreOptions::default() };
        let store = Store::open(&Disk::Sim(disk.clone()), "/store".as_ref(), options).unwrap().0;
        let state = State::open(&store, "s", Options::default()).unwrap();
        (store, state)
    };
    let (store, state) = open(&disk);
    let main = state.main();
    let (fork, _) = state.fork(main, 1).unwrap();
    state.write(fork, &put("a", "1"), 1).unwrap();
    store.flush().unwrap();
    let seen = |state: &State| match state.get(fork, View::Committed, "a") {
        Ok(value) => value.map(|value| value.to_vec()),
        Err(Error::NoFork(_)) => None,
        Err(error) => panic!("{error}"),
    };
    let receipt = state.drop_fork(fork, 2).unwrap();
    assert!(!state.is_durable(receipt.ticket).unwrap());
    assert_eq!((seen(&state), state.fork_infos(0, 10).len()), (Some(b"1".to_vec()), 2));
    // A drop that is not durable yet shows in what concerns the pending view.
    assert_eq!(state.forks(), [main]);
    let end = state.offset(fork, View::Committed).unwrap();
    let refused = [
        state.drop_fork(fork, 2).err(),
        state.get(fork, View::Pending, "a").err(),
        state.write(fork, &put("b", "2"), 2).err(),
        state.fork(fork, 2).err(),
        state.fork_at(fork, end, 2).err(),
        state.at(fork, end).err(),
        state.session(fork).err(),
        state.checkpoint(fork, 2).err(),
    ];
    for refusal in refused {
        assert!(matches!(refusal, Some(Error::NoFork(of)) if of == fork), "{refusal:?}");
    }
    let crashed = disk.crash();
    store.flush().unwrap();
    assert!(state.is_durable(receipt.ticket).unwrap());
    assert_eq!((seen(&state), state.fork_infos(0, 10).len(), state.count()), (None, 1, 1));
    assert!(matches!(state.get(fork, View::Pending, "a"), Err(Error::NoFork(_))));
    let (_store, state) = open(&crashed);
    assert_eq!(seen(&state), Some(b"1".to_vec()), "what was seen then is so after the crash");
}
