//! Whom patience ends, and whom not: what a peer did counts, whatever the kernel or the reactor was late to
//! say of it.

mod common;

use common::{Client, Server};
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use thalweg_http::{Config, Limit};

fn patient() -> Config {
    Config { connections_max: 1_000, ..Config::default() }
}

#[test]
fn who_reads_slowly_but_steadily_is_not_taken_for_one_who_does_not_read() {
    let server = Server::start(Config { stall_timeout_ms: 3_000, ..patient() });
    let mut reader = server.connect();
    reader.send(&"GET /big/1000000 HTTP/1.1\r\nHost: t\r\n\r\n".repeat(12));
    // The kernel says that there is room when a third of what it holds has gone, which takes longer than
    // that.
    for _ in 0..150 {
        std::thread::sleep(Duration::from_millis(40));
        let mut some = [0; 4 << 10];
        let count = reader.stream.read(&mut some).unwrap();
        reader.buffer.extend_from_slice(&some[..count]);
    }
    for _ in 0..12 {
        assert_eq!(reader.answer().body.len(), 1_000_000);
    }
}

#[test]
fn what_came_while_the_reactor_was_held_up_is_not_late() {
    const CLIENTS: usize = 300;
    const IDLE_MS: u32 = 4_000;
    let server = Server::start(Config { idle_timeout_ms: IDLE_MS, ..patient() });
    let mut blocker = server.connect();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    server.until("there", |counts| counts.connections == CLIENTS + 1);
    // The reactor stays in this one while everybody else's request arrives and all their time passes.
    let gate = std::sync::Arc::clone(&server.shared.lock().unwrap().gate);
    let held = gate.lock().unwrap();
    blocker.get("/stay");
    server.until_it_stays();
    // The kernel tells of some at a time, and last of those whose time is over first.
    clients.iter_mut().rev().for_each(|client| client.get("/echo"));
    std::thread::sleep(Duration::from_millis(u64::from(IDLE_MS) + 100));
    drop(held);
    for client in clients.iter_mut().chain([&mut blocker]) {
        assert_eq!(client.answer().status, 200);
    }
}

#[test]
fn who_waited_long_for_an_answer_is_idle_only_from_the_answer_on() {
    const SLOW_MS: u64 = 600;
    const IDLE_MS: u32 = 400;
    let server = Server::start(Config { idle_timeout_ms: IDLE_MS, ..patient() });
    let mut client = server.connect();
    let start = Instant::now();
    client.get(&format!("/slow/{SLOW_MS}"));
    assert_eq!(client.answer().status, 200);
    assert!(client.at_end());
    assert!(start.elapsed() >= Duration::from_millis(SLOW_MS + u64::from(IDLE_MS)), "{:?}", start.elapsed());
}

#[test]
fn a_body_that_is_not_read_for_now_is_not_late() {
    let server = Server::start(Config { body_timeout_ms: 4_000, ..patient() });
    server.shared.lock().unwrap().later_bytes = 1 << 20;
    let mut client = server.connect();
    let later = |name: u64| format!("POST /later/{name} HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n");
    let text =
        format!("{}{}POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nbo", later(1), later(2));
    client.send(&text);
    server.until("all of it has come", |counts| {
        counts.waiting == 2 && server.meters.traffic().received_bytes == text.len() as u64
    });
    let bring = |name: u64| {
        server.shared.lock().unwrap().ripe.push(name);
        server.nudge();
    };
    // What waits for the first answer is more than one connection may have ready.
    bring(2);
    server.until("one waits", |counts| counts.waiting == 1);
    std::thread::sleep(Duration::from_millis(4_500));
    client.send("dy");
    bring(1);
    for name in [1, 2] {
        let answer = client.answer();
        assert!(answer.status == 200 && answer.body.len() > 1 << 20 && answer.body[6] == b'0' + name);
    }
    assert_eq!(client.answer().text(), "Post /echo -body");
}

#[test]
fn a_large_body_that_trickles_does_not_keep_what_is_reserved_for_it() {
    const BODY_BYTES: usize = 16 << 20;
    let server = Server::start(Config { body_timeout_ms: 300, ..patient() });
    let mut client = server.connect();
    client.send(&format!("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: {BODY_BYTES}\r\n\r\n"));
    let mut sent = 0;
    let part = vec![b'x'; 20 << 10];
    while sent < BODY_BYTES && client.stream.write_all(&part).is_ok() {
        sent += part.len();
        std::thread::sleep(Duration::from_millis(40));
        if server.meters.traffic().responses[3] > 0 {
            break;
        }
    }
    assert_eq!(client.answer().status, 408, "{sent} bytes sent");
    assert!(sent < BODY_BYTES / 8);
}

#[test]
fn who_takes_a_trickle_of_a_large_answer_is_cut() {
    const ANSWER_BYTES: usize = 64 << 20;
    let server = Server::start(Config { stall_timeout_ms: 1_000, ..patient() });
    let mut reader = server.connect();
    reader.get(&format!("/big/{ANSWER_BYTES}"));
    let is_cut = || server.meters.traffic().overloads[Limit::Stalled as usize] > 0;
    // A second's worth of these lets the kernel hold less, and is less than the 64th part that it is for.
    let (mut some, mut taken) = (vec![0; 64 << 10], 0);
    while !is_cut() {
        assert!(taken < ANSWER_BYTES / 16, "{taken} bytes taken, and not cut");
        std::thread::sleep(Duration::from_millis(100));
        taken += reader.stream.read(&mut some).unwrap();
    }
}
