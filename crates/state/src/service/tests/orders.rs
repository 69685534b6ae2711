//! Calls in line for several places, as clients make them: on one thread, one behind the other, while a test
//! holds what they wait for.

use super::super::answer::WriteKind;
use super::super::writes::WriteRequest;
use super::*;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;
use thalweg_service::CallId;

/// A client, and what it was answered.
pub(super) struct Caller {
    service: Service,
    local: Local,
    answered: Receiver<()>,
    answers: Vec<(Option<CallId>, Vec<u8>)>,
}

impl Caller {
    pub(super) fn new(service: &Service) -> Self {
        let (wake, answered): (Sender<()>, _) = channel();
        let local = Local::new(ERROR_TAG, 64, move || _ = wake.send(()));
        Self { service: service.clone(), local, answered, answers: Vec::new() }
    }

    /// Makes a call, which waits for something.
    pub(super) fn ask(&mut self, request: &StateRequest<'_>) -> Option<CallId> {
        let mut frame = Vec::new();
        request.encode(&mut frame);
        let call = self.local.call(&mut self.service, &frame, LocalCallOptions::default(), |_, _| {});
        assert!(call.is_some(), "it was answered at once");
        call
    }

    /// Makes a call: how it was answered at once, if it was.
    fn make(&mut self, request: &StateRequest<'_>) -> Option<LocalEvent> {
        let mut frame = Vec::new();
        request.encode(&mut frame);
        let mut answered = None;
        self.local
            .call(&mut self.service, &frame, LocalCallOptions::default(), |came, _| answered = Some(came));
        answered
    }

    /// Waits until `count` calls were answered in all.
    pub(super) fn hear(&mut self, count: usize) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.answers.len() < count {
            let Self { service, local, answers, .. } = self;
            local.turn(service, |call, came, frame| {
                assert!(matches!(came, LocalEvent::End(0)));
                answers.push((Some(call), frame.to_vec()));
            });
            if self.answers.len() < count {
                self.answered
                    .recv_timeout(until.saturating_duration_since(Instant::now()))
                    .expect("an answer comes");
            }
        }
    }

    /// Which calls were answered, in the order in which they were.
    pub(super) fn order(&self) -> Vec<Option<CallId>> {
        self.answers.iter().map(|(call, _)| *call).collect()
    }

    fn answer(&self, call: Option<CallId>) -> StateResponse<'_> {
        let (_, frame) = self.answers.iter().find(|(of, _)| *of == call).expect("it was answered");
        StateResponse::decode(frame).unwrap()
    }
}

fn put_value(place: &str, value: &'static [u8]) -> StateRequest<'static> {
    StateRequest::Put(StatePut { place: place.to_owned().into(), key: "a".into(), value: value.into() })
}

fn pending(key: &'static str) -> StateRequest<'static> {
    StateRequest::Get(StateGet { place: "main".into(), key: key.into(), view: Some(View::Pending) })
}

/// What is there in the end.
fn last(core: &Core, key: &str) -> Option<crate::Value> {
    let state = core.state().unwrap();
    state.get(state.main(), crate::View::Pending, key).unwrap()
}

#[test]
fn what_comes_to_a_fork_behind_a_sessions_write_comes_behind_it() {
    let service = served();
    let core = &service.core;
    let (session, token) = session(core, 30_000);
    let mut caller = Caller::new(&service);
    // As a long batch of the session holds it.
    let held = core.turn(Key::Session(token.name), Access::Write).unwrap();
    caller.ask(&put_value(&session, b"1"));
    let read = caller.ask(&pending("a"));
    caller.ask(&put_value("main", b"2"));
    let own = caller.ask(&get(&session, "a"));
    drop(held);
    caller.hear(4);
    for (call, value) in [(read, b"1"), (own, b"2")] {
        let StateResponse::GetResponse(answer) = caller.answer(call) else { panic!("a read is answered") };
        assert_eq!(answer.value.as_deref(), Some(&value[..]));
    }
    assert_eq!(last(core, "a").as_deref(), Some(&b"2"[..]));
    assert_eq!((core.turns.in_flight(), core.turns.forks()), (0, 0));
}

#[test]
fn what_comes_to_a_fork_behind_a_commit_comes_behind_it() {
    let service = served();
    let core = &service.core;
    let (session, token) = session(core, 30_000);
    end(core, begin(core, snapshot(&session), BUSY)).unwrap();
    end(core, begin(core, put_value(&session, b"1"), BUSY)).unwrap();
    let mut caller = Caller::new(&service);
    let held = core.turn(Key::Session(token.name), Access::Write).unwrap();
    let committed = caller.ask(&commit(&session));
    let read = caller.ask(&pending("a"));
    caller.ask(&put_value("main", b"2"));
    drop(held);
    caller.hear(3);
    assert!(matches!(caller.answer(committed), StateResponse::CommitResponse(_)), "nobody came before it");
    let StateResponse::GetResponse(answer) = caller.answer(read) else { panic!("a read is answered") };
    assert_eq!(answer.value.as_deref(), Some(&b"1"[..]));
    assert_eq!(last(core, "a").as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_session_beside_its_snapshot_waits_for_no_call_of_its_fork() {
    let service = served();
    let core = &service.core;
    let (session, _) = session(core, 30_000);
    end(core, begin(core, snapshot(&session), BUSY)).unwrap();
    let _held = core.turn(Key::Fork(core.state().unwrap().main()), Access::Write).unwrap();
    for request in [put(&session, "a"), get(&session, "a"), put(&session, "b")] {
        assert!(matches!(begin(core, request, BUSY), Outcome::Done(..)));
    }
}

#[test]
fn a_read_of_a_session_stands_before_its_later_write() {
    let service = served();
    let core = &service.core;
    let (session, token) = session(core, 30_000);
    let fork = core.state().unwrap().main();
    assert_eq!(core.place(&session).unwrap(), Place::Session(token));
    let mut caller = Caller::new(&service);
    let held = [Key::Fork(fork), Key::Session(token.name)].map(|key| core.turn(key, Access::Write).unwrap());
    let read = caller.ask(&get(&session, "a"));
    caller.ask(&put(&session, "a"));
    let [of_fork, of_session] = held;
    drop(of_session);
    assert!(core.turn(Key::Session(token.name), Access::Write).is_none(), "the write would overtake it");
    drop(of_fork);
    caller.hear(2);
    let StateResponse::GetResponse(answer) = caller.answer(read) else { panic!("a read is answered") };
    assert_eq!(answer.value, None);
    assert!(last(core, "a").is_some());
}

#[test]
fn what_takes_long_and_nobody_waits_for_any_more_is_not_begun() {
    let service = served();
    let core = &service.core;
    let state = core.state().unwrap();
    let change = crate::Change::Put("a".into(), b"1"[..].into());
    let written = state.write(state.main(), &std::iter::once(change).collect(), now()).unwrap();
    let mut caller = Caller::new(&service);
    let (go_on, waits) = channel::<()>();
    core.apart.execute(Box::new(move || _ = waits.recv()));
    let root = StateRoot { place: "main".into(), view: None };
    let fork = StateFork { parent: "main".into(), offset: Some(written.next) };
    let wanted = caller.ask(&StateRequest::Fork(fork.clone()));
    let calls = [StateRequest::Root(root), StateRequest::Fork(fork)].map(|request| caller.ask(&request));
    calls.into_iter().flatten().for_each(|call| caller.local.cancel(&mut caller.service, call));
    drop(go_on);
    caller.hear(1);
    assert!(matches!(caller.answer(wanted), StateResponse::ForkResponse(_)));
    let (done, is_done) = channel();
    core.apart.execute(Box::new(move || done.send(()).unwrap()));
    is_done.recv().unwrap();
    assert_eq!(state.forks().len(), 2, "the one that somebody waited for, and the main line");
    assert!(state.find(state.main()).unwrap().rooted().is_none(), "a root was computed for nobody");
    // Who waited for what they look at goes on.
    assert_eq!((core.turns.in_flight(), core.turns.forks()), (0, 0));
}

#[test]
fn what_is_compared_with_itself_is_looked_at_once() {
    const WRITES: usize = 50_000;
    let service = served();
    let core = &service.core;
    let state = core.state().unwrap();
    let fork = state.fork(state.main(), now()).unwrap().0.to_string();
    let pending = Some(View::Pending);
    let places = |outcome| match outcome {
        Outcome::InTurn { places, .. } => places.len(),
        _ => panic!("it needs a turn"),
    };
    assert_eq!(places(begin(core, diff("main", "main", None, pending), BUSY)), 1);
    assert_eq!(places(begin(core, diff("main", &fork, None, pending), BUSY)), 2);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..WRITES {
                let change = crate::Change::Put("a".into(), number.to_string().as_bytes().into());
                state.write(state.main(), &std::iter::once(change).collect(), now()).unwrap();
            }
        });
        while !writer.is_finished() {
            assert_eq!(differ(core, "main", "main", None, pending), Ok((Vec::new(), None)));
        }
    });
}

#[test]
fn neither_of_two_places_is_written_before_both_are_looked_at() {
    let service = served();
    let core = &service.core;
    let state = core.state().unwrap();
    let fork = state.fork(state.main(), now()).unwrap().0;
    let mut caller = Caller::new(&service);
    let held = core.turn(Key::Fork(fork), Access::Write).unwrap();
    let asked = caller.ask(&diff("main", &fork.to_string(), None, Some(View::Pending)));
    caller.ask(&put("main", "a"));
    drop(held);
    caller.hear(2);
    let StateResponse::DiffResponse(page) = caller.answer(asked) else { panic!("it is answered") };
    assert!(page.changes.is_empty());
    assert!(last(core, "a").is_some());
}

#[test]
fn a_batch_on_a_root_waits_for_nothing_that_nobody_is_in_line_behind() {
    let service = served();
    let core = &service.core;
    let state = core.state().unwrap();
    let key = |number: usize| crate::Change::Put(format!("{number:04}").into(), b"1"[..].into());
    state.write(state.main(), &(0..4_000).map(key).collect(), now()).unwrap();
    // As an image or a state of long ago keeps its thread busy.
    let (go_on, waits) = channel::<()>();
    core.apart.execute(Box::new(move || _ = waits.recv()));
    let if_root = Some(crate::Digest::of(&state.map(state.main(), crate::View::Pending).unwrap()).root());
    let changes = vec![Change { key: "a".into(), value: Some(b"1"[..].into()) }];
    let mut caller = Caller::new(&service);
    let batch = StateBatch { place: "main".into(), changes, if_offset: None, if_root };
    let batch = caller.ask(&StateRequest::Batch(batch));
    caller.ask(&put_value("main", b"2"));
    caller.hear(2);
    assert!(matches!(caller.answer(batch), StateResponse::BatchResponse(_)));
    assert_eq!(last(core, "a").as_deref(), Some(&b"2"[..]));
    drop(go_on);
}

#[test]
fn what_waits_has_its_room_or_is_overloaded_and_not_made() {
    const LIMIT: usize = 1 << 20;
    static VALUE: [u8; 60_000] = [b'1'; 60_000];
    let store = Store::memory(thalweg_log::Options::default()).unwrap();
    let options = ServiceOptions { waiting_bytes_max: LIMIT, ..ServiceOptions::default() };
    let service = Service::new(&store, "state", options);
    let core = &service.core;
    let state = core.state().unwrap();
    let fork = state.fork(state.main(), now()).unwrap().0.to_string();
    let mut caller = Caller::new(&service);
    // As a batch on a root holds it.
    let held = core.turn(Key::Fork(state.main()), Access::Write).unwrap();
    for _ in 0..17 {
        caller.ask(&put_value("main", &VALUE));
    }
    assert!((1_000_000..=LIMIT).contains(&service.waiting_bytes()), "{}", service.waiting_bytes());
    let mut other = Caller::new(&service);
    let put = |place: &str, key: &'static str| {
        let (place, key) = (place.to_owned().into(), key.into());
        StateRequest::Put(StatePut { place, key, value: VALUE[..].into() })
    };
    let overloaded = Some(LocalEvent::End(Fault::Overloaded as u16));
    let diff = diff("main", &fork, None, Some(View::Pending));
    // Whatever waits for nothing goes on, and what is small waits, while there is room.
    let made = [put("main", "b"), put(&fork, "c"), diff, put("main", "b")].map(|call| other.make(&call));
    assert_eq!(made, [overloaded, Some(LocalEvent::End(0)), None, overloaded]);
    drop(held);
    caller.hear(17);
    other.hear(1);
    assert_eq!((service.waiting_bytes(), core.turns.in_flight()), (0, 0));
    assert_eq!((last(core, "a").map(|value| value.len()), last(core, "b")), (Some(VALUE.len()), None));
    assert_eq!(other.make(&put("main", "b")), Some(LocalEvent::End(0)));
}

/// Many changes: they come to the key itself at last.
fn many(place: &str, changes: usize) -> Vec<u8> {
    let change =
        |number: usize| Change { key: (number % 9).to_string().into(), value: Some(vec![b'1'].into()) };
    let changes = (0..changes).map(change).collect();
    let batch = StateBatch { place: place.to_owned().into(), changes, if_offset: None, if_root: None };
    let mut frame = Vec::new();
    StateRequest::Batch(batch).encode(&mut frame);
    frame
}

#[test]
fn many_changes_are_put_in_order_elsewhere_and_in_turn() {
    let service = served();
    let core = &service.core;
    let (pending, _) = session(core, 30_000);
    end(core, begin(core, snapshot(&pending), BUSY)).unwrap();
    let (beside, _) = session(core, 30_000);
    // Those that are read where they come, and those that are not.
    for frame in [many("main", 200), many("main", 50_000), many(&pending, 50_000), many(&beside, 50_000)] {
        let Ok(StateRequest::Batch(batch)) = StateRequest::decode(&frame) else { panic!("it is one") };
        let (first, bytes) = core.begin(&frame, BUSY);
        assert!(bytes >= frame.len(), "what waits is counted");
        let write = WriteRequest::batch(&batch, &frame, BUSY);
        assert!(matches!(write, WriteRequest::Frame(_)), "to put them in order takes long");
        let first = arrive(core, first);
        assert!(matches!(first, Outcome::Holding(_)), "others wait for this thread");
        let behind = arrive(core, begin(core, put(&batch.place, "0"), BUSY));
        assert!(matches!(behind, Outcome::InTurn { .. }), "it came behind");
        assert!(matches!(end(core, first), Ok(Answer::Offset { kind: WriteKind::Batch, .. })));
        assert!(matches!(end(core, behind), Ok(Answer::Offset { kind: WriteKind::Put, .. })));
    }
    assert_eq!(core.turns.in_flight(), 0);
}

#[test]
fn a_long_batch_that_is_none_is_no_request_and_gives_its_turn_back() {
    let service = served();
    let core = &service.core;
    let frame = many("main", 50_000);
    for cut in [frame.len() - 1, frame.len() / 2] {
        let Outcome::Holding(rest) = arrive(core, core.begin(&frame[..cut], BUSY).0) else {
            panic!("nobody has read it")
        };
        assert!(matches!(rest(core, ()), Outcome::NoRequest(_)));
        assert_eq!(core.turns.in_flight(), 0);
    }
    let Outcome::Refused(refusal) = core.begin(&many("nowhere", 50_000), BUSY).0 else {
        panic!("that is no place")
    };
    assert_eq!(refusal.code(), RefusalCode::BadPlace);
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
