//! A running server at its bounds: readers that do not read, and who is told to come back later.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PROGRAM, Server, ask, run, says, until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

/// What is answered whatever is full.
const SMALL: [&str; 5] =
    ["GET /healthz", "GET /metrics", "GET /v1/stats", "HEAD /v1/stream/s", "OPTIONS /v1/stream/s"];

fn connections(server: &Server) -> f64 {
    let page = ask(server, "GET /metrics HTTP/1.1");
    let values = page.lines().filter(|line| line.starts_with("thalweg_connections{"));
    values.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

/// Waits until there are so many connections beside the one that asks.
fn until_connections(server: &Server, wanted: f64) {
    until("connections", || connections(server) - 1.0 <= wanted);
}

/// Numbers of the messages in a text, in order: each is `{"n":N,…}`.
fn numbers(text: &str) -> Vec<usize> {
    let parts = text.split("{\"n\":").skip(1);
    parts.map(|part| part.split(',').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn a_reader_that_never_reads_is_cut_and_goes_on_where_it_was() {
    const MESSAGES: usize = 60;
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &["--stall-timeout-ms", "1000"]);
    let url = &server.url;
    says(url, &["create", "s", "--content-type", "application/json"]);
    let mut slow = TcpStream::connect(server.address()).unwrap();
    slow.write_all(b"GET /v1/stream/s?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    // Far more than the kernel keeps for one connection.
    let padding = "p".repeat(400_000);
    for n in 0..MESSAGES {
        let message = format!("{{\"n\":{n},\"padding\":\"{padding}\"}}");
        assert!(run(url, &["append", "s"], &message).status.success());
    }
    until_connections(&server, 0.0);
    let metrics = ask(&server, "GET /metrics HTTP/1.1");
    let cut = metrics.lines().filter(|line| line.starts_with("thalweg_overloads_total{"));
    assert_eq!(cut.filter(|line| line.ends_with(" 1")).count(), 1, "{metrics}");
    // What it had been sent is there; the last control event says where to go on.
    let mut got = Vec::new();
    let mut chunk = [0; 65_536];
    while let Ok(count @ 1..) = slow.read(&mut chunk) {
        got.extend_from_slice(&chunk[..count]);
    }
    let text = String::from_utf8_lossy(&got);
    let mark = "\"streamNextOffset\":\"";
    let last = text.rfind(mark).expect("not one event came");
    let whole = &text[..last];
    let next = text[last + mark.len()..].split('"').next().unwrap();
    let mut seen = numbers(whole);
    assert!(seen.len() < MESSAGES, "nothing was left to be cut off from");
    seen.extend(numbers(&says(url, &["read", "s", "--from", next])));
    assert_eq!(seen, (0..MESSAGES).collect::<Vec<_>>());
    server.end();
}

#[test]
fn whoever_finds_no_room_is_told_when_to_come_again() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let mut command = Command::new(PROGRAM);
    command.args(
        "serve --listen 127.0.0.1:0 --reactors 1 --subscribers-max 1 --log-level warn --data".split(' '),
    );
    command.arg(directory.path().join("data")).stderr(std::fs::File::create(&log).unwrap());
    let server = Server::started(command);
    assert!(server.greeting.contains("1 of them subscribers"), "{}", server.greeting);
    let url = &server.url;
    says(url, &["create", "s"]);
    let mut first = TcpStream::connect(server.address()).unwrap();
    first.write_all(b"GET /v1/stream/s?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    // It is subscribed once its first event is there.
    let (mut head, mut chunk) = (String::new(), [0; 4_096]);
    while !head.contains("streamNextOffset") {
        let count = first.read(&mut chunk).unwrap();
        assert!(count > 0, "the event stream ended: {head}");
        head += &String::from_utf8_lossy(&chunk[..count]);
    }
    let refused = ask(&server, "GET /v1/stream/s?offset=-1&live=sse HTTP/1.1");
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("too-many-subscribers"), "{refused}");
    assert!(refused.contains("Retry-After: "), "{refused}");
    assert!(ask(&server, "GET /v1/stream/s?offset=-1 HTTP/1.1").starts_with("HTTP/1.1 200 "));
    let metrics = ask(&server, "GET /metrics HTTP/1.1");
    // Which limit it was can be told from what it counts and from what it logs.
    let counted = |limit: &str| metrics.contains(&format!("{{reactor=\"0\",limit=\"{limit}\"}} 1\n"));
    assert!(counted("too-many-subscribers") && !counted("too-many-connections"), "{metrics}");
    server.end();
    let log = std::fs::read_to_string(&log).unwrap();
    assert_eq!(log.matches("limit=\"too-many-subscribers\" times=1").count(), 1, "{log}");
}

#[test]
fn whoever_looks_after_a_server_with_too_much_unsent_can_see_it() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--reactors", "1", "--unsent-max-bytes", "4194304", "--stall-timeout-ms", "3600000"];
    let server = Server::start(directory.path(), "127.0.0.1:0", &flags);
    for (name, bytes) in [("s", 1 << 20), ("small", 100_000)] {
        says(&server.url, &["create", name]);
        assert!(run(&server.url, &["append", name], &"x".repeat(bytes)).status.success());
    }
    let read = |name: &str| format!("GET /v1/stream/{name}?offset=-1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut stuck = Vec::new();
    let refused = loop {
        assert!(stuck.len() < 200, "reads are taken without end");
        // Each leaves a part of one answer, beside what the kernel takes, and not all the same part.
        let asked = read("small").repeat(stuck.len() % 10) + &read("s").repeat(20);
        let mut reader = TcpStream::connect(server.address()).unwrap();
        reader.write_all(asked.as_bytes()).unwrap();
        stuck.push(reader);
        std::thread::sleep(Duration::from_millis(20));
        let answer = ask(&server, "GET /v1/stream/s?offset=-1 HTTP/1.1");
        if !answer.starts_with("HTTP/1.1 200 ") {
            break answer;
        }
    };
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("too-much-unsent"), "{refused}");
    assert!(refused.contains("Retry-After: "), "{refused}");
    for head in SMALL {
        let answer = ask(&server, &format!("{head} HTTP/1.1"));
        assert!(answer.starts_with("HTTP/1.1 20"), "{head}: {answer}");
    }
    // Nothing stands in the way of a write.
    assert!(run(&server.url, &["append", "s", "more"], "").status.success());
    drop(stuck);
    server.end();
}

#[test]
fn whoever_looks_after_a_server_with_too_many_connections_can_see_it() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--reactors", "1", "--connections-max", "2"];
    let server = Server::start(directory.path(), "127.0.0.1:0", &flags);
    assert!(server.greeting.contains("limits: 2 connections, "), "{}", server.greeting);
    says(&server.url, &["create", "s"]);
    let within: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    until_connections(&server, 2.0);
    for head in SMALL {
        let answer = ask(&server, &format!("{head} HTTP/1.1"));
        assert!(
            answer.starts_with("HTTP/1.1 20") && answer.contains("Connection: close"),
            "{head}: {answer}"
        );
    }
    for head in [
        "GET /v1/stream/s?offset=-1",
        "GET /v1/stream/s?offset=-1&live=sse",
        "PUT /v1/stream/t",
        "GET /v1/streams",
    ] {
        let answer = ask(&server, &format!("{head} HTTP/1.1"));
        assert!(
            answer.starts_with("HTTP/1.1 503 ") && answer.contains("too-many-connections"),
            "{head}: {answer}"
        );
        assert!(answer.contains("Retry-After: "), "{head}: {answer}");
    }
    drop(within);
    until_connections(&server, 0.0);
    assert!(ask(&server, "GET /v1/stream/s?offset=-1 HTTP/1.1").starts_with("HTTP/1.1 200 "));
    server.end();
}

#[test]
fn a_stream_too_many_is_refused_and_everything_else_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &["--streams-max", "4"]);
    assert!(server.greeting.contains("; 4 streams\n"), "{}", server.greeting);
    let put = |name: &str| ask(&server, &format!("PUT /v1/stream/{name} HTTP/1.1\r\nContent-Length: 0"));
    let names = ["a", "b", "c", "d", "e"];
    let answers: Vec<String> = names.iter().map(|name| put(name)).collect();
    // Streams of the server's own may be among them.
    let made = answers.iter().take_while(|answer| answer.starts_with("HTTP/1.1 201 ")).count();
    assert!((1..=4).contains(&made), "{answers:?}");
    for refused in &answers[made..] {
        assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("too-many-streams"), "{refused}");
        assert!(refused.contains("Retry-After: "), "{refused}");
    }
    assert!(put("a").starts_with("HTTP/1.1 200 "), "it is there");
    assert!(run(&server.url, &["append", "a", "goes on"], "").status.success());
    // The same rule by whichever way.
    let (code, complaint) = common::fails(&server.url, &["create", "f"]);
    assert!(code == 1 && complaint.contains("as many streams"), "{code}: {complaint}");
    assert!(ask(&server, "DELETE /v1/stream/a HTTP/1.1").starts_with("HTTP/1.1 204 "));
    assert!(put("f").starts_with("HTTP/1.1 201 "), "there is room again");
    let metrics = ask(&server, "GET /metrics HTTP/1.1");
    assert!(metrics.contains("thalweg_streams 4"), "{metrics}");
    assert!(metrics.contains("thalweg_memory_bytes{kind=\"streams\"} 1600"), "{metrics}");
    server.end();
}

#[test]
fn limits_of_nothing_are_refused_by_name() {
    for flag in ["--streams-max", "--writes-max", "--subscribers-max", "--unsent-max-bytes"] {
        let output = Command::new(PROGRAM).args(["serve", flag, "0"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(flag));
    }
}
