//! Sessions that end while their calls wait, and leases that do not end meanwhile.

use super::orders::Caller;
use super::*;
use std::path::Path;
use thalweg_log::Disk;
use thalweg_log::sim::SimDisk;

#[test]
fn calls_in_line_behind_a_close_find_nothing() {
    let service = served();
    let core = &service.core;
    let (session, token) = session(core, 30_000);
    end(core, begin(core, snapshot(&session), BUSY)).unwrap();
    end(core, begin(core, put(&session, "a"), BUSY)).unwrap();
    // As a long batch of the session holds it.
    let held = core.turn(Key::Session(token.name), Access::Write).unwrap();
    let rejoin = StateRequest::Rejoin(StateRejoin { session: (&*session).into() });
    let rollback = StateRequest::Rollback(StateRollback { session: (&*session).into() });
    let behind = [
        commit(&session),
        snapshot(&session),
        put(&session, "b"),
        get(&session, "a"),
        rollback,
        rejoin,
        close(&session),
    ];
    let first = begin(core, close(&session), BUSY);
    let behind = behind.map(|request| begin(core, request, BUSY));
    drop(held);
    end(core, first).unwrap();
    for outcome in behind {
        assert_eq!(end(core, outcome).unwrap_err(), RefusalCode::SessionExpired);
    }
    let state = core.state().unwrap();
    assert_eq!(state.map(state.main(), crate::View::Pending).unwrap().len(), 0);
    assert_eq!((service.sessions(), service.sessions_bytes()), (0, 0));
}

/// Long enough for what comes between two calls that keep it, where the machine stops for a moment.
const LEASE_MS: u32 = 2_000;

#[test]
fn no_lease_ends_while_a_call_waits() {
    let service = served();
    let core = &service.core;
    let (session, token) = session(core, LEASE_MS);
    let state = core.state().unwrap();
    let fork = Key::Fork(state.main());
    let outlast = || std::thread::sleep(Duration::from_millis(u64::from(LEASE_MS) + 100));
    // In its turn, in line for its fork.
    let held = core.turn(fork, Access::Write).unwrap();
    let write = begin(core, put(&session, "a"), BUSY);
    // In line for its turn.
    let second = begin(core, get(&session, "a"), BUSY);
    outlast();
    service.keep_house();
    assert_eq!(service.sessions(), 1);
    drop(core.sessions.find(token).unwrap());
    drop(held);
    end(core, write).unwrap();
    outlast();
    service.keep_house();
    assert_eq!(service.sessions(), 1);
    assert!(matches!(end(core, second).unwrap(), Answer::Value(Some(_))));
    outlast();
    service.keep_house();
    assert_eq!(service.sessions(), 0);
    assert_eq!(end(core, begin(core, commit(&session), BUSY)).unwrap_err(), RefusalCode::SessionExpired);
}

#[test]
fn no_lease_ends_while_a_call_is_under_way() {
    let service = served();
    let core = &service.core;
    let outlast = || std::thread::sleep(Duration::from_millis(u64::from(LEASE_MS) + 100));
    let root = |place: &str| StateRequest::Root(StateRoot { place: place.to_owned().into(), view: None });
    for has_snapshot in [false, true] {
        let (session, _) = session(core, LEASE_MS);
        if has_snapshot {
            end(core, begin(core, snapshot(&session), BUSY)).unwrap();
            end(core, begin(core, put(&session, "a"), BUSY)).unwrap();
        }
        // It waits for the thread that takes as long as the state is large.
        let outcome = arrive(core, begin(core, root(&session), BUSY));
        assert!(matches!(outcome, Outcome::Apart(_)));
        outlast();
        service.keep_house();
        end(core, outcome).unwrap();
        end(core, begin(core, commit(&session), BUSY)).expect("it was in use until now");
        outlast();
        service.keep_house();
        assert_eq!(service.sessions(), 0);
    }
}

/// A client cannot use its session while it waits for the disk.
#[test]
fn no_lease_ends_while_an_answer_waits_for_the_disk() {
    let sim = SimDisk::new(1, 64 << 20);
    let options = thalweg_log::Options { committer_thread: false, ..thalweg_log::Options::default() };
    let (store, _) = Store::open(&Disk::Sim(sim), Path::new("/store"), options).unwrap();
    let service = Service::new(&store, "state", ServiceOptions::default());
    let core = &service.core;
    let (session, _) = session(core, LEASE_MS);
    let outlast = || {
        std::thread::sleep(Duration::from_millis(u64::from(LEASE_MS) + 100));
        service.keep_house();
    };
    let mut caller = Caller::new(&service);
    let mut wait_for_disk = |request, answers| {
        caller.ask(&request);
        outlast();
        assert_eq!(service.sessions(), 1, "{request:?}");
        store.flush().unwrap();
        caller.hear(answers);
    };
    wait_for_disk(put(&session, "a"), 1);
    end(core, begin(core, snapshot(&session), BUSY)).unwrap();
    end(core, begin(core, put(&session, "b"), BUSY)).unwrap();
    wait_for_disk(commit(&session), 2);
    outlast();
    assert_eq!(service.sessions(), 0);
}
