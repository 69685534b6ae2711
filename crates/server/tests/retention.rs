//! Retention of a running server: per stream, by the headers it was created with.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{Server, run, says, until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use thalweg_service::{ClientOptions, Endpoint, SyncClient};
use thalweg_state::SCHEMA_HASH;
use thalweg_state::generated::client::StateClient;
use thalweg_state::generated::types::{StateGet, StateHistory, StatePut};

/// The answer to one request on a connection of its own.
fn ask(server: &Server, head: &str) -> String {
    let mut peer = TcpStream::connect(server.address()).unwrap();
    let request = format!("{head}\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    peer.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    peer.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn next_offset(answer: &str) -> String {
    let line = answer.lines().find_map(|line| line.strip_prefix("Stream-Next-Offset: "));
    line.unwrap_or_else(|| panic!("no offset: {answer}")).to_owned()
}

#[test]
fn a_stream_keeps_what_it_was_created_to_keep() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &[]);
    for (name, bounds) in [
        ("sized", "Stream-Retain-Bytes: 100000"),
        ("aged", "Stream-Retain-Seconds: 1"),
        ("free", "X-Nothing: 1"),
    ] {
        let put = format!("PUT /v1/stream/{name} HTTP/1.1\r\nContent-Type: text/plain\r\n{bounds}");
        assert!(ask(&server, &put).starts_with("HTTP/1.1 201 "));
    }
    let beginning = next_offset(&ask(&server, "HEAD /v1/stream/sized HTTP/1.1"));
    let record = "r".repeat(50_000);
    for _ in 0..10 {
        for name in ["sized", "aged", "free"] {
            assert!(run(&server.url, &["append", name], &record).status.success());
        }
    }
    // The server looks after it every few seconds.
    let kept = |name: &str| says(&server.url, &["read", name]).len();
    until("it is let go of", || kept("sized") <= 250_000 && kept("aged") == 0);
    assert!(kept("sized") >= 100_000 && kept("sized") % 50_000 == 0);
    assert_eq!(kept("free"), 500_000);
    // A listing says both: what was ever appended, and what of it is left.
    for (name, left) in [("sized", kept("sized")), ("aged", 0), ("free", 500_000)] {
        let listed = says(&server.url, &["ls", name, "--output", "json"]);
        assert!(listed.contains("\"bytes\":500000,"), "{listed}");
        assert!(listed.contains(&format!("\"keptBytes\":{left},")), "{listed}");
        let columns = says(&server.url, &["ls", "--long", name]);
        let columns: Vec<&str> = columns.split_whitespace().take(2).collect();
        assert_eq!(columns, [left.to_string().as_str(), "500000"]);
    }
    let gone = ask(&server, &format!("GET /v1/stream/sized?offset={beginning} HTTP/1.1"));
    assert!(gone.starts_with("HTTP/1.1 410 ") && gone.contains("offset-gone"), "{gone}");
    // What comes next has its place as ever.
    let tail = next_offset(&ask(&server, "HEAD /v1/stream/aged HTTP/1.1"));
    assert!(run(&server.url, &["append", "aged"], "new").status.success());
    // By then it may be too old already.
    assert!(["new", ""].contains(&says(&server.url, &["read", "aged", "--from", "beginning"]).as_str()));
    assert_ne!(next_offset(&ask(&server, "HEAD /v1/stream/aged HTTP/1.1")), tail);
    server.end();
    let server = Server::start(directory.path(), "127.0.0.1:0", &[]);
    assert_eq!(says(&server.url, &["read", "free"]).len(), 500_000);
    assert!(says(&server.url, &["read", "sized"]).len() <= 250_000);
    server.end();
}

/// A call of the subscriptions' with a body of JSON: its status and what it answers.
fn call(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let fields = format!(
        "Host: localhost\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}",
        body.len()
    );
    let mut peer = TcpStream::connect(server.address()).unwrap();
    peer.write_all(format!("{method} /v1/stream/{path} HTTP/1.1\r\n{fields}\r\n\r\n{body}").as_bytes())
        .unwrap();
    let mut answer = String::new();
    peer.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or(Value::Null))
}

/// Somebody works through what is in a stream, as a subscription tells of it.
fn work(server: &Server) {
    assert_eq!(call(server, "PUT", "wake", "", &json!([])).0, 201);
    let pull =
        json!({ "type": "pull-wake", "streams": ["events"], "wake_stream": "wake", "lease_ttl_ms": 600_000 });
    assert_eq!(call(server, "PUT", "__ds/subscriptions/s", "", &pull).0, 201);
    assert_eq!(call(server, "POST", "events", "", &json!({ "event": 1 })).0, 204);
    until("the wake", || call(server, "GET", "wake?offset=-1", "", &Value::Null).1[0]["generation"] == 1);
    let claim = json!({ "worker": "one" });
    let (status, claimed) = call(server, "POST", "__ds/subscriptions/s/claim", "", &claim);
    assert_eq!(status, 200, "{claimed}");
    let acks = json!([{ "stream": "events", "offset": claimed["streams"][0]["tail_offset"] }]);
    let done = json!({ "wake_id": claimed["wake_id"], "generation": claimed["generation"], "acks": acks, "done": true });
    let token = claimed["token"].as_str().unwrap();
    assert_eq!(call(server, "POST", "__ds/subscriptions/s/ack", token, &done).0, 200);
}

/// What a subscription was told that was worked through.
fn acked(server: &Server) -> Value {
    let (status, described) = call(server, "GET", "__ds/subscriptions/s", "", &Value::Null);
    assert_eq!(status, 200, "{described}");
    described["streams"][0]["acked_offset"].clone()
}

fn state(data: &Path) -> StateClient<SyncClient> {
    let endpoint: Endpoint = data.join("state.sock").to_str().unwrap().parse().unwrap();
    let options = ClientOptions { schema: SCHEMA_HASH, ..ClientOptions::default() };
    StateClient::new(SyncClient::connect(&endpoint, options).unwrap())
}

fn put(state: &mut StateClient<SyncClient>, key: &str, value: &[u8]) {
    state.put(&StatePut { place: "main".into(), key: key.into(), value: value.into() }).unwrap();
}

fn value(data: &Path, key: &str) -> Option<Vec<u8>> {
    let get = StateGet { place: "main".into(), key: key.into(), view: None };
    state(data).get(&get).unwrap().value.as_deref().map(<[u8]>::to_vec)
}

#[test]
fn a_bound_of_the_whole_store_leaves_the_state_and_subscriptions_alone() {
    for (bound, records) in [(["--retain-bytes", "1048576"], 40), (["--retain-seconds", "1"], 1)] {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        // The oldest there is, so that it would be the first to go; made at leisure.
        let server = Server::start(&data, "127.0.0.1:0", &[]);
        put(&mut state(&data), "kept", b"for ever");
        says(&server.url, &["create", "events", "--content-type", "application/json"]);
        work(&server);
        let at = acked(&server);
        says(&server.url, &["create", "s"]);
        let beginning = next_offset(&ask(&server, "HEAD /v1/stream/s HTTP/1.1"));
        server.end();
        let start = || Server::start(&data, "127.0.0.1:0", &bound);
        let server = start();
        let record = "r".repeat(500_000);
        for _ in 0..records {
            assert!(run(&server.url, &["append", "s"], &record).status.success());
        }
        let first = format!("GET /v1/stream/s?offset={beginning} HTTP/1.1");
        until("its beginning is let go of", || ask(&server, &first).starts_with("HTTP/1.1 410 "));
        server.end();
        let server = start();
        assert!(ask(&server, &first).starts_with("HTTP/1.1 410 "), "{bound:?}");
        assert_eq!(value(&data, "kept").as_deref(), Some(&b"for ever"[..]), "{bound:?}");
        assert!(says(&server.url, &["read", "state/main"]).contains("\"kept\""), "{bound:?}");
        assert_eq!(acked(&server), at, "{bound:?}");
        server.end();
    }
}

#[test]
fn of_a_state_every_commit_or_what_an_image_does_not_stand_for_is_kept() {
    for history in ["kept", "trimmed"] {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let flags = ["--state-history", history, "--state-image-bytes", "100000"];
        let server = Server::start(&data, "127.0.0.1:0", &flags);
        let (mut writer, mut reader) = (state(&data), state(&data));
        put(&mut writer, "a", b"1");
        let beginning = StateHistory { fork: "main".into(), offset: 0, start: None, limit: None };
        let mut at_beginning = || match reader.history(&beginning) {
            Ok(answer) => Ok(answer.entries.len()),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(at_beginning(), Ok(0), "{history}: there is no image yet");
        // A value that is there already would change nothing.
        let mut values = b'a'..=b'z';
        until("an image", || {
            put(&mut writer, "b", &[values.next().unwrap_or(b'_'); 10_000]);
            !says(&server.url, &["ls", "state/images/*"]).is_empty()
        });
        if history == "kept" {
            assert_eq!(at_beginning(), Ok(0), "every state there ever was");
        } else {
            until("no_state", || at_beginning().is_err_and(|error| error.contains("no_state")));
        }
        server.end();
    }
}
