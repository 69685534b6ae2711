//! A running server at its bounds: readers that do not read, and who is told to come back later.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PROGRAM, Server, run, says};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

/// The answer to one request on a connection of its own.
fn ask(server: &Server, head: &str) -> String {
    let mut peer = TcpStream::connect(server.address()).unwrap();
    peer.write_all(format!("{head}\r\nHost: t\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    peer.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn connections(server: &Server) -> f64 {
    let page = ask(server, "GET /metrics HTTP/1.1");
    let values = page.lines().filter(|line| line.starts_with("thalweg_connections{"));
    values.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

/// Waits until there are so many connections beside the one that asks.
fn until_connections(server: &Server, wanted: f64) {
    while connections(server) - 1.0 > wanted {
        std::thread::sleep(Duration::from_millis(20));
    }
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
    slow.write_all(b"GET /v1/stream/s?offset=-1&live=sse HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    // Far more than the kernel keeps for one connection.
    let padding = "p".repeat(400_000);
    for n in 0..MESSAGES {
        let message = format!("{{\"n\":{n},\"padding\":\"{padding}\"}}");
        assert!(run(url, &["append", "s"], &message).status.success());
    }
    until_connections(&server, 0.0);
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
    let server =
        Server::start(directory.path(), "127.0.0.1:0", &["--reactors", "1", "--subscribers-max", "1"]);
    assert!(server.greeting.contains("1 of them subscribers"), "{}", server.greeting);
    let url = &server.url;
    says(url, &["create", "s"]);
    let mut first = TcpStream::connect(server.address()).unwrap();
    first.write_all(b"GET /v1/stream/s?offset=-1&live=sse HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
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
    assert!(metrics.contains("thalweg_overloads_total{reactor=\"0\"} 1"), "{metrics}");
    server.end();
}

#[test]
fn limits_of_nothing_are_refused_by_name() {
    for flag in ["--writes-max", "--subscribers-max", "--unsent-max-bytes"] {
        let output = Command::new(PROGRAM).args(["serve", flag, "0"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(flag));
    }
}
