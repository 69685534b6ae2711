//! What the log says at `debug` of the work that the server does.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PATIENCE, Server, says};
use serde_json::Value;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::mpsc::channel;

#[test]
fn each_request_commit_walk_and_round_of_housekeeping_is_a_line_with_what_it_took() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start_logging(directory.path());
    let log = BufReader::new(server.child.stderr.take().unwrap());
    let (sender, lines) = channel();
    // Read to its end, or the server could not write it.
    std::thread::spawn(move || log.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line))));

    says(&server.url, &["create", "a"]);
    let mut follower = TcpStream::connect(server.address()).unwrap();
    let follow = b"GET /v1/stream/a?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n";
    follower.write_all(follow).unwrap();
    let mut events = BufReader::new(follower).lines();
    let mut until = |wanted: &str| while !events.next().unwrap().unwrap().contains(wanted) {};
    // It stands at the end from here on.
    until("upToDate");
    says(&server.url, &["append", "a", "followed"]);
    until("followed");

    let mut wanted: HashSet<&str> = ["request", "commit", "fan_out", "keep_house"].into();
    while !wanted.is_empty() {
        let line = lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("never: {wanted:?}"));
        let line: Value = serde_json::from_str(&line).unwrap();
        if line["message"] == "close" && line["level"] == "DEBUG" && line["time.busy"].is_string() {
            wanted.remove(line["span"]["name"].as_str().unwrap());
        }
    }
    server.end();
}
