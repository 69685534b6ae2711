//! The log as programs on the same machine use it: through the socket and the shared memory in the store's
//! directory.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PROGRAM, Server, fails, says};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn a_stream_is_followed_by_every_way_alike_and_until_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data, "127.0.0.1:0", &[]);
    let url = server.url.clone();
    says(&url, &["create", "a"]);
    says(&url, &["append", "a", "first\n"]);
    let follow = |via: &str| {
        Command::new(PROGRAM)
            .args(["tail", "a", "--via", via, "--url", &url, "--data"])
            .arg(&data)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut followers: Vec<_> = ["http", "sock", "shm"].map(follow).into();
    let mut lines: Vec<_> =
        followers.iter_mut().map(|child| BufReader::new(child.stdout.take().unwrap()).lines()).collect();
    for lines in &mut lines {
        assert_eq!(lines.next().unwrap().unwrap(), "first");
    }
    for n in 0..20 {
        says(&url, &["append", "a", &format!("line {n}\n")]);
        for lines in &mut lines {
            assert_eq!(lines.next().unwrap().unwrap(), format!("line {n}"));
        }
    }
    says(&url, &["append", "a", "last\n", "--close"]);
    for (lines, follower) in lines.iter_mut().zip(&mut followers) {
        assert_eq!(lines.next().unwrap().unwrap(), "last");
        assert!(lines.next().is_none());
        assert!(follower.wait().unwrap().success());
    }
}

#[test]
fn what_is_missing_is_told_as_over_http() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    let (code, words) = fails("http://127.0.0.1:1", &["tail", "a", "--via", "shm", "--data", data]);
    assert_eq!(code, 3, "{words}");
    assert!(words.contains("thalweg.shm") && words.contains("thalweg serve"), "{words}");
    let server = Server::start(data.as_ref(), "127.0.0.1:0", &[]);
    for via in ["sock", "shm"] {
        let (code, words) = fails("http://127.0.0.1:1", &["tail", "a", "--via", via, "--data", data]);
        assert_eq!(code, 4, "{words}");
        assert!(words.contains("(404)") && words.contains("stream-missing"), "{words}");
    }
    server.end();
    assert!(!std::path::Path::new(data).join("thalweg.sock").exists(), "a server takes its paths with it");
    let server = Server::start(data.as_ref(), "127.0.0.1:0", &["--services", "off"]);
    let (code, _) = fails("http://127.0.0.1:1", &["tail", "a", "--via", "sock", "--data", data]);
    assert_eq!(code, 3);
    server.end();
}
