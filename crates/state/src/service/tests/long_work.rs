//! Calls that take long: where they are done, and what does not wait for them.

use super::orders::Caller;
use super::*;
use crate::fork::{Fork, Moment};
use crate::map::Map;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use thalweg_service::{CallOptions, Client, ClientOptions, Endpoint, Server, ServerOptions};

#[test]
fn a_batch_on_a_root_that_takes_long_to_compute_keeps_nobody_else_waiting() {
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
            // Computed so that nobody remembers it.
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
    let fork = Fork::new(log, 0, Moment { map, offset: 0 }, None);
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
    let mut caller = Caller::new(&service);
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
    let mut caller = Caller::new(&service);
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
            let rest = move |_: &Arc<Core>, _| {
                count.fetch_add(1, Ordering::Relaxed);
                Outcome::done(Answer::Count(1))
            };
            self.0.core.settle(Outcome::elsewhere(UNLIMITED, rest), BUSY, PendingCall::new(1, reply));
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
        local.cancel(&mut service, left);
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
                Outcome::elsewhere(UNLIMITED, |_, _| Outcome::done(Answer::Count(1)))
            };
            let asked = PendingCall::new(1, reply);
            self.0.core.settle(Outcome::elsewhere(1, rest), BUSY, asked);
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
