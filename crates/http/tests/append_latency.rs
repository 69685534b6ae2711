//! What is counted of requests that bring something, and of the bytes of all of them.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{Client, Server};
use std::time::{Duration, Instant};
use thalweg_http::{Config, Message};

fn post(client: &mut Client, path: &str) -> usize {
    let text = format!("POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc");
    client.send(&text);
    text.len()
}

/// How many were timed, and how long they took together. Counted at the end of a turn, which comes after its
/// answers.
fn timed(server: &Server) -> (u64, u64) {
    server.counts();
    server.counts();
    let timed = server.meters.traffic().append_us;
    (timed.buckets.last().unwrap().1, timed.sum)
}

#[test]
fn a_post_is_timed_from_the_turn_that_read_it_to_the_moment_its_answer_may_leave() {
    let server = Server::start(Config::default());
    let mut client = server.connect();
    let begun = Instant::now();
    post(&mut client, "/after/5");
    server.until("it waits", |counts| counts.waiting == 1);
    std::thread::sleep(Duration::from_millis(30));
    server.post(Message::Complete { up_to: 5 });
    assert_eq!(client.answer().status, 200);
    let (count, waited_us) = timed(&server);
    assert!(count == 1 && (30_000..=us_since(begun)).contains(&waited_us), "{count} {waited_us}");

    // One that waits for nothing took as long as its turn.
    let begun = Instant::now();
    post(&mut client, "/slow/20");
    assert_eq!(client.answer().status, 200);
    let (count, both_us) = timed(&server);
    assert!(count == 2 && (20_000..=us_since(begun)).contains(&(both_us - waited_us)), "{count} {both_us}");
}

fn us_since(begun: Instant) -> u64 {
    begun.elapsed().as_micros() as u64
}

/// A client that asks again and again is found without the kernel being asked who has come.
#[test]
fn a_post_that_is_found_at_a_glance_is_timed_as_any_other() {
    let server = Server::start_spinning(Config::default());
    let mut client = server.connect();
    let mut posts = |count: u64, path: &str| {
        for _ in 0..count {
            post(&mut client, path);
            assert_eq!(client.answer().status, 200);
        }
    };
    posts(500, "/slow/0");
    let (_, before_us) = timed(&server);
    let begun = Instant::now();
    posts(100, "/slow/0");
    posts(5, "/slow/10");
    let (count, both_us) = timed(&server);
    assert!(count == 605 && (50_000..=us_since(begun)).contains(&(both_us - before_us)), "{count} {both_us}");
    drop(client);
    server.until("it is gone", |counts| counts.connections == 0);
}

#[test]
fn what_is_no_post_or_was_not_carried_out_is_not_timed() {
    let server = Server::start(Config::default());
    let mut client = server.connect();
    client.get("/after/1");
    server.until("it waits", |counts| counts.waiting == 1);
    server.post(Message::Complete { up_to: 1 });
    assert_eq!(client.answer().status, 200);
    for path in ["/empty/409", "/nowhere"] {
        post(&mut client, path);
        assert!(client.answer().status >= 400);
    }
    post(&mut client, "/after/9");
    server.until("it waits", |counts| counts.waiting == 1);
    server.post(Message::Failed);
    assert_eq!(client.answer().status, 500);
    // Nor is what the service does not count.
    post(&mut client, "/small");
    assert_eq!(client.answer().status, 200);
    assert_eq!(timed(&server), (0, 0));
}

#[test]
fn bytes_and_subscribers_are_counted_both_ways() {
    let server = Server::start(Config::default());
    let mut client = server.connect();
    let sent = post(&mut client, "/big/100000");
    assert_eq!(client.answer().body.len(), 100_000);
    let mut follower = server.connect();
    let text = "GET /sse/0 HTTP/1.1\r\nHost: test\r\n\r\n";
    follower.send(text);
    server.until("it follows", |counts| counts.subscribed == 1);
    server.counts();
    let traffic = server.meters.traffic();
    assert_eq!((traffic.received_bytes, traffic.subscribers), ((sent + text.len()) as u64, 1));
    assert!((100_100..101_000).contains(&traffic.sent_bytes), "{}", traffic.sent_bytes);
    drop(follower);
    server.until("it is gone", |counts| counts.connections == 1);
    server.counts();
    assert_eq!(server.meters.traffic().subscribers, 0);
}
