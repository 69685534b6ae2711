//! Requests and responses: order, framing, limits, patience.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{Client, Server, until};
use std::io::Write;
use std::net::Shutdown;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use thalweg_http::{Config, Limit, Message};
use thalweg_wire::http1::Limits;

fn patient() -> Config {
    Config { connections_max: 1_000, linger_ms: 3_600_000, ..Config::default() }
}

#[test]
fn responses_leave_in_request_order_whatever_order_tickets_complete_in() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let mut text = String::new();
    for path in ["/after/9", "/echo/a", "/after/3", "/after/7", "/echo/b"] {
        text += &format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    client.send(&text);
    let mut other = server.connect();
    other.get("/after/3");
    server.until("waiting", |counts| counts.waiting == 4);
    server.post(Message::Complete { up_to: 3 });
    // A later ticket does not hold an earlier one of another connection back.
    assert_eq!(other.answer().text(), "after 3");
    server.post(Message::Complete { up_to: 7 });
    client.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(std::io::Read::read(&mut client.stream, &mut [0; 1]).is_err(), "the first is not complete yet");
    client.stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
    server.post(Message::Complete { up_to: 9 });
    let answers: Vec<String> = (0..5).map(|_| client.answer().text()).collect();
    assert_eq!(answers, ["after 9", "Get /echo/a -", "after 3", "after 7", "Get /echo/b -"]);
    // What is complete already does not wait.
    client.get("/after/5");
    assert_eq!(client.answer().text(), "after 5");
    server.until("quiet", |counts| counts.quiet == 2 && counts.waiting == 0);
}

#[test]
fn what_reads_behind_a_write_waits_for_it() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let post = "POST /after/4 HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n";
    let get = "GET /echo HTTP/1.1\r\nHost: t\r\n\r\n";
    client.send(&format!("{post}{post}{get}{post}{get}"));
    server.until("waiting", |counts| counts.waiting == 2);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(server.shared.lock().unwrap().calls, 2, "writes follow writes, a read does not");
    server.post(Message::Complete { up_to: 4 });
    let answers: Vec<String> = (0..5).map(|_| client.answer().text()).collect();
    assert_eq!(answers, ["after 4", "after 4", "Get /echo -", "after 4", "Get /echo -"]);
    assert_eq!(server.shared.lock().unwrap().calls, 5);
}

#[test]
fn what_reads_by_a_request_in_chunks_waits_for_writes_as_well() {
    let server = Server::start(patient());
    let mut client = server.connect();
    client.send(
        "POST /after/4 HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n\
         GET /echo/a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n\
         POST /echo/b HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n",
    );
    server.until("waiting", |counts| counts.waiting == 1);
    assert_eq!(server.shared.lock().unwrap().calls, 1);
    server.post(Message::Complete { up_to: 4 });
    let answers: Vec<String> = (0..3).map(|_| client.answer().text()).collect();
    assert_eq!(answers, ["after 4", "Get /echo/a -hi", "Post /echo/b -"]);
}

#[test]
fn a_header_that_has_one_value_comes_once_and_a_list_goes_on() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let ask = |fields: &str, body: &str| format!("POST /echo HTTP/1.1\r\nHost: t\r\n{fields}\r\n{body}");
    let list = "Accept: a\r\nAccept: b\r\nConnection: keep-alive\r\nconnection: te\r\n";
    for name in ["Authorization", "Origin", "Stream-Closed"] {
        let twice = format!("{list}{name}: a\r\n{}: b\r\n", name.to_lowercase());
        client.send(&ask(&format!("{twice}Content-Length: 2\r\n"), "hi"));
        let answer = client.answer();
        assert_eq!((answer.status, answer.text()), (400, format!("header-duplicate {name}")));
        // Nor is a body waited for.
        let mut other = server.connect();
        other.send(&ask(&format!("{twice}Content-Length: 9\r\n"), "hi"));
        assert_eq!(other.answer().status, 400);
    }
    client.send(&ask(&format!("{list}Content-Length: 2\r\nOrigin: a\r\n"), "hi"));
    assert_eq!(client.answer().text(), "Post /echo -hi", "the connection goes on");
    assert_eq!(server.shared.lock().unwrap().calls, 1);
}

#[test]
fn a_failed_store_answers_whoever_waits() {
    let server = Server::start(patient());
    let mut client = server.connect();
    client.send("GET /after/1 HTTP/1.1\r\nHost: t\r\n\r\nGET /echo HTTP/1.1\r\nHost: t\r\n\r\n");
    server.until("waiting", |counts| counts.waiting == 1);
    server.post(Message::Failed);
    assert_eq!((client.answer().status, client.answer().status), (500, 200));
}

#[test]
fn whoever_asks_a_store_that_failed_is_answered_at_once() {
    let server = Server::start(patient());
    let mut client = server.connect();
    server.post(Message::Complete { up_to: 3 });
    server.post(Message::Failed);
    client.send(
        "POST /after/4 HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\nGET /echo HTTP/1.1\r\nHost: t\r\n\r\n",
    );
    assert_eq!((client.answer().text(), client.answer().status), ("failed".to_owned(), 200));
    client.get("/after/3");
    assert_eq!(client.answer().text(), "after 3", "what was complete before stays so");
    // And nobody who hung up is kept for an answer that does not come.
    client.get("/after/5");
    client.finish();
    assert_eq!(client.answer().status, 500);
    server.until("gone", |counts| (counts.connections, counts.waiting) == (0, 0));
}

#[test]
fn a_connection_that_goes_while_it_waits_is_forgotten() {
    let server = Server::start(patient());
    let mut client = server.connect();
    client.send("GET /echo HTTP/1.1\r\nHost: t\r\n\r\nGET /after/1 HTTP/1.1\r\nHost: t\r\n\r\n");
    server.until("waiting", |counts| counts.waiting == 1);
    // With an answer unread, closing resets the connection.
    client.stream.peek(&mut [0; 1]).unwrap();
    drop(client);
    server.until("gone", |counts| counts.connections == 0);
    let mut next = server.connect();
    next.get("/echo");
    assert_eq!(next.answer().status, 200);
    // The slot may be another's by now: the late answer must not reach it.
    server.post(Message::Complete { up_to: 1 });
    next.get("/echo/2");
    assert_eq!(next.answer().text(), "Get /echo/2 -");
}

#[test]
fn a_request_in_one_piece_costs_one_read_and_one_write() {
    let server = Server::start(patient());
    let mut client = server.connect();
    client.get("/echo");
    client.answer();
    let before = server.counts().calls;
    for _ in 0..10 {
        client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello");
        client.answer();
    }
    let calls = server.counts().calls;
    assert_eq!((calls.reads - before.reads, calls.writes - before.writes), (10, 10));
    // Nor does an answer that waited, nor a burst of them.
    let mut text = String::new();
    for ticket in 1..=20 {
        text += &format!("POST /after/{ticket} HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello");
    }
    client.send(&text);
    server.until("waiting", |counts| counts.waiting == 20);
    server.post(Message::Complete { up_to: 20 });
    (0..20).for_each(|_| assert_eq!(client.answer().status, 200));
    let burst = server.counts().calls;
    assert_eq!((burst.reads - calls.reads, burst.writes - calls.writes), (1, 1));
    assert_eq!(burst.interests, 0, "nothing is registered anew");
}

#[test]
fn requests_may_come_in_any_pieces() {
    let server = Server::start(patient());
    let text = "POST /echo/x?y=1 HTTP/1.1\r\nHost: t\r\nContent-Length: 11\r\n\r\nhello world\
                POST /echo/z HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n\
                GET /echo HTTP/1.1\r\nHost: t\r\n\r\n";
    let wanted = ["Post /echo/x y=1hello world", "Post /echo/z -hello world", "Get /echo -"];
    for piece in [1, 2, 3, 7, 50, 1000] {
        let mut client = server.connect();
        for part in text.as_bytes().chunks(piece) {
            client.stream.write_all(part).unwrap();
            if piece < 10 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        let answers: Vec<String> = (0..3).map(|_| client.answer().text()).collect();
        assert_eq!(answers, wanted, "in pieces of {piece}");
    }
}

#[test]
fn a_deep_pipeline_pauses_reading_and_loses_nothing() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let count = 500;
    let mut text = String::new();
    for index in 0..count {
        text += &format!(
            "POST /after/{} HTTP/1.1\r\nHost: t\r\nContent-Length: 300\r\n\r\n{:300}",
            index + 1,
            ""
        );
    }
    client.send(&text);
    server.until("waiting", |counts| counts.waiting == 64);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(server.counts().waiting, 64, "no more than the bound await their answers");
    server.post(Message::Complete { up_to: 1_000 });
    for index in 0..count {
        assert_eq!(client.answer().text(), format!("after {}", index + 1));
    }
}

#[test]
fn bodies_up_to_the_limit_are_taken_and_beyond_it_refused_unread() {
    let server = Server::start(Config { body_bytes_max: 3_000_000, ..patient() });
    let mut client = server.connect();
    let body = "0123456789".repeat(300_000);
    client.send(&format!("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    assert_eq!(client.answer().text(), format!("Post /echo -{body}"));
    let chunked = |size: usize| {
        let piece = format!("{:x}\r\n{}\r\n", 1000, "y".repeat(1000));
        format!(
            "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
            piece.repeat(size / 1000)
        )
    };
    client.send(&chunked(3_000_000));
    assert_eq!(client.answer().body.len(), 12 + 3_000_000);
    // Refused by its announcement: not a byte of the body has to be sent.
    client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 3000001\r\n\r\n");
    let refused = client.answer();
    assert_eq!(
        (refused.status, refused.text().as_str(), refused.keep_alive),
        (413, "body-too-large body", false)
    );
    assert!(client.at_end());
    // By that of a chunk as well, with what came before it.
    let mut client = server.connect();
    client
        .send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n2dc6bd\r\n");
    let refused = client.answer();
    assert_eq!((refused.status, refused.text().as_str()), (413, "body-too-large body"));
    assert!(client.at_end());
    // And the refusal reaches a peer that goes on sending.
    let mut client = server.connect();
    client.send(&chunked(3_001_000));
    assert_eq!(client.answer().status, 413);
    assert!(client.at_end());
}

#[test]
fn a_peer_that_asks_before_it_sends_is_told_to_go_on() {
    let server = Server::start(patient());
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    assert_eq!(client.answer().status, 100);
    client.send("body");
    assert_eq!(client.answer().text(), "Post /echo -body");
    // Behind an answer that is still owed, the word waits its turn.
    client.send("GET /after/1 HTTP/1.1\r\nHost: t\r\n\r\n");
    client
        .send("POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n");
    server.until("waiting", |counts| counts.waiting == 1);
    server.post(Message::Complete { up_to: 1 });
    assert_eq!(client.answer().text(), "after 1");
    assert_eq!(client.answer().status, 100);
    client.send("4\r\nbody\r\n0\r\n\r\n");
    assert_eq!(client.answer().text(), "Post /echo -body");
    // With the body right behind, nobody waits.
    client.send("POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(client.answer().status, 200);
}

#[test]
fn a_body_that_nobody_wants_is_refused_before_it_is_sent() {
    let server = Server::start(patient());
    for framing in ["Content-Length: 1000000", "Transfer-Encoding: chunked"] {
        let mut client = server.connect();
        // What is owed before it is answered first, and the body is neither waited for nor asked for.
        client.send("GET /echo HTTP/1.1\r\nHost: t\r\n\r\n");
        client
            .send(&format!("POST /denied HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\n{framing}\r\n\r\n"));
        assert_eq!(client.answer().status, 200);
        assert_eq!(client.answer().status, 403);
        assert!(client.at_end());
    }
}

#[test]
fn bodies_share_what_memory_there_is_for_them() {
    let head_limits = Limits { head_bytes_max: 300, ..Limits::default() };
    let server = Server::start(Config { bodies_bytes_max: 1_200, head_limits, ..patient() });
    let announced =
        |bytes: usize| format!("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: {bytes}\r\n\r\n");
    let (mut first, mut second) = (server.connect(), server.connect());
    first.send(&announced(600));
    server.until("the first body is arriving", |counts| counts.connections - counts.quiet == 1);
    // There is no room for it beside the first, and it is told so before it is sent.
    second.send(&announced(601));
    assert_eq!(second.answer().status, 503);
    assert!(second.at_end());
    drop(second);
    assert_eq!(server.meters.traffic().overloads[Limit::Bodies as usize], 1, "a bound was reached");
    let mut third = server.connect();
    third.send(&announced(400));
    third.send("x".repeat(400).as_str());
    assert_eq!(third.answer().status, 200);
    // For what is no longer than a head may be there is always room.
    let mut rest = server.connect();
    rest.send(&announced(550));
    server.until("nothing is left", |counts| counts.connections - counts.quiet == 2);
    third.send(&announced(200));
    third.send("x".repeat(200).as_str());
    assert_eq!(third.answer().status, 200);
    drop(rest);
    server.until("there is room again", |counts| counts.connections - counts.quiet == 1);
    // What one gives back another may have: when it is whole, or when its connection is gone.
    third.send(&announced(400));
    third.send("x".repeat(400).as_str());
    assert_eq!(third.answer().status, 200);
    drop(first);
    server.until("the first is gone", |counts| counts.connections == 1);
    third.send(&announced(1_000));
    third.send("x".repeat(1_000).as_str());
    assert_eq!(third.answer().status, 200);
    // One in chunks is counted as it comes.
    let mut chunked = server.connect();
    chunked.send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n384\r\n");
    chunked.send("x".repeat(900).as_str());
    server.until("chunks arrive", |counts| counts.connections - counts.quiet == 1);
    chunked.send("\r\n384\r\n");
    chunked.send("x".repeat(900).as_str());
    assert_eq!(chunked.answer().status, 503);
    assert_eq!(server.meters.traffic().overloads[Limit::Bodies as usize], 2, "and again");
    third.send(&announced(1_000));
    third.send("x".repeat(1_000).as_str());
    assert_eq!(third.answer().status, 200);
}

#[test]
fn bodies_that_do_not_come_keep_no_room_from_those_that_do() {
    const ROOM: u64 = 1 << 20;
    let body_timeout_ms = 16_000;
    let server = Server::start(Config { bodies_bytes_max: ROOM, body_timeout_ms, ..patient() });
    let head = |bytes: usize| format!("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: {bytes}\r\n\r\n");
    let mut silent = Vec::new();
    for count in 1..=64 {
        let mut client = server.connect();
        client.send(&head(ROOM as usize));
        silent.push(client);
        // Each has room for what comes next of it, and no more. That is told when the turn ends.
        let told = || server.meters.traffic().bodies_bytes;
        common::until("told", || told() >= count * ROOM / 64);
        assert_eq!(told(), count * ROOM / 64);
    }
    // All of them began just now. A 16th part of the patience later they are slow.
    common::until("room", || {
        let mut writer = server.connect();
        writer.send(&head(20_000).replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n"));
        if writer.answer().status != 100 {
            return false;
        }
        writer.send(&"x".repeat(20_000));
        writer.answer().status == 200
    });
    assert_eq!(silent[0].answer().status, 408, "who has brought nothing for longest");
    assert_eq!(server.meters.traffic().responses[3], 1, "no more than it takes");
}

#[test]
fn a_body_of_exactly_what_there_is_for_bodies_is_taken() {
    let server = Server::start(Config { body_bytes_max: 100_000, bodies_bytes_max: 100_000, ..patient() });
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\r\n");
    assert_eq!(client.answer().status, 100);
    client.send("x".repeat(100_000).as_str());
    assert_eq!(client.answer().status, 200);
}

#[test]
fn bad_input_is_refused_by_name() {
    let server = Server::start(patient());
    let long = "x".repeat(17_000);
    let many = "A: b\r\n".repeat(70);
    let table = [
        ("GARBAGE\r\n\r\n".to_owned(), 400, "request-line-malformed request line"),
        (
            format!("GET / HTTP/1.1\r\nHost: t\r\nA: {long}\r\n\r\n"),
            431,
            "header-block-too-large header block",
        ),
        (format!("GET / HTTP/1.1\r\nHost: t\r\n{many}\r\n"), 431, "too-many-header-fields header block"),
        (format!("GET /{long} HTTP/1.1\r\nHost: t\r\n\r\n"), 414, "request-line-too-long request line"),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400, "host-count Host"),
        ("GET / HTTP/3.0\r\nHost: t\r\n\r\n".to_owned(), 505, "http-version-unsupported request line"),
        (
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
                .to_owned(),
            400,
            "body-framed-twice Transfer-Encoding",
        ),
        (
            "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(),
            501,
            "transfer-coding-unsupported Transfer-Encoding",
        ),
        (
            "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_owned(),
            400,
            "chunk-malformed body",
        ),
    ];
    for (text, status, said) in table {
        let mut client = server.connect();
        // What came before is answered before.
        client.send(&format!(
            "GET /echo HTTP/1.1\r\nHost: t\r\n\r\n{text}GET /echo HTTP/1.1\r\nHost: t\r\n\r\n"
        ));
        assert_eq!(client.answer().status, 200);
        let refused = client.answer();
        assert_eq!((refused.status, refused.text().as_str()), (status, said));
        assert_eq!(refused.field("connection"), Some("close"));
        assert!(client.at_end(), "{said}: nothing is read behind a refusal");
    }
    assert_eq!(server.shared.lock().unwrap().calls, 9);
}

/// RFC 9110 2.5: it is processed as HTTP/1.1, so the connection stays.
#[test]
fn a_newer_minor_version_is_answered() {
    let server = Server::start(patient());
    let mut client = server.connect();
    for minor in [2, 9, 1] {
        client.send(&format!("POST /echo HTTP/1.{minor}\r\nHost: t\r\nContent-Length: 4\r\n\r\nbody"));
        let answer = client.answer();
        assert_eq!((answer.status, answer.text().as_str()), (200, "Post /echo -body"), "{minor}");
        assert!(answer.keep_alive);
    }
}

#[test]
fn a_request_that_dribbles_in_is_refused_when_its_time_is_over() {
    let server = Server::start(Config { head_timeout_ms: 120, body_timeout_ms: 120, ..patient() });
    let mut client = server.connect();
    client.get("/echo");
    assert_eq!(client.answer().status, 200);
    let start = Instant::now();
    client.send("GET /echo HTTP/1.1\r\nHo");
    let refused = client.answer();
    assert_eq!((refused.status, refused.text().as_str()), (408, "request-too-slow request"));
    assert!(start.elapsed() >= Duration::from_millis(120), "never early");
    assert!(client.at_end());
    // Bytes that trickle do not buy a head more time.
    let mut client = server.connect();
    client.send("GET /echo HTTP/1.1\r\nHost: t\r\nAccept: everything");
    trickle(&mut client, 10);
    assert_eq!(client.answer().status, 408);
    // Nor a body.
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 10000\r\n\r\n");
    trickle(&mut client, 40);
    assert_eq!(client.answer().status, 408);
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 8\r\n\r\nbbb");
    assert_eq!(client.answer().status, 408);
}

/// Sends a byte now and then until there is an answer, which has to come while they still do.
fn trickle(client: &mut Client, apart_ms: u64) {
    let start = Instant::now();
    let is_answered = |stream: &TcpStream| {
        let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0; 1]));
        stream.set_nonblocking(false).is_ok() && peeked.is_ok()
    };
    while client.stream.write_all(b"x").is_ok() {
        assert!(start.elapsed() < common::PATIENCE, "bytes that trickle draw its time out");
        std::thread::sleep(Duration::from_millis(apart_ms));
        if is_answered(&client.stream) {
            return;
        }
    }
}

#[test]
fn a_body_is_given_time_as_long_as_it_comes() {
    let server = Server::start(Config { body_timeout_ms: 4_000, ..patient() });
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 240000\r\n\r\n");
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(400));
        client.send(&"b".repeat(20_000));
    }
    assert_eq!(client.answer().body.len(), 240_012);
}

#[test]
fn an_idle_connection_owns_nothing_and_is_closed_after_a_while() {
    let server = Server::start(Config { idle_timeout_ms: 5_000, ..patient() });
    let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nok");
        assert_eq!(client.answer().status, 200);
    }
    let counts = server.counts();
    assert_eq!((counts.connections, counts.quiet), (20, 20));
    // One that is used stays.
    let mut used = clients.remove(0);
    let start = Instant::now();
    while server.counts().connections > 1 {
        assert!(start.elapsed() < common::PATIENCE, "nobody is closed");
        used.get("/echo");
        assert_eq!(used.answer().status, 200);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(clients.iter_mut().all(Client::at_end));
    used.get("/echo");
    assert_eq!(used.answer().status, 200);
}

#[test]
fn an_idle_connection_is_closed_in_its_time_however_long_its_last_request_might_have_taken() {
    let server = Server::start(Config { idle_timeout_ms: 3_000, head_timeout_ms: 3_600_000, ..patient() });
    let mut client = server.connect();
    client.send("GET /echo HTTP/1.1\r\n");
    server.until("the head is begun", |counts| counts.quiet == 0);
    client.send("Host: t\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    assert!(client.at_end(), "the head's patience was not waited for");
}

#[test]
fn one_connection_too_many_is_told_so() {
    let server = Server::start(Config { connections_max: 3, ..Config::default() });
    let mut within: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    server.until("three", |counts| counts.connections == 3);
    let mut beyond = server.connect();
    beyond.get("/echo");
    let refused = beyond.answer();
    assert_eq!((refused.status, refused.text().as_str()), (503, "too-many-connections connection"));
    assert!(beyond.at_end());
    for client in &mut within {
        client.get("/echo");
        assert_eq!(client.answer().status, 200);
    }
    drop(within);
    drop(beyond);
    server.until("none", |counts| counts.connections == 0);
    let mut client = server.connect();
    client.get("/echo");
    assert_eq!(client.answer().status, 200);
}

/// RFC 9110 9.3.2.
#[test]
fn a_refusal_of_head_has_no_content_either() {
    let server = Server::start(Config { body_bytes_max: 10, ..patient() });
    for head in [
        "HEAD /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 11",
        "HEAD /denied HTTP/1.1\r\nHost: t\r\nContent-Length: 5",
        "HEAD /echo HTTP/1.1\r\nHost: t\r\nHost: t",
    ] {
        let mut client = server.connect();
        client.send(&format!("\r\n{head}\r\n\r\n"));
        let refused = client.answer_to(true);
        assert!(
            refused.status >= 400 && client.at_end(),
            "{head}: {:?}",
            String::from_utf8_lossy(&client.buffer)
        );
    }
}

#[test]
fn responses_without_bodies_and_old_peers() {
    let server = Server::start(patient());
    let mut client = server.connect();
    client.send("HEAD /big/5000 HTTP/1.1\r\nHost: t\r\n\r\n");
    let head = client.answer_to(true);
    assert_eq!((head.status, head.field("content-length")), (200, Some("5000")));
    for status in [204, 304] {
        client.get(&format!("/empty/{status}"));
        let answer = client.answer();
        assert_eq!((answer.status, answer.field("content-length")), (status, None));
    }
    client.get("/empty/200");
    assert_eq!(client.answer().field("content-length"), Some("0"));
    client.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.answer().field("connection"), Some("keep-alive"));
    client.send("GET /echo HTTP/1.0\r\n\r\n");
    let last = client.answer();
    assert_eq!((last.text().as_str(), last.field("connection")), ("Get /echo -", Some("close")));
    assert!(client.at_end());
    assert!(last.field("date").is_some_and(|date| date.ends_with(" GMT") && date.len() == 29));
}

#[test]
fn a_peer_that_stops_sending_still_gets_its_answers() {
    let server = Server::start(patient());
    let mut client = server.connect();
    client
        .send("GET /after/1 HTTP/1.1\r\nHost: t\r\n\r\nGET /big/3000000 HTTP/1.1\r\nHost: t\r\n\r\nGET /par");
    client.stream.shutdown(Shutdown::Write).unwrap();
    server.until("waiting", |counts| counts.waiting == 1);
    server.post(Message::Complete { up_to: 1 });
    assert_eq!(client.answer().text(), "after 1");
    assert_eq!(client.answer().body.len(), 3_000_000);
    assert!(client.at_end());
    server.until("gone", |counts| counts.connections == 0);
}

/// Takes eight megabytes after longer than three seconds, and says something as soon as all of them have left
/// the server; when.
fn catches_up(server: &Server, reader: &mut Client, and_says: &str) -> Instant {
    let unsent = || server.meters.traffic().unsent_bytes;
    until("behind", || unsent() > 0);
    std::thread::sleep(Duration::from_millis(3_500));
    let mut stream = reader.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| reader.answer());
        until("it has caught up", || unsent() == 0);
        let start = Instant::now();
        stream.write_all(and_says.as_bytes()).unwrap();
        assert_eq!(reading.join().unwrap().body.len(), 8_000_000);
        start
    })
}

#[test]
fn whoever_read_slowly_is_idle_from_then_on_and_no_longer_than_others() {
    let server =
        Server::start(Config { stall_timeout_ms: 3_600_000, idle_timeout_ms: 3_000, ..Config::default() });
    let mut reader = server.connect();
    reader.send("GET /big/8000000 HTTP/1.1\r\nHost: t\r\n\r\n");
    let start = catches_up(&server, &mut reader, "GET /big/10 HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(reader.answer().body.len(), 10, "its idle time begins with the end of the answer");
    assert!(reader.at_end());
    assert!(start.elapsed() >= Duration::from_millis(3_000), "{:?}", start.elapsed());
}

#[test]
fn what_was_not_read_from_a_slow_reader_may_still_come_once_it_caught_up() {
    let server =
        Server::start(Config { stall_timeout_ms: 3_600_000, body_timeout_ms: 3_000, ..Config::default() });
    let mut reader = server.connect();
    reader.send("GET /big/8000000 HTTP/1.1\r\nHost: t\r\n\r\nPOST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n");
    catches_up(&server, &mut reader, "hi");
    assert_eq!(reader.answer().text(), "Post /echo -hi");
}

#[test]
fn whoever_does_not_read_is_not_read_from_and_is_cut_in_the_end() {
    let server = Server::start(Config { stall_timeout_ms: 300, ..patient() });
    let mut slow = server.connect();
    let start = Instant::now();
    slow.send(&"GET /big/1000000 HTTP/1.1\r\nHost: t\r\n\r\n".repeat(60));
    let calls = || server.shared.lock().unwrap().calls;
    server.until("cut", |counts| counts.connections == 0 && calls() > 0);
    assert!(calls() < 30, "{} of 60 responses were made for a peer that takes none", calls());
    assert!(start.elapsed() >= Duration::from_millis(300));
}
