//! Reads by time against a running server, after a restart too.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{Server, fails, says};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thalweg_wire::rfc3339;

/// The time now, between two records: no record is of the same microsecond.
fn pause() -> String {
    std::thread::sleep(Duration::from_millis(2));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let text = rfc3339::format(u64::try_from(now.as_micros()).unwrap()).unwrap();
    std::thread::sleep(Duration::from_millis(2));
    text
}

#[test]
fn a_stream_is_read_from_one_time_to_another() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &[]);
    let mut url = server.url.clone();
    for name in ["a", "b"] {
        says(&url, &["create", name]);
    }
    let mut times = Vec::new();
    for round in 0..20 {
        times.push(pause());
        for name in ["a", "b"] {
            says(&url, &["append", name, &format!("{name}{round} ")]);
        }
    }
    let rounds = |name: &str, range: std::ops::Range<usize>| -> String {
        range.map(|round| format!("{name}{round} ")).collect()
    };
    let check = |url: &str| {
        for (from, until) in [(0, 19), (3, 4), (7, 7), (10, 15)] {
            for name in ["a", "b"] {
                let read = says(url, &["read", name, "--from", &times[from], "--until", &times[until]]);
                assert_eq!(read, rounds(name, from..until));
            }
        }
        assert_eq!(says(url, &["read", "a", "--from", &times[18]]), rounds("a", 18..20));
        assert_eq!(says(url, &["read", "a", "--from", &pause()]), "");
    };
    check(&url);
    // A fork reads what it inherits by the times of its source.
    says(&url, &["fork", "a", "f"]);
    says(&url, &["append", "f", "own"]);
    assert_eq!(says(&url, &["read", "f", "--from", &times[19]]), "a19 own");
    server.end();
    let server = Server::start(directory.path(), "127.0.0.1:0", &[]);
    url.clone_from(&server.url);
    check(&url);
    let (code, said) = fails(&url, &["read", "missing", "--from", &times[0]]);
    assert!(code == 4, "{said}");
    says(&url, &["close", "a"]);
    assert_eq!(says(&url, &["tail", "a", "--from", &times[19]]), "a19 ");
    server.end();
}
