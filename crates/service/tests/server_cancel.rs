//! Calls that end before their handlers do: cancelled, overdue, or left by their clients; and what their
//! requests count meanwhile.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod caller;

use caller::{Bell, Peer, Running, end, eventually, keeping, options};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::Waker;
use thalweg_service::{Reply, ServerOptions};
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{FrameKind, Header};
use thalweg_wire::service::Flow;

#[test]
fn a_cancelled_call_ends_its_handler_is_told_and_its_late_answer_is_dropped() {
    let (server, kept) = keeping(options());
    let mut peer = Peer::multiplexed(&server.path);
    peer.call(1, b"keep");
    let mut reply = kept.recv().unwrap();
    let bell = Arc::new(Bell::default());
    // A reply with credit is not waiting; use it up first.
    while reply.item(b"x") == Flow::Go {}
    reply.changed(&Waker::from(Arc::clone(&bell)));
    peer.cancel(1);
    bell.wait();
    assert!(reply.is_cancelled());
    assert_eq!(reply.item(b"y"), Flow::Gone);
    let came = std::iter::repeat_with(|| peer.receive()).find(|came| came.kind == FrameKind::End).unwrap();
    assert_eq!((came.id, came.fault), (1, Some(Fault::Cancelled)));
    // The id is free again, and the late answer is not taken for the new call's.
    peer.call(1, b"keep");
    let second = kept.recv().unwrap();
    reply.end(b"late");
    peer.call(2, b"echo");
    assert_eq!(peer.receive(), end(2, b"echo"));
    second.end(b"second");
    assert_eq!(peer.receive(), end(1, b"second"));
    // Nobody to cancel is no mistake: it may have been answered meanwhile.
    peer.cancel(1);
    peer.call(2, b"echo");
    assert_eq!(peer.receive(), end(2, b"echo"));
    assert_eq!(server.stop().in_flight, 0);
}

#[test]
fn cancelled_calls_count_until_their_handlers_end_them() {
    let (server, kept) = keeping(ServerOptions { in_flight_max: 2, ..options() });
    let mut peer = Peer::multiplexed(&server.path);
    for id in 0..2 {
        peer.call(id, b"keep");
        peer.cancel(id);
        assert_eq!(peer.receive().fault, Some(Fault::Cancelled));
    }
    let replies = [kept.recv().unwrap(), kept.recv().unwrap()];
    peer.call(2, b"keep");
    // Another connection is served meanwhile; this one is not.
    let mut other = Peer::multiplexed(&server.path);
    other.call(0, b"echo");
    assert_eq!(other.receive(), end(0, b"echo"));
    assert!(kept.try_recv().is_err());
    drop(replies);
    kept.recv().unwrap().end(b"at last");
    assert_eq!(peer.receive(), end(2, b"at last"));
}

#[test]
fn requests_in_flight_are_bounded_in_bytes_and_one_always_fits() {
    const BYTES: usize = 1 << 20;
    let (server, kept) = keeping(ServerOptions { in_flight_bytes_max: BYTES, ..options() });
    let mut peer = Peer::multiplexed(&server.path);
    let mut other = Peer::multiplexed(&server.path);
    let mut nothing_more_begins = || {
        other.call(0, b"echo");
        assert_eq!(other.receive(), end(0, b"echo"));
        kept.try_recv().is_err()
    };
    // Longer than the bound.
    peer.call(0, &vec![7; 2 * BYTES]);
    let large = kept.recv().unwrap();
    peer.call(1, &vec![7; BYTES / 2]);
    assert!(nothing_more_begins());
    large.end(b"");
    assert_eq!(peer.receive(), end(0, b""));
    let first = kept.recv().unwrap();
    peer.call(2, &vec![7; BYTES / 2]);
    let second = kept.recv().unwrap();
    peer.call(3, b"x");
    assert!(nothing_more_begins());
    // One that was cancelled counts until its handler ends it.
    peer.cancel(1);
    let came = peer.receive();
    assert_eq!((came.id, came.fault), (1, Some(Fault::Cancelled)));
    assert!(nothing_more_begins());
    drop(first);
    let third = kept.recv().unwrap();
    [second, third].into_iter().for_each(|reply| reply.end(b""));
    assert_eq!([peer.receive().id, peer.receive().id], [2, 3]);
    // On a plain connection too.
    let mut plain = Peer::plain(&server.path);
    plain.send_plain(&vec![7; BYTES]);
    let first = kept.recv().unwrap();
    plain.send_plain(b"x");
    assert!(nothing_more_begins());
    first.end(b"first");
    kept.recv().unwrap().end(b"second");
    assert_eq!([plain.receive_plain(), plain.receive_plain()], [&b"first"[..], b"second"]);
    let statistics = server.stop();
    assert_eq!((statistics.in_flight, statistics.in_flight_bytes), (0, 0));
}

#[test]
fn a_call_ends_at_its_deadline_and_its_late_answer_is_dropped() {
    let (server, kept) = keeping(options());
    let mut peer = Peer::multiplexed(&server.path);
    let with = |id: u64, deadline_ms: u32| Header { deadline_ms, ..Header::new(FrameKind::Request, id, 0) };
    peer.send(with(3, 3_600_000), b"keep");
    let kept_long = kept.recv().unwrap();
    // In one write, so that both come in the same moment.
    let frame = |id, deadline_ms| Header { length: 4, ..with(id, deadline_ms) }.encode();
    let bytes = [&frame(2, 40)[..], b"keep", &frame(1, 60), b"keep"].concat();
    std::io::Write::write_all(&mut peer.stream, &bytes).unwrap();
    for id in [2, 1] {
        let came = peer.receive();
        assert_eq!((came.id, came.fault), (id, Some(Fault::DeadlineExceeded)));
    }
    // On a machine that was busy elsewhere for so long, neither was handed out at all.
    let late: Vec<Reply> = kept.try_iter().collect();
    assert!(late.iter().all(Reply::is_cancelled) && !kept_long.is_cancelled());
    late.into_iter().for_each(|reply| reply.end(b"late"));
    kept_long.end(b"answer");
    assert_eq!(peer.receive(), end(3, b"answer"));
    assert_eq!(server.stop().in_flight, 0);
}

#[test]
fn a_deadline_that_passed_before_its_handler_began_costs_no_handler() {
    let (told, asked) = channel::<Vec<u8>>();
    let server = Running::start(options(), "test.sock", move |server| {
        server.run(|request, _| {
            told.send(request.to_vec()).unwrap();
            if request == b"slow" {
                std::thread::sleep(std::time::Duration::from_millis(30));
            }
        })
    });
    let mut peer = Peer::multiplexed(&server.path);
    // In one write, so that the second waits in the server's own buffer while the first is handled.
    let slow = Header { length: 4, ..Header::new(FrameKind::Request, 1, 0) }.encode();
    let late = Header { length: 4, deadline_ms: 5, ..Header::new(FrameKind::Request, 2, 0) }.encode();
    let bytes = [&slow[..], b"slow", &late, b"late"].concat();
    std::io::Write::write_all(&mut peer.stream, &bytes).unwrap();
    assert_eq!(peer.receive(), end(1, b""));
    let came = peer.receive();
    assert_eq!((came.id, came.fault), (2, Some(Fault::DeadlineExceeded)));
    drop(server);
    assert_eq!(asked.iter().collect::<Vec<_>>(), [b"slow".to_vec()]);
}

#[test]
fn a_deadline_runs_while_its_request_waits_for_others_to_end() {
    let (server, kept) = keeping(ServerOptions { in_flight_max: 1, ..options() });
    let mut peer = Peer::multiplexed(&server.path);
    // In one write, so that the second is there when the first begins.
    let first = Header { length: 4, ..Header::new(FrameKind::Request, 1, 0) }.encode();
    let second = Header { length: 4, deadline_ms: 20, ..Header::new(FrameKind::Request, 2, 0) }.encode();
    let bytes = [&first[..], b"keep", &second, b"keep"].concat();
    std::io::Write::write_all(&mut peer.stream, &bytes).unwrap();
    let reply = kept.recv().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    reply.end(b"answer");
    assert_eq!(peer.receive(), end(1, b"answer"));
    let came = peer.receive();
    assert_eq!((came.id, came.fault), (2, Some(Fault::DeadlineExceeded)));
    // What comes later has a time of its own.
    let third = Header { deadline_ms: 3_600_000, ..Header::new(FrameKind::Request, 3, 0) };
    peer.send(third, b"keep");
    kept.recv().unwrap().end(b"in time");
    assert_eq!(peer.receive(), end(3, b"in time"));
    server.stop();
    assert!(kept.recv().is_err(), "the second reached no handler");
}

#[test]
fn a_client_that_leaves_takes_its_calls_along() {
    let (server, kept) = keeping(options());
    let mut peer = Peer::multiplexed(&server.path);
    (0..3).for_each(|id| peer.call(id, b"keep"));
    let mut plain = Peer::plain(&server.path);
    plain.send_plain(b"keep");
    let replies: Vec<Reply> = (0..4).map(|_| kept.recv().unwrap()).collect();
    drop((peer, plain));
    eventually(|| replies.iter().all(Reply::is_cancelled));
    drop(replies);
    let statistics = server.stop();
    assert_eq!((statistics.in_flight, statistics.clients), (0, 0));
}
