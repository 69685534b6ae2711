//! Answers that the service brings later.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{Client, Server, until};
use thalweg_http::{Config, Message};

fn ask(client: &mut Client, names: &[u64]) {
    let text: String = names
        .iter()
        .map(|name| format!("POST /later/{name} HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n"))
        .collect();
    client.send(&text);
}

fn bring(server: &Server, names: &[u64]) {
    server.shared.lock().unwrap().ripe.extend_from_slice(names);
    server.nudge();
}

#[test]
fn what_comes_later_leaves_in_the_order_of_the_requests() {
    let server = Server::start(Config::default());
    let (mut one, mut other) = (server.connect(), server.connect());
    ask(&mut one, &[1, 2, 3]);
    ask(&mut other, &[4]);
    server.until("waiting", |counts| counts.waiting == 4);
    bring(&server, &[3, 4, 99]);
    assert_eq!(other.answer().text(), "later 4");
    bring(&server, &[2]);
    bring(&server, &[1]);
    let answers: Vec<String> = (0..3).map(|_| one.answer().text()).collect();
    assert_eq!(answers, ["later 1", "later 2", "later 3"]);
    server.until("quiet", |counts| counts.quiet == 2 && counts.waiting == 0);
}

#[test]
fn answers_that_wait_for_one_before_them_count_as_unsent() {
    let server = Server::start(Config { unsent_bytes_max: 32 << 20, ..Config::default() });
    server.shared.lock().unwrap().later_bytes = 1 << 20;
    let (mut waits, mut probe) = (server.connect(), server.connect());
    let names: Vec<u64> = (1..=40).collect();
    ask(&mut waits, &names);
    server.until("waiting", |counts| counts.waiting == 40);
    bring(&server, &names[1..]);
    until("counted", || (39 << 20..40 << 20).contains(&server.meters.traffic().unsent_bytes));
    probe.get("/echo");
    assert_eq!(probe.answer().text(), "too-much-unsent request");
    bring(&server, &[1]);
    for name in names {
        assert!(waits.answer().text().starts_with(&format!("later {name}.")));
    }
    until("taken", || server.meters.traffic().unsent_bytes == 0);
    probe.get("/echo");
    assert_eq!(probe.answer().status, 200, "there is room again");
    // Who leaves takes along what waited.
    ask(&mut waits, &[41, 42]);
    server.until("waiting", |counts| counts.waiting == 2);
    bring(&server, &[42]);
    until("counted", || server.meters.traffic().unsent_bytes > 0);
    thalweg_sys::socket::close_abruptly(std::os::fd::AsFd::as_fd(&waits.stream)).unwrap();
    drop(waits);
    until("forgotten", || server.meters.traffic().unsent_bytes == 0);
}

#[test]
fn a_turn_that_began_such_answers_ends_with_a_look() {
    let server = Server::start(Config::default());
    server.shared.lock().unwrap().ripe.push(7);
    let mut client = server.connect();
    // It is ripe before anybody rang: the look at the turn's end finds it.
    ask(&mut client, &[7]);
    assert_eq!(client.answer().text(), "later 7");
}

#[test]
fn the_service_hears_of_answers_that_nobody_waits_for_any_more() {
    let server = Server::start(Config::default());
    let mut client = server.connect();
    ask(&mut client, &[1, 2]);
    server.until("waiting", |counts| counts.waiting == 2);
    bring(&server, &[2]);
    drop(client);
    // A peer that only sends nothing more is still answered; one that is gone is noticed when it is.
    bring(&server, &[1]);
    server.until("closed", |counts| counts.connections == 0 && counts.waiting == 0);
    let mut client = server.connect();
    ask(&mut client, &[5]);
    server.until("waiting", |counts| counts.waiting == 1);
    thalweg_sys::socket::close_abruptly(std::os::fd::AsFd::as_fd(&client.stream)).unwrap();
    drop(client);
    server.until("gone", |counts| counts.connections == 0 && counts.waiting == 0);
    assert_eq!(server.shared.lock().unwrap().gone, [5]);
}

#[test]
fn a_service_that_is_patient_is_asked_again() {
    let server = Server::start(Config::default());
    server.shared.lock().unwrap().patience_ms = Some(1);
    let mut client = server.connect();
    ask(&mut client, &[1]);
    until("looked again", || server.shared.lock().unwrap().looks > 3);
    server.shared.lock().unwrap().ripe.push(1);
    assert_eq!(client.answer().text(), "later 1");
}

#[test]
fn a_drain_waits_for_what_comes_later() {
    let mut server = Server::start(Config::default());
    let mut client = server.connect();
    ask(&mut client, &[1]);
    server.until("waiting", |counts| counts.waiting == 1);
    server.post(Message::Drain { grace_ms: 3_600_000 });
    bring(&server, &[1]);
    assert_eq!(client.answer().text(), "later 1");
    server.join();
}
