//! Calls that others keep waiting: a test holds their turns, and carries out one step after the other by
//! hand.

mod images;
mod leases;
mod long_work;
mod orders;
mod pages;

use super::calls::Place;
use super::order::{ALONE, BUSY, Budget, Key, LONG, Outcome, UNLIMITED};
use super::sessions::Token;
use super::*;
use crate::generated::types::*;
use crate::refusal_code::RefusalCode;
use std::time::Duration;
use thalweg_service::{Access, Local, LocalCallOptions, LocalEvent};

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
