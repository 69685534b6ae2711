//! The generated Rust client against the generated Rust server, with a queue of frames between them.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

#[rustfmt::skip]
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../../schemas/generated/rust/mod.rs"]
mod echo;

use echo::client::{EchoAsyncClient, EchoClient};
use echo::server::{EchoHandler, dispatch_unordered, handle};
use echo::types::*;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use thalweg_wire::service::{
    Access, AsyncCall, AsyncFrames, Call, CallError, Flow, Fork, Next, Reply, Responder,
};

#[derive(Default)]
struct Service {
    /// Calls that are answered by nobody.
    forgets: bool,
}

impl EchoHandler for Service {
    fn bytes(&self, request: EchoBytes<'_>, responder: Responder<commands::Bytes>) {
        if !self.forgets {
            responder.ok(&EchoBytesResponse { data: request.data });
        }
    }

    fn fields(&self, request: EchoFields<'_>, responder: Responder<commands::Fields>) {
        let EchoFields { count, total, name } = request;
        responder.ok(&EchoFieldsResponse { count, total, name });
    }

    fn nested(&self, request: EchoNested<'_>, responder: Responder<commands::Nested>) {
        // From another thread, as a handler with a pool would.
        let request = request.into_owned();
        let answers = std::thread::spawn(move || responder.ok(&EchoNestedResponse { inner: request.inner }));
        answers.join().unwrap();
    }

    fn aliases(&self, request: EchoAliases, responder: Responder<commands::Aliases>) {
        let EchoAliases { sequence_number, digest, parent, chain } = request;
        responder.ok(&EchoAliasesResponse { sequence_number, digest, parent, chain });
    }

    fn blobs(&self, request: EchoBlobs<'_>, responder: Responder<commands::Blobs>) {
        responder.ok(&EchoBlobsResponse { extra: request.extra, parts: request.parts });
    }

    fn fail(&self, request: EchoFail<'_>, responder: Responder<commands::Fail>) {
        responder.error(&request.reason);
    }

    fn numbers(&self, _: EchoNumbers, _: Responder<commands::Numbers>) {}

    fn places(&self, _: EchoPlaces<'_>, _: Responder<commands::Places>) {}

    fn count(&self, request: EchoCount, mut responder: Responder<commands::Count>) {
        let mut count = 0;
        for value in request.first..=request.last {
            if responder.item(&EchoCountItem { value }) == Flow::Gone {
                break;
            }
            count += 1;
        }
        responder.ok(&EchoCountResponse { count });
    }

    fn put(&self, _: EchoPut<'_>, responder: Responder<commands::Put>) {
        responder.ok(&EchoPutResponse { version: 1 });
    }

    fn peek(&self, _: EchoPeek<'_>, responder: Responder<commands::Peek>) {
        responder.ok(&EchoPeekResponse { value: None });
    }

    fn peek_committed(&self, _: EchoPeekCommitted<'_>, responder: Responder<commands::PeekCommitted>) {
        responder.ok(&EchoPeekResponse { value: Some(Cow::Borrowed(b"committed")) });
    }
}

type Queue = Arc<Mutex<VecDeque<Vec<u8>>>>;

struct Sink(Queue);

impl Reply for Sink {
    fn item(&mut self, frame: &[u8]) -> Flow {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(frame.to_vec());
        if queue.len() < 5 { Flow::Go } else { Flow::Gone }
    }

    fn is_cancelled(&self) -> bool {
        false
    }

    fn changed(&mut self, waker: &Waker) {
        waker.wake_by_ref();
    }

    fn end(&mut self, frame: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(frame.to_vec());
    }
}

/// Carries frames to a service in the same thread.
#[derive(Default)]
struct Wire {
    service: Service,
    queue: Queue,
    frame: Vec<u8>,
    /// Streams whose reader is gone.
    left: Arc<AtomicUsize>,
}

impl Wire {
    fn carry(&self, request: &[u8]) {
        dispatch_unordered(&self.service, request, Box::new(Sink(Arc::clone(&self.queue))));
    }

    fn pop(&self) -> Result<Vec<u8>, &'static str> {
        self.queue.lock().unwrap().pop_front().ok_or("nothing came")
    }
}

impl Call for Wire {
    type Error = &'static str;

    fn send(&mut self, request: &[u8]) -> Result<(), Self::Error> {
        self.carry(request);
        Ok(())
    }

    fn receive(&mut self) -> Result<&[u8], Self::Error> {
        self.frame = self.pop()?;
        Ok(&self.frame)
    }

    fn leave(&mut self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }
}

struct Frames(Queue);

impl AsyncFrames for Frames {
    type Error = &'static str;

    async fn next(&mut self) -> Result<Vec<u8>, Self::Error> {
        self.0.lock().unwrap().pop_front().ok_or("nothing came")
    }
}

impl AsyncCall for Wire {
    type Error = &'static str;
    type Frames = Frames;

    async fn call(&self, request: Vec<u8>) -> Result<Vec<u8>, Self::Error> {
        self.carry(&request);
        self.pop()
    }

    async fn stream(&self, request: Vec<u8>) -> Result<Self::Frames, Self::Error> {
        self.carry(&request);
        Ok(Frames(Arc::clone(&self.queue)))
    }
}

fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing here waits"),
    }
}

#[test]
fn calls_are_answered() {
    let mut client = EchoClient::new(Wire::default());
    let answer = client.bytes(&EchoBytes { data: Cow::Borrowed(&[1, 2]) }).unwrap();
    assert_eq!(*answer.data, [1, 2]);
    let inner = Inner { values: vec![Cow::Borrowed(b"x")], flag: Some(false) };
    assert_eq!(client.nested(&EchoNested { inner: inner.clone() }).unwrap().inner, inner);
    let committed = client.peek_committed(&EchoPeekCommitted { fork: "f".into() }).unwrap();
    assert_eq!(committed.value.as_deref(), Some(&b"committed"[..]));
}

#[test]
fn errors_silence_and_nonsense_are_told_apart() {
    let mut client = EchoClient::new(Wire::default());
    let refused = client.fail(&EchoFail { reason: "because".into() }).unwrap_err();
    assert_eq!(refused, CallError::Refused("because".to_owned()));
    let mut client = EchoClient::new(Wire { service: Service { forgets: true }, ..Wire::default() });
    let silent = client.bytes(&EchoBytes { data: Cow::Borrowed(&[]) }).unwrap_err();
    assert_eq!(silent, CallError::Refused("the handler gave no answer".to_owned()));
    let wire = Wire::default();
    wire.carry(b"nonsense");
    let answer = EchoResponse::decode(&wire.pop().unwrap()).unwrap().into_owned();
    let EchoResponse::ErrorResponse(error) = answer else { panic!("{answer:?}") };
    assert!(error.message.contains("expected an array"), "{}", error.message);
}

#[test]
fn streams_bring_items_and_then_their_end() {
    let wire = Wire::default();
    let left = Arc::clone(&wire.left);
    let mut client = EchoClient::new(wire);
    let mut items = client.count(&EchoCount { first: 7, last: 9 }).unwrap();
    for value in 7..=9 {
        assert_eq!(items.next(), Ok(Next::Item(EchoCountItem { value })));
    }
    assert_eq!(items.next(), Ok(Next::End(EchoCountResponse { count: 3 })));
    assert_eq!(items.next(), Err(CallError::Transport("nothing came")));
    assert_eq!(left.load(Ordering::Relaxed), 0);
    drop(items);
    assert_eq!(left.load(Ordering::Relaxed), 1, "the transport hears that nobody reads on");
    // A reader that went away stops the handler.
    let mut items = client.count(&EchoCount { first: 0, last: u32::MAX }).unwrap();
    assert_eq!((0..5).filter(|_| matches!(items.next(), Ok(Next::Item(_)))).count(), 5);
    assert_eq!(items.next(), Ok(Next::End(EchoCountResponse { count: 4 })));
}

#[test]
fn a_frame_that_cannot_be_read_ends_its_stream() {
    let spoil = |queue: &Queue| queue.lock().unwrap().insert(1, b"nonsense".to_vec());
    let (first, request) = (Next::Item(EchoCountItem { value: 7 }), EchoCount { first: 7, last: 9 });
    let wire = Wire::default();
    let (left, queue) = (Arc::clone(&wire.left), Arc::clone(&wire.queue));
    let mut client = EchoClient::new(wire);
    let mut items = client.count(&request).unwrap();
    spoil(&queue);
    assert_eq!(items.next(), Ok(first.clone()));
    let unreadable = items.next().unwrap_err();
    assert!(matches!(unreadable, CallError::Decode(_)), "{unreadable:?}");
    assert_eq!(items.next(), Err(unreadable.clone()), "and none of what lies behind it");
    assert_eq!(left.load(Ordering::Relaxed), 1, "nobody reads on");

    let wire = Wire::default();
    let queue = Arc::clone(&wire.queue);
    let client = EchoAsyncClient::new(wire);
    let others = Arc::strong_count(&queue);
    let mut items = ready(client.count(&request)).unwrap();
    spoil(&queue);
    assert_eq!(ready(items.next()), Ok(first));
    assert_eq!(ready(items.next()), Err(unreadable.clone()));
    assert_eq!(Arc::strong_count(&queue), others, "its frames are let go of at once");
    assert_eq!(ready(items.next()), Err(unreadable));
}

#[test]
fn asynchronous_calls_own_their_answers() {
    let client = EchoAsyncClient::new(Wire::default());
    let answer: EchoBytesResponse<'static> =
        ready(client.bytes(&EchoBytes { data: Cow::Borrowed(&[3]) })).unwrap();
    assert_eq!(*answer.data, [3]);
    let mut items = ready(client.count(&EchoCount { first: 1, last: 1 })).unwrap();
    assert_eq!(ready(items.next()), Ok(Next::Item(EchoCountItem { value: 1 })));
    assert_eq!(ready(items.next()), Ok(Next::End(EchoCountResponse { count: 1 })));
}

#[test]
fn requests_say_how_they_are_ordered() {
    let put = EchoRequest::Put(EchoPut { fork: "main".into(), value: Cow::Borrowed(b"") });
    assert_eq!(put.access(), Some((Access::Write, Fork::Bytes(Cow::Borrowed(b"main")))));
    assert_eq!(EchoRequest::Fail(EchoFail { reason: "".into() }).access(), None);
    let wire = Wire::default();
    handle(&wire.service, put, Box::new(Sink(Arc::clone(&wire.queue))));
    let answer = wire.pop().unwrap();
    assert_eq!(EchoResponse::decode(&answer), Ok(EchoResponse::PutResponse(EchoPutResponse { version: 1 })));
}
