//! Bounds that are reached: what is refused, what goes on meanwhile, and what is there again when there is
//! room.

mod common;

use common::{Client, Server};
use std::time::{Duration, Instant};
use thalweg_http::{Config, Limit, Message};

fn patient() -> Config {
    // However long a turn takes, writes are seen to come in the one behind it.
    let writes_apart_ms = 3_600_000;
    Config { connections_max: 400, stall_timeout_ms: 3_600_000, writes_apart_ms, ..Config::default() }
}

fn post(client: &mut Client, path: &str) {
    client.send(&format!("POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nhi"));
}

#[test]
fn a_write_too_many_is_refused_before_anything_is_done() {
    let server = Server::start(Config { writes_max: 2, ..patient() });
    let (mut first, mut second, mut third) = (server.connect(), server.connect(), server.connect());
    post(&mut first, "/after/1");
    post(&mut second, "/after/2");
    server.until("two wait", |counts| counts.waiting == 2);
    post(&mut third, "/after/3");
    let refused = third.answer();
    assert_eq!((refused.status, refused.text()), (503, "too-many-writes request".into()));
    assert!(refused.keep_alive, "its body was there: the connection goes on");
    assert_eq!(server.shared.lock().unwrap().calls, 2, "the service was not asked");
    // What reads is none of it.
    third.get("/echo");
    assert_eq!(third.answer().status, 200);
    // One whose body is still to come is refused before that is sent.
    third.send("POST /after/3 HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\n");
    assert_eq!(third.answer().status, 503);
    assert!(third.at_end());
    server.post(Message::Complete { up_to: 2 });
    assert_eq!((first.answer().status, second.answer().status), (200, 200));
    post(&mut first, "/after/2");
    assert_eq!(first.answer().status, 200, "there is room again");
}

#[test]
fn a_write_whose_chunks_took_their_time_is_refused_when_it_has_come() {
    let server = Server::start(Config { writes_max: 1, ..patient() });
    let mut clients = [server.connect(), server.connect()];
    for client in &mut clients {
        client.send("POST /after/9 HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n");
    }
    server.until("both are let in", |counts| counts.connections - counts.quiet == 2);
    let [first, second] = &mut clients;
    first.send("0\r\n\r\n");
    server.until("one waits", |counts| counts.waiting == 1);
    second.send("0\r\n\r\n");
    let refused = second.answer();
    assert_eq!((refused.status, refused.text()), (503, "too-many-writes request".into()));
    assert_eq!(server.shared.lock().unwrap().calls, 1, "the service was not asked");
    second.get("/echo");
    assert_eq!(second.answer().status, 200, "its connection goes on");
    server.post(Message::Complete { up_to: 9 });
    assert_eq!(first.answer().text(), "after 9");
}

#[test]
fn what_is_small_is_answered_whatever_is_full() {
    let server = Server::start(Config { writes_max: 0, unsent_bytes_max: 0, ..patient() });
    let mut client = server.connect();
    client.get("/echo");
    assert_eq!(client.answer().text(), "too-much-unsent request");
    post(&mut client, "/echo");
    assert_eq!(client.answer().text(), "too-many-writes request");
    client.get("/small");
    assert_eq!((client.answer().status, server.shared.lock().unwrap().calls), (200, 1));
    for method in ["HEAD", "OPTIONS"] {
        client.send(&format!("{method} /echo HTTP/1.1\r\nHost: t\r\n\r\n"));
        assert_eq!(client.answer_to(method == "HEAD").status, 200, "{method}");
    }
    // Nor is its body refused that is still to come.
    client.send("POST /small HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n");
    client.send("hi");
    assert_eq!(client.answer().status, 200);
}

#[test]
fn what_is_small_is_answered_in_a_turn_that_has_sent_enough() {
    const HERD: usize = 20;
    let server = Server::start(patient());
    let mut herd: Vec<Client> = (0..HERD).map(|_| server.connect()).collect();
    let (mut probe, mut blocker) = (server.connect(), server.connect());
    server.until("connected", |counts| counts.connections == HERD + 2);
    let held = server.shared.lock().unwrap();
    blocker.get("/echo");
    herd.iter_mut().for_each(|client| client.get(&format!("/big/{}", 4 << 20)));
    probe.get("/small");
    drop(held);
    assert_eq!((probe.answer().status, blocker.answer().status), (200, 200));
    herd.iter_mut().for_each(|client| assert_eq!(client.answer().body.len(), 4 << 20));
    let paths = &server.shared.lock().unwrap().paths;
    let place = paths.iter().position(|path| path == "/small").unwrap();
    assert!(place < HERD / 2, "the probe waited for {place} reads");
}

#[test]
fn a_subscriber_too_many_is_refused_and_its_connection_goes_on() {
    let server = Server::start(Config { subscribers_max: 1, ..patient() });
    let mut first = server.connect();
    first.get("/sse/0");
    server.until("subscribed", |counts| counts.subscribed == 1);
    let mut second = server.connect();
    for path in ["/sse/0", "/poll/0"] {
        second.get(path);
        assert_eq!(second.answer().text(), "too-many-subscribers live");
    }
    assert_eq!(server.shared.lock().unwrap().watched, 1);
    drop(first);
    server.until("gone", |counts| counts.subscribed == 0);
    for _ in 0..3 {
        // Each gives its place back when it is answered.
        second.get("/poll/0");
        server.until("subscribed", |counts| counts.subscribed == 1);
        server.append("news");
        assert_eq!(second.answer().status, 200);
        server.shared.lock().unwrap().log.clear();
    }
}

#[test]
fn what_readers_leave_unread_is_bounded_by_refusing_reads() {
    let server = Server::start(Config { unsent_bytes_max: 64 << 20, ..patient() });
    let mut probe = server.connect();
    let mut stuck = Vec::new();
    // Each leaves between nothing and 16 MiB, whatever the kernel takes of it: the bound is met within a
    // quarter.
    let refused = loop {
        assert!(stuck.len() < 200, "reads are taken without end");
        let mut client = server.connect();
        client.get(&format!("/big/{}", 16 << 20));
        client.head(false);
        stuck.push(client);
        probe.get("/echo");
        let answer = probe.answer();
        if answer.status != 200 {
            break answer;
        }
    };
    assert_eq!((refused.status, refused.text()), (503, "too-much-unsent request".into()));
    assert!(refused.keep_alive);
    post(&mut probe, "/echo");
    assert_eq!(probe.answer().status, 200, "writes go on");
    assert_eq!(server.counts().connections, stuck.len() + 1, "nobody was cut");
    // The last one goes on where it was: its answer is whole.
    let mut last = stuck.pop().unwrap();
    while last.buffer.len() < 16 << 20 {
        assert!(last.fill());
    }
    drop(stuck);
    server.until("gone", |counts| counts.connections == 2);
    probe.get("/echo");
    assert_eq!(probe.answer().status, 200, "there is room again");
}

#[test]
fn readers_that_take_nothing_make_room_for_those_who_ask() {
    const BYTES: usize = 16 << 20;
    const MOST: usize = 64 << 20;
    let (unsent_bytes_max, stall_timeout_ms) = (MOST as u64, 16_000);
    let server = Server::start(Config { unsent_bytes_max, stall_timeout_ms, ..patient() });
    let mut probe = server.connect();
    let mut echo = move || {
        probe.get("/echo");
        probe.answer().status
    };
    let cut = || server.meters.traffic().overloads[Limit::SlowestCut as usize] as usize;
    let mut silent = Vec::new();
    // On a machine that is held up, the first are slow before there is no room.
    while echo() == 200 && cut() == 0 {
        assert!(silent.len() < 200, "reads are taken without end");
        let mut client = server.connect();
        client.get(&format!("/big/{BYTES}"));
        client.head(false);
        silent.push(client);
    }
    // A 16th part of the patience after they began, all are slow.
    let began = Instant::now();
    common::until("all are slow", || began.elapsed() >= Duration::from_millis(1_000));
    common::until("room", || echo() == 200);
    let kept = silent.len() - cut();
    assert!(cut() > 0 && (kept + 1) * BYTES >= MOST, "no more than it takes: {} of {}", cut(), silent.len());
    let stalled = server.meters.traffic().overloads[Limit::Stalled as usize];
    assert_eq!(stalled, 0, "before patience ends");
}

#[test]
fn subscribers_that_do_not_read_are_cut_when_there_is_no_room_for_more() {
    let server = Server::start(Config { unsent_bytes_max: 64 << 20, ..patient() });
    server.shared.lock().unwrap().event_bytes_max = 24 << 20;
    let clients: Vec<Client> = (0..24)
        .map(|_| {
            let mut client = server.connect();
            client.get("/sse/0");
            client
        })
        .collect();
    server.until("parked", |counts| counts.subscribed == 24 && counts.quiet >= 24);
    server.append(&"z".repeat(24 << 20));
    let counts = server.until("some are cut", |counts| counts.connections < 24);
    assert!(counts.subscribed > 0, "no more than it takes");
    let mut probe = server.connect();
    probe.get("/echo");
    assert_eq!(probe.answer().status, 200, "there is room again");
    drop(clients);
}

#[test]
fn a_herd_of_large_reads_lets_a_write_through() {
    const HERD: usize = 20;
    let server = Server::start(patient());
    let mut herd: Vec<Client> = (0..HERD).map(|_| server.connect()).collect();
    let (mut writer, mut blocker) = (server.connect(), server.connect());
    server.until("connected", |counts| counts.connections == HERD + 2);
    // The reactor waits in this one while everybody else's request arrives.
    let held = server.shared.lock().unwrap();
    blocker.get("/echo");
    herd.iter_mut().for_each(|client| client.get(&format!("/big/{}", 4 << 20)));
    post(&mut writer, "/echo/write");
    drop(held);
    assert_eq!(writer.answer().status, 200);
    assert_eq!(blocker.answer().status, 200);
    for client in &mut herd {
        assert_eq!(client.answer().body.len(), 4 << 20);
        client.get("/echo");
        assert_eq!(client.answer().status, 200);
    }
    let paths = &server.shared.lock().unwrap().paths;
    let place = paths.iter().position(|path| path == "/echo/write").unwrap();
    // Whatever part of the herd came in an earlier turn: four large reads of a turn go before others.
    assert!(place < HERD / 2, "the write waited for {place} reads");
}

#[test]
fn large_reads_rest_while_writes_come_and_only_then() {
    const HERD: usize = 8;
    const BYTES: usize = 8 << 20;
    let server = Server::start(patient());
    for writes_come in [false, true] {
        server.shared.lock().unwrap().writes_come = writes_come;
        let before = server.counts().rests;
        let readers: Vec<_> = (0..HERD)
            .map(|number| {
                let mut client = server.connect();
                std::thread::spawn(move || {
                    for _ in 0..4 {
                        client.get(&format!("/big/{BYTES}"));
                        // One says at once that nothing more comes; it gets what it asked for all the same.
                        if number == 0 {
                            client.finish();
                        }
                        assert_eq!(client.answer().body.len(), BYTES);
                        if number == 0 {
                            return;
                        }
                    }
                })
            })
            .collect();
        // Meanwhile what is small is answered.
        let mut small = server.connect();
        for _ in 0..20 {
            small.get("/echo");
            assert_eq!(small.answer().status, 200);
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        let rests = server.counts().rests - before;
        assert_eq!(rests > 0, writes_come, "{rests} rests");
    }
    server.until("all have all", |counts| counts.connections == counts.quiet);
}

#[test]
fn who_waits_for_a_turn_is_not_taken_for_one_who_does_not_read() {
    const HERD: usize = 100;
    const BYTES: usize = 512 << 10;
    let server = Server::start(Config { stall_timeout_ms: 500, ..patient() });
    server.shared.lock().unwrap().writes_come = true;
    let connected = |number| {
        let client = server.connect();
        server.until("connected", |counts| counts.connections == number);
        client
    };
    let herd: Vec<Client> = (1..=HERD).map(connected).collect();
    let mut writer = connected(HERD + 1);
    std::thread::scope(|scope| {
        let read = |mut client: Client| {
            client.get(&format!("/big/{BYTES}"));
            assert_eq!(client.answer().body.len(), BYTES);
        };
        let readers: Vec<_> = herd.into_iter().map(|client| scope.spawn(move || read(client))).collect();
        // Turns of 30 ms with rests of 40 behind them, each of which is a half of an answer for four, or so:
        // all wait for their other half longer than twice the patience there is, and a peer that took nothing
        // for so long would be cut.
        while !readers.iter().all(|reader| reader.is_finished()) {
            post(&mut writer, "/slow/30");
            assert_eq!(writer.answer().status, 200);
        }
    });
    assert!(server.counts().rests > 0, "nobody waited for a turn");
}

#[test]
fn reads_that_wait_for_the_disk_are_bounded() {
    let server = Server::start(Config { cold_reads_max: 2, ..patient() });
    let gate = std::sync::Arc::new(std::sync::Mutex::new(()));
    let closed = gate.lock().unwrap();
    server.shared.lock().unwrap().cold = Some(gate.clone());
    let mut waiting: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    waiting.iter_mut().for_each(|client| client.get("/big/1"));
    server.until("two wait", |counts| counts.connections == 2 && counts.quiet == 0);
    let mut third = server.connect();
    third.get("/big/1");
    assert_eq!(third.answer().text(), "reads-overloaded request");
    drop(closed);
    for client in &mut waiting {
        assert_eq!(client.answer().body, b"x");
    }
    let mut fourth = server.connect();
    fourth.get("/big/1");
    assert_eq!(fourth.answer().status, 200);
}
