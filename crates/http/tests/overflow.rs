//! Who comes when there are as many connections as there may be.

mod common;

use common::{Client, Server};
use thalweg_http::Config;

/// A server whose places are taken, and who has them.
fn full(config: Config) -> (Server, Vec<Client>) {
    let places = config.connections_max;
    let server = Server::start(config);
    let within = (0..places).map(|_| server.connect()).collect();
    server.until("full", |counts| counts.connections == places);
    (server, within)
}

#[test]
fn an_overflow_connection_is_answered_one_thing_that_is_small() {
    let (server, mut within) = full(Config { connections_max: 2, ..Config::default() });
    for request in ["GET /small", "HEAD /echo"] {
        let mut probe = server.connect();
        // What it asks besides is not looked at.
        probe.send(&format!("{request} HTTP/1.1\r\nHost: t\r\n\r\nGET /small HTTP/1.1\r\nHost: t\r\n\r\n"));
        let answer = probe.answer_to(request.starts_with("HEAD"));
        assert_eq!((answer.status, answer.keep_alive), (200, false), "{request}");
        assert!(probe.at_end());
    }
    assert_eq!(server.shared.lock().unwrap().calls, 2);
    within.iter_mut().for_each(|client| {
        client.get("/echo");
        assert_eq!(client.answer().status, 200);
    });
}

#[test]
fn an_overflow_connection_that_asks_for_more_is_refused_before_its_body_is_read() {
    let (server, _within) = full(Config { connections_max: 1, ..Config::default() });
    for head in ["GET /echo", "GET /sse/0", "POST /echo", "PUT /after/1"] {
        let mut overflow = server.connect();
        overflow.send(&format!("{head} HTTP/1.1\r\nHost: t\r\nContent-Length: 10000\r\n\r\n"));
        let refused = overflow.answer();
        assert_eq!(
            (refused.status, refused.text().as_str()),
            (503, "too-many-connections connection"),
            "{head}"
        );
        assert!(overflow.at_end());
    }
    assert_eq!(server.shared.lock().unwrap().calls, 0);
}

#[test]
fn an_overflow_connection_that_asks_nothing_in_time_is_told_that_there_is_no_room() {
    let (server, _within) = full(Config { connections_max: 1, linger_ms: 2_000, ..Config::default() });
    let mut silent = server.connect();
    let mut slow = server.connect();
    slow.send("GET /small HTTP/1.1\r\nHos");
    for overflow in [&mut silent, &mut slow] {
        assert_eq!(overflow.answer().text(), "too-many-connections connection");
        assert!(overflow.at_end());
    }
    server.until("gone", |counts| counts.connections == 1);
}

#[test]
fn an_overflow_connection_that_does_not_take_its_answer_in_time_is_cut() {
    let config =
        Config { connections_max: 1, linger_ms: 2_000, stall_timeout_ms: 3_600_000, ..Config::default() };
    let (server, _within) = full(config);
    let mut overflow = server.connect();
    overflow.get("/small/64000000");
    assert_eq!(overflow.head(false).0.status, 200);
    server.until("gone", |counts| counts.connections == 1);
}

#[test]
fn one_connection_more_is_refused_at_once() {
    let config =
        Config { connections_max: 1, overflow_connections_max: 1, linger_ms: 3_600_000, ..Config::default() };
    let (server, mut within) = full(config);
    let mut overflow = server.connect();
    server.until("one beyond the bound", |counts| counts.connections == 2);
    for _ in 0..200 {
        let mut beyond = server.connect();
        let refused = beyond.answer();
        assert_eq!((refused.status, refused.text().as_str()), (503, "too-many-connections connection"));
        assert!(!refused.keep_alive && beyond.at_end());
    }
    assert_eq!(server.counts().connections, 2);
    // It took no place: once a connection has ended, the next is an ordinary one.
    within.clear();
    server.until("left", |counts| counts.connections == 1);
    let mut next = server.connect();
    for _ in 0..2 {
        next.get("/echo");
        assert_eq!(next.answer().status, 200);
    }
    overflow.get("/small");
    assert_eq!(overflow.answer().status, 200);
    assert!(overflow.at_end());
    server.until("its place is free", |counts| counts.connections == 1);
}

#[test]
fn without_overflow_connections_every_client_is_refused_at_once() {
    let (server, _within) =
        full(Config { connections_max: 1, overflow_connections_max: 0, ..Config::default() });
    assert_eq!(server.connect().answer().status, 503);
}
