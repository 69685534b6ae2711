//! The functions as C calls them, against a server on a thread.

use super::*;
use crate::outcome::thalweg_error_detail;
use std::ffi::CStr;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::ptr::{null, null_mut};
use std::thread::JoinHandle;
use thalweg_rpc::{Mount, Server, ServerOptions, Stopper};
use thalweg_service::{Reply, Request};

const SCHEMA: &str = r#"{
    "service": "Door",
    "error": { "message": "string" },
    "commands": { "Knock": { "request": { "times": "u8" }, "response": { "times": "u8" } } },
}"#;

struct Running {
    url: CString,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start() -> Self {
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let handler = |request: Request<'_>, reply: Reply| {
                let fields = &request.frame[2 + 1 + "DoorKnock".len()..];
                reply.end(&[b"\x92\xb1DoorKnockResponse", fields].concat());
            };
            let schema = thalweg_schema::parse("door.jsonc", SCHEMA).unwrap();
            let mut server = Server::bind("127.0.0.1:0".parse().unwrap(), ServerOptions::default()).unwrap();
            server.mount("door", Mount::here(&schema, handler)).unwrap();
            sender.send((server.address(), server.stopper())).unwrap();
            server.run().unwrap();
        });
        let (address, stopper) = receiver.recv().unwrap();
        Self { url: text(&format!("http://{address}/rpc/door")), stopper, thread: Some(thread) }
    }

    fn open(&self) -> *mut ThalwegRpc {
        let mut client = null_mut();
        // SAFETY: a string, no options, and a place.
        assert_eq!(unsafe { thalweg_rpc_open(self.url.as_ptr(), null(), &raw mut client) }, 0);
        client
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn call(method: &'static CStr, params: &'static CStr) -> ThalwegRpcCall {
    ThalwegRpcCall { method: method.as_ptr(), params: params.as_ptr() }
}

fn begin(client: *mut ThalwegRpc, calls: &[ThalwegRpcCall], ask: Option<ThalwegRpcAsk>) -> (u16, u64) {
    let mut number = 0;
    let ask = ask.as_ref().map_or(null(), std::ptr::from_ref);
    // SAFETY: a client, calls of static strings, and a place.
    let fault = unsafe { thalweg_rpc_begin(client, calls.as_ptr(), calls.len(), ask, &raw mut number) };
    (fault, number)
}

fn nothing() -> ThalwegRpcDone {
    ThalwegRpcDone { call: 0, answers: 0, detail: null(), fault: 0 }
}

fn wait_for(client: *mut ThalwegRpc, number: u64) -> ThalwegRpcDone {
    let mut done = nothing();
    // SAFETY: a client, and a place.
    assert_eq!(unsafe { thalweg_rpc_wait(client, number, &raw mut done) }, 0);
    done
}

/// An answer's text, and its error's number and words.
fn answer(client: *mut ThalwegRpc, place: usize) -> (String, Option<(i64, u16, String)>) {
    let mut answer =
        ThalwegRpcAnswer { json: null(), length: 0, message: null(), code: 0, fault: 0, is_error: false };
    // SAFETY: a client and a place; what is lent is read before the next call.
    unsafe {
        assert_eq!(thalweg_rpc_answer_at(client, place, &raw mut answer), 0);
        let json = std::slice::from_raw_parts(answer.json, answer.length);
        let words = CStr::from_ptr(answer.message).to_str().unwrap().to_owned();
        let error = answer.is_error.then_some((answer.code, answer.fault, words));
        (String::from_utf8(json.to_vec()).unwrap(), error)
    }
}

#[test]
fn a_schema_is_the_servers_or_is_not() {
    let server = Running::start();
    let client = server.open();
    let mut hash = thalweg_schema::parse("door.jsonc", SCHEMA).unwrap().hash;
    // SAFETY: a client, and a hash or null.
    let expect = |hash: *const u8| unsafe { thalweg_rpc_expect_schema(client, hash) };
    assert_eq!((expect(hash.as_ptr()), expect(null())), (0, Fault::BadArgument as u16));
    hash[0] ^= 1;
    assert_eq!(expect(hash.as_ptr()), Fault::SchemaMismatch as u16);
    // SAFETY: a client that is not used any more.
    unsafe { thalweg_rpc_close(client) };
}

#[test]
fn a_call_is_answered_by_waiting_and_a_batch_in_its_order() {
    let server = Running::start();
    let client = server.open();
    let (fault, number) = begin(client, &[call(c"Knock", c"[3]")], None);
    assert_eq!(fault, 0);
    let done = wait_for(client, number);
    assert_eq!((done.call, done.answers, done.fault), (number, 1, 0));
    assert_eq!(answer(client, 0), (r#"{"times":3}"#.to_owned(), None));
    let calls = [call(c"Knock", c"[1]"), call(c"Kick", c"[]"), call(c"Knock", c"{\"times\":2}")];
    let (fault, number) = begin(client, &calls, None);
    assert_eq!((fault, wait_for(client, number).answers), (0, 3));
    assert_eq!(answer(client, 2), (r#"{"times":2}"#.to_owned(), None));
    let (data, error) = answer(client, 1);
    let (code, fault, words) = error.unwrap();
    assert_eq!((code, fault), (-32601, Fault::UnknownCommand as u16));
    assert!(words.contains("no method") && data.contains("unknown_command"), "{words} {data}");
    // SAFETY: a client that was not closed.
    unsafe {
        let statistics = thalweg_rpc_statistics_of(client);
        assert_eq!((statistics.opened, statistics.reused, statistics.in_flight), (1, 1, 0));
        thalweg_rpc_close(client);
    }
}

#[test]
fn turns_bring_what_came_and_a_notification_has_no_answer() {
    let server = Running::start();
    let client = server.open();
    let notifies = ThalwegRpcAsk { notifies: true, ..ThalwegRpcAsk::default() };
    let (_, told) = begin(client, &[call(c"Knock", c"[1]")], Some(notifies));
    let (_, asked) = begin(client, &[call(c"Knock", c"[2]")], Some(ThalwegRpcAsk::default()));
    let mut came = Vec::new();
    while came.len() < 2 {
        let mut done = nothing();
        // SAFETY: a client, and places.
        unsafe {
            assert_eq!(thalweg_rpc_turn(client, -1, null_mut()), 0);
            while thalweg_rpc_next(client, &raw mut done) == 0 && done.call != 0 {
                came.push((done.call, done.answers));
            }
        }
    }
    came.sort_unstable();
    assert_eq!(came, [(told, 0), (asked, 1)]);
    let mut descriptor = -1;
    // SAFETY: a client, and a place.
    unsafe {
        assert_eq!(thalweg_rpc_descriptor(client, &raw mut descriptor), 0);
        thalweg_rpc_close(client);
    }
    assert!(descriptor >= 0);
}

#[test]
fn another_target_is_named_by_a_number_and_a_dead_one_is_a_fault() {
    let server = Running::start();
    let client = server.open();
    // A port that was free a moment ago, which nobody listens at.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dead = text(&format!("http://{free}/rpc/door"));
    let (mut own, mut other) = (7, 7);
    // SAFETY: a client, strings, and places.
    unsafe {
        assert_eq!(thalweg_rpc_target(client, server.url.as_ptr(), &raw mut own), 0);
        assert_eq!(thalweg_rpc_target(client, dead.as_ptr(), &raw mut other), 0);
    }
    assert_eq!((own, other), (0, 1));
    let ask = ThalwegRpcAsk { target: other, ..ThalwegRpcAsk::default() };
    let done = wait_for(client, begin(client, &[call(c"Knock", c"[1]")], Some(ask)).1);
    assert_eq!((done.answers, done.fault), (0, Fault::NoServer as u16));
    // SAFETY: lent until the next call.
    let words = |detail: *const c_char| unsafe { CStr::from_ptr(detail) }.to_str().unwrap().to_owned();
    assert!(words(done.detail).contains("nobody listens"), "{}", words(done.detail));
    // For a caller that raises the fault.
    assert_eq!(words(thalweg_error_detail()), words(done.detail));
    // SAFETY: a client that was not closed.
    unsafe { thalweg_rpc_close(client) };
}

#[test]
fn the_number_of_a_target_that_was_dropped_is_refused() {
    let server = Running::start();
    let options = ThalwegRpcOptions { targets_max: 1, ..thalweg_rpc_defaults() };
    let mut client = null_mut();
    // SAFETY: a string, options, and a place.
    assert_eq!(unsafe { thalweg_rpc_open(server.url.as_ptr(), &raw const options, &raw mut client) }, 0);
    let target = |url: &CStr| {
        let mut number = 0;
        // SAFETY: a client, a string, and a place.
        assert_eq!(unsafe { thalweg_rpc_target(client, url.as_ptr(), &raw mut number) }, 0);
        number
    };
    assert_eq!(
        (target(c"http://127.0.0.1:9/a"), target(c"http://127.0.0.1:9/b"), target(&server.url)),
        (1, 2, 0)
    );
    let ask = |target| Some(ThalwegRpcAsk { target, ..ThalwegRpcAsk::default() });
    assert_eq!(begin(client, &[call(c"Knock", c"[1]")], ask(1)).0, Fault::BadArgument as u16);
    assert_eq!(begin(client, &[call(c"Knock", c"[1]")], ask(2)).0, 0);
    assert_eq!(target(c"http://127.0.0.1:9/a"), 3);
    // SAFETY: a client that was not closed.
    unsafe { thalweg_rpc_close(client) };
}

#[test]
fn a_token_goes_with_a_request_and_is_read_while_the_client_is_opened() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = text(&format!("http://{}/", listener.local_addr().unwrap()));
    let peer = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut came = Vec::new();
        while !came.ends_with(b"}") {
            let mut chunk = [0; 512];
            let count = peer.read(&mut chunk).unwrap();
            assert!(count > 0, "a whole request");
            came.extend_from_slice(&chunk[..count]);
        }
        let answer = r#"{"jsonrpc":"2.0","result":null,"id":1}"#;
        write!(peer, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len()).unwrap();
        String::from_utf8(came).unwrap()
    });
    let mut client = null_mut();
    {
        let token = text("tw_4fPq");
        let options = ThalwegRpcOptions { token: token.as_ptr(), ..thalweg_rpc_defaults() };
        // SAFETY: strings, options, and a place.
        assert_eq!(unsafe { thalweg_rpc_open(url.as_ptr(), &raw const options, &raw mut client) }, 0);
    }
    let done = wait_for(client, begin(client, &[call(c"Knock", c"{}")], None).1);
    assert_eq!((done.answers, done.fault), (1, 0));
    // SAFETY: a client that was not closed.
    unsafe { thalweg_rpc_close(client) };
    let came = peer.join().unwrap();
    assert!(came.contains("\r\nAuthorization: Bearer tw_4fPq\r\n"), "{came}");
}

#[test]
fn what_cannot_be_right_is_refused() {
    let bad = Fault::BadArgument as u16;
    let server = Running::start();
    let client = server.open();
    assert_eq!(begin(null_mut(), &[call(c"Knock", c"[1]")], None).0, bad);
    assert_eq!(begin(client, &[], None).0, bad);
    assert_eq!(begin(client, &[call(c"Knock", c"7")], None).0, bad);
    assert_eq!(begin(client, &[ThalwegRpcCall { method: null(), params: null() }], None).0, bad);
    let ask = ThalwegRpcAsk { target: 3, ..ThalwegRpcAsk::default() };
    assert_eq!(begin(client, &[call(c"Knock", c"[1]")], Some(ask)).0, bad);
    let (_, cancelled) = begin(client, &[call(c"Knock", c"[1]")], None);
    let mut done = nothing();
    let mut other = null_mut();
    let options = ThalwegRpcOptions { connections_max: 0, ..thalweg_rpc_defaults() };
    // SAFETY: a client, strings and places, or null where that is what is tested.
    unsafe {
        assert_eq!(thalweg_rpc_cancel(client, cancelled), 0);
        assert_eq!(thalweg_rpc_wait(client, cancelled, &raw mut done), bad);
        assert_eq!(thalweg_rpc_next(client, null_mut()), bad);
        assert_eq!(thalweg_rpc_open(server.url.as_ptr(), &raw const options, &raw mut other), bad);
        assert_eq!(thalweg_rpc_open(c"ftp://x".as_ptr(), null(), &raw mut other), bad);
        for token in [c"", c"a b", c"a\r\nX: y", c"\xff"] {
            let options = ThalwegRpcOptions { token: token.as_ptr(), ..thalweg_rpc_defaults() };
            assert_eq!(thalweg_rpc_open(server.url.as_ptr(), &raw const options, &raw mut other), bad);
        }
        thalweg_rpc_close(null_mut());
        thalweg_rpc_close(client);
    }
}
