//! The generated service of `echo.jsonc` over the scheduler: its commands are ordered as the schema declares,
//! whatever its handler does with its responders.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

#[rustfmt::skip]
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../../schemas/generated/rust/mod.rs"]
mod echo;

use echo::client::{EchoAsyncClient, EchoClient};
use echo::server::{EchoHandler, EchoService};
use echo::types::*;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;
use thalweg_service::{
    AsyncClient, ClientOptions, Endpoint, Error, Executor, Pool, Scheduled, Server, ServerOptions, SyncClient,
};
use thalweg_wire::fault::Fault;
use thalweg_wire::messagepack::{Message, request_frame};
use thalweg_wire::service::{CallError, Flow, Next, Reply, Responder, answer};

/// Keeps values by fork. A put whose value is `later` is answered by the test.
#[derive(Default)]
struct Store {
    values: Mutex<HashMap<String, Vec<u8>>>,
    puts: Mutex<Vec<(Responder<commands::Put>, u64)>>,
    /// On which threads handlers ran.
    threads: Mutex<Vec<std::thread::ThreadId>>,
}

impl EchoHandler for Store {
    fn put(&self, request: EchoPut<'_>, responder: Responder<commands::Put>) {
        self.threads.lock().unwrap().push(std::thread::current().id());
        assert_ne!(&*request.value, b"panic", "this handler panics on purpose");
        let mut values = self.values.lock().unwrap();
        values.insert(request.fork.to_string(), request.value.to_vec());
        let version = values.len() as u64;
        if &*request.value == b"later" {
            self.puts.lock().unwrap().push((responder, version));
        } else {
            responder.ok(&EchoPutResponse { version });
        }
    }

    fn peek(&self, request: EchoPeek<'_>, responder: Responder<commands::Peek>) {
        let value = self.values.lock().unwrap().get(&*request.fork).cloned();
        responder.ok(&EchoPeekResponse { value: value.map(Into::into) });
    }

    fn peek_committed(&self, _: EchoPeekCommitted<'_>, responder: Responder<commands::PeekCommitted>) {
        responder.ok(&EchoPeekResponse { value: None });
    }

    fn bytes(&self, request: EchoBytes<'_>, responder: Responder<commands::Bytes>) {
        responder.ok(&EchoBytesResponse { data: request.data });
    }

    fn fields(&self, _: EchoFields<'_>, _: Responder<commands::Fields>) {}
    fn nested(&self, _: EchoNested<'_>, _: Responder<commands::Nested>) {}
    fn aliases(&self, _: EchoAliases, _: Responder<commands::Aliases>) {}
    fn blobs(&self, _: EchoBlobs<'_>, _: Responder<commands::Blobs>) {}
    fn fail(&self, _: EchoFail<'_>, _: Responder<commands::Fail>) {}
    fn numbers(&self, _: EchoNumbers, _: Responder<commands::Numbers>) {}
    fn places(&self, _: EchoPlaces<'_>, _: Responder<commands::Places>) {}

    /// Waits on the pool's thread while there is no credit, which the server's thread hears of.
    fn count(&self, request: EchoCount, mut responder: Responder<commands::Count>) {
        let unpark = Waker::from(Arc::new(Unpark(std::thread::current())));
        for value in request.first..request.last {
            if responder.item(&EchoCountItem { value }) == Flow::Wait {
                responder.changed(&unpark);
                std::thread::park_timeout(Duration::from_secs(20));
            }
        }
        responder.ok(&EchoCountResponse { count: request.last - request.first });
    }
}

/// Wakes the thread that makes a stream.
struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Sends the frame that ends a call to the test.
struct Answers(Sender<Vec<u8>>);

impl Reply for Answers {
    fn item(&mut self, _: &[u8]) -> Flow {
        Flow::Gone
    }
    fn end(&mut self, frame: &[u8]) {
        self.0.send(frame.to_vec()).unwrap();
    }
    fn is_cancelled(&self) -> bool {
        false
    }
    fn changed(&mut self, _: &Waker) {}
}

/// An answer that nobody waits for any more.
struct Cancelled;

impl Reply for Cancelled {
    fn item(&mut self, _: &[u8]) -> Flow {
        Flow::Gone
    }
    fn end(&mut self, _: &[u8]) {}
    fn is_cancelled(&self) -> bool {
        true
    }
    fn changed(&mut self, _: &Waker) {}
}

type Service<E> = Scheduled<EchoService, Store, E>;

fn ask<'a, E: Executor + 'static>(
    service: &Service<E>,
    alone: bool,
    request: &impl Message<'a>,
) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    let mut frame = Vec::new();
    request_frame(request, &mut frame);
    service.request(&frame, alone, Answers(sender));
    receiver
}

fn put<E: Executor + 'static>(service: &Service<E>, fork: &str, value: &[u8]) -> Receiver<Vec<u8>> {
    ask(service, false, &EchoPut { fork: fork.into(), value: value.into() })
}

fn peek<E: Executor + 'static>(service: &Service<E>, fork: &str) -> Receiver<Vec<u8>> {
    ask(service, false, &EchoPeek { fork: fork.into() })
}

fn value(answers: &Receiver<Vec<u8>>) -> Option<Vec<u8>> {
    let frame = answers.recv().unwrap();
    let response = answer::<commands::Peek, Error>(&frame).unwrap();
    response.value.map(|value| value.to_vec())
}

/// Waits for a put that the handler left to the test.
fn left(service: &Service<Pool>) -> (Responder<commands::Put>, u64) {
    loop {
        if let Some(put) = service.handler().puts.lock().unwrap().pop() {
            return put;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_read_waits_behind_a_write_until_it_is_answered_and_other_forks_do_not() {
    let service = Service::new(Store::default(), Pool::new(2));
    let written = put(&service, "a", b"later");
    let behind = [peek(&service, "a"), put(&service, "a", b"second"), peek(&service, "a")];
    let committed = ask(&service, false, &EchoPeekCommitted { fork: "a".into() });
    assert_eq!(value(&committed), None, "a committed read waits for nobody");
    assert_eq!(value(&peek(&service, "b")), None, "nor does another fork");
    let (responder, version) = left(&service);
    assert!(behind.iter().all(|answers| answers.try_recv().is_err()));
    responder.ok(&EchoPutResponse { version });
    assert!(answer::<commands::Put, Error>(&written.recv().unwrap()).is_ok());
    assert_eq!(value(&behind[0]).as_deref(), Some(&b"later"[..]));
    assert!(answer::<commands::Put, Error>(&behind[1].recv().unwrap()).is_ok());
    assert_eq!(value(&behind[2]).as_deref(), Some(&b"second"[..]));
}

#[test]
fn a_handler_that_panics_or_forgets_is_answered_for_and_gives_its_fork_back() {
    let service = Service::new(Store::default(), Pool::new(1));
    let panicked = put(&service, "a", b"panic");
    let forgotten = put(&service, "a", b"later");
    let after = peek(&service, "a");
    let refused = |answers: &Receiver<Vec<u8>>| {
        answer::<commands::Put, Error>(&answers.recv().unwrap()).unwrap_err().to_string()
    };
    assert_eq!(refused(&panicked), "refused: the handler gave no answer");
    drop(left(&service));
    assert_eq!(refused(&forgotten), "refused: the handler gave no answer");
    assert_eq!(value(&after).as_deref(), Some(&b"later"[..]));
}

#[test]
fn a_call_that_nobody_waits_for_when_its_turn_comes_is_not_begun() {
    let service = Service::new(Store::default(), Pool::new(2));
    let written = put(&service, "a", b"later");
    let (responder, version) = left(&service);
    let mut frame = Vec::new();
    request_frame(&EchoPut { fork: "a".into(), value: b"cancelled"[..].into() }, &mut frame);
    service.request(&frame, false, Cancelled);
    let behind = peek(&service, "a");
    responder.ok(&EchoPutResponse { version });
    assert!(answer::<commands::Put, Error>(&written.recv().unwrap()).is_ok());
    assert_eq!(value(&behind).as_deref(), Some(&b"later"[..]));
}

#[test]
fn a_call_that_comes_alone_runs_where_it_came_in_if_that_is_asked_for() {
    let service = Service::new(Store::default(), Pool::new(1)).inline();
    let here = std::thread::current().id();
    let request = EchoPut { fork: "a".into(), value: b"x"[..].into() };
    ask(&service, true, &request).recv().unwrap();
    assert_eq!(*service.handler().threads.lock().unwrap(), [here]);
    ask(&service, false, &request).recv().unwrap();
    assert_ne!(service.handler().threads.lock().unwrap()[1], here, "one that did not is handed over");
    let later = put(&service, "b", b"later");
    let put = left(&service);
    ask(&service, true, &request).recv().unwrap();
    assert_ne!(
        service.handler().threads.lock().unwrap()[3],
        here,
        "and so is one while another is in flight"
    );
    put.0.ok(&EchoPutResponse { version: put.1 });
    later.recv().unwrap();
}

#[test]
fn a_handler_may_wait_on_the_pools_thread_though_its_call_came_alone() {
    serve(|endpoint, plain| {
        let options = ClientOptions { plain, ..ClientOptions::default() };
        let mut client = EchoClient::new(SyncClient::connect(&endpoint, options).unwrap());
        let begun = std::time::Instant::now();
        let mut items = client.count(&EchoCount { first: 0, last: 100_000 }).unwrap();
        while let Next::Item(_) = items.next().unwrap() {}
        assert!(begun.elapsed() < Duration::from_secs(20), "it waited for what its own thread was to hear");
    });
}

#[test]
fn what_is_no_request_is_answered_with_the_error() {
    let service: Arc<Service<Pool>> = Arc::new(Service::new(Store::default(), Pool::new(1)));
    let (sender, answers) = channel();
    service.request(b"\x91nonsense", true, Answers(sender));
    let error = answer::<commands::Put, Error>(&answers.recv().unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("refused: "), "{error}");
    assert_eq!(service.in_flight(), 0);
}

/// Serves the store at each kind of endpoint until the test is through.
fn serve(test: impl Fn(Endpoint, bool)) {
    for (name, plain) in [("store.sock", true), ("store.sock", false), ("store.shm", false)] {
        let directory = tempfile::tempdir().unwrap();
        let endpoint: Endpoint = directory.path().join(name).to_str().unwrap().parse().unwrap();
        let options = ServerOptions {
            error_tag: "EchoErrorResponse".into(),
            ring_bytes_max: 65_536,
            ..Default::default()
        };
        let mut server = Server::bind(std::slice::from_ref(&endpoint), options).unwrap();
        let stopper = server.stopper();
        let service = Service::new(Store::default(), Pool::new(2));
        std::thread::scope(|scope| {
            let running = scope.spawn(move || server.serve(service));
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(endpoint, plain)));
            stopper.stop();
            running.join().unwrap().unwrap();
            outcome.unwrap();
        });
    }
}

#[test]
fn generated_client_and_server_meet_over_each_kind_of_connection() {
    serve(|endpoint, plain| {
        let options = ClientOptions { plain, ..ClientOptions::default() };
        let mut client = EchoClient::new(SyncClient::connect(&endpoint, options.clone()).unwrap());
        for version in 1..=50_u64 {
            let fork = format!("fork {version}");
            let put = EchoPut { fork: fork.as_str().into(), value: b"value"[..].into() };
            assert_eq!(client.put(&put).unwrap().version, version);
            let peek = client.peek(&EchoPeek { fork: fork.as_str().into() }).unwrap();
            assert_eq!(peek.value.as_deref(), Some(&b"value"[..]));
        }
        let values: Vec<u32> = {
            let mut values = Vec::new();
            let mut items = client.count(&EchoCount { first: 0, last: 1_000 }).unwrap();
            while let Next::Item(item) = items.next().unwrap() {
                values.push(item.value);
            }
            values
        };
        assert_eq!(values, (0..1_000).collect::<Vec<_>>());

        let shared = AsyncClient::connect(&endpoint, options).unwrap();
        let client = EchoAsyncClient::new(shared.clone());
        let read = async {
            let mut items = client.count(&EchoCount { first: 0, last: 1_000 }).await.unwrap();
            let mut values = 0;
            while let Next::Item(item) = items.next().await.unwrap() {
                assert_eq!(item.value, values);
                values += 1;
            }
            values
        };
        assert_eq!(shared.run_until(read).unwrap(), 1_000);
    });
}

#[test]
fn a_responder_that_is_dropped_has_abandoned_its_call() {
    serve(|endpoint, plain| {
        let client =
            AsyncClient::connect(&endpoint, ClientOptions { plain, ..ClientOptions::default() }).unwrap();
        let echo = EchoAsyncClient::new(client.clone());
        let request = EchoFail { reason: "because".into() };
        match client.run_until(echo.fail(&request)).unwrap().unwrap_err() {
            // A frame of a plain connection has no room for a fault.
            CallError::Refused(message) if plain => assert_eq!(message, "the handler gave no answer"),
            CallError::Transport(error) if !plain => assert_eq!(error.fault, Fault::Abandoned),
            other => panic!("{other}"),
        }
    });
}

#[test]
fn many_clients_at_once_see_writes_in_order() {
    serve(|endpoint, plain| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (endpoint, options) = (&endpoint, ClientOptions { plain, ..ClientOptions::default() });
                scope.spawn(move || {
                    let mut client = EchoClient::new(SyncClient::connect(endpoint, options).unwrap());
                    let fork = format!("of thread {thread}");
                    for round in 0..200_u32 {
                        let value = round.to_le_bytes();
                        let put = EchoPut { fork: fork.as_str().into(), value: value[..].into() };
                        client.put(&put).unwrap();
                        let peek = client.peek(&EchoPeek { fork: fork.as_str().into() }).unwrap();
                        assert_eq!(peek.value.as_deref(), Some(&value[..]));
                    }
                });
            }
        });
    });
}
