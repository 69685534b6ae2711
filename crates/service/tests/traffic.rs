//! Client and server together under random traffic: whatever is called, cancelled, forgotten, left to a
//! deadline or streamed, in whatever order answers are asked for, each call ends exactly once and with its
//! own.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::Duration;
use thalweg_service::{
    CallId, CallOptions, Client, ClientOptions, Endpoint, EventKind, Executor, Pool, Reply, Request, Server,
    ServerOptions, Wait,
};
use thalweg_wire::fault::Fault;
use thalweg_wire::service::Flow;

/// What a request asks for: its first byte. The rest comes back, which begins with the call's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    /// The answer at once.
    Now = 1,
    /// The answer from another thread.
    Later = 2,
    /// Three items, then the answer.
    Stream = 3,
    /// No answer.
    Nothing = 4,
    /// A refusal.
    Fail = 5,
    /// An answer that comes when the call is cancelled or overdue, and never otherwise.
    Hang = 6,
}

fn answer(request: Vec<u8>, mut reply: Reply) {
    match request[0] {
        3 => {
            for item in 0..3 {
                if reply.item(&[&[item], &request[1..]].concat()) == Flow::Gone {
                    break;
                }
            }
            reply.end(&request);
        }
        4 => drop(reply),
        5 => reply.fail(Fault::Refused, "as asked"),
        6 => {
            while !reply.is_cancelled() {
                std::thread::sleep(Duration::from_micros(200));
            }
            reply.end(b"too late");
        }
        _ => reply.end(&request),
    }
}

#[derive(Clone, Debug)]
struct Step {
    ask: Ask,
    length: usize,
    /// What else happens to some call in flight.
    then: Then,
    which: prop::sample::Index,
}

#[derive(Clone, Copy, Debug)]
enum Then {
    Nothing,
    Cancel,
    Forget,
    WaitFor,
    Turn,
    TakeWhatCame,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ask = prop_oneof![
        4 => Just(Ask::Now),
        3 => Just(Ask::Later),
        2 => Just(Ask::Stream),
        1 => Just(Ask::Nothing),
        1 => Just(Ask::Fail),
        1 => Just(Ask::Hang),
    ];
    let length = prop_oneof![8 => 0_usize..200, 1 => 0_usize..100_000];
    let then = prop_oneof![
        3 => Just(Then::Nothing),
        1 => Just(Then::Cancel),
        1 => Just(Then::Forget),
        2 => Just(Then::WaitFor),
        2 => Just(Then::Turn),
        2 => Just(Then::TakeWhatCame),
    ];
    let step = (ask, length, then, any::<prop::sample::Index>());
    let step = step.prop_map(|(ask, length, then, which)| Step { ask, length, then, which });
    proptest::collection::vec(step, 1..60)
}

/// What is known of a call that has not ended.
#[derive(Debug)]
struct Open {
    request: Vec<u8>,
    ask: Ask,
    items: u8,
    cancelled: bool,
}

/// The numbers of all calls.
#[derive(Default)]
struct Numbers {
    given: Mutex<u64>,
    /// Of those whose requests the server was handed.
    seen: Mutex<BTreeSet<u64>>,
}

impl Numbers {
    fn next(&self) -> u64 {
        let mut given = self.given.lock().unwrap();
        *given += 1;
        *given
    }

    fn see(&self, frame: &[u8]) {
        self.seen.lock().unwrap().insert(number(frame));
    }
}

fn number(request: &[u8]) -> u64 {
    u64::from_le_bytes(*request[1..].first_chunk().unwrap())
}

struct Caller<'a> {
    client: Client,
    numbers: &'a Numbers,
    /// Of calls that ended as not sent.
    not_sent: Vec<u64>,
    open: BTreeMap<CallId, Open>,
    ended: HashMap<CallId, &'static str>,
}

impl Caller<'_> {
    fn call(&mut self, ask: Ask, length: usize) -> CallId {
        let mut request = vec![ask as u8];
        request.extend(self.numbers.next().to_le_bytes());
        request.resize(request.len() + length, length as u8);
        // A call that hangs ends at its deadline, if not before.
        let deadline = (ask == Ask::Hang).then_some(Duration::from_millis(15));
        let call = self.client.call(&request, CallOptions { deadline, ..CallOptions::default() }).unwrap();
        self.open.insert(call, Open { request, ask, items: 0, cancelled: false });
        call
    }

    fn also(&mut self, step: &Step) {
        let which = (!self.open.is_empty()).then(|| step.which.index(self.open.len()));
        let call = which.and_then(|at| self.open.keys().nth(at).copied());
        match (step.then, call) {
            (Then::Cancel, Some(call)) => {
                self.client.cancel(call);
                self.open.get_mut(&call).unwrap().cancelled = true;
            }
            (Then::Forget, Some(call)) => {
                self.client.forget(call);
                self.open.remove(&call);
            }
            (Then::WaitFor, Some(call)) => self.wait_for(call),
            (Then::Turn, _) => drop(self.client.turn(Wait::Poll).unwrap()),
            (Then::TakeWhatCame, _) => self.take(),
            _ => {}
        }
    }

    fn wait_for(&mut self, call: CallId) {
        let event = self.client.wait_event(call).unwrap();
        let (kind, frame) = (event.kind, event.frame.to_vec());
        self.judge(call, kind, &frame);
    }

    fn take(&mut self) {
        while let Some(event) = self.client.next() {
            let (call, kind, frame) = (event.call, event.kind, event.frame.to_vec());
            self.judge(call, kind, &frame);
        }
    }

    fn judge(&mut self, call: CallId, kind: EventKind, frame: &[u8]) {
        let open = self.open.get_mut(&call).unwrap_or_else(|| {
            panic!("{call:?} ended before ({:?}) or was forgotten: {kind:?}", self.ended.get(&call));
        });
        let how = match kind {
            EventKind::Item => {
                assert!(open.ask == Ask::Stream && frame[0] == open.items && frame[1..] == open.request[1..]);
                open.items += 1;
                return;
            }
            EventKind::End => {
                let asked_for = matches!(open.ask, Ask::Now | Ask::Later | Ask::Stream);
                assert!(asked_for && frame == open.request, "{open:?}");
                assert!(open.ask != Ask::Stream || open.items == 3 || open.cancelled);
                "end"
            }
            EventKind::Failed(error) => {
                let expected = match (open.ask, error.fault) {
                    (_, Fault::Cancelled) => open.cancelled,
                    (Ask::Nothing, fault) => fault == Fault::Abandoned,
                    (Ask::Fail, fault) => fault == Fault::Refused,
                    (Ask::Hang, Fault::DeadlineExceeded) => true,
                    // Its deadline may pass before there is room for the request; then no server sees it.
                    (Ask::Hang, Fault::NotSent) => {
                        self.not_sent.push(number(&open.request));
                        true
                    }
                    _ => false,
                };
                assert!(expected, "{:?}: {error}", open.ask);
                error.fault.word()
            }
        };
        self.open.remove(&call);
        self.ended.insert(call, how);
    }
}

fn run(endpoint: &Endpoint, numbers: &Numbers, steps: &[Step]) {
    let client =
        Client::connect(endpoint, ClientOptions { ring_bytes: 8_192, ..Default::default() }).unwrap();
    let mut caller =
        Caller { client, numbers, not_sent: Vec::new(), open: BTreeMap::new(), ended: HashMap::new() };
    for step in steps {
        caller.call(step.ask, step.length);
        caller.also(step);
    }
    while !caller.open.is_empty() {
        caller.client.turn(Wait::Block).unwrap();
        caller.take();
    }
    assert_eq!(caller.client.in_flight(), 0);
    // Once this is answered the server was handed whatever left before.
    let last = caller.call(Ask::Now, 0);
    caller.wait_for(last);
    let is_seen = |number: &&u64| numbers.seen.lock().unwrap().contains(*number);
    let lies: Vec<_> = caller.not_sent.iter().filter(is_seen).collect();
    assert!(lies.is_empty(), "{lies:?} were not sent, and came");
}

fn serve(name: &str, cases: u32) {
    let directory = tempfile::tempdir().unwrap();
    let endpoint: Endpoint = directory.path().join(name).to_str().unwrap().parse().unwrap();
    let mut server = Server::bind(std::slice::from_ref(&endpoint), ServerOptions::default()).unwrap();
    let stopper = server.stopper();
    let numbers = &Numbers::default();
    std::thread::scope(|scope| {
        let running = scope.spawn(move || {
            let pool = Pool::new(4);
            server.serve(move |request: Request<'_>, reply: Reply| {
                let frame = request.frame.to_vec();
                numbers.see(&frame);
                if matches!(frame[0], 2 | 3 | 6) {
                    pool.execute(Box::new(move || answer(frame, reply)));
                } else {
                    answer(frame, reply);
                }
            })
        });
        let outcome = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases)).run(
            &steps(),
            |steps| {
                run(&endpoint, numbers, &steps);
                Ok(())
            },
        );
        stopper.stop();
        running.join().unwrap().unwrap();
        outcome.unwrap();
    });
}

#[test]
fn every_call_ends_once_and_with_its_own_over_a_socket() {
    serve("traffic.sock", 40);
}

#[test]
fn every_call_ends_once_and_with_its_own_through_shared_memory() {
    serve("traffic.shm", 40);
}
