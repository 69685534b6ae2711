//! Connections that end while their peers still send: whatever they are told reaches them.

mod common;

use common::{Client, Server};
use std::time::Duration;
use thalweg_http::{Config, Message};

/// More than both ends' sockets hold of what is not read.
const BYTES: usize = 8_000_000;

/// Reads a body, a little at a time.
fn read_slowly(client: &mut Client) {
    while client.buffer.len() < BYTES {
        std::thread::sleep(Duration::from_millis(1));
        assert!(client.fill(), "cut after {} bytes", client.buffer.len());
    }
    assert!(client.buffer.drain(..BYTES).all(|byte| byte == b'x'));
}

#[test]
fn a_request_that_waits_in_its_socket_while_a_server_ends_is_answered() {
    let mut server = Server::start(Config::default());
    let mut client = server.connect();
    client.get(&format!("/big/{BYTES}"));
    assert!(client.head(false).0.keep_alive);
    server.post(Message::Drain { grace_ms: 3_600_000 });
    assert_eq!(server.counts().quiet, 0);
    client.get("/echo/behind");
    read_slowly(&mut client);
    let last = client.answer();
    assert_eq!((last.text().as_str(), last.keep_alive), ("Get /echo/behind -", false));
    assert!(client.at_end());
    server.join();
}

#[test]
fn nobody_is_told_to_go_on_behind_a_last_answer() {
    let mut server = Server::start(Config::default());
    let mut client = server.connect();
    let head = "HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n";
    client.send(&format!("POST /after/5 {head}\r\n123456789POST /echo {head}Expect: 100-continue\r\n\r\n"));
    server.until("awaited", |_| server.shared.lock().unwrap().calls == 1);
    server.post(Message::Drain { grace_ms: 3_600_000 });
    server.post(Message::Complete { up_to: 5 });
    let last = client.answer();
    assert_eq!((last.text().as_str(), last.keep_alive), ("after 5", false));
    assert!(client.at_end(), "{:?}", String::from_utf8_lossy(&client.buffer));
    server.join();
}

#[test]
fn what_is_sent_behind_a_last_request_does_not_cut_its_answer() {
    let server = Server::start(Config { linger_ms: 3_600_000, ..Config::default() });
    let mut client = server.connect();
    client.send(&format!("GET /big/{BYTES} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"));
    assert!(!client.head(false).0.keep_alive);
    client.get("/echo/behind");
    read_slowly(&mut client);
    assert!(client.at_end());
    assert_eq!(server.shared.lock().unwrap().calls, 1);
    drop(client);
    server.until("gone", |counts| counts.connections == 0);
}
