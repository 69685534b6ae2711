//! Sealed connections: the same HTTP, and what can be wrong with a handshake.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::{PATIENCE, Server};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use thalweg_http::tls::{Identity, IdentityError, Peer, Trust};
use thalweg_http::{Config, Limit, Message};

/// A certificate of our own making for a name, and its key.
fn made(name: &str) -> (TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("certificate.pem"), directory.path().join("key.pem"));
    write(&certificate, &key, name);
    (directory, certificate, key)
}

fn write(certificate: &Path, key: &Path, name: &str) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    std::fs::write(certificate, pem("CERTIFICATE", made.cert.der())).unwrap();
    std::fs::write(key, pem("PRIVATE KEY", &made.signing_key.serialize_der())).unwrap();
}

/// A PEM file (RFC 7468).
fn pem(label: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines: String =
        text.as_bytes().chunks(64).map(|l| format!("{}\n", str::from_utf8(l).unwrap())).collect();
    format!("-----BEGIN {label}-----\n{lines}-----END {label}-----\n")
}

/// A client that trusts what it is told to.
struct Client {
    stream: TcpStream,
    peer: Peer,
    plain: Vec<u8>,
    ended: bool,
}

impl Client {
    fn new(server: &Server, trust: &Trust) -> Self {
        let stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, peer: Peer::new(trust, "stream.example").unwrap(), plain: Vec::new(), ended: false }
    }

    /// One whose handshake is over.
    fn ready(server: &Server, trust: &Trust) -> Self {
        let mut client = Self::new(server, trust);
        client.shake_hands();
        client
    }

    fn outgoing(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.peer.outgoing(&mut out).unwrap();
        out
    }

    fn flush(&mut self) {
        let out = self.outgoing();
        self.stream.write_all(&out).unwrap();
    }

    fn send(&mut self, text: &str) {
        self.peer.seal(text.as_bytes()).unwrap();
        self.flush();
    }

    fn get(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
    }

    /// Reads some more; whether there was any.
    fn fill(&mut self) -> bool {
        let mut received = [0; 32 * 1024];
        let count = self.stream.read(&mut received).unwrap();
        self.ended |= self.peer.take(&received[..count], &mut self.plain).unwrap();
        self.flush();
        count > 0
    }

    fn until(&mut self, text: &str) -> String {
        while !self.plain.windows(text.len()).any(|bytes| bytes == text.as_bytes()) {
            assert!(self.fill(), "ended: {}", String::from_utf8_lossy(&self.plain));
        }
        String::from_utf8(std::mem::take(&mut self.plain)).unwrap()
    }

    fn shake_hands(&mut self) {
        self.flush();
        while self.peer.is_handshaking() {
            assert!(self.fill());
        }
    }
}

fn identity(certificate: &Path, key: &Path) -> Result<Identity, IdentityError> {
    Identity::of(&std::fs::read(certificate).unwrap(), &std::fs::read(key).unwrap())
}

fn secure(config: Config) -> (TempDir, Server, Trust) {
    let (directory, certificate, key) = made("stream.example");
    let server = Server::start_as(config, Some(identity(&certificate, &key).unwrap()));
    (directory, server, Trust::in_file(&certificate).unwrap())
}

#[test]
fn requests_and_answers_are_the_same_and_an_idle_connection_owns_no_buffer() {
    let (_directory, server, trust) = secure(Config::default());
    let mut client = Client::new(&server, &trust);
    client.get("/echo/a");
    assert!(client.until("/echo/a -").starts_with("HTTP/1.1 200 OK\r\n"));
    client.send("POST /echo/b HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhelloGET /echo/c HTTP/1.1\r\nHost: t\r\n\r\n");
    let said = client.until("/echo/c -");
    assert!(said.contains("Post /echo/b -hello"), "{said}");
    let counts = server.until("quiet", |counts| counts.quiet == counts.connections);
    assert_eq!((counts.connections, counts.waiting), (1, 0));
}

#[test]
fn bytes_that_come_one_at_a_time_are_the_same_bytes() {
    let (_directory, server, trust) = secure(Config::default());
    let mut client = Client::new(&server, &trust);
    let dribble = |client: &mut Client| {
        for byte in client.outgoing() {
            client.stream.write_all(&[byte]).unwrap();
        }
    };
    dribble(&mut client);
    while client.peer.is_handshaking() {
        let mut received = [0; 4096];
        let count = client.stream.read(&mut received).unwrap();
        assert!(count > 0);
        for byte in &received[..count] {
            client.peer.take(std::slice::from_ref(byte), &mut client.plain).unwrap();
        }
        dribble(&mut client);
    }
    client.peer.seal(b"GET /echo/slow HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    dribble(&mut client);
    client.until("/echo/slow");
}

#[test]
fn large_bodies_come_whole_both_ways_however_slowly_they_are_read() {
    let (_directory, server, trust) = secure(Config::default());
    let mut client = Client::ready(&server, &trust);
    let body = "y".repeat(3 << 20);
    client.send(&format!("POST /echo/big HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", body.len()));
    client.send(&body);
    client.get("/big/20000000");
    // Nothing is read for now: what the socket does not take waits in the connection's output.
    server.until("the answer under way", |counts| counts.quiet == 0 && counts.calls.writes > 2);
    let mut came = 0;
    while came < 20_000_000 {
        assert!(client.fill());
        came += client.plain.iter().filter(|byte| **byte == b'x').count();
        client.plain.clear();
    }
    assert_eq!(came, 20_000_000);
    // What is sealed comes from memory, whatever holds it as well.
    client.get("/held/300000");
    client.until(&format!("begin {} end", "m".repeat(300_000)));
    client.get("/echo/after");
    client.until("/echo/after");
    server.until("quiet", |counts| counts.quiet == 1);
}

#[test]
fn subscribers_are_served_and_a_goodbye_ends_them() {
    let (_directory, server, trust) = secure(Config::default());
    let mut client = Client::ready(&server, &trust);
    client.get("/sse/0");
    server.until("subscribed", |counts| counts.subscribed == 1);
    for event in ["one", "two", "three"] {
        server.append(event);
        client.until(&format!("data: {event}\n\n"));
    }
    server.until("quiet", |counts| counts.quiet == 1);
    client.stream.shutdown(Shutdown::Write).unwrap();
    while client.fill() {}
    assert!(client.ended, "the server says goodbye, so that an end can be told from a cut");
    server.until("gone", |counts| counts.connections == 0);
}

#[test]
fn a_live_read_that_ends_with_a_broken_record_gives_its_place_back() {
    let (_directory, server, trust) = secure(Config { subscribers_max: 1, ..Config::default() });
    for path in ["/sse/0", "/poll/0", "/sse/0", "/poll/0"] {
        let mut client = Client::ready(&server, &trust);
        client.get(path);
        server.until("subscribed", |counts| counts.subscribed == 1);
        // No record begins so. What answers it is an alert, whose reader has time to read it.
        client.stream.write_all(&[0xFF; 5]).unwrap();
        server.until("unsubscribed", |counts| counts.subscribed == 0);
        drop(client);
        server.until("gone", |counts| counts.connections == 0);
    }
    let shared = server.shared.lock().unwrap();
    assert_eq!((shared.watched, shared.unwatched), (4, 4));
}

#[test]
fn a_half_closed_client_gets_its_answer() {
    let (_directory, server, trust) = secure(Config::default());
    let mut client = Client::new(&server, &trust);
    client.shake_hands();
    client.get("/big/100000");
    client.stream.shutdown(Shutdown::Write).unwrap();
    let mut came = 0;
    while client.fill() {
        came += client.plain.iter().filter(|byte| **byte == b'x').count();
        client.plain.clear();
    }
    assert_eq!((came, client.ended), (100_000, true));
}

#[test]
fn who_speaks_http_is_told_so_and_garbage_gets_an_alert() {
    let (_directory, server, _) = secure(Config::default());
    let mut plain = server.connect();
    plain.get("/echo/x");
    let answer = plain.answer();
    assert_eq!((answer.status, answer.text().as_str()), (400, "tls-expected connection"));
    assert!(plain.at_end());
    let mut garbage = server.connect();
    // A server's hello, and an empty one.
    garbage.stream.write_all(&[22, 3, 1, 0, 5, 2, 0, 0, 1, 0]).unwrap();
    while garbage.fill() {}
    assert_eq!(garbage.buffer[0], 21, "an alert: {:?}", garbage.buffer);
    server.until("gone", |counts| counts.connections == 0);
    assert_eq!(server.shared.lock().unwrap().calls, 0);
}

#[test]
fn a_handshake_has_its_time_and_there_are_only_so_many() {
    let config = Config { handshake_timeout_ms: 3_000, handshakes_max: 1, ..Config::default() };
    let (_directory, server, trust) = secure(config);
    let mut silent = server.connect();
    server.until("there", |counts| counts.connections == 1);
    let mut one_more = server.connect();
    assert!(silent.at_end(), "who has said nothing makes room");
    assert!(one_more.at_end(), "its time is over");
    let mut slow = Client::new(&server, &trust);
    slow.flush();
    server.until("it has begun", |_| server.meters.traffic().sent_bytes > 0);
    let mut next = server.connect();
    assert!(next.at_end(), "whose handshake has begun does not");
    assert_eq!(server.meters.traffic().overloads[Limit::Handshakes as usize], 2);
    slow.stream.read_to_end(&mut Vec::new()).unwrap();
    let mut client = Client::new(&server, &trust);
    client.shake_hands();
    // What is idle after its handshake has the patience of every idle connection.
    let mut next = server.connect();
    assert!(next.at_end());
    client.get("/echo/still");
    client.until("/echo/still");
    let traffic = server.meters.traffic();
    assert_eq!((traffic.handshakes, traffic.handshakes_failed), (1, 4));
}

#[test]
fn certificates_are_read_again_and_wrong_ones_change_nothing() {
    let (directory, certificate, key) = made("stream.example");
    let old = directory.path().join("old.pem");
    std::fs::copy(&certificate, &old).unwrap();
    let identity = identity(&certificate, &key).unwrap();
    let reload = |certificate: &Path, key: &Path| {
        identity.reload(&std::fs::read(certificate).unwrap(), &std::fs::read(key).unwrap())
    };
    let server = Server::start_as(Config::default(), Some(identity.clone()));
    let before = Trust::in_file(&certificate).unwrap();
    let mut client = Client::new(&server, &before);
    client.shake_hands();
    write(&certificate, &key, "stream.example");
    let after = Trust::in_file(&certificate).unwrap();
    reload(&certificate, &key).unwrap();
    Client::new(&server, &after).shake_hands();
    client.get("/echo/old");
    client.until("/echo/old");
    std::fs::write(&key, "nothing").unwrap();
    assert!(matches!(reload(&certificate, &key), Err(IdentityError::Key(_))));
    let (_other, _, others_key) = made("stream.example");
    assert!(matches!(reload(&certificate, &others_key), Err(IdentityError::Unfit(_))));
    assert!(matches!(reload(&others_key, &others_key), Err(IdentityError::Empty)));
    Client::new(&server, &after).shake_hands();
    let refused = |trust: &Trust| {
        let mut client = Client::new(&server, trust);
        while client.peer.is_handshaking() {
            client.flush();
            let mut received = [0; 4096];
            let count = client.stream.read(&mut received).unwrap();
            if client.peer.take(&received[..count], &mut Vec::new()).is_err() {
                return true;
            }
        }
        false
    };
    // Asked anew: who was there before may resume without a certificate.
    assert!(refused(&Trust::in_file(&old).unwrap()), "the certificate is another one now");
}

#[test]
fn half_a_record_is_a_request_on_its_way() {
    let (_directory, mut server, trust) = secure(Config::default());
    let mut client = Client::ready(&server, &trust);
    client.peer.seal(b"GET /echo/half HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    let record = client.outgoing();
    let (half, rest) = record.split_at(record.len() / 2);
    client.stream.write_all(half).unwrap();
    server.until("half of it has come", |counts| counts.quiet == 0);
    server.post(Message::Drain { grace_ms: 3_600_000 });
    assert_eq!(server.counts().connections, 1);
    client.stream.write_all(rest).unwrap();
    let said = client.until("Get /echo/half -").to_ascii_lowercase();
    assert!(said.starts_with("http/1.1 200") && said.contains("connection: close"), "{said}");
    while client.fill() {}
    server.join();
}

#[test]
fn a_record_that_dribbles_in_buys_its_request_no_time() {
    let config = Config { head_timeout_ms: 120, idle_timeout_ms: 3_600_000, ..Config::default() };
    let (_directory, server, trust) = secure(config);
    let mut client = Client::ready(&server, &trust);
    client
        .peer
        .seal(format!("GET /echo/{} HTTP/1.1\r\nHost: t\r\n\r\n", "s".repeat(200)).as_bytes())
        .unwrap();
    let record = client.outgoing();
    let mut stream = client.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Ten seconds of it, unless the peer has enough before.
            for byte in record {
                if stream.write_all(&[byte]).is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let said = client.until("request-too-slow");
        assert!(said.starts_with("HTTP/1.1 408"), "{said}");
        client.stream.shutdown(Shutdown::Both).unwrap();
    });
}

#[test]
fn what_a_lingering_peer_had_asked_for_does_not_end_its_lingering() {
    let (_directory, server, trust) = secure(Config { linger_ms: 3_600_000, ..Config::default() });
    let gate = Arc::new(Mutex::new(()));
    server.shared.lock().unwrap().cold = Some(gate.clone());
    server.write("history");
    let closed = gate.lock().unwrap();
    let (mut garbles, mut waits) = (Client::ready(&server, &trust), Client::ready(&server, &trust));
    // Both wait for the disk, one after the other.
    for (client, subscribed) in [(&mut garbles, 1), (&mut waits, 2)] {
        client.get("/poll/0");
        server.until("subscribed", |counts| counts.subscribed == subscribed);
    }
    // No record begins so.
    garbles.stream.write_all(&[0xFF; 5]).unwrap();
    server.until("lingering", |counts| counts.subscribed == 1);
    drop(closed);
    waits.until("history");
    assert_eq!(server.counts().connections, 2, "it has time to read why it ends");
    drop(garbles);
    server.until("gone", |counts| counts.connections == 1);
}

#[test]
fn draining_ends_sealed_connections_in_good_order() {
    let (_directory, mut server, trust) = secure(Config::default());
    let mut idle = Client::ready(&server, &trust);
    let mut live = Client::ready(&server, &trust);
    live.get("/sse/0");
    server.until("subscribed", |counts| counts.subscribed == 1);
    server.post(Message::Drain { grace_ms: 3_600_000 });
    while idle.fill() {}
    while live.fill() {}
    assert!(idle.ended && live.ended && live.plain.ends_with(b"0\r\n\r\n"));
    server.join();
}
