//! Subscriptions over real sockets: webhooks that answer, hang and fail, and a server that is killed.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A running server; killed, not ended, when dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(data: &Path) -> Server {
        Server::start_with(data, &[])
    }

    fn start_with(data: &Path, more: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--log-level", "error", "--data"]).arg(data);
        command.args(more);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut greeting = String::new();
        while !greeting.contains("live=sse") {
            assert!(out.read_line(&mut greeting).unwrap() > 0, "the server ended: {greeting}");
        }
        let url = greeting.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
        Server { child, address: url.trim_start_matches("http://").to_owned() }
    }

    fn call(&self, method: &str, path: &str, token: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "{method} /v1/stream/{path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn subscribe(&self, id: &str, body: &Value) {
        assert_eq!(self.call("PUT", &format!("__ds/subscriptions/{id}"), "", body).0, 201, "{body}");
    }

    fn describe(&self, id: &str) -> Value {
        let (status, body) = self.call("GET", &format!("__ds/subscriptions/{id}"), "", &Value::Null);
        assert_eq!(status, 200, "{body}");
        body
    }

    fn create(&self, name: &str, content: &Value) {
        assert_eq!(self.call("PUT", name, "", content).0, 201);
    }

    /// Asks until it is so.
    fn until(&self, what: &str, so: impl Fn(&Server) -> bool) {
        let start = Instant::now();
        while !so(self) {
            assert!(start.elapsed() < PATIENCE, "never came: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A webhook that answers every request the same way, or never; and what it was sent, with the time when that
/// was there.
struct Hook {
    url: String,
    calls: Receiver<(Instant, Value)>,
}

impl Hook {
    fn start(answer: Option<&'static str>) -> Hook {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (sender, calls) = channel();
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let body = read_request(&mut stream);
                // Before the answer, since that is when the caller goes on.
                let at = Instant::now();
                if let Some(answer) = answer {
                    stream.write_all(answer.as_bytes()).unwrap();
                } else {
                    open.push(stream);
                }
                if sender.send((at, body)).is_err() {
                    return;
                }
            }
        });
        Hook { url, calls }
    }

    fn call(&self) -> (Instant, Value) {
        self.calls.recv_timeout(PATIENCE).unwrap()
    }
}

fn read_request(stream: &mut TcpStream) -> Value {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

fn webhook(pattern: &str, url: &str) -> Value {
    json!({ "type": "webhook", "pattern": pattern, "webhook": { "url": url }, "lease_ttl_ms": 600_000 })
}

const DONE: &str =
    "HTTP/1.1 200 OK\r\nContent-Length: 13\r\nContent-Type: application/json\r\n\r\n{\"done\":true}";
const BROKEN: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";

#[test]
fn a_webhook_that_hangs_holds_back_only_itself() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    let (slow, quick) = (Hook::start(None), Hook::start(Some(DONE)));
    server.subscribe("slow", &webhook("events/*", &slow.url));
    server.subscribe("quick", &webhook("events/*", &quick.url));
    server.create("events/a", &json!({ "event": 1 }));
    let (_, stuck) = slow.call();
    assert_eq!(stuck["streams"][0]["path"], "events/a");
    for event in 2..6 {
        let (_, wake) = quick.call();
        let told = wake["streams"][0]["tail_offset"].clone();
        server.until("the cursor of the quick one", |server| {
            server.describe("quick")["streams"][0]["acked_offset"] == told
        });
        assert_eq!(server.call("POST", "events/a", "", &json!({ "event": event })).0, 204);
    }
    assert!(slow.calls.try_recv().is_err(), "one call at a time");
    // The one that hangs may still finish by calling back.
    let acks = json!([{ "stream": "events/a", "offset": stuck["streams"][0]["tail_offset"] }]);
    let body = json!({ "wake_id": stuck["wake_id"], "generation": 1, "acks": acks, "done": true });
    let token = stuck["callback_token"].as_str().unwrap();
    let answer = server.call("POST", "__ds/subscriptions/slow/callback", token, &body);
    assert_eq!(answer, (200, json!({ "ok": true, "next_wake": true })));
    assert_eq!(slow.call().1["generation"], 2);
}

#[test]
fn a_refused_wake_is_tried_again_even_by_a_server_that_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data);
    let hook = Hook::start(Some(BROKEN));
    server.subscribe("s", &webhook("events/*", &hook.url));
    server.create("events/a", &json!({ "event": 1 }));
    let (first_at, first) = hook.call();
    server.until("the failure", |server| server.describe("s")["status"] == "failed");
    drop(server);
    let _server = Server::start(&data);
    let (second_at, second) = hook.call();
    assert_eq!((&second["wake_id"], &second["generation"]), (&first["wake_id"], &first["generation"]));
    assert!(second_at - first_at >= Duration::from_millis(790), "before its time");
}

#[test]
fn webhooks_to_this_machine_are_for_a_server_that_only_this_machine_reaches_or_that_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens.toml");
    let mut make = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    let made = make.args(["--output", "json", "token", "t", "--scope", "admin"]).output().unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let table = format!("[t]\nsha256 = {}\nscopes = [\"admin\"]\n", made["sha256"]);
    std::fs::write(&tokens, table).unwrap();
    let token = made["token"].as_str().unwrap();
    let tokens = ["--tokens", tokens.to_str().unwrap()];
    let reachable = ["--listen", "0.0.0.0:0", "--insecure-listen-anywhere"];
    let set = |to| ["--webhooks-loopback", to];
    for (flags, wanted) in [
        (vec![], 201),
        (set("off").to_vec(), 400),
        (tokens.to_vec(), 400),
        ([&tokens[..], &set("on")].concat(), 201),
        (reachable.to_vec(), 400),
        ([&reachable[..], &set("auto")].concat(), 400),
        ([&reachable[..], &set("on")].concat(), 201),
    ] {
        let server = Server::start_with(&directory.path().join(wanted.to_string()), &flags);
        let body = webhook("events/*", "http://127.0.0.1:9/hook");
        let (status, answer) = server.call("PUT", "__ds/subscriptions/s", token, &body);
        assert_eq!(status, wanted, "{flags:?}: {answer}");
        if wanted == 400 {
            assert_eq!(answer["error"]["code"], "WEBHOOK_URL_REJECTED");
            assert!(answer["detail"].as_str().unwrap().contains("webhooks_loopback"), "{answer}");
        } else {
            assert_eq!(server.call("DELETE", "__ds/subscriptions/s", token, &Value::Null).0, 204);
        }
    }
}

#[test]
fn the_log_of_the_state_is_no_wake_stream() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    for name in ["state/main", "state/forks/0", "state/images/1-1"] {
        let body = json!({ "type": "pull-wake", "streams": ["a"], "wake_stream": name });
        let (status, answer) = server.call("PUT", "__ds/subscriptions/s", "", &body);
        assert_eq!((status, &answer["rule"]), (403, &json!("stream-read-only")), "{name}");
    }
}

#[test]
fn cursors_leases_and_keys_outlive_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data);
    server.create("wake", &json!([]));
    let pull =
        json!({ "type": "pull-wake", "pattern": "events/*", "wake_stream": "wake", "lease_ttl_ms": 600_000 });
    server.subscribe("s", &pull);
    server.create("events/a", &json!({ "event": 1 }));
    server.until("the event", |server| server.call("GET", "wake", "", &Value::Null).1[0]["generation"] == 1);
    let claim = |server: &Server, worker: &str| {
        server.call("POST", "__ds/subscriptions/s/claim", "", &json!({ "worker": worker }))
    };
    let (status, claimed) = claim(&server, "one");
    assert_eq!(status, 200);
    let work = |done: bool| {
        let acks = json!([{ "stream": "events/a", "offset": claimed["streams"][0]["tail_offset"] }]);
        json!({ "wake_id": claimed["wake_id"], "generation": 1, "acks": acks, "done": done })
    };
    let token = claimed["token"].as_str().unwrap();
    assert_eq!(server.call("POST", "__ds/subscriptions/s/ack", token, &work(false)).0, 200);
    let (jwks, described) = (server.call("GET", "__ds/jwks.json", "", &Value::Null), server.describe("s"));
    drop(server);
    let server = Server::start(&data);
    assert_eq!(server.call("GET", "__ds/jwks.json", "", &Value::Null), jwks);
    assert_eq!(server.describe("s")["streams"], described["streams"]);
    assert_eq!(server.describe("s")["streams"][0]["acked_offset"], claimed["streams"][0]["tail_offset"]);
    let (status, busy) = claim(&server, "two");
    assert_eq!((status, &busy["error"]["current_holder"]), (409, &json!("one")));
    // The token of before is good for the lease of before.
    let answer = server.call("POST", "__ds/subscriptions/s/ack", token, &work(true));
    assert_eq!(answer, (200, json!({ "ok": true, "next_wake": false })));
    assert_eq!(server.call("POST", "__ds/subscriptions/s/ack", token, &work(true)).0, 409);
}
