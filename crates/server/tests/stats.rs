//! `thalweg stats`: what a server holds, and what it does while somebody watches.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PROGRAM, Server, fails, says};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

fn stats(url: &str) -> Value {
    serde_json::from_str(&says(url, &["stats", "--output", "json"])).unwrap()
}

/// Somebody who watches, and what is printed.
struct Watch {
    child: Child,
    out: BufReader<ChildStdout>,
    complaints: BufReader<ChildStderr>,
}

impl Watch {
    fn start(url: &str, more: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["stats", "--watch", "--every", "0.2"]).args(more).env("THALWEG_URL", url);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let complaints = BufReader::new(child.stderr.take().unwrap());
        Self { child, out, complaints }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.out.read_line(&mut line).unwrap() > 0, "it ended");
        line
    }

    fn complaint(&mut self) -> String {
        let mut line = String::new();
        assert!(self.complaints.read_line(&mut line).unwrap() > 0, "it ended");
        line
    }

    fn json(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    /// Interrupts it; its exit code.
    fn interrupted(mut self, signal: &str) -> Option<i32> {
        let sent = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        self.child.wait().unwrap().code()
    }
}

#[test]
fn counts_say_what_was_done_since_the_start_and_what_there_is() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &["--reactors", "2"]);
    let url = &server.url;
    let before = stats(url);
    says(url, &["create", "a"]);
    (0..10).for_each(|_| drop(says(url, &["append", "a", "record"])));
    let mut tail =
        Command::new(PROGRAM).args(["tail", "a", "--url", url]).stdout(Stdio::null()).spawn().unwrap();
    while stats(url)["subscribers"] != 1 {
        std::thread::sleep(Duration::from_millis(10));
    }
    says(url, &["append", "a", "delivered"]);
    let after = stats(url);
    let grown = |key: &str| after[key].as_u64().unwrap() - before[key].as_u64().unwrap();
    assert_eq!((grown("streams"), grown("appends"), grown("records"), grown("keptBytes")), (1, 11, 11, 69));
    assert!(grown("commits") >= 12 && grown("syncedCommits") >= 12 && grown("syncs") >= 12, "{after}");
    assert!(grown("appendUs") > 0 && grown("syncUs") > 0 && grown("delivered") >= 1, "{after}");
    assert!(grown("receivedBytes") > 1_000 && grown("sentBytes") > 1_000, "{after}");
    assert!(
        after["connections"].as_u64() >= Some(2) && after["memoryBytes"].as_u64() > Some(1 << 20),
        "{after}"
    );
    assert_eq!(
        (&after["refusals"], &after["refusedCommits"], &after["unsentBytes"]),
        (&0.into(), &0.into(), &0.into())
    );
    assert_eq!((&after["durability"], &after["damagedSpans"]), (&"sync".into(), &0.into()));
    let text = says(url, &["stats"]);
    assert!(text.contains("durability: sync\n") && text.contains("records: 11\n"), "{text}");
    tail.kill().unwrap();
    tail.wait().unwrap();
    server.end();
}

#[test]
fn what_is_watched_is_a_line_an_interval_under_a_header() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &[]);
    let mut watch = Watch::start(&server.url, &["--rounds", "3"]);
    let header = watch.line();
    assert_eq!(header.split_whitespace().take(4).collect::<Vec<_>>(), ["time", "appends/s", "in/s", "out/s"]);
    for _ in 0..3 {
        assert_eq!(watch.line().len(), header.len());
    }
    assert!(watch.child.wait().unwrap().success());
    // One that nobody reads any more has nothing left to do.
    let mut watch = Watch::start(&server.url, &[]);
    watch.line();
    drop(watch.out);
    assert!(watch.child.wait().unwrap().success());
    server.end();
}

#[test]
fn a_server_that_goes_away_is_waited_for_and_an_interrupted_watch_ends_well() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &[]);
    let (url, address) = (server.url.clone(), server.address().to_owned());
    says(&url, &["create", "a"]);
    let mut watch = Watch::start(&url, &["--output", "json"]);
    watch.json();
    says(&url, &["append", "a", "record"]);
    let mut busy = watch.json();
    while busy["appendsPerSecond"] == 0.0 {
        busy = watch.json();
    }
    let rate = busy["appendsPerSecond"].as_f64().unwrap() * busy["seconds"].as_f64().unwrap();
    assert!((0.9..1.1).contains(&rate), "{busy}");
    assert!(busy["groupCommits"].as_f64() >= Some(1.0) && busy["syncMs"].as_f64() > Some(0.0), "{busy}");
    assert!(busy["appendMs"].as_f64() > Some(0.0) && busy["streams"].as_u64() >= Some(1), "{busy}");
    server.end();
    let complaint = watch.complaint();
    assert!(complaint.contains("waiting for it"), "{complaint}");
    let server = Server::start(directory.path(), &address, &[]);
    assert!(watch.complaint().contains("answers again"));
    while watch.json()["refusals"] != 0 {}
    assert_eq!(watch.interrupted("INT"), Some(0));
    let mut watch = Watch::start(&url, &[]);
    watch.line();
    assert_eq!(watch.interrupted("TERM"), Some(0));
    server.end();
    let (code, complaint) = fails(&url, &["stats", "--watch"]);
    assert!(code == 3 && complaint.contains("thalweg serve"), "{complaint}");
}

#[test]
fn an_interrupt_does_not_wait_for_a_server_that_says_nothing() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let watch = Watch::start(&url, &[]);
    // It has asked, so it is blocked in the read.
    let (mut peer, _) = silent.accept().unwrap();
    let mut byte = [0];
    peer.read_exact(&mut byte).unwrap();
    assert_eq!(watch.interrupted("INT"), Some(0));
}

#[test]
fn intervals_that_make_no_sense_are_refused() {
    for arguments in [
        &["--every", "1"][..],
        &["--watch", "--every", "0"],
        &["--watch", "--every", "x"],
        &["--rounds", "1"],
    ] {
        assert_eq!(fails("", &[&["stats"], arguments].concat()).0, 2, "{arguments:?}");
    }
}
