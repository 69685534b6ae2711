//! A running server whose log is read slowly, or not at all.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PATIENCE, Server};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Requests whose lines at `debug` take more than a pipe and the server's queue have room for.
const FLOOD: usize = 30_000;
const AT_ONCE: usize = 100;

/// Has the server log line after line, and reads every answer.
fn flood(server: &Server) {
    const ANSWER: &[u8] = b"HTTP/1.1 ";
    let mut peer = TcpStream::connect(server.address()).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let some = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(AT_ONCE);
    let (mut answered, mut buffer) = (0, [0; 65_536]);
    for sent in (AT_ONCE..=FLOOD).step_by(AT_ONCE) {
        peer.write_all(some.as_bytes()).unwrap();
        let mut rest = Vec::new();
        while answered < sent {
            let count = peer.read(&mut buffer).unwrap();
            assert!(count > 0, "the connection ended");
            rest.extend_from_slice(&buffer[..count]);
            answered += rest.windows(ANSWER.len()).filter(|window| *window == ANSWER).count();
            rest.drain(..rest.len().saturating_sub(ANSWER.len() - 1));
        }
    }
}

#[test]
fn a_log_that_nobody_reads_holds_up_no_answer_and_no_end_and_what_was_dropped_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start_logging(directory.path());
    flood(&server);
    let mut lines = BufReader::new(server.child.stderr.take().unwrap()).lines();
    let told = lines.find_map(|line| {
        let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        line["dropped"].as_u64()
    });
    assert!(told.unwrap() > 0);
    // Nobody reads from here on.
    flood(&server);
    server.signal("TERM");
    assert!(server.ended().success());
    drop(lines);
}

#[test]
fn a_start_is_logged_with_the_durability_as_the_configuration_calls_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start_logging(directory.path());
    let lines = BufReader::new(server.child.stderr.take().unwrap()).lines();
    let mut lines = lines.map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap());
    let serving = lines.find(|line| line["message"] == "serving").unwrap();
    assert_eq!(serving["durability"], "sync", "{serving}");
    // The limits are said once, to whoever started it, in lines that can be read.
    assert_eq!(serving["limits"], serde_json::Value::Null);
    let (_, limits) = server.greeting.split_once("limits: ").unwrap();
    assert!(limits.lines().all(|line| line.len() < 200), "{limits}");
    server.signal("TERM");
    assert!(server.ended().success());
}
