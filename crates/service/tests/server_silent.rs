//! Clients that connect and do not say what they speak: they cost a place only while nobody else needs it.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod caller;

use caller::{Peer, Running, end, options};
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use thalweg_service::{Endpoint, Reply, Request, Server, ServerOptions, Wait};
use thalweg_wire::frame::HELLO_BYTES;

fn echo(request: Request<'_>, reply: Reply) {
    reply.end(request.frame);
}

fn server(clients_max: u32, hello_within: Duration) -> Running {
    Running::with(ServerOptions { clients_max, hello_within, ..options() }, "test.sock", echo)
}

#[test]
fn a_client_that_says_nothing_gives_its_place_to_one_that_speaks() {
    let a_while = Duration::from_millis(50);
    // Its time is over before another waits, or while one does.
    for (hello_within, waits) in [(Duration::ZERO, a_while), (a_while, Duration::ZERO)] {
        let server = server(1, hello_within);
        let mut silent = Peer::plain(&server.path);
        std::thread::sleep(waits);
        let mut other = Peer::multiplexed(&server.path);
        other.call(1, b"a");
        assert_eq!(other.receive(), end(1, b"a"));
        assert_eq!(silent.rest(), b"");
    }
}

#[test]
fn one_that_waits_takes_the_place_of_one() {
    let server = server(3, Duration::ZERO);
    let mut silent: Vec<Peer> = (0..3).map(|_| Peer::plain(&server.path)).collect();
    let mut other = Peer::multiplexed(&server.path);
    other.call(1, b"a");
    assert_eq!(other.receive(), end(1, b"a"));
    let is_gone = |peer: &mut Peer| {
        peer.stream.set_nonblocking(true).unwrap();
        peer.stream.read(&mut [0]).is_ok()
    };
    assert_eq!(silent.iter_mut().map(is_gone).filter(|is| *is).count(), 1);
}

#[test]
fn a_plain_client_without_a_request_stays_while_nobody_needs_its_place() {
    let server = server(10, Duration::from_millis(1));
    let mut quiet = Peer::plain(&server.path);
    for round in 0..3 {
        let mut other = Peer::multiplexed(&server.path);
        std::thread::sleep(Duration::from_millis(20));
        other.call(round, b"a");
        assert_eq!(other.receive(), end(round, b"a"));
    }
    quiet.send_plain(b"after a while");
    assert_eq!(quiet.receive_plain(), b"after a while");
}

#[test]
fn a_client_that_has_spoken_keeps_its_place() {
    let server = server(1, Duration::from_millis(1));
    let mut quiet = Peer::plain(&server.path);
    quiet.send_plain(b"a");
    assert_eq!(quiet.receive_plain(), b"a");
    let waiting = Peer::plain(&server.path);
    std::thread::sleep(Duration::from_millis(50));
    quiet.send_plain(b"b");
    assert_eq!(quiet.receive_plain(), b"b");
    drop(waiting);
}

/// What it said lies there, and was not read yet, when another needs a place.
#[test]
fn a_client_that_speaks_when_another_comes_keeps_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.sock");
    let options = ServerOptions { clients_max: 1, hello_within: Duration::ZERO, ..options() };
    let mut server = Server::bind(&[Endpoint::Socket(path.clone())], options).unwrap();
    let mut late = Peer::plain(&path);
    // It comes in, and is late.
    for _ in 0..3 {
        server.turn(Wait::Until(Instant::now() + Duration::from_millis(20))).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    late.send_plain(b"here");
    let waiting = Peer::plain(&path);
    // A server that let it go would have nothing to do.
    let soon = || Wait::Until(Instant::now() + Duration::from_secs(1));
    let mut asked = (0..60).filter_map(|_| {
        server.turn(soon()).unwrap();
        server.next()
    });
    let incoming = asked.next().unwrap();
    assert_eq!(incoming.request, b"here");
    incoming.reply.end(b"and answered");
    server.turn(Wait::Poll).unwrap();
    assert_eq!(late.receive_plain(), b"and answered");
    drop(waiting);
}

#[test]
fn half_a_hello_ends_with_its_time() {
    let server = server(10, Duration::from_millis(20));
    for length in [1, 3, HELLO_BYTES - 1] {
        let mut half = Peer::plain(&server.path);
        half.stream.write_all(&caller::hello().encode()[..length]).unwrap();
        assert_eq!(half.rest(), b"", "{length} bytes");
    }
    // One that begins late has the same time for the rest.
    let mut late = Peer::plain(&server.path);
    std::thread::sleep(Duration::from_millis(60));
    late.stream.write_all(&caller::hello().encode()[..1]).unwrap();
    assert_eq!(late.rest(), b"");
    let mut whole = Peer::multiplexed(&server.path);
    std::thread::sleep(Duration::from_millis(60));
    whole.call(1, b"a");
    assert_eq!(whole.receive(), end(1, b"a"), "who said hello may take as long as it likes");
}
