//! What a file holds as well is sent from there, and nobody can tell but by how long it takes.

mod common;

use common::Server;
use thalweg_http::Config;

/// Enough that no socket takes it at once.
const LARGE: usize = 3 << 20;

/// What stands between the two small pieces.
fn middle(body: &[u8]) -> &[u8] {
    let inner = body.strip_prefix(b"begin ").and_then(|rest| rest.strip_suffix(b" end"));
    assert!(inner.is_some(), "both small pieces");
    inner.unwrap_or_default()
}

#[test]
fn a_large_piece_comes_from_its_file_and_a_small_one_from_memory() {
    let server = Server::start(Config::default());
    let mut client = server.connect();
    for bytes in [LARGE, 65_536, 65_535, 1, 0, LARGE] {
        client.get(&format!("/held/{bytes}"));
        let answer = client.answer();
        assert_eq!((answer.status, answer.body.len()), (200, bytes + 10));
        // What the socket leaves of a large piece is a small one in the end.
        let (large, left) = middle(&answer.body).split_at(bytes.saturating_sub(65_535));
        assert!(large.iter().all(|byte| *byte == b'f'), "{bytes} bytes from memory");
        assert!(
            left.iter().all(|byte| *byte == b'm') || bytes > 65_535 && left.is_sorted(),
            "{bytes} bytes mixed"
        );
    }
}

#[test]
fn answers_that_follow_each_other_stay_in_order() {
    let server = Server::start(Config::default());
    let mut client = server.connect();
    for _ in 0..5 {
        ["/held/200000", "/small", "/held/7"].iter().for_each(|path| client.get(path));
    }
    for _ in 0..5 {
        assert_eq!(middle(&client.answer().body).len(), 200_000);
        assert_eq!(client.answer().body, b"small");
        assert_eq!(middle(&client.answer().body), b"mmmmmmm");
    }
}

#[test]
fn what_cannot_be_sent_from_its_file_is_sent_from_memory() {
    let server = Server::start(Config::default());
    let mut client = server.connect();
    client.get(&format!("/unheld/{LARGE}"));
    assert!(middle(&client.answer().body) == vec![b'm'; LARGE]);
}
