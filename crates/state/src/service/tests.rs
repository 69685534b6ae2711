//! Calls of sessions that others keep waiting: what is held and what was begun stands still between two steps
//! of a test, which goes on with it by hand.

use super::calls::Place;
use super::order::{ALONE, BUSY, Budget, Key, LONG, Outcome, UNLIMITED};
use super::sessions::Token;
use super::*;
use crate::fork::{Fork, Moment};
use crate::generated::client::StateClient;
use crate::generated::types::*;
use crate::map::Map;
use crate::refusal_code::RefusalCode;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use thalweg_log::sim::SimDisk;
use thalweg_log::{CommitError, Disk};
use thalweg_service::{
    Access, CallOptions, Client, ClientOptions, Endpoint, Local, LocalCallOptions, LocalEvent, Server,
    ServerOptions, SyncClient,
};

mod orders;

fn served() -> Service {
    let store = Store::memory(thalweg_log::Options::default()).unwrap();
    let service = Service::new(&store, "state", ServiceOptions::default());
    service.core.state().unwrap();
    service
}

/// Waits for something that others do.
fn until(is_so: impl Fn() -> bool, what: impl Fn() -> String) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{}", what());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Begins a call.
fn begin(core: &Arc<Core>, request: StateRequest<'_>, budget: Budget) -> Outcome {
    let mut frame = Vec::new();
    request.encode(&mut frame);
    core.begin(&frame, budget).0
}

/// Sees a call to its end, here.
fn end(core: &Arc<Core>, mut outcome: Outcome) -> Result<Answer, RefusalCode> {
    loop {
        outcome = match outcome {
            Outcome::Done(_, answer) => return Ok(answer),
            Outcome::Refused(refusal) => return Err(refusal.code()),
            Outcome::NoRequest(wrong) => panic!("{wrong}"),
            Outcome::Elsewhere { rest, .. } => rest(core, UNLIMITED),
            Outcome::Holding(rest) | Outcome::Apart(rest) | Outcome::Page(rest) | Outcome::InLine(rest) => {
                rest(core, ())
            }
            Outcome::InTurn { places, rest } => {
                rest(core, (core.turns.all_now(&places).expect("nobody else has a turn"), UNLIMITED))
            }
        };
    }
}

/// What becomes of a call where it comes in, as far as turns can be had.
fn arrive(core: &Arc<Core>, mut outcome: Outcome) -> Outcome {
    loop {
        outcome = match outcome {
            Outcome::InTurn { places, rest } => match core.turns.all_now(&places) {
                Some(held) => rest(core, (held, BUSY)),
                None => return Outcome::InTurn { places, rest },
            },
            other => return other,
        }
    }
}

fn put(place: &str, key: &str) -> StateRequest<'static> {
    let (place, key) = (place.to_owned().into(), key.to_owned().into());
    StateRequest::Put(StatePut { place, key, value: b"1"[..].into() })
}

fn get(place: &str, key: &str) -> StateRequest<'static> {
    StateRequest::Get(StateGet { place: place.to_owned().into(), key: key.to_owned().into(), view: None })
}

fn commit(session: &str) -> StateRequest<'static> {
    StateRequest::Commit(StateCommit { session: session.to_owned().into() })
}

fn snapshot(session: &str) -> StateRequest<'static> {
    StateRequest::Snapshot(StateSnapshot { session: session.to_owned().into() })
}

fn close(session: &str) -> StateRequest<'static> {
    StateRequest::Close(StateClose { session: session.to_owned().into() })
}

/// A session of the main line, and what its turn is taken of.
fn session(core: &Core, lease_ms: u32) -> (String, Token) {
    let state = core.state().unwrap();
    let opened = core.sessions.open(state.session(state.main()).unwrap(), Some(lease_ms));
    let (token, _) = opened.unwrap();
    (token.to_string(), token)
}

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
    let mut caller = orders::Caller::new(&service);
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

#[test]
fn a_state_that_a_full_disk_kept_from_being_made_is_made_once_there_is_room() {
    const SPACE: u64 = 64 << 20;
    let sim = SimDisk::new(1, SPACE);
    let (store, _) =
        Store::open(&Disk::Sim(sim.clone()), Path::new("/store"), thalweg_log::Options::default()).unwrap();
    let log = store.log(b"other").unwrap();
    sim.set_space(sim.used_bytes());
    while !matches!(store.append(&log, &[7; 1 << 16], 1), Err(CommitError::Full(_))) {}
    while store.append(&log, &[7; 64], 1).is_ok() {}
    let service = Service::new(&store, "state", ServiceOptions::default());
    assert!(matches!(&*service.core.state().err().unwrap(), Error::Commit(CommitError::Full(_))));
    sim.set_space(SPACE);
    service.core.state().unwrap();
}

#[test]
fn an_image_that_there_is_no_room_for_is_not_tried_at_every_round() {
    const SPACE: u64 = 64 << 20;
    let sim = SimDisk::new(7, SPACE);
    let options = thalweg_log::Options { durability: thalweg_log::Durability::Os, ..Default::default() };
    let (store, _) = Store::open(&Disk::Sim(sim.clone()), Path::new("/store"), options).unwrap();
    let options = Options { image_bytes: 1, ..Options::default() };
    let service = Service::new(&store, "state", ServiceOptions { state: options, ..Default::default() });
    let state = service.core.state().unwrap();
    let put = crate::Change::Put("a".into(), b"1"[..].into());
    state.write(state.main(), &[put].into_iter().collect(), 1).unwrap();
    sim.set_space(sim.used_bytes());
    let log = store.log(b"other").unwrap();
    while !matches!(store.append(&log, &[7; 1 << 16], 1), Err(CommitError::Full(_))) {}
    while store.append(&log, &[7; 64], 1).is_ok() {}
    // What was asked for is done when what comes behind it on the same thread is.
    let settled = || {
        let (done, is_done) = std::sync::mpsc::channel();
        service.core.apart.execute(Box::new(move || done.send(()).unwrap()));
        is_done.recv().unwrap();
    };
    service.keep_house();
    settled();
    assert!(matches!(service.image_news(), Some(ImageNews::Refused(_))));
    sim.set_space(SPACE);
    for _ in 0..2 {
        service.keep_house();
        settled();
        assert!(state.is_due() && service.image_news().is_none(), "it was tried again at once");
    }
    state.maintain(2).unwrap();
    service.keep_house();
    assert_eq!(service.image_news(), Some(ImageNews::Written));
}

/// The reason of a refusal, as a caller hears it.
fn reason(core: &Arc<Core>, request: StateRequest<'_>) -> String {
    let mut outcome = begin(core, request, BUSY);
    loop {
        outcome = match outcome {
            Outcome::Refused(refusal) => return refusal.reason(core.state.get().map(State::main)),
            Outcome::Done(..) | Outcome::NoRequest(_) => panic!("it was not refused"),
            Outcome::Elsewhere { rest, .. } => rest(core, UNLIMITED),
            Outcome::Holding(rest) | Outcome::Apart(rest) | Outcome::Page(rest) | Outcome::InLine(rest) => {
                rest(core, ())
            }
            Outcome::InTurn { places, rest } => rest(core, (core.turns.all_now(&places).unwrap(), UNLIMITED)),
        }
    }
}

#[test]
fn a_refusal_names_what_it_is_of_as_its_caller_did() {
    let service = served();
    let core = &service.core;
    for request in [snapshot("main"), close("main"), commit("7")] {
        let reason = reason(core, request);
        assert!(reason.ends_with("names no session: give the token that Open answered"), "{reason}");
    }
    let history =
        |fork: &str| StateHistory { fork: fork.to_owned().into(), offset: 77, start: None, limit: None };
    assert!(
        reason(core, StateRequest::History(history("main"))).starts_with("main has no state at offset 77")
    );
    let (one, _) = session(core, 60_000);
    end(core, begin(core, snapshot(&one), BUSY)).unwrap();
    end(core, begin(core, put(&one, "a"), BUSY)).unwrap();
    end(core, begin(core, put("main", "a"), BUSY)).unwrap();
    assert!(reason(core, commit(&one)).starts_with("main ends at offset "));
    let fork = core.state().unwrap().fork(core.state().unwrap().main(), 1).unwrap().0.to_string();
    let reason = reason(core, StateRequest::History(history(&fork)));
    assert!(reason.starts_with(&format!("fork {fork} has no state")), "{reason}");
}

#[test]
fn a_page_has_an_entry_at_least() {
    let service = served();
    let core = &service.core;
    for key in ["a", "b"] {
        end(core, begin(core, put("main", key), BUSY)).unwrap();
    }
    let scan = StateScan { place: "main".into(), start: None, limit: Some(0), view: None };
    let page = end(core, begin(core, StateRequest::Scan(scan), BUSY)).unwrap();
    let Answer::Entries { entries, next, .. } = page else { panic!("no page") };
    assert_eq!((entries.len(), next.as_deref()), (1, Some("b")));
}

#[test]
fn a_page_ends_before_an_entry_that_is_too_long_for_it() {
    let service = served();
    let core = &service.core;
    let state = core.state().unwrap();
    let empty = state.fork(state.main(), now()).unwrap().0.to_string();
    let value = |bytes: usize| crate::Value::from(vec![b'x'; bytes]);
    let held = [("a", value(1_000)), ("b", value(15 << 20)), ("c", value(1_000)), ("d", value(1_000))];
    let changes = held.map(|(key, value)| crate::Change::Put(key.into(), value));
    let offset = state.write(state.main(), &changes.into_iter().collect(), now()).unwrap().next;
    let main = || "main".into();
    for (start, wanted, goes_on) in
        [(None, vec!["a"], Some("b")), (Some("b"), vec!["b"], Some("c")), (Some("c"), vec!["c", "d"], None)]
    {
        let start = || start.map(Into::into);
        let scan = StateScan { place: main(), start: start(), limit: None, view: None };
        let history = StateHistory { fork: main(), offset, start: start(), limit: None };
        for request in [StateRequest::Scan(scan), StateRequest::History(history)] {
            let page = end(core, begin(core, request, BUSY)).unwrap();
            let Answer::Entries { entries, next, .. } = page else { panic!("no page") };
            let keys: Vec<_> = entries.iter().map(|(key, _)| key.as_str()).collect();
            assert_eq!((keys, next.as_deref()), (wanted.clone(), goes_on));
        }
        let diff = StateDiff {
            before: empty.clone().into(),
            now: main(),
            start: start(),
            limit: None,
            view: Some(View::Pending),
        };
        let (changes, next) = page_of(core, begin(core, StateRequest::Diff(diff), BUSY)).unwrap();
        let keys: Vec<_> = changes.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!((keys, next.as_deref()), (wanted, goes_on));
    }
}

#[test]
fn pages_of_long_ago_are_taken_from_what_the_first_was() {
    let service = served();
    let core = &service.core;
    for key in ["a", "b", "c"] {
        end(core, begin(core, put("main", key), BUSY)).unwrap();
    }
    let state = core.state().unwrap();
    let main = state.main();
    let offset = state.fork_infos(main, 1)[0].offset;
    let page = |start: Option<&str>| {
        let start = start.map(|start| start.to_owned().into());
        let history = StateHistory { fork: "main".into(), offset, start, limit: Some(1) };
        match end(core, begin(core, StateRequest::History(history), BUSY)).unwrap() {
            Answer::Entries { entries, next, .. } => (entries[0].0.clone(), next),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(page(None), ("a".into(), Some("b".into())));
    // In its place something that is told apart.
    let mut other = core.page_cache.recall(main, offset).expect("it is kept");
    other.apply(&[crate::Change::Put("bb".into(), b"1"[..].into())].into_iter().collect());
    core.page_cache.keep_recalled(main, offset, other);
    assert_eq!(page(Some("b")), ("b".into(), Some("bb".into())));
    assert_eq!(page(Some("c")), ("c".into(), None));
    assert!(core.page_cache.recall(main, offset).is_none(), "the last page was taken");
    // What is kept is nobody's to see once the fork is gone.
    let fork = state.fork(main, now()).unwrap().0;
    core.page_cache.keep_recalled(fork, offset, crate::Map::default());
    state.drop_fork(fork, now()).unwrap();
    let history = StateHistory { fork: fork.to_string().into(), offset, start: None, limit: None };
    assert_eq!(end(core, begin(core, StateRequest::History(history), BUSY)).unwrap_err(), RefusalCode::NoFork);
}

fn diff(before: &str, now: &str, start: Option<&str>, view: Option<View>) -> StateRequest<'static> {
    let (before, now) = (before.to_owned().into(), now.to_owned().into());
    let start = start.map(|start| start.to_owned().into());
    StateRequest::Diff(StateDiff { before, now, start, limit: Some(2), view })
}

/// A page of what differs between two places, and where it goes on.
fn differ(core: &Arc<Core>, before: &str, now: &str, start: Option<&str>, view: Option<View>) -> Pages {
    page_of(core, begin(core, diff(before, now, start, view), BUSY))
}

fn page_of(core: &Arc<Core>, outcome: Outcome) -> Pages {
    let frame = match end(core, outcome)? {
        Answer::Frame(frame) => frame,
        other => panic!("{other:?}"),
    };
    let StateResponse::DiffResponse(page) = StateResponse::decode(&frame).unwrap() else { panic!("no page") };
    let change = |change: &Change<'_>| (change.key.to_string(), change.value.is_some());
    Ok((page.changes.iter().map(change).collect(), page.next.map(|next| next.into_owned())))
}

type Pages = Result<(Vec<(String, bool)>, Option<String>), RefusalCode>;

#[test]
fn pages_of_what_differs_are_taken_from_what_one_was() {
    let service = served();
    let core = &service.core;
    let state = core.state().unwrap();
    let fork = state.fork(state.main(), now()).unwrap().0.to_string();
    for key in ["a", "b", "c", "d", "e"] {
        end(core, begin(core, put(&fork, key), BUSY)).unwrap();
    }
    let page = |start| differ(core, "main", &fork, start, None).unwrap();
    let keys = |page: (Vec<(String, bool)>, Option<String>)| {
        (page.0.into_iter().map(|(key, _)| key).collect::<String>(), page.1)
    };
    assert_eq!(keys(page(None)), ("ab".to_owned(), Some("c".to_owned())));
    assert_eq!(
        core.page_cache.counts(),
        (0, 0),
        "nothing is kept for a client that reads the first page alone"
    );
    assert_eq!(keys(page(Some("b"))), ("bc".to_owned(), Some("d".to_owned())));
    assert_eq!(core.page_cache.counts(), (1, 0));
    // What lies before what is kept is come to anew, and so is what has changed since.
    assert_eq!(keys(page(Some("a"))), ("ab".to_owned(), Some("c".to_owned())));
    end(core, begin(core, put(&fork, "cc"), BUSY)).unwrap();
    assert_eq!(keys(page(Some("c"))), ("ccc".to_owned(), Some("d".to_owned())));
    assert_eq!(keys(page(Some("d"))), ("de".to_owned(), None));
    assert_eq!(core.page_cache.counts(), (1, 0), "of what was there before the last change");
}

#[test]
fn a_session_is_compared_with_a_pending_fork() {
    let service = served();
    let core = &service.core;
    end(core, begin(core, put("main", "a"), BUSY)).unwrap();
    let (session, _) = session(core, 30_000);
    end(core, begin(core, snapshot(&session), BUSY)).unwrap();
    end(core, begin(core, put(&session, "b"), BUSY)).unwrap();
    end(core, begin(core, put("main", "c"), BUSY)).unwrap();
    let pending = Some(View::Pending);
    let changes = |before, now, view| differ(core, before, now, None, view).map(|page| page.0);
    let (b, c) = ("b".to_owned(), "c".to_owned());
    assert_eq!(changes("main", &session, pending), Ok(vec![(b.clone(), true), (c.clone(), false)]));
    assert_eq!(changes(&session, "main", pending), Ok(vec![(b, false), (c, true)]));
    assert_eq!(changes(&session, &session, None), Ok(Vec::new()));
    assert_eq!(changes(&session, &session, pending), Err(RefusalCode::BadView), "there is no fork to view");
}

#[test]
fn what_differs_is_as_of_when_it_was_asked_for() {
    let service = served();
    let core = &service.core;
    let (session, token) = session(core, 30_000);
    end(core, begin(core, snapshot(&session), BUSY)).unwrap();
    end(core, begin(core, put(&session, "a"), BUSY)).unwrap();
    let ask = || begin(core, diff(&session, "main", None, None), BUSY);
    let first = arrive(core, ask());
    end(core, begin(core, put(&session, "b"), BUSY)).unwrap();
    let second = arrive(core, ask());
    // While the session has something else to do it is in line.
    let held = core.turn(Key::Session(token.name), Access::Write).unwrap();
    let third = arrive(core, ask());
    end(core, begin(core, put("main", "c"), BUSY)).unwrap();
    drop(held);
    let third = arrive(core, third);
    end(core, begin(core, close(&session), BUSY)).unwrap();
    let keys = |outcome| page_of(core, outcome).unwrap().0;
    assert_eq!(keys(first), [("a".to_owned(), false)]);
    for outcome in [second, third] {
        assert_eq!(keys(outcome), [("a".to_owned(), false), ("b".to_owned(), false)]);
    }
}

#[test]
fn a_fork_of_long_ago_is_made_before_a_later_drop_and_keeps_no_writer_waiting() {
    let service = served();
    let core = &service.core;
    let state = core.state().unwrap();
    let fork = state.fork(state.main(), now()).unwrap().0.to_string();
    let Answer::Offset { offset, .. } = end(core, begin(core, put(&fork, "a"), BUSY)).unwrap() else {
        panic!()
    };
    let made = StateFork { parent: fork.clone().into(), offset: Some(offset) };
    let made = arrive(core, begin(core, StateRequest::Fork(made), BUSY));
    assert!(matches!(made, Outcome::Apart(_)));
    end(core, begin(core, put(&fork, "b"), BUSY)).unwrap();
    let dropped = StateDrop { fork: fork.clone().into() };
    let dropped = arrive(core, begin(core, StateRequest::Drop(dropped), BUSY));
    end(core, made).unwrap();
    end(core, dropped).unwrap();
    assert_eq!(state.forks().len(), 2);
    assert_eq!(end(core, begin(core, put(&fork, "c"), BUSY)).unwrap_err(), RefusalCode::NoFork);
}

/// As clients ask for it, with threads that go on with what waits.
#[test]
fn what_differs_waits_for_both_places() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::Socket(directory.path().join("state.sock"));
    let options =
        ServerOptions { schema: crate::SCHEMA_HASH, error_tag: ERROR_TAG.into(), ..Default::default() };
    let mut server = Server::bind(std::slice::from_ref(&endpoint), options).unwrap();
    let (stopper, service) = (server.stopper(), served());
    let handler = service.clone();
    let serving = std::thread::spawn(move || server.serve(handler).unwrap());
    let core = &service.core;
    let state = core.state().unwrap();
    let fork = state.fork(state.main(), now()).unwrap().0;
    let ask = |before: &str, now: &str| {
        let options = ClientOptions { schema: crate::SCHEMA_HASH, ..ClientOptions::default() };
        let mut client = StateClient::new(SyncClient::connect(&endpoint, options).unwrap());
        let diff = StateDiff {
            before: before.into(),
            now: now.into(),
            start: None,
            limit: None,
            view: Some(View::Pending),
        };
        client.diff(&diff).map(|page| page.changes.len()).map_err(|refused| refused.to_string())
    };
    let of_fork = fork.to_string();
    let changes = std::iter::once(crate::Change::Put("a".into(), b"1"[..].into())).collect();
    state.write(fork, &changes, now()).unwrap();
    for kept in [vec![state.main()], vec![fork], vec![fork, state.main()]] {
        let held: Vec<_> =
            kept.iter().map(|fork| core.turn(Key::Fork(*fork), Access::Write).unwrap()).collect();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask("main", &of_fork));
            let waits = || core.turns.in_flight() == kept.len() + 2;
            until(waits, || "it is not in line for both".to_owned());
            drop(held);
            assert_eq!(asked.join().unwrap(), Ok(1));
        });
    }
    assert!(ask("main", "77").unwrap_err().contains("no_fork"));
    stopper.stop();
    serving.join().unwrap();
}

#[test]
fn a_batch_on_a_root_that_takes_long_to_reckon_keeps_nobody_else_waiting() {
    let service = served();
    let core = &service.core;
    let state = core.state().unwrap();
    let key = |number: usize| crate::Change::Put(format!("{number:04}").into(), b"1"[..].into());
    state.write(state.main(), &(0..4_000).map(key).collect(), now()).unwrap();
    let fork = state.fork(state.main(), now()).unwrap().0.to_string();
    let (session, _) = session(core, 30_000);
    end(core, begin(core, snapshot(&session), BUSY)).unwrap();
    for place in [session, fork] {
        let batch = |key: &'static str| {
            let mut map = state.map(state.main(), crate::View::Pending).unwrap();
            if key == "b" {
                map.apply(&std::iter::once(crate::Change::Put("a".into(), b"1"[..].into())).collect());
            }
            let changes = vec![Change { key: key.into(), value: Some(b"1"[..].into()) }];
            // Reckoned so that nobody remembers it.
            let if_root = Some(crate::Digest::of(&map).root());
            let batch = StateBatch { place: place.clone().into(), changes, if_offset: None, if_root };
            begin(core, StateRequest::Batch(batch), BUSY)
        };
        let Outcome::Holding(rest) = arrive(core, batch("a")) else {
            panic!("{place}: a budget is for less")
        };
        let Outcome::InLine(rest) = rest(core, ()) else { panic!("{place}: others wait for this thread") };
        let behind = arrive(core, begin(core, put(&place, "c"), BUSY));
        assert!(matches!(behind, Outcome::InTurn { .. }), "{place}: in the order in which they came");
        assert!(matches!(rest(core, ()), Outcome::Done(..)));
        // What changed since is little.
        assert!(matches!(arrive(core, batch("b")), Outcome::Done(..)), "{place}");
        end(core, behind).unwrap();
        assert_eq!(end(core, batch("b")).unwrap_err(), RefusalCode::RootMismatch);
    }
}

#[test]
fn a_count_that_waited_for_its_turn_looks_at_no_more_than_others_have_the_patience_for() {
    let service = served();
    let core = &service.core;
    let state = core.state().unwrap();
    let log = state.find(state.main()).unwrap().log.clone();
    let keys = LONG + 1;
    let map = Map::of((0..keys).map(|key| (format!("{key:07}").into(), b"1"[..].into())).collect());
    let fork = Fork::new(log, 0, Moment { map, offset: 0 }, None, 0);
    state.shared.forks.write().insert(state.main(), Arc::new(fork));
    let count = StateCount { place: "main".into(), start: None, until: None, view: Some(View::Pending) };
    let Outcome::InTurn { rest, places } = begin(core, StateRequest::Count(count), BUSY) else {
        panic!("it needs a turn")
    };
    // As it goes on where long work is done, once it has waited.
    let counted = rest(core, (core.turns.all_now(&places).unwrap(), UNLIMITED));
    let Outcome::Apart(rest) = counted else { panic!("all of it was counted where others wait") };
    let Outcome::Done(_, Answer::Count(count)) = rest(core, ()) else { panic!("it is done") };
    assert_eq!(count, keys as u64);
}

/// A state of so many keys, a page of them that takes too long for a reactor, and the only thread, which is
/// busy until the test sends it a word.
fn busy(keys: usize) -> (Service, StateRequest<'static>, std::sync::mpsc::Sender<()>) {
    let store = Store::memory(thalweg_log::Options::default()).unwrap();
    let service = Service::new(&store, "state", ServiceOptions { threads: 1, ..Default::default() });
    let state = service.state().unwrap();
    let change = |key| crate::Change::Put(format!("{key:07}").into(), b"1"[..].into());
    state.write(state.main(), &(0..keys).map(change).collect(), now()).unwrap();
    let limit = u32::try_from(ALONE).unwrap();
    let page = StateScan { place: "main".into(), start: None, limit: Some(limit), view: None };
    let (finish, finished) = channel::<()>();
    let (begun, begins) = channel();
    service.core.workers.execute(Box::new(move || {
        begun.send(()).unwrap();
        finished.recv().unwrap();
    }));
    begins.recv().unwrap();
    (service, StateRequest::Scan(page), finish)
}

#[test]
fn a_reactor_with_nothing_else_to_do_takes_what_waits_for_a_busy_thread() {
    let (mut service, page, finish) = busy(ALONE + BUSY + 2);
    let mut caller = orders::Caller::new(&service);
    let count =
        StateRequest::Count(StateCount { place: "main".into(), start: None, until: None, view: None });
    assert!(!service.help(), "nothing waits");
    caller.ask(&count);
    assert!(service.help(), "the only thread is busy");
    assert!(service.help(), "what is left of it waits again");
    caller.hear(1);
    assert!(!service.help(), "it has ended");
    caller.ask(&page);
    assert!(!service.help(), "it takes too long for a reactor");
    caller.ask(&count);
    assert!(service.help(), "what takes long does not keep it from what is behind");
    caller.hear(2);
    assert!(!service.help(), "it is the page's turn");
    finish.send(()).unwrap();
    caller.hear(3);
    assert_eq!(service.waiting_bytes(), 0);
}

#[test]
fn what_holds_turns_goes_before_calls_that_hold_none() {
    let (service, page, finish) = busy(ALONE + 1);
    let core = &service.core;
    let main = Key::Fork(core.state().unwrap().main());
    let mut caller = orders::Caller::new(&service);
    let held = core.turn(main, Access::Write).unwrap();
    let waiting: Vec<_> = [put("main", "a"), put("main", "b")].iter().map(|put| caller.ask(put)).collect();
    let pages: Vec<_> = (0..3).map(|_| caller.ask(&page)).collect();
    // From here on the first of the puts waits for the thread, and the second for the first.
    drop(held);
    let long = StatePut { place: "main".into(), key: "c".into(), value: vec![b'1'; 65 << 10].into() };
    let long = caller.ask(&StateRequest::Put(long));
    finish.send(()).unwrap();
    caller.hear(6);
    let order = caller.order();
    assert_eq!(order, waiting.into_iter().chain([long]).chain(pages).collect::<Vec<_>>());
}

#[test]
fn what_nobody_waits_for_any_more_is_not_done() {
    /// Its calls wait for a thread, and count those that one came to.
    struct Counting(Service, Arc<AtomicUsize>);
    impl Handler for Counting {
        fn request(&mut self, _: Request<'_>, reply: Reply) {
            let count = Arc::clone(&self.1);
            let rest = move |_: &Arc<Core>| {
                count.fetch_add(1, Ordering::Relaxed);
                Outcome::done(Answer::Count(1))
            };
            self.0.core.settle(Outcome::elsewhere(rest), BUSY, PendingCall::new(1, reply));
        }
    }
    let (mut service, _, finish) = busy(ALONE + 1);
    let (wake, answered) = channel();
    let mut local = Local::new(ERROR_TAG, 64, move || _ = wake.send(()));
    let count = Arc::<AtomicUsize>::default();
    let mut counting = Counting(service.clone(), Arc::clone(&count));
    let mut ask = |local: &mut Local| {
        local.call(&mut counting, &[], LocalCallOptions::default(), |_, _| {}).expect("it waits")
    };
    for _ in 0..3 {
        let left = ask(&mut local);
        local.cancel(left);
    }
    let passed = ask(&mut local);
    assert!(!service.help(), "they take too long for a reactor");
    finish.send(()).unwrap();
    let mut ended = Vec::new();
    while ended.is_empty() {
        answered.recv_timeout(Duration::from_secs(60)).expect("an answer comes");
        local.turn(&mut service, |call, _, _| ended.push(call));
    }
    assert_eq!((ended, count.load(Ordering::Relaxed)), (vec![passed], 1));
    assert_eq!((service.waiting_bytes(), local.in_flight()), (0, 0));
}

/// Of a client that reads nothing, only as much is answered as its connection may have unsent: of scans, on
/// the threads that all share, and of histories, on one of their own.
#[test]
fn what_a_client_does_not_read_is_not_made() {
    const CALLS: usize = 200;
    let directory = tempfile::tempdir().unwrap();
    let service = served();
    let core = &service.core;
    let state = service.state().unwrap();
    let value = crate::Value::from(vec![b'1'; 100]);
    let change = |key| crate::Change::Put(format!("{key:07}").into(), value.clone());
    let offset = state.write(state.main(), &(0..10_000).map(change).collect(), now()).unwrap().next;
    let limit = Some(10_000);
    let scan = |view| StateRequest::Scan(StateScan { place: "main".into(), start: None, limit, view });
    let history = StateHistory { fork: "main".into(), offset, start: None, limit };
    for (file, request, waits_for_its_turn) in [
        ("scan.sock", scan(None), false),
        ("scan.shm", scan(None), false),
        ("history.shm", StateRequest::History(history), false),
        ("pending.sock", scan(Some(View::Pending)), true),
        ("pending.shm", scan(Some(View::Pending)), true),
    ] {
        let endpoint: Endpoint = directory.path().join(file).to_str().unwrap().parse().unwrap();
        let options = ServerOptions { error_tag: ERROR_TAG.to_owned().into(), ..ServerOptions::default() };
        let mut server = Server::bind(std::slice::from_ref(&endpoint), options).unwrap();
        let stopper = server.stopper();
        let handler = service.clone();
        let running = std::thread::spawn(move || server.serve(handler));
        let mut frame = Vec::new();
        request.encode(&mut frame);
        let mut fork = Vec::new();
        StateRequest::Fork(StateFork { parent: "main".into(), offset: Some(offset) }).encode(&mut fork);
        let ask = || {
            let written = core.turn(Key::Fork(state.main()), Access::Write).unwrap();
            let mut client = Client::connect(&endpoint, ClientOptions::default()).unwrap();
            let calls: Vec<_> =
                (0..CALLS).map(|_| client.call(&frame, CallOptions::default()).unwrap()).collect();
            // Behind the histories, on their thread; it holds a turn that a drop waits for, so it is made.
            client.call(&fork, CallOptions::default()).unwrap();
            client.flush().unwrap();
            let in_line = 1 + if waits_for_its_turn { CALLS } else { 0 };
            until(|| core.turns.in_flight() == 1 + in_line, || format!("{file}: it is not in line"));
            drop(written);
            (client, calls)
        };
        let forks = state.count();
        // Those that wait, once no more have been answered for a while.
        let waiting = || {
            until(|| service.waiting_bytes() > 0, || format!("{file}: none waits"));
            let (mut bytes, mut steady) = (0, 0);
            while steady < 30 {
                std::thread::sleep(Duration::from_millis(10));
                let now = service.waiting_bytes();
                steady = if now == bytes { steady + 1 } else { 0 };
                bytes = now;
            }
            bytes / super::pending_call::frame_bytes(&frame)
        };
        let (mut client, calls) = ask();
        let left = waiting();
        assert!(left >= CALLS - 40, "{file}: {left} wait, and the others were answered to nobody");
        until(|| state.count() > forks, || format!("{file}: a fork waits for a client that reads nothing"));
        for call in calls {
            assert!(client.wait(call).unwrap().len() > 1_000_000, "{file}");
        }
        assert_eq!(service.waiting_bytes(), 0, "{file}");
        // One that goes leaves nothing behind.
        let (client, _) = ask();
        assert!(waiting() > 0, "{file}");
        drop(client);
        until(|| service.waiting_bytes() == 0, || format!("{file}: {} bytes", service.waiting_bytes()));
        stopper.stop();
        running.join().unwrap().unwrap();
    }
}

#[test]
fn a_long_value_is_written_where_others_do_not_wait_for_it() {
    let service = served();
    let core = &service.core;
    let (session, _) = session(core, 30_000);
    end(core, begin(core, snapshot(&session), BUSY)).unwrap();
    let value = vec![b'1'; 65 << 10];
    for place in ["main", &session] {
        let long = StatePut { place: place.into(), key: "a".into(), value: (&*value).into() };
        let long = arrive(core, begin(core, StateRequest::Put(long), BUSY));
        assert!(matches!(long, Outcome::Holding(_)), "{place}");
        assert!(matches!(end(core, long), Ok(Answer::Offset { .. })));
        let Ok(Answer::Value(read)) = end(core, begin(core, get(place, "a"), ALONE)) else {
            panic!("{place}")
        };
        assert_eq!(read.as_deref(), Some(&*value), "{place}");
    }
    // A commit takes as long as its bytes, however few its keys are.
    assert!(matches!(arrive(core, begin(core, commit(&session), BUSY)), Outcome::Holding(_)));
}

#[test]
fn what_is_left_of_a_call_is_done_though_its_job_came_while_it_was_helped() {
    /// Its calls wait for a thread, and let a step of it come and go before they need one more.
    struct Slow(Service, std::sync::mpsc::Sender<()>);
    impl Handler for Slow {
        fn request(&mut self, _: Request<'_>, reply: Reply) {
            let finish = self.1.clone();
            let rest = move |core: &Arc<Core>, budget| {
                assert_eq!(budget, ALONE, "a reactor took it first");
                finish.send(()).unwrap();
                let (passed, passes) = channel();
                core.workers.execute(Box::new(move || passed.send(()).unwrap()));
                // Jobs come in order: the one of this call has come.
                passes.recv().unwrap();
                Outcome::elsewhere(|_| Outcome::done(Answer::Count(1)))
            };
            let asked = PendingCall::new(1, reply);
            self.0.core.settle(Outcome::elsewhere_within(1, rest), BUSY, asked);
        }
    }
    let (mut service, _, finish) = busy(1);
    let (wake, answered) = channel();
    let mut local = Local::new(ERROR_TAG, 64, move || _ = wake.send(()));
    let mut slow = Slow(service.clone(), finish);
    let asked = LocalCallOptions::default();
    assert!(local.call(&mut slow, &[], asked, |_, _| {}).is_some(), "it waits");
    assert!(service.help());
    answered.recv_timeout(Duration::from_secs(60)).expect("an answer comes");
    let mut ended = 0;
    local.turn(&mut slow, |_, came, _| ended += usize::from(matches!(came, LocalEvent::End(0))));
    assert_eq!(ended, 1);
}

#[test]
fn a_long_list_of_forks_is_made_elsewhere() {
    let service = served();
    let core = &service.core;
    let list = |limit| begin(core, StateRequest::Forks(StateForks { start: None, limit }), BUSY);
    assert!(matches!(list(None), Outcome::Done(..)));
    for _ in 0..BUSY {
        let fork = StateFork { parent: "main".into(), offset: None };
        end(core, begin(core, StateRequest::Fork(fork), BUSY)).unwrap();
    }
    let outcome = list(None);
    assert!(matches!(outcome, Outcome::Elsewhere { .. }));
    assert!(matches!(end(core, outcome).unwrap(), Answer::Frame(_)));
    assert!(matches!(list(Some(10)), Outcome::Done(..)), "a short page of it is not");
}

/// A page of the list of forks: their names, and where it goes on.
fn fork_page(
    core: &Arc<Core>,
    start: Option<&str>,
    limit: Option<u32>,
) -> Result<(Vec<String>, Option<String>), RefusalCode> {
    let start = start.map(|start| start.to_owned().into());
    let answer = end(core, begin(core, StateRequest::Forks(StateForks { start, limit }), BUSY))?;
    let Answer::Frame(frame) = answer else { panic!("{answer:?}") };
    let StateResponse::ForksResponse(page) = StateResponse::decode(&frame).unwrap() else {
        panic!("no page")
    };
    let names = page.forks.iter().map(|info| info.fork.to_string()).collect();
    Ok((names, page.next.map(|next| next.into_owned())))
}

#[test]
fn a_list_of_forks_comes_in_pages() {
    let service = served();
    let core = &service.core;
    let state = core.state().unwrap();
    let made: Vec<_> = (0..1_000).map(|_| state.fork(state.main(), now()).unwrap().0).collect();
    let names: Vec<_> = made.iter().map(ToString::to_string).collect();
    let (first, next) = fork_page(core, None, None).unwrap();
    assert_eq!((first.len(), &*first[0], next.as_ref()), (1_000, "main", names.last()), "1,000 at most");
    assert_eq!(fork_page(core, None, Some(10_000)).unwrap().0.len(), 1_001);
    let (mut listed, mut start) = (Vec::new(), None);
    loop {
        let (page, next) = fork_page(core, start.as_deref(), Some(7)).unwrap();
        assert!(page.len() == 7 || next.is_none());
        listed.extend(page);
        start = next;
        if start.is_none() {
            break;
        }
    }
    assert!(listed.iter().eq(std::iter::once(&"main".to_owned()).chain(&names)));
    // What was dropped meanwhile is passed over; a page has one fork at least.
    state.drop_fork(made[2], now()).unwrap();
    let page = fork_page(core, Some(&names[2]), Some(0)).unwrap();
    assert_eq!(page, (vec![names[3].clone()], Some(names[4].clone())));
    assert_eq!(fork_page(core, Some("1000000"), None).unwrap(), (Vec::new(), None));
    let (session, _) = session(core, 30_000);
    for start in [&*session, "first", ""] {
        assert_eq!(fork_page(core, Some(start), None).unwrap_err(), RefusalCode::BadPlace, "{start}");
    }
}

#[test]
fn what_is_refused_is_told_by_its_beginning() {
    let service = served();
    let core = &service.core;
    let place = "\u{7f}".repeat(1 << 20);
    let scan = StateScan { place: place.into(), start: None, limit: None, view: None };
    let Outcome::Refused(refusal) = arrive(core, begin(core, StateRequest::Scan(scan), BUSY)) else {
        panic!("it names nothing");
    };
    assert_eq!(refusal.code(), RefusalCode::BadPlace);
    assert!(refusal.to_string().len() < 1_000, "{} bytes", refusal.to_string().len());
}
