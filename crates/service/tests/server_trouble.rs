//! Handlers that fail, clients that misbehave, bytes that are wrong: what each is told, and who else notices
//! (nobody).
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod caller;

use caller::{Peer, Received, Running, end, eventually, hello, options};
use proptest::prelude::*;
use std::io::Write;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use thalweg_service::{ClientId, Handler, Reply, Request, ServerOptions};
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{FrameKind, HELLO_BYTES, Header, Hello, Welcome};
use thalweg_wire::service::{Flow, error_frame};

fn echo(request: Request<'_>, reply: Reply) {
    reply.end(request.frame);
}

fn error(message: &str) -> Vec<u8> {
    error_frame("TestErrorResponse", message)
}

fn is_fault(came: &Received, id: u64, fault: Fault) {
    assert_eq!((came.kind, came.id, came.fault), (FrameKind::End, id, Some(fault)));
}

#[test]
fn a_reply_that_is_dropped_is_an_error_at_once_or_later() {
    let (keeper, kept) = channel::<Reply>();
    let server = Running::new(move |request: Request<'_>, reply: Reply| {
        if request.frame == b"later" {
            keeper.send(reply).unwrap();
        }
    });
    let mut plain = Peer::plain(&server.path);
    let mut multiplexed = Peer::multiplexed(&server.path);
    for request in [&b"now"[..], b"later"] {
        plain.send_plain(request);
        multiplexed.call(5, request);
        if request == b"later" {
            drop((kept.recv().unwrap(), kept.recv().unwrap()));
        }
        assert_eq!(plain.receive_plain(), error("the handler gave no answer"));
        let came = multiplexed.receive();
        is_fault(&came, 5, Fault::Abandoned);
        assert_eq!(came.payload, error("the handler gave no answer"));
    }
}

#[test]
fn a_panic_ends_its_call_and_nothing_else() {
    let server = Running::new(|request: Request<'_>, reply: Reply| match request.frame {
        b"here" => panic!("as the test wants it"),
        b"there" => {
            let panics = std::thread::spawn(move || {
                let _reply = reply;
                panic!("as the test wants it");
            });
            assert!(panics.join().is_err());
        }
        b"while writing" => reply.end_with(|response| {
            response.extend_from_slice(b"half");
            panic!("as the test wants it");
        }),
        frame => reply.end(frame),
    });
    let mut peer = Peer::multiplexed(&server.path);
    for (id, request) in [(1, &b"here"[..]), (2, b"there"), (3, b"while writing")] {
        peer.call(id, request);
        is_fault(&peer.receive(), id, Fault::Abandoned);
    }
    peer.call(4, b"fine");
    assert_eq!(peer.receive(), end(4, b"fine"));
    let statistics = server.stop();
    assert_eq!((statistics.requests, statistics.answers, statistics.in_flight), (4, 4, 0));
}

/// Panics wherever it is told of something.
struct Panics(Vec<Reply>);

struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("as the test wants it");
    }
}

impl Handler for Panics {
    fn request(&mut self, request: Request<'_>, mut reply: Reply) {
        let waker = Waker::from(Arc::new(PanickingWaker));
        match request.frame {
            b"keep" => {
                reply.when_cancelled(&waker);
                self.0.push(reply);
            }
            b"wait for credit" => {
                while reply.item(b"item") == Flow::Go {}
                reply.changed(&waker);
                self.0.push(reply);
            }
            frame => reply.end(frame),
        }
    }

    fn notified(&mut self) {
        panic!("as the test wants it");
    }

    fn undelivered(&mut self, _: ClientId) {
        self.0.clear();
        panic!("as the test wants it");
    }
}

#[test]
fn a_panic_of_what_is_told_of_something_ends_nothing() {
    let options = ServerOptions { stream_credit: 2, ..options() };
    let (notifiers, notifier) = channel();
    let server = Running::start(options, "test.sock", move |server| {
        notifiers.send(server.notifier()).unwrap();
        server.serve(Panics(Vec::new()))
    });
    let mut peer = Peer::multiplexed(&server.path);
    let still_serves = |peer: &mut Peer, id| {
        peer.call(id, b"fine");
        let came = std::iter::from_fn(|| Some(peer.receive())).find(|came| came.kind == FrameKind::End);
        assert_eq!(came, Some(end(id, b"fine")));
    };
    notifier.recv().unwrap().notify();
    still_serves(&mut peer, 1);
    peer.call(2, b"keep");
    peer.send(Header::new(FrameKind::Cancel, 2, 0), b"");
    is_fault(&peer.receive(), 2, Fault::Cancelled);
    still_serves(&mut peer, 3);
    peer.call(4, b"wait for credit");
    peer.send(Header { credit: 2, ..Header::new(FrameKind::Credit, 4, 0) }, b"");
    still_serves(&mut peer, 5);
    drop(peer);
    let mut successor = Peer::multiplexed(&server.path);
    still_serves(&mut successor, 6);
    drop(successor);
    assert_eq!(server.stop().in_flight, 0);
}

#[test]
fn a_serial_handler_that_panics_has_abandoned_its_call() {
    let server = Running::start(options(), "test.sock", |server| {
        server.run(|request, response| {
            response.extend_from_slice(request);
            assert_ne!(request, b"panic", "as the test wants it");
        })
    });
    let mut peer = Peer::plain(&server.path);
    for (request, answer) in
        [(&b"a"[..], b"a".to_vec()), (b"panic", error("the handler gave no answer")), (b"b", b"b".to_vec())]
    {
        peer.send_plain(request);
        assert_eq!(peer.receive_plain(), answer);
    }
}

#[test]
fn an_answer_to_a_dead_client_goes_nowhere_not_to_its_successor() {
    let (keeper, kept) = channel::<Reply>();
    let server = Running::new(move |request: Request<'_>, reply: Reply| match request.frame {
        b"keep" => keeper.send(reply).unwrap(),
        frame => reply.end(frame),
    });
    let mut first = Peer::multiplexed(&server.path);
    first.call(1, b"keep");
    let reply = kept.recv().unwrap();
    drop(first);
    eventually(|| reply.is_cancelled());
    // The next client lives in the slot that the first one left, with the same id in flight.
    let mut second = Peer::multiplexed(&server.path);
    second.call(1, b"keep");
    let second_reply = kept.recv().unwrap();
    assert_ne!(reply.client(), second_reply.client());
    reply.end(b"for the dead");
    second.call(2, b"alive");
    assert_eq!(second.receive(), end(2, b"alive"));
    second_reply.end(b"for the living");
    assert_eq!(second.receive(), end(1, b"for the living"));
    assert_eq!(server.stop().in_flight, 0);
}

#[test]
fn half_frames_hold_up_nobody_and_nothing_of_them_is_handled() {
    let server = Running::new(echo);
    let mut halves = Vec::new();
    for length in 1..7 {
        let mut half = Peer::plain(&server.path);
        half.stream.write_all(&[3, 0, 0, 0, b'a', b'b', b'c'][..length]).unwrap();
        halves.push((length, half));
    }
    let mut half_hello = Peer::plain(&server.path);
    half_hello.stream.write_all(&hello().encode()[..20]).unwrap();
    let mut whole = Peer::plain(&server.path);
    whole.send_plain(b"whole");
    assert_eq!(whole.receive_plain(), b"whole");
    for (length, half) in &mut halves {
        half.stream.write_all(&[3, 0, 0, 0, b'a', b'b', b'c'][*length..]).unwrap();
        assert_eq!(half.receive_plain(), b"abc");
    }
    // A peer that ends in the middle of a frame is let go of.
    let mut gone = Peer::plain(&server.path);
    gone.stream.write_all(&[9, 0, 0, 0, 1]).unwrap();
    gone.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(gone.rest().is_empty());
    assert_eq!(server.stop().requests, 7);
}

#[test]
fn what_was_asked_before_the_end_is_answered_after_it() {
    let (keeper, kept) = channel::<Reply>();
    let server = Running::new(move |_: Request<'_>, reply: Reply| keeper.send(reply).unwrap());
    let mut peer = Peer::plain(&server.path);
    peer.send_plain(b"last words");
    peer.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let reply = kept.recv().unwrap();
    assert!(!reply.is_cancelled());
    reply.end(b"heard");
    assert_eq!(peer.receive_plain(), b"heard");
    assert!(peer.rest().is_empty());
}

#[test]
fn empty_requests_and_answers_are_frames_like_any_other() {
    let server = Running::new(echo);
    let mut plain = Peer::plain(&server.path);
    let mut multiplexed = Peer::multiplexed(&server.path);
    for _ in 0..3 {
        plain.send_plain(b"");
        assert_eq!(plain.receive_plain(), b"");
        multiplexed.call(0, b"");
        assert_eq!(multiplexed.receive(), end(0, b""));
    }
}

#[test]
fn a_request_that_is_too_long_is_refused_and_skipped() {
    let options = ServerOptions { frame_bytes_max: 1_000, ..options() };
    let server = Running::with(options, "test.sock", echo);
    let mut plain = Peer::plain(&server.path);
    let mut multiplexed = Peer::multiplexed(&server.path);
    let refused = error("the frame is longer than is allowed: 1000 bytes are allowed");
    for length in [1_001, 300_000] {
        plain.send_plain(b"before");
        plain.send_plain(&vec![0; length]);
        plain.send_plain(b"after");
        assert_eq!(plain.receive_plain(), b"before");
        assert_eq!(plain.receive_plain(), refused);
        assert_eq!(plain.receive_plain(), b"after");
        multiplexed.call(7, &vec![0; length]);
        multiplexed.call(8, &[1; 1_000]);
        is_fault(&multiplexed.receive(), 7, Fault::FrameTooLarge);
        assert_eq!(multiplexed.receive(), end(8, &[1; 1_000]));
    }
    assert_eq!(server.stop().requests, 6, "what was refused reached no handler");
}

#[test]
fn an_id_in_flight_is_not_used_again_and_the_first_call_goes_on() {
    let (keeper, kept) = channel::<Reply>();
    let server = Running::new(move |_: Request<'_>, reply: Reply| keeper.send(reply).unwrap());
    let mut peer = Peer::multiplexed(&server.path);
    peer.call(3, b"first");
    let first = kept.recv().unwrap();
    peer.call(3, b"second");
    is_fault(&peer.receive(), 3, Fault::DuplicateId);
    first.end(b"first");
    assert_eq!(peer.receive(), end(3, b"first"));
    peer.call(3, b"third");
    kept.recv().unwrap().end(b"third");
    assert_eq!(peer.receive(), end(3, b"third"));
}

#[test]
fn bytes_that_are_no_frames_end_the_connection_with_a_reason() {
    let server = Running::new(echo);
    let mut peer = Peer::multiplexed(&server.path);
    peer.call(1, b"a");
    peer.send(Header::new(FrameKind::Goodbye, 9, 0), b"");
    assert_eq!(peer.receive(), end(1, b"a"));
    is_fault(&peer.receive(), 9, Fault::BadFrame);
    assert!(peer.rest().is_empty());

    let mut plain = Peer::plain(&server.path);
    plain.send_plain(b"a");
    assert_eq!(plain.receive_plain(), b"a");
    plain.stream.write_all(&[0xff; 8]).unwrap();
    assert_eq!(plain.receive_plain(), error("the bytes are no frame: the connection ends"));
    assert!(plain.rest().is_empty());

    let mut neither = Peer::plain(&server.path);
    neither.stream.write_all(b"\x16\x03\x01\xf0 something else").unwrap();
    let refusal = neither.rest();
    let refusal = Welcome::decode(&refusal).unwrap().unwrap();
    assert_eq!(Fault::of(refusal.fault), Some(Fault::BadFrame));
}

#[test]
fn a_refused_client_is_told_why() {
    let (ours, theirs) = ([1; 32], [2; 32]);
    let options = ServerOptions { schema: ours, ..options() };
    let server = Running::with(options, "test.sock", echo);
    let turned_away = |hello: Hello, fault: Fault| {
        let (mut peer, welcome) = Peer::greet(&server.path, hello);
        assert_eq!((Fault::of(welcome.fault), welcome.schema), (Some(fault), ours));
        assert!(peer.rest().is_empty());
    };
    turned_away(Hello { schema: theirs, ..hello() }, Fault::SchemaMismatch);
    turned_away(Hello { version: 2, ..hello() }, Fault::VersionMismatch);
    for schema in [ours, [0; 32]] {
        let (mut peer, welcome) = Peer::greet(&server.path, Hello { schema, ..hello() });
        assert_eq!((welcome.fault, welcome.ring_bytes), (0, 0));
        peer.call(1, b"a");
        assert_eq!(peer.receive(), end(1, b"a"));
    }
}

#[test]
fn an_endpoint_for_shared_memory_offers_nothing_else() {
    let server = Running::with(options(), "test.shm", echo);
    let (mut peer, welcome) = Peer::greet(&server.path, hello());
    assert_eq!(Fault::of(welcome.fault), Some(Fault::NoSharedMemory));
    assert!(peer.rest().is_empty());
    let mut plain = Peer::plain(&server.path);
    plain.send_plain(b"a");
    let refused = "shared memory was not agreed on: begin with a hello that asks for it";
    assert_eq!(plain.receive_plain(), error(refused));
    assert!(plain.rest().is_empty());
}

#[test]
fn clients_that_never_read_are_not_read_from_and_delay_nobody() {
    let options = ServerOptions { unsent_bytes_max: 256 * 1024, ..options() };
    let server = Running::with(options, "test.sock", echo);
    let request = vec![7; 64 * 1024];
    let mut stubborn: Vec<Peer> = (0..3).map(|_| Peer::plain(&server.path)).collect();
    for peer in &mut stubborn {
        // Until nothing more is taken: both sockets are full, and the server holds no more than it may.
        peer.stream.set_nonblocking(true).unwrap();
        let mut frame = (request.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(&request);
        let (mut sent, mut refusals) = (0, 0);
        while refusals < 20 {
            match peer.stream.write(&frame[sent % frame.len()..]) {
                Ok(count) => (sent, refusals) = (sent + count, 0),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    refusals += 1;
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                Err(error) => panic!("{error}"),
            }
            assert!(sent < 64 << 20, "somebody holds what nobody reads");
        }
    }
    let mut other = Peer::plain(&server.path);
    for _ in 0..100 {
        other.send_plain(b"quick");
        assert_eq!(other.receive_plain(), b"quick");
    }
    // One that changes its mind gets everything it asked for.
    let mut peer = stubborn.remove(0);
    peer.stream.set_nonblocking(false).unwrap();
    for _ in 0..4 {
        assert_eq!(peer.receive_plain(), request);
    }
}

/// A server that hands out the replies to `hold`, and tells how many others it answered.
fn holding(options: ServerOptions) -> (Running, Receiver<Reply>, Arc<Mutex<usize>>) {
    let (keeper, kept) = channel::<Reply>();
    let answered: Arc<Mutex<usize>> = Arc::default();
    let counted = Arc::clone(&answered);
    let server = Running::with(options, "test.sock", move |request: Request<'_>, reply: Reply| {
        if request.frame == b"hold" {
            return keeper.send(reply).unwrap();
        }
        *counted.lock().unwrap() += 1;
        reply.end(request.frame);
    });
    (server, kept, answered)
}

#[test]
fn what_is_answered_out_of_turn_counts_until_its_turn_comes() {
    let (server, kept, answered) = holding(ServerOptions { in_flight_max: 8, ..options() });
    let mut peer = Peer::plain(&server.path);
    peer.send_plain(b"hold");
    (0..100_u8).for_each(|number| peer.send_plain(&[number]));
    let reply = kept.recv().unwrap();
    eventually(|| *answered.lock().unwrap() >= 7);
    // Another client is served meanwhile, so the server had every chance to take more.
    let mut other = Peer::multiplexed(&server.path);
    other.call(1, b"quick");
    assert_eq!(other.receive(), end(1, b"quick"));
    assert_eq!(*answered.lock().unwrap(), 7 + 1);
    reply.end(b"held");
    assert_eq!(peer.receive_plain(), b"held");
    (0..100_u8).for_each(|number| assert_eq!(peer.receive_plain(), [number]));
}

#[test]
fn what_waits_for_its_turn_is_no_more_than_may_lie_unsent() {
    let options = ServerOptions { unsent_bytes_max: 256 << 10, ..options() };
    let (server, kept, answered) = holding(options);
    let mut peer = Peer::plain(&server.path);
    peer.send_plain(b"hold");
    let reply = kept.recv().unwrap();
    let request = vec![7; 32 << 10];
    let mut writer = peer.stream.try_clone().unwrap();
    let frame = [&(request.len() as u32).to_le_bytes()[..], &request].concat();
    const REQUESTS: usize = 64;
    let writing = std::thread::spawn(move || (0..REQUESTS).for_each(|_| writer.write_all(&frame).unwrap()));
    eventually(|| *answered.lock().unwrap() >= 8);
    for id in 0..20 {
        let mut other = Peer::multiplexed(&server.path);
        other.call(id, b"quick");
        assert_eq!(other.receive(), end(id, b"quick"));
    }
    assert_eq!(*answered.lock().unwrap(), 8 + 20, "of those that wait for their turn");
    reply.end(b"held");
    assert_eq!(peer.receive_plain(), b"held");
    (0..REQUESTS).for_each(|_| assert_eq!(peer.receive_plain(), request));
    writing.join().unwrap();
}

#[test]
fn a_connection_at_its_bound_of_calls_is_not_read_from_until_one_ends() {
    let kept: Arc<Mutex<Vec<Reply>>> = Arc::default();
    let keeper = Arc::clone(&kept);
    let options = ServerOptions { in_flight_max: 4, ..options() };
    let server = Running::with(options, "test.sock", move |_: Request<'_>, reply: Reply| {
        keeper.lock().unwrap().push(reply);
    });
    let mut peer = Peer::multiplexed(&server.path);
    (0..20).for_each(|id| peer.call(id, b""));
    for _ in 0..5 {
        eventually(|| kept.lock().unwrap().len() == 4);
        // Another connection is served meanwhile, so the server had every chance to take more.
        let mut other = Peer::multiplexed(&server.path);
        other.call(0, b"");
        eventually(|| kept.lock().unwrap().len() == 5);
        kept.lock().unwrap().pop().unwrap().end(b"other");
        assert_eq!(other.receive(), end(0, b"other"));
        let four: Vec<Reply> = kept.lock().unwrap().drain(..).collect();
        four.into_iter().for_each(|reply| reply.end(b""));
    }
    let mut answered: Vec<u64> = (0..20).map(|_| peer.receive().id).collect();
    answered.sort_unstable();
    assert_eq!(answered, (0..20).collect::<Vec<u64>>());
}

#[test]
fn clients_over_the_bound_wait_until_one_leaves() {
    let options = ServerOptions { clients_max: 2, ..options() };
    let server = Running::with(options, "test.sock", echo);
    let mut first = Peer::multiplexed(&server.path);
    let second = Peer::multiplexed(&server.path);
    let mut third = Peer::plain(&server.path);
    third.stream.write_all(&hello().encode()).unwrap();
    first.call(1, b"a");
    assert_eq!(first.receive(), end(1, b"a"));
    third.stream.set_nonblocking(true).unwrap();
    let mut welcome = [0; HELLO_BYTES];
    let found = std::io::Read::read(&mut third.stream, &mut welcome);
    assert_eq!(found.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    third.stream.set_nonblocking(false).unwrap();
    drop(second);
    std::io::Read::read_exact(&mut third.stream, &mut welcome).unwrap();
    third.call(2, b"b");
    assert_eq!(third.receive(), end(2, b"b"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// Whatever bytes a client sends, it is told so or let go of, and the next one is served.
    #[test]
    fn no_bytes_of_one_client_harm_another(
        greets in any::<bool>(),
        bytes in proptest::collection::vec(prop_oneof![3 => 0_u8..8, 1 => any::<u8>()], 0..300),
    ) {
        let server = harmed();
        let mut peer = if greets { Peer::multiplexed(&server.path) } else { Peer::plain(&server.path) };
        // The server may end the connection in the middle of it.
        let _ = peer.stream.write_all(&bytes);
        let mut other = Peer::multiplexed(&server.path);
        other.call(1, b"fine");
        prop_assert_eq!(other.receive(), end(1, b"fine"));
    }
}

/// One server for all cases.
fn harmed() -> &'static Running {
    static SERVER: std::sync::OnceLock<Running> = std::sync::OnceLock::new();
    SERVER.get_or_init(|| Running::new(echo))
}

#[test]
fn every_request_that_was_taken_is_counted_and_so_is_its_end() {
    let options = ServerOptions { frame_bytes_max: 100, ..options() };
    let (server, kept, _) = holding(options);
    let mut peer = Peer::multiplexed(&server.path);
    peer.call(1, &[0; 101]);
    is_fault(&peer.receive(), 1, Fault::FrameTooLarge);
    peer.call(2, b"hold");
    let cancelled = kept.recv().unwrap();
    peer.cancel(2);
    is_fault(&peer.receive(), 2, Fault::Cancelled);
    peer.call(3, b"hold");
    let left = kept.recv().unwrap();
    drop(peer);
    eventually(|| left.is_cancelled());
    drop((cancelled, left));
    let mut wrong = Peer::multiplexed(&server.path);
    wrong.send(Header::new(FrameKind::Item, 4, 0), b"no request");
    is_fault(&wrong.receive(), 4, Fault::BadFrame);
    let statistics = server.stop();
    assert_eq!((statistics.requests, statistics.answers, statistics.in_flight), (2, 2, 0));
}

/// A refusal is longer than what it refuses may be.
#[test]
fn a_client_that_never_reads_what_it_is_refused_is_not_read_from_either() {
    let options = ServerOptions { unsent_bytes_max: 256 * 1024, frame_bytes_max: 8, ..options() };
    let server = Running::with(options, "test.sock", echo);
    for plain in [true, false] {
        let mut peer = if plain { Peer::plain(&server.path) } else { Peer::multiplexed(&server.path) };
        let mut frame = Header::new(FrameKind::Request, 5, 9).encode().to_vec();
        if plain {
            frame = 9_u32.to_le_bytes().to_vec();
        }
        frame.extend_from_slice(&[7; 9]);
        let frames = frame.repeat(1_000);
        peer.stream.set_nonblocking(true).unwrap();
        let (mut sent, mut refusals) = (0, 0);
        while refusals < 20 {
            match peer.stream.write(&frames[sent % frames.len()..]) {
                Ok(count) => (sent, refusals) = (sent + count, 0),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    refusals += 1;
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                Err(error) => panic!("{error}"),
            }
            assert!(sent < 16 << 20, "somebody holds what nobody reads");
        }
        // One that changes its mind is told of each, and heard behind them.
        peer.stream.set_nonblocking(false).unwrap();
        for _ in 0..sent / frame.len() {
            if plain {
                peer.receive_plain();
            } else {
                is_fault(&peer.receive(), 5, Fault::FrameTooLarge);
            }
        }
        peer.stream.write_all(&frame[sent % frame.len()..]).unwrap();
        if plain {
            peer.receive_plain();
            peer.send_plain(b"heard");
            assert_eq!(peer.receive_plain(), b"heard");
        } else {
            peer.receive();
            peer.call(6, b"heard");
            assert_eq!(peer.receive(), end(6, b"heard"));
        }
    }
}
