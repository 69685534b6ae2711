//! The generated service of `echo.jsonc` over the scheduler: its commands are ordered as the schema declares, whatever its
//! handler does with its responders.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

#[rustfmt::skip]
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../../schemas/generated/rust/mod.rs"]
mod echo;

use echo::server::{EchoHandler, EchoService};
use echo::types::*;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;
use thalweg_service::{Error, Executor, Pool, Scheduled};
use thalweg_wire::messagepack::{Message, request_frame};
use thalweg_wire::service::{Flow, Reply, Responder, answer};

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
    fn count(&self, _: EchoCount, _: Responder<commands::Count>) {}
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
fn a_call_that_comes_alone_runs_where_it_came_in() {
    let service = Service::new(Store::default(), Pool::new(1));
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
fn what_is_no_request_is_answered_with_the_error() {
    let service: Arc<Service<Pool>> = Arc::new(Service::new(Store::default(), Pool::new(1)));
    let (sender, answers) = channel();
    service.request(b"\x91nonsense", true, Answers(sender));
    let error = answer::<commands::Put, Error>(&answers.recv().unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("refused: "), "{error}");
    assert_eq!(service.in_flight(), 0);
}
