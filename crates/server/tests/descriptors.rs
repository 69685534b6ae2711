//! A server and the limit of its descriptors.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PATIENCE, PROGRAM, Server, ask};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// `serve`, where so many descriptors may be open and no more can be had.
fn within(descriptors: usize, data: &Path, more: &[&str]) -> Command {
    let script = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, PROGRAM, "serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(more);
    command.stdin(Stdio::null());
    command
}

fn open_descriptors(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().count()
}

/// How many connections it says there may be.
fn said(server: &Server) -> usize {
    let (_, limits) = server.greeting.split_once("limits: ").unwrap();
    limits.split(' ').next().unwrap().parse().unwrap()
}

/// A connection that was answered what only those are answered for whom there is a place.
fn answered(server: &Server) -> TcpStream {
    let mut peer = TcpStream::connect(server.address()).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer.write_all(b"GET /v1/stream/none HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut begin = [0; 13];
    peer.read_exact(&mut begin).unwrap();
    assert_eq!(std::str::from_utf8(&begin).unwrap(), "HTTP/1.1 404 ");
    peer
}

/// All that a peer is told that asks nothing.
fn told(mut peer: &TcpStream) -> String {
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut text = Vec::new();
    peer.read_to_end(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn as_many_connections_as_are_said_can_be_had_and_one_more_is_told() {
    const DESCRIPTORS: usize = 70;
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--reactors", "1", "--log-level", "error"];
    let server = Server::started(within(DESCRIPTORS, directory.path(), &flags));
    let said = said(&server);
    assert!((1..DESCRIPTORS).contains(&said), "{}", server.greeting);
    let held: Vec<TcpStream> = (0..said).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    let start = Instant::now();
    let metric = format!("thalweg_connections{{reactor=\"0\"}} {}", said + 1);
    while !ask(&server, "GET /metrics HTTP/1.1").contains(&metric) {
        assert!(start.elapsed() < PATIENCE, "not all of {said} are connected");
    }
    assert!(open_descriptors(&server) <= DESCRIPTORS);
    // The first are overflow connections: they ask nothing, and are told when their time is over. Those after
    // them are told at once.
    for peer in (0..20).map(|_| TcpStream::connect(server.address()).unwrap()).collect::<Vec<_>>() {
        let text = told(&peer);
        assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("Retry-After: "), "{text}");
    }
    drop(held);
    server.end();
}

#[test]
fn services_elsewhere_have_their_descriptors_and_connections_those_that_are_said() {
    const DESCRIPTORS: usize = 400;
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = Server::start(&directory.path().join("elsewhere"), "127.0.0.1:0", &[]);
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/log.jsonc");
    let endpoint = directory.path().join("elsewhere/thalweg.shm");
    let services: Vec<String> = (0..16).map(|n| format!("s{n}={schema},{}", endpoint.display())).collect();
    let mut flags = vec!["--reactors", "2", "--log-level", "error"];
    flags.extend(services.iter().flat_map(|service| ["--rpc", service.as_str()]));
    let server = Server::started(within(DESCRIPTORS, &directory.path().join("data"), &flags));
    let said = said(&server);
    let before = open_descriptors(&server);
    assert!(said + before <= DESCRIPTORS, "{said} connections beside {before} descriptors");
    // Whichever reactor they come to, all find a place, and a client that comes after them does not.
    let held: Vec<TcpStream> = (0..said).map(|_| answered(&server)).collect();
    assert!(open_descriptors(&server) <= DESCRIPTORS);
    let text = told(&TcpStream::connect(server.address()).unwrap());
    assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("too-many-connections"), "{text}");
    drop(held);
    server.end();
    elsewhere.end();
}

#[test]
fn whoever_finds_no_descriptor_is_told_by_means_of_the_one_in_reserve() {
    const DESCRIPTORS: usize = 100;
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--reactors", "1", "--log-level", "error", "--durability", "os"];
    let server = Server::started(within(DESCRIPTORS, directory.path(), &flags));
    // Programs on this machine take all there are.
    let neighbour = |number: usize| {
        let socket = ["thalweg.sock", "state.sock"][number % 2];
        UnixStream::connect(directory.path().join(socket)).unwrap()
    };
    let held: Vec<_> = (0..2 * DESCRIPTORS).map(neighbour).collect();
    let start = Instant::now();
    while open_descriptors(&server) < DESCRIPTORS {
        assert!(start.elapsed() < PATIENCE, "{} are open", open_descriptors(&server));
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..3 {
        let text = told(&TcpStream::connect(server.address()).unwrap());
        assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("too-many-connections"), "{text}");
        assert!(text.contains("Retry-After: ") && text.contains("Connection: close"), "{text}");
    }
    drop(held);
    while open_descriptors(&server) > DESCRIPTORS / 2 {
        assert!(start.elapsed() < PATIENCE, "{} are open", open_descriptors(&server));
    }
    assert!(ask(&server, "GET /healthz HTTP/1.1").starts_with("HTTP/1.1 200 "));
    server.end();
}

#[test]
fn with_too_few_descriptors_to_serve_anybody_it_says_so_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    for descriptors in [20, 40] {
        let data = directory.path().join("data");
        let Output { status, stderr, .. } =
            within(descriptors, &data, &["--reactors", "2"]).output().unwrap();
        let complaint = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(1), "{complaint}");
        assert!(complaint.contains(&format!("only {descriptors} descriptors may be open")), "{complaint}");
        assert!(complaint.contains("ulimit -n"), "{complaint}");
        assert!(!data.exists(), "nothing was begun");
    }
}

#[test]
fn limits_that_come_to_more_than_there_is_are_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    for (bytes, warned) in [("1099511627776", true), ("1048576", false)] {
        let log = directory.path().join("log");
        let flags = ["--unsent-max-bytes", bytes, "--bodies-max-bytes", "1048576", "--streams-max", "1000"];
        let mut command = within(1_024, &directory.path().join("data"), &flags);
        command.stderr(std::fs::File::create(&log).unwrap());
        Server::started(command).end();
        let log = std::fs::read_to_string(&log).unwrap();
        assert_eq!(log.contains("more memory than this program may use"), warned, "{log}");
    }
}
