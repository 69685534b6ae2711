//! Deliveries to many subscribers at once: the same bytes in the same order, whether they go together or one
//! by one.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{Client, Server};
use thalweg_http::{Config, Message};

/// The payloads of the events in a body, joined.
fn data_of(text: &str) -> String {
    text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect()
}

/// Subscribers that do as others do, one of an old peer, and one that reads nothing before the end.
fn followers(server: &Server, count: usize) -> (Vec<Client>, Client, Client) {
    let subscribe = |request: &str| {
        let mut client = server.connect();
        client.send(request);
        client
    };
    let modern = (0..count).map(|_| subscribe("GET /sse/0 HTTP/1.1\r\nHost: t\r\n\r\n")).collect();
    let old = subscribe("GET /sse/0 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    (modern, old, subscribe("GET /sse/0 HTTP/1.1\r\nHost: t\r\n\r\n"))
}

/// What happens to a topic while they follow, and what each of them has to be told of it. Answers the writes
/// it took.
fn scene(batched_sends: bool, subscribers: usize, event_bytes_max: usize, pieces: &[String]) -> u64 {
    // However long the others take on a busy machine, the one that reads nothing is not cut meanwhile.
    let patience = Config { stall_timeout_ms: 600_000, sse_lifetime_ms: 600_000, ..Config::default() };
    let server = Server::start(Config { connections_max: 4_000, batched_sends, ..patience });
    server.shared.lock().unwrap().event_bytes_max = event_bytes_max;
    let (mut modern, mut old, mut slow) = followers(&server, subscribers);
    let gone = server.connect();
    let mut leaving = server.connect();
    leaving.get("/sse/0");
    let count = subscribers + 3;
    server.until("parked", |counts| counts.subscribed == count && counts.quiet >= count);
    let before = server.counts().calls.writes;
    drop((leaving, gone));
    for piece in &pieces[..pieces.len() - 1] {
        server.append(piece);
    }
    for client in &mut modern {
        client.head(false);
        // All but the last, so that the end comes to who has nothing else to take.
        let told = pieces[..pieces.len() - 1].concat();
        let last = format!("data: {}\n\n", told.len());
        let body = client.chunks(|body| body.ends_with(last.as_bytes()));
        assert!(data_of(&String::from_utf8(body).unwrap()) == told);
    }
    let writes = server.counts().calls.writes - before;
    server.append_last(&pieces[pieces.len() - 1]);
    let all = pieces.concat();
    for client in &mut modern {
        let rest = String::from_utf8(client.chunks(|_| false)).unwrap();
        assert_eq!(data_of(&rest), pieces[pieces.len() - 1]);
        assert!(rest.ends_with(&format!("data: {}\n\n", all.len())));
        // The response ended in its order, and the connection goes on.
        client.get("/echo");
        assert_eq!(client.answer().status, 200);
    }
    assert!(data_of(&old.answer().text()) == all);
    slow.head(false);
    assert!(data_of(&String::from_utf8(slow.chunks(|_| false)).unwrap()) == all);
    assert_eq!(server.counts().subscribed, 0);
    writes
}

#[test]
fn small_deliveries_come_together_and_cost_one_call() {
    let pieces: Vec<String> = (0..30).map(|n| format!("<{n}>")).collect();
    let alone = scene(false, 60, 1 << 20, &pieces);
    let together = scene(true, 60, 1 << 20, &pieces);
    assert!(alone >= 60, "{alone}");
    if thalweg_sys::send_ring::SendRing::new().is_ok() {
        assert!(together * 4 < alone, "{together} writes together, {alone} one by one");
    }
}

#[test]
fn what_takes_several_events_comes_in_their_order() {
    let pieces: Vec<String> = (0..20).map(|n| format!("<{n:03}>").repeat(40)).collect();
    for batched_sends in [true, false] {
        scene(batched_sends, 60, 150, &pieces);
    }
}

#[test]
fn what_a_socket_does_not_take_at_once_comes_later() {
    // Small enough to join, and more of them than the sockets of who does not read have room for.
    let small: Vec<String> = (0..600).map(|n| format!("<{n:03}>").repeat(4_000)).collect();
    let large: Vec<String> = (0..12).map(|n| format!("<{n:03}>").repeat(80_000)).collect();
    for batched_sends in [true, false] {
        scene(batched_sends, 12, 1_900, &small);
        scene(batched_sends, 60, 1 << 20, &large);
    }
}

#[test]
fn answers_that_become_ready_together_keep_the_order_of_their_connection() {
    const CLIENTS: u64 = 20;
    for batched_sends in [true, false] {
        let server = Server::start(Config { batched_sends, ..Config::default() });
        server.write("abc");
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
        // In turn, so that each connection comes up several times among those that are ready.
        for round in 0..3 {
            for (index, client) in (1..).zip(&mut clients) {
                let ticket = round * CLIENTS + index;
                let live = if round == 2 {
                    "GET /poll/1 HTTP/1.1\r\nHost: t\r\n\r\nGET /echo HTTP/1.1\r\nHost: t\r\n\r\n"
                } else {
                    ""
                };
                client.send(&format!("GET /after/{ticket} HTTP/1.1\r\nHost: t\r\n\r\n{live}"));
                server.until("waiting", |counts| counts.waiting as u64 == ticket);
            }
        }
        server.post(Message::Complete { up_to: 2 * CLIENTS - 5 });
        server.post(Message::Complete { up_to: 3 * CLIENTS });
        for (index, client) in (1..).zip(&mut clients) {
            for round in 0..3 {
                assert_eq!(client.answer().text(), format!("after {}", round * CLIENTS + index));
            }
            assert_eq!((client.answer().text(), client.answer().text()), ("bc".into(), "Get /echo -".into()));
        }
    }
}

#[test]
fn answers_of_one_turn_go_together_each_in_its_connections_order() {
    const CLIENTS: usize = 60;
    let mut writes = [0, 0];
    for (batched_sends, writes) in [true, false].into_iter().zip(&mut writes) {
        let server = Server::start(Config { batched_sends, ..Config::default() });
        server.write("abc");
        let get = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: t\r\n{more}\r\n");
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
        let asks = || server.connect();
        let (mut busy, mut closing, mut large, mut live, mut leaving) =
            (asks(), asks(), asks(), asks(), asks());
        server.until("connected", |counts| counts.connections == CLIENTS + 5);
        let before = server.counts().calls.writes;
        busy.send(&get("/slow/300", ""));
        // While it is busy with that, so that it finds all of these at once.
        for (index, client) in clients.iter_mut().enumerate() {
            client.send(&get(&format!("/echo/{index}"), ""));
        }
        closing.send(&get("/echo", "Connection: close\r\n"));
        large.send(&(get("/echo", "") + &get("/big/300000", "") + &get("/echo", "")));
        live.send(&(get("/echo", "") + &get("/sse/0", "")));
        leaving.send(&get("/echo", ""));
        leaving.finish();
        assert_eq!(busy.answer().text(), "slow");
        for (index, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.answer().text(), format!("Get /echo/{index} -"));
        }
        assert_eq!(closing.answer().text(), "Get /echo -");
        assert!(closing.at_end());
        assert_eq!(large.answer().text(), "Get /echo -");
        assert_eq!(large.answer().text().len(), 300_000);
        assert_eq!(large.answer().text(), "Get /echo -");
        assert_eq!(live.answer().text(), "Get /echo -");
        live.head(false);
        let event = String::from_utf8(live.chunks(|body| body.ends_with(b"data: 3\n\n"))).unwrap();
        assert_eq!(data_of(&event), "abc");
        assert_eq!(leaving.answer().text(), "Get /echo -");
        assert!(leaving.at_end());
        *writes = server.counts().calls.writes - before;
    }
    if thalweg_sys::send_ring::SendRing::new().is_ok() {
        assert!(writes[0] * 3 < writes[1], "{} writes together, {} one by one", writes[0], writes[1]);
    }
}
