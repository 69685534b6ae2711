//! A service that lives in another process: here on another thread, behind its socket all the same.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{Running, TestHandler, numbered, schema, until};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use thalweg_rpc::{Bounds, Mount, ServerOptions};
use thalweg_service::{Endpoint, Server, ServerOptions as ServiceOptions, Stopper};

struct Service {
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    fn start(endpoint: &Endpoint, handler: &TestHandler) -> Self {
        let options = ServiceOptions {
            schema: schema().hash,
            error_tag: "TrialErrorResponse".into(),
            ..Default::default()
        };
        let mut server = Server::bind(std::slice::from_ref(endpoint), options).unwrap();
        let (stopper, handler) = (server.stopper(), handler.clone());
        let thread = std::thread::spawn(move || server.serve(handler).unwrap());
        Self { stopper, thread: Some(thread) }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stopper.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn endpoint(directory: &Path, name: &str) -> Endpoint {
    directory.join(name).to_str().unwrap().parse().unwrap()
}

fn call(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "method": method, "params": params, "id": 1 }).to_string()
}

#[test]
fn calls_go_over_a_socket_or_through_shared_memory_and_come_back() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["test.sock", "test.shm"] {
        let at = endpoint(directory.path(), name);
        let handler = TestHandler::default();
        let service = Service::start(&at, &handler);
        let bounds = Bounds { stream_items_max: 3, ..Bounds::default() };
        let options = ServerOptions { bounds, ..ServerOptions::default() };
        let server = Running::with(options, Arc::clone(&handler.0), move || Mount::elsewhere(&schema(), at));
        let mut client = server.connect();
        assert_eq!(
            client.ask(call("Same", &json!([u64::MAX, "x"])))["result"]["number"].as_u64(),
            Some(u64::MAX)
        );
        assert_eq!(client.ask(call("Refuse", &json!(["no"])))["error"]["message"], "no");
        assert_eq!(client.ask(call("Panic", &json!([])))["error"]["data"]["fault"], "abandoned");
        assert_eq!(client.ask(call("Count", &json!([3])))["result"]["end"]["sum"], 6);
        assert_eq!(client.ask(call("Count", &json!([9])))["error"]["data"]["fault"], "overrun");
        let batch: Vec<Value> =
            (0..200).map(|n| json!({ "jsonrpc": "2.0", "method": "Same", "params": [n], "id": n })).collect();
        let answers = client.ask(serde_json::to_string(&batch).unwrap());
        for (n, answer) in answers.as_array().unwrap().iter().enumerate() {
            assert_eq!((&answer["id"], &answer["result"]["number"]), (&json!(n), &json!(n)));
        }
        // The other end is told when one goes away.
        let mut other = server.connect();
        other.post(call("Later", &json!([1])));
        let waiting = server.waiting(1);
        drop(other);
        drop(waiting);
        drop((client, server, service));
    }
}

/// What has no answer leaves without anything else that happens: a notification, and that nobody waits any
/// more.
#[test]
fn what_nobody_waits_for_is_sent_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["test.sock", "test.shm"] {
        let at = endpoint(directory.path(), name);
        let handler = TestHandler::default();
        let _service = Service::start(&at, &handler);
        let bounds = Bounds { patience: std::time::Duration::from_secs(2), ..Bounds::default() };
        let options = ServerOptions { bounds, ..ServerOptions::default() };
        let server = Running::with(options, Arc::clone(&handler.0), move || Mount::elsewhere(&schema(), at));
        let mut client = server.connect();
        let notification = json!({ "jsonrpc": "2.0", "method": "Same", "params": [1] });
        for count in 1..=3 {
            client.post(notification.to_string());
            assert_eq!(client.answer().status, 204);
            until("carried out", || server.asked().len() == count);
        }
        client.post(call("Later", &json!([1])));
        let waiting = server.waiting(1);
        assert_eq!(client.answer().json()["error"]["data"]["fault"], "deadline_exceeded");
        until("told", || waiting[0].1.is_cancelled());
    }
}

/// A client that knows no faults tells by its number what may be repeated: what was made must not have that
/// of what is no request.
#[test]
fn what_is_too_long_to_answer_is_no_request_that_was_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let at = endpoint(directory.path(), "test.sock");
    let handler = TestHandler::default();
    let _service = Service::start(&at, &handler);
    let options = ServerOptions::default();
    let server = Running::with(options, Arc::clone(&handler.0), move || Mount::elsewhere(&schema(), at));
    let mut client = server.connect();
    client.post(call("Later", &json!([1])));
    let (_, reply) = server.waiting(1).remove(0);
    reply.end(&numbered("TrialLaterResponse", 1, Some(&"x".repeat(17 << 20))));
    let error = client.answer().json()["error"].take();
    assert_eq!(
        (&error["data"]["fault"], &error["code"]),
        (&json!("frame_too_large"), &json!(-32020)),
        "{error}"
    );
}

#[test]
fn a_service_that_went_away_is_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let at = endpoint(directory.path(), "test.sock");
    let handler = TestHandler::default();
    let service = Service::start(&at, &handler);
    let there = at.clone();
    let server = Running::with(ServerOptions::default(), Arc::clone(&handler.0), move || {
        Mount::elsewhere(&schema(), there)
    });
    let mut client = server.connect();
    assert_eq!(client.ask(call("Same", &json!([1])))["result"]["number"], 1);
    client.post(call("Later", &json!([1])));
    let waiting = server.waiting(1);
    // Ends in good order: what was begun is answered.
    service.stopper.stop();
    for (number, reply) in waiting {
        reply.end(&numbered("TrialLaterResponse", number, None));
    }
    assert_eq!(client.answer().json()["result"]["number"], 1);
    drop(service);
    until("free", || !directory.path().join("test.sock").exists());
    let _service = Service::start(&at, &handler);
    assert_eq!(client.ask(call("Same", &json!([2])))["result"]["number"], 2);
}

/// As many calls are under way as of a service that is here, and not as few as a client has that is told
/// nothing.
#[test]
fn the_bound_of_calls_is_that_of_the_gateway() {
    let directory = tempfile::tempdir().unwrap();
    let at = endpoint(directory.path(), "test.sock");
    let handler = TestHandler::default();
    let _service = Service::start(&at, &handler);
    let server = Running::with(ServerOptions::default(), Arc::clone(&handler.0), move || {
        Mount::elsewhere(&schema(), at)
    });
    let mut clients = [server.connect(), server.connect()];
    let later = |n| json!({ "jsonrpc": "2.0", "method": "Later", "params": [n], "id": n });
    for client in &mut clients {
        client.post(Value::from_iter((0..600).map(later)).to_string());
    }
    // The service itself takes a connection's calls 1,024 at a time.
    for count in [1_024, 176] {
        for (number, reply) in server.waiting(count) {
            reply.end(&numbered("TrialLaterResponse", number, None));
        }
    }
    for client in &mut clients {
        let answers = client.answer().json();
        assert!(answers.as_array().unwrap().iter().all(|answer| answer["result"].is_object()), "{answers}");
    }
}
