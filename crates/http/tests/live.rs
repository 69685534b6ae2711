//! Live requests: long-poll, SSE, fan-out, slow readers, draining.

mod common;

use common::{Client, PATIENCE, Server, TurnedServer};
use std::net::Shutdown;
use std::time::{Duration, Instant};
use thalweg_http::{Config, Message};

fn patient() -> Config {
    Config { connections_max: 4_000, ..Config::default() }
}

/// The data of all events in a body, joined.
fn data_of(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let events = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    events.collect()
}

fn event(text: &str, to: usize) -> String {
    format!("data: {text}\n\nevent: control\ndata: {to}\n\n")
}

#[test]
fn a_long_poll_is_answered_by_data() {
    let server = Server::start(Config { long_poll_timeout_ms: 3_600_000, ..patient() });
    let mut client = server.connect();
    for (path, text) in [("/poll/0", "news"), ("/poll/4", "more")] {
        client.get(path);
        server.until("parked", |counts| counts.subscribed == 1 && counts.quiet == 1);
        server.append(text);
        assert_eq!(client.answer().text(), text);
    }
    let shared = server.shared.lock().unwrap();
    assert_eq!((shared.watched, shared.unwatched), (2, 2), "nobody is left watching");
}

#[test]
fn a_long_poll_is_answered_by_its_deadline() {
    let server = Server::start(Config { long_poll_timeout_ms: 200, ..patient() });
    let mut client = server.connect();
    let start = Instant::now();
    client.get("/poll/0");
    assert_eq!(client.answer().status, 204);
    assert!(start.elapsed() >= Duration::from_millis(200), "never early");
    server.write("news");
    // At once when there is something already; and pipelined ones one after the other.
    client.send("GET /poll/0 HTTP/1.1\r\nHost: t\r\n\r\nGET /poll/2 HTTP/1.1\r\nHost: t\r\n\r\nGET /poll/4 HTTP/1.1\r\nHost: t\r\n\r\nGET /echo HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!((client.answer().text(), client.answer().text()), ("news".into(), "ws".into()));
    assert_eq!(client.answer().status, 204);
    assert_eq!(client.answer().text(), "Get /echo -");
    let shared = server.shared.lock().unwrap();
    assert_eq!(shared.watched, shared.unwatched, "nobody is left watching");
}

#[test]
fn a_live_request_waits_for_the_answers_before_it() {
    let server = Server::start(patient());
    server.write("abc");
    let mut client = server.connect();
    client.send("GET /after/5 HTTP/1.1\r\nHost: t\r\n\r\nGET /poll/1 HTTP/1.1\r\nHost: t\r\n\r\nGET /echo HTTP/1.1\r\nHost: t\r\n\r\n");
    server.until("waiting", |counts| counts.waiting == 1);
    assert_eq!(server.shared.lock().unwrap().watched, 0);
    server.post(Message::Complete { up_to: 5 });
    let answers: Vec<String> = (0..3).map(|_| client.answer().text()).collect();
    assert_eq!(answers, ["after 5", "bc", "Get /echo -"]);
}

#[test]
fn events_follow_the_topic_and_end_when_it_closes() {
    let server = Server::start(patient());
    server.write("one");
    let mut client = server.connect();
    client.get("/sse/0");
    let (head, _) = client.head(false);
    assert_eq!((head.status, head.field("transfer-encoding")), (200, Some("chunked")));
    let first = event("one", 3);
    assert_eq!(client.chunks(|body| body.len() >= first.len()), first.as_bytes());
    server.until("parked", |counts| counts.subscribed == 1 && counts.quiet >= 1);
    server.append("two");
    let second = event("two", 6);
    assert_eq!(client.chunks(|body| body.len() >= second.len()), second.as_bytes());
    server.append_last("end");
    assert_eq!(client.chunks(|_| false), event("end", 9).as_bytes());
    // The response ended, the connection did not.
    client.get("/echo");
    assert_eq!(client.answer().status, 200);
    let shared = server.shared.lock().unwrap();
    assert_eq!((shared.watched, shared.unwatched), (1, 1));
    assert!(shared.acknowledged > 0);
}

#[test]
fn events_that_end_before_their_head_left_are_one_response() {
    let server = Server::start(patient());
    let mut client = server.connect();
    client.get("/sse/99");
    assert_eq!(client.answer().status, 410);
    client.get("/sse/0");
    assert_eq!(client.head(false).0.status, 200);
    assert_eq!(server.meters.traffic().responses, [0, 1, 0, 1, 0]);
}

#[test]
fn events_for_an_old_peer_end_with_the_connection() {
    let server = Server::start(patient());
    server.write("one");
    let mut client = server.connect();
    client.send("GET /sse/0 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    server.until("parked", |counts| counts.subscribed == 1 && counts.quiet >= 1);
    server.append_last("two");
    let answer = client.answer();
    assert_eq!((answer.field("connection"), answer.field("transfer-encoding")), (Some("close"), None));
    assert_eq!(answer.text(), event("one", 3) + &event("two", 6));
}

#[test]
fn a_long_history_is_sent_over_several_turns() {
    let server = Server::start(patient());
    server.shared.lock().unwrap().event_bytes_max = 10;
    server.shared.lock().unwrap().closed = true;
    server.write(&"0123456789".repeat(500));
    let mut client = server.connect();
    client.get("/sse/0");
    let text = client.answer().text();
    let wanted: String = (1..=500).map(|index| event("0123456789", index * 10)).collect();
    assert_eq!(text, wanted);
}

#[test]
fn silence_is_broken_by_comments_and_ended_by_the_lifetime() {
    const COMMENT: &str = ": keep-alive\n\n";
    // However many comments there is time for.
    for (sse_lifetime_ms, count_min) in [(3_600_000, 3), (2_000, usize::MAX)] {
        let server = Server::start(Config { sse_keep_alive_ms: 100, sse_lifetime_ms, ..patient() });
        let mut client = server.connect();
        let start = Instant::now();
        client.get("/sse/0");
        client.head(false);
        let first = event("", 0);
        let counted = |body: &[u8]| body.len().saturating_sub(first.len()) / COMMENT.len();
        let body = client.chunks(|body| {
            assert!(start.elapsed() < PATIENCE, "the comments draw its lifetime out");
            counted(body) >= count_min
        });
        let took = start.elapsed();
        let count = counted(&body);
        assert_eq!(String::from_utf8_lossy(&body), first.clone() + &COMMENT.repeat(count));
        assert!(took >= Duration::from_millis(100) * count as u32, "{count} in {took:?}");
        if sse_lifetime_ms == 2_000 {
            assert!(took >= Duration::from_millis(1_750), "{took:?}");
            client.get("/echo");
            assert_eq!(client.answer().status, 200);
        }
    }
}

#[test]
fn what_a_walk_remembers_is_forgotten_when_nobody_watches_the_topic() {
    // More than the buffers of a socket take.
    const BYTES: usize = 5_000_000;
    let end = format!("/poll/{BYTES}");
    let mut server = TurnedServer::new(patient());
    let mut subscribe = |paths: &[&str]| {
        let mut client = server.connect();
        paths.iter().for_each(|path| client.get(path));
        server.settle();
        client
    };
    let first = subscribe(&[&end]);
    let _large = [subscribe(&["/poll/0"]), subscribe(&["/poll/0"])];
    let mut last = subscribe(&[&format!("/poll/{}", BYTES - 4), &end, "/echo"]);
    // A turn that has sent its share serves one subscriber, which has everything, and then those that are
    // sent another share: the last one is left for the next turn.
    let mut readers = [server.connect(), server.connect(), server.connect()];
    readers.iter_mut().for_each(|reader| reader.get("/big/4000000"));
    {
        let mut shared = server.shared.lock().unwrap();
        (shared.log, shared.event_bytes_max) = (b"news".repeat(BYTES / 4), BYTES);
    }
    server.reactor.handle().post(Message::Advanced { topic_id: 1 }).unwrap();
    server.turn();
    // Before that the first leaves; and so does the last for a moment, in which the topic moves and nobody is
    // told.
    {
        let mut shared = server.shared.lock().unwrap();
        assert_eq!((shared.advances, shared.unwatched), (6, 0));
        shared.grows_unwatched = "more".to_owned();
    }
    drop(first);
    server.settle();
    let answers: Vec<String> = (0..3).map(|_| last.answer().text()).collect();
    assert_eq!(answers, ["news", "more", "Get /echo -"]);
    let shared = server.shared.lock().unwrap();
    assert_eq!((shared.watched, shared.unwatched), (2, 2), "nobody is left watching");
}

#[test]
fn a_thousand_subscribers_get_the_same_bytes_encoded_once() {
    let server = Server::start(patient());
    let mut clients: Vec<Client> = (0..1_000).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.get("/sse/0");
    }
    let counts = server.until("parked", |counts| counts.subscribed == 1_000 && counts.quiet >= 1_000);
    assert_eq!(counts.connections, 1_000, "a parked subscriber owns nothing but its entry");
    let before = server.shared.lock().unwrap().advances;
    let rounds = 5;
    for round in 0..rounds {
        server.append(&format!("r{round}"));
        let want = event(&format!("r{round}"), 2 * (round + 1));
        for client in &mut clients {
            if round == 0 {
                client.head(false);
            }
            let want = if round == 0 { event("", 0) + &want } else { want.clone() };
            let got = client.chunks(|body| body.len() >= want.len());
            assert_eq!(String::from_utf8_lossy(&got), want);
        }
    }
    let shared = server.shared.lock().unwrap();
    assert_eq!((shared.watched, shared.acknowledged), (1, rounds));
    // Per round: the event, and that nothing follows it. Not a thousand times each.
    assert_eq!(shared.advances - before, 2 * rounds);
    drop(shared);
    // Movements that come while a walk is under way are not lost to those it has passed.
    let mut text = String::new();
    for index in 0..50 {
        server.append(&format!("<{index}>"));
        text += &format!("<{index}>");
    }
    for client in &mut clients {
        let body = client.chunks(|body| data_of(body).ends_with("<49>"));
        assert_eq!(data_of(&body), text);
    }
    drop(clients);
    server.until("gone", |counts| counts.connections == 0);
    assert_eq!(server.shared.lock().unwrap().unwatched, 1);
}

/// Two subscribers, of whom only the second reads what is then appended: far more than the kernel keeps for
/// one connection.
fn one_reads(server: &Server, piece: &str) -> [Client; 2] {
    let mut clients = [server.connect(), server.connect()];
    clients.iter_mut().for_each(|client| client.get("/sse/0"));
    server.until("parked", |counts| counts.subscribed == 2 && counts.quiet >= 2);
    let [_, quick] = &mut clients;
    quick.head(false);
    let first = event("", 0).len();
    quick.chunks(|body| body.len() >= first);
    for round in 1..=40 {
        server.append(piece);
        let want = event(piece, round * piece.len());
        assert_eq!(quick.chunks(|body| body.len() >= want.len()).len(), want.len());
    }
    clients
}

#[test]
fn for_a_slow_reader_nothing_is_made_while_its_socket_is_full() {
    let server = Server::start(patient());
    let piece = "z".repeat(400_000);
    let _clients = one_reads(&server, &piece);
    server.until("one is behind", |counts| counts.subscribed == 2 && counts.quiet == 1);
    let unsent = server.meters.traffic().unsent_bytes;
    assert!(unsent > 0 && unsent < 3 * piece.len() as u64, "{unsent} bytes are kept for it");
}

#[test]
fn a_slow_reader_holds_only_itself_back_and_is_cut() {
    let server = Server::start(Config { stall_timeout_ms: 5_000, ..patient() });
    let [_slow, mut quick] = one_reads(&server, &"z".repeat(400_000));
    server.until("cut", |counts| counts.connections == 1);
    server.append("x");
    assert!(!quick.chunks(|body| !body.is_empty()).is_empty());
}

#[test]
fn a_slow_reader_that_catches_up_has_missed_nothing() {
    let server = Server::start(patient());
    let mut slow = server.connect();
    slow.get("/sse/0");
    server.until("parked", |counts| counts.subscribed == 1 && counts.quiet >= 1);
    let piece = "z".repeat(500_000);
    for _ in 0..30 {
        server.append(&piece);
    }
    server.append_last("end");
    slow.head(false);
    let text = String::from_utf8(slow.chunks(|_| false)).unwrap();
    let data: usize =
        text.lines().filter_map(|line| line.strip_prefix("data: ")).map(|d| d.matches('z').count()).sum();
    assert_eq!(data, 30 * piece.len());
    assert!(text.ends_with(&format!("event: control\ndata: {}\n\n", 30 * piece.len() + 3)));
}

#[test]
fn a_subscriber_that_hangs_up_is_gone_at_once() {
    let server = Server::start(patient());
    let mut sse = server.connect();
    sse.get("/sse/0");
    let mut poll = server.connect();
    poll.get("/poll/0");
    server.until("parked", |counts| counts.subscribed == 2 && counts.quiet >= 2);
    drop(sse);
    poll.stream.shutdown(Shutdown::Write).unwrap();
    server.until("gone", |counts| counts.connections == 0);
    assert_eq!(server.shared.lock().unwrap().unwatched, 1);
}

#[test]
fn a_subscriber_that_says_nothing_more_is_told_the_end() {
    let server = Server::start(patient());
    server.write("abc");
    let (mut poll, mut sse, mut late) = (server.connect(), server.connect(), server.connect());
    poll.get("/poll/3");
    sse.send("GET /sse/0 HTTP/1.1\r\nHost: t\r\n\r\nGET /echo HTTP/1.1\r\nHost: t\r\n\r\n");
    server.until("parked", |counts| counts.subscribed == 2 && counts.quiet >= 1);
    late.send("GET /sse/1 HTTP/1.1\r\nHost: t\r\n\r\n");
    [&poll, &sse, &late].into_iter().for_each(Client::finish);
    assert_eq!(poll.answer().status, 204);
    assert_eq!(sse.answer().text(), event("abc", 3), "whole, with its last chunk");
    assert_eq!(sse.answer().text(), "Get /echo -", "and what was asked behind it");
    assert_eq!(late.answer().text(), event("bc", 3));
    assert!(poll.at_end() && sse.at_end() && late.at_end());
    server.until("gone", |counts| counts.connections == 0);
}

#[test]
fn a_service_may_let_a_live_read_last_less_long() {
    let server =
        Server::start(Config { long_poll_timeout_ms: 3_600_000, sse_lifetime_ms: 3_600_000, ..patient() });
    let start = Instant::now();
    let (mut poll, mut sse) = (server.connect(), server.connect());
    poll.get("/poll/0/100");
    sse.get("/sse/0/100");
    assert_eq!(poll.answer().status, 204);
    assert_eq!(sse.answer().text(), event("", 0));
    assert!(start.elapsed() >= Duration::from_millis(100), "never early");
    // But never longer than everybody.
    let server = Server::start(Config { long_poll_timeout_ms: 100, ..patient() });
    let mut poll = server.connect();
    poll.get("/poll/0/3600000");
    assert_eq!(poll.answer().status, 204);
}

#[test]
fn bytes_that_come_while_a_request_is_live_wait_and_are_bounded() {
    let server = Server::start(patient());
    let mut client = server.connect();
    client.get("/poll/0");
    server.until("parked", |counts| counts.subscribed == 1 && counts.quiet >= 1);
    let count = 2_000;
    let requests = "GET /echo HTTP/1.1\r\nHost: t\r\n\r\n".repeat(count);
    let mut writer = client.stream.try_clone().unwrap();
    let sender =
        std::thread::spawn(move || std::io::Write::write_all(&mut writer, requests.as_bytes()).unwrap());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(server.shared.lock().unwrap().calls, 1);
    server.append("go");
    assert_eq!(client.answer().text(), "go");
    for _ in 0..count {
        assert_eq!(client.answer().text(), "Get /echo -");
    }
    sender.join().unwrap();
}

#[test]
fn draining_ends_in_good_order() {
    let mut server = Server::start(patient());
    let mut idle = server.connect();
    idle.get("/echo");
    idle.answer();
    let mut sse = server.connect();
    sse.get("/sse/0");
    let mut poll = server.connect();
    poll.get("/poll/0");
    server.until("parked", |counts| counts.subscribed == 2 && counts.quiet == 3);
    let mut waiting = server.connect();
    waiting.get("/after/1");
    let mut uploading = server.connect();
    uploading.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nbo");
    server.until("busy", |counts| counts.connections == 5 && counts.waiting == 1);
    // Sent, and perhaps not even accepted yet.
    let mut late = server.connect();
    late.get("/poll/0");
    server.post(Message::Drain { grace_ms: 3_600_000 });
    assert!(idle.at_end());
    assert_eq!(sse.answer().text(), event("", 0));
    assert!(sse.at_end());
    for poll in [&mut poll, &mut late] {
        let answer = poll.answer();
        assert_eq!((answer.status, answer.field("connection")), (204, Some("close")));
        assert!(poll.at_end());
    }
    server.post(Message::Complete { up_to: 1 });
    let answer = waiting.answer();
    assert_eq!((answer.text().as_str(), answer.keep_alive), ("after 1", false));
    uploading.send("dy");
    let answer = uploading.answer();
    assert_eq!((answer.text().as_str(), answer.keep_alive), ("Post /echo -body", false));
    server.join();
    assert!(std::net::TcpStream::connect(server.address).is_err());
}

#[test]
fn draining_ends_within_its_grace_whoever_holds_out() {
    let mut server = Server::start(Config {
        body_timeout_ms: 3_600_000,
        stall_timeout_ms: 3_600_000,
        linger_ms: 3_600_000,
        ..patient()
    });
    let mut half = server.connect();
    half.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\n");
    let mut stalled = server.connect();
    stalled.send("GET /big/50000000 HTTP/1.1\r\nHost: t\r\n\r\n");
    server.until("busy", |counts| counts.connections == 2 && counts.quiet == 0);
    let start = Instant::now();
    server.post(Message::Drain { grace_ms: 300 });
    server.join();
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
}

#[test]
fn draining_takes_a_thousand_subscribers_and_those_who_are_just_coming() {
    let mut server = Server::start(patient());
    let mut clients: Vec<Client> = (0..1_000).map(|_| server.connect()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.get(if index % 2 == 0 { "/sse/0" } else { "/poll/0" });
        if index == 700 {
            server.post(Message::Drain { grace_ms: 3_600_000 });
        }
    }
    server.join();
    let mut ended = 0;
    for (index, client) in clients.iter_mut().enumerate().take(500) {
        let answer = client.answer();
        let wanted = if index % 2 == 0 { (200, event("", 0)) } else { (204, String::new()) };
        assert_eq!((answer.status, answer.text()), wanted);
        assert!(client.at_end());
        ended += 1;
    }
    assert_eq!(ended, 500);
}

#[test]
fn draining_takes_in_those_who_already_knocked() {
    let mut server = Server::start(patient());
    let mut busy = server.connect();
    busy.get("/echo");
    assert_eq!(busy.answer().status, 200);
    // The reactor waits inside a call, so a client that connects now stays in the listener's queue.
    let gate = std::sync::Arc::clone(&server.shared.lock().unwrap().gate);
    let held = gate.lock().unwrap();
    busy.get("/stay");
    server.until_it_stays();
    let mut knocking: Vec<Client> = (0..100).map(|_| server.connect()).collect();
    knocking.iter_mut().for_each(|client| client.get("/echo"));
    server.post(Message::Drain { grace_ms: 3_600_000 });
    drop(held);
    for client in std::iter::once(&mut busy).chain(&mut knocking) {
        assert_eq!(client.answer().status, 200);
    }
    server.join();
}
