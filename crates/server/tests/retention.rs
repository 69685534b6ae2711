//! Retention of a running server: per stream, by the headers it was created with.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{Server, run, says};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

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
    while kept("sized") > 250_000 || kept("aged") > 0 {
        std::thread::sleep(Duration::from_millis(100));
    }
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
