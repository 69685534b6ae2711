//! A store that does not read as it was written, as clients of the server meet it.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PROGRAM, Server, ask, run, says};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// Flips a bit of the one place where a segment has these bytes.
fn flip(data: &Path, needle: &[u8]) {
    let path = data.join("segment-0000000001");
    let mut bytes = std::fs::read(&path).unwrap();
    let mut places = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(needle));
    let at = places.next().unwrap();
    assert_eq!(places.next(), None);
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// A server whose complaints are kept in a file.
fn start(data: &Path, log: &Path) -> Server {
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--listen", "127.0.0.1:0", "--log-level", "error", "--data"]).arg(data);
    let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
    command.stderr(Stdio::from(log));
    Server::started(command)
}

fn status(server: &Server, request: &str) -> u16 {
    let answer = ask(server, request);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    assert!(status != 500 || answer.contains("store-damaged"), "{answer}");
    status
}

fn damaged_spans(server: &Server) -> (String, String) {
    let stats: serde_json::Value =
        serde_json::from_str(&says(&server.url, &["stats", "--output", "json"])).unwrap();
    let metrics = ask(server, "GET /metrics HTTP/1.1");
    let metric = metrics.lines().find(|line| line.starts_with("thalweg_damaged_spans")).unwrap().to_owned();
    (stats["damagedSpans"].to_string(), metric.rsplit(' ').next().unwrap().to_owned())
}

fn names_damage(log: &Path) -> usize {
    let log = std::fs::read_to_string(log).unwrap();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("is damaged from byte")).collect();
    assert!(told.iter().all(|line| line.contains("streams=\"b\"")), "{told:?}");
    told.len()
}

const POST: &str =
    "POST /v1/stream/b HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 0\r\nStream-Closed: true";
const FORK: &str = "PUT /v1/stream/fork HTTP/1.1\r\nStream-Forked-From: /v1/stream/b\r\nContent-Length: 0";

/// What a damaged stream answers.
fn is_refused(server: &Server) {
    for query in [
        "offset=-1",
        "offset=-1&live=sse",
        "offset=-1&live=long-poll",
        "offset=now&live=sse",
        "offset=now&live=long-poll",
    ] {
        assert_eq!(status(server, &format!("GET /v1/stream/b?{query} HTTP/1.1")), 500, "{query}");
    }
    assert_eq!((status(server, POST), status(server, FORK)), (500, 500));
    assert_eq!(damaged_spans(server), ("1".to_owned(), "1".to_owned()));
    assert_eq!(says(&server.url, &["read", "a"]), "rec-a-1rec-a-2rec-a-3");
    assert_eq!(shown_as_damaged(server), ["b"]);
}

/// The streams that are shown as damaged, in each of the ways to look at them.
fn shown_as_damaged(server: &Server) -> Vec<&'static str> {
    let table = says(&server.url, &["ls", "-l"]);
    let listed = says(&server.url, &["ls", "-l", "--output", "json"]);
    let is_shown = |name: &str| {
        let json: serde_json::Value =
            serde_json::from_str(&says(&server.url, &["head", name, "--output", "json"])).unwrap();
        let in_listing = listed.lines().any(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            entry["name"] == name && entry["damaged"] == true
        });
        let ways = [
            says(&server.url, &["head", name]).contains("stream-damaged: true\n"),
            json["damaged"] == true,
            in_listing,
            table.lines().any(|line| line.contains(" damaged ") && line.ends_with(&format!(" {name}"))),
        ];
        assert!(ways == [ways[0]; 4], "{name}: {ways:?}");
        ways[0]
    };
    ["a", "b"].into_iter().filter(|name| is_shown(name)).collect()
}

fn fill(data: &Path) -> (Server, std::path::PathBuf) {
    let log = data.with_extension("log");
    let server = start(data, &log);
    for name in ["a", "b"] {
        says(&server.url, &["create", name, "--content-type", "text/plain"]);
        (1..=3).for_each(|n| {
            assert!(run(&server.url, &["append", name], &format!("rec-{name}-{n}")).status.success())
        });
    }
    (server, log)
}

#[test]
fn damage_that_a_read_comes_upon_is_told_of_once_and_refused_from_then_on() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (server, log) = fill(&data);
    server.end();
    flip(&data, b"rec-b-2");

    let server = start(&data, &log);
    assert_eq!(
        (damaged_spans(&server).0.as_str(), names_damage(&log)),
        ("0", 0),
        "a clean open reads no payload"
    );
    assert_eq!(shown_as_damaged(&server), [""; 0]);
    // Follows at the end, where nothing is wrong.
    let mut follower = TcpStream::connect(server.address()).unwrap();
    let request =
        "GET /v1/stream/b?offset=now&live=sse HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    follower.write_all(request.as_bytes()).unwrap();
    let mut head = [0; 12];
    follower.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    assert_eq!(status(&server, "GET /v1/stream/b?offset=-1&live=sse HTTP/1.1"), 500);
    let mut rest = String::new();
    follower.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("event: control") && !rest.contains("rec-b"), "{rest}");
    is_refused(&server);
    assert_eq!(names_damage(&log), 1, "once, however many read");
    drop(server);

    // Killed. What lies in front of the checkpoint is met by who reads it.
    let server = start(&data, &log);
    assert_eq!((damaged_spans(&server).0.as_str(), names_damage(&log)), ("0", 1));
    assert_eq!(status(&server, "GET /v1/stream/b?offset=-1 HTTP/1.1"), 500);
    is_refused(&server);
    assert_eq!(names_damage(&log), 2);
    is_deleted_for_good(server, &data, &log);
}

#[test]
fn damage_that_opening_comes_upon_is_told_of_and_its_stream_can_be_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (server, log) = fill(&data);
    drop(server);
    flip(&data, b"rec-b-2");
    let server = start(&data, &log);
    assert_eq!(names_damage(&log), 1);
    is_refused(&server);
    assert_eq!(names_damage(&log), 1, "no read tells of it again");
    is_deleted_for_good(server, &data, &log);
}

fn is_deleted_for_good(server: Server, data: &Path, log: &Path) {
    assert_eq!(status(&server, "DELETE /v1/stream/b HTTP/1.1"), 204);
    assert_eq!(status(&server, "GET /v1/stream/b?offset=-1 HTTP/1.1"), 404);
    drop(server);
    let server = start(data, log);
    assert_eq!(status(&server, "GET /v1/stream/b?offset=-1 HTTP/1.1"), 404, "it stays deleted");
    says(&server.url, &["create", "b", "--content-type", "text/plain"]);
    assert!(run(&server.url, &["append", "b"], "anew").status.success());
    server.end();
    let server = start(data, log);
    assert_eq!(damaged_spans(&server).0, "0", "a checkpoint lies behind what nobody misses");
    assert_eq!(says(&server.url, &["read", "b"]), "anew");
    server.end();
}

#[test]
fn a_segment_that_is_missing_is_damage_to_every_verb() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let flags = ["--durability", "os", "--retain-bytes", "1073741824"];
    let server = Server::start(&data, "127.0.0.1:0", &flags);
    says(&server.url, &["create", "s"]);
    let file = at("file");
    std::fs::write(&file, vec![b'x'; 12 << 20]).unwrap();
    says(&server.url, &["append", "s", "--file", &file]);
    server.end();
    let missing = data.join("segment-0000000002");
    assert!(missing.exists() && data.join("segment-0000000003").exists());
    std::fs::remove_file(&missing).unwrap();
    let (from, to) = (at("data"), at("to"));
    for verb in [
        &["verify", "--data", &from][..],
        &["parse", &from],
        &["backup", &from, &to],
        &["restore", &from, &to],
    ] {
        let output = run("", verb, "");
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(5)
                && said.contains("segment-0000000002 is missing, or has lost its header"),
            "{verb:?}: {:?} {said}",
            output.status
        );
        assert!(!said.contains("attempts"), "{verb:?}: {said}");
    }
}
