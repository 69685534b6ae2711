//! How a server ends, and what it waits for.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod caller;

use caller::{Peer, Running, end, eventually, keeping, options};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thalweg_service::{Endpoint, Reply, Request, Server, ServerOptions, Wait};
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{FrameKind, Header, LENGTH_BYTES};

/// Holds the server up at each "hold" until it is let go.
fn holding(options: ServerOptions) -> (Running, Receiver<()>, Sender<()>) {
    let ((told, hears), (lets_go, held)) = (channel(), channel());
    let hold = move |request: Request<'_>, reply: Reply| {
        if request.frame == b"hold" {
            told.send(()).unwrap();
            held.recv().unwrap();
        }
        reply.end(request.frame);
    };
    (Running::with(options, "test.sock", hold), hears, lets_go)
}

#[test]
fn a_stopped_server_takes_nothing_new_and_answers_what_it_began() {
    let (server, kept) = keeping(options());
    let mut busy = Peer::multiplexed(&server.path);
    let mut plain = Peer::plain(&server.path);
    let mut idle = Peer::multiplexed(&server.path);
    busy.call(1, b"keep");
    let reply = kept.recv().unwrap();
    plain.send_plain(b"keep");
    let plain_reply = kept.recv().unwrap();
    server.stopper.stop();
    assert_eq!(idle.receive().kind, FrameKind::Goodbye);
    assert!(idle.rest().is_empty(), "who waits for nothing is let go");
    assert!(UnixStream::connect(&server.path).is_err(), "the path is free");
    assert_eq!(busy.receive().kind, FrameKind::Goodbye);
    busy.call(2, b"echo");
    let refused = busy.receive();
    assert_eq!((refused.id, refused.fault), (2, Some(Fault::Draining)));
    reply.end(b"one");
    assert_eq!(busy.receive(), end(1, b"one"));
    assert!(busy.rest().is_empty());
    plain_reply.end(b"two");
    assert_eq!(plain.receive_plain(), b"two");
    assert!(plain.rest().is_empty());
    let statistics = server.stop();
    assert_eq!((statistics.clients, statistics.in_flight), (0, 0));
}

#[test]
fn whatever_a_client_had_sent_before_the_end_is_answered_or_refused() {
    let (begun, begins) = channel();
    let (go, goes) = channel::<()>();
    let server = Running::new(move |request: Request<'_>, reply: Reply| {
        if request.frame == b"hold" {
            begun.send(()).unwrap();
            goes.recv().unwrap();
        }
        reply.end(b"");
    });
    let mut peer = Peer::multiplexed(&server.path);
    peer.call(0, b"hold");
    begins.recv().unwrap();
    // As much as the socket takes, which is more than is read at a time.
    peer.stream.set_nonblocking(true).unwrap();
    let (mut sent, mut room) = (0_u64, true);
    while room {
        let header = Header { length: 30_000, ..Header::new(FrameKind::Request, sent + 1, 0) };
        let frame = [&header.encode()[..], &[7; 30_000]].concat();
        // A Unix socket takes a piece of this size whole or not at all.
        room = peer.stream.write(&frame).is_ok_and(|count| count == frame.len());
        sent += u64::from(room);
    }
    peer.stream.set_nonblocking(false).unwrap();
    server.stopper.stop();
    go.send(()).unwrap();
    let mut answered = Vec::new();
    while answered.len() < sent as usize + 1 {
        let came = peer.receive();
        if came.kind == FrameKind::End {
            assert!(came.fault.is_none_or(|fault| fault == Fault::Draining), "{:?}", came.fault);
            answered.push(came.id);
        }
    }
    assert_eq!(answered, (0..=sent).collect::<Vec<_>>());
    assert!(peer.rest().is_empty());
    server.stop();
}

#[test]
fn requests_that_waited_for_others_to_end_are_refused_when_those_have_ended() {
    // They lie in the server's own input, or most of them in the socket.
    for length in [3, 30_000] {
        let (server, kept) = keeping(ServerOptions { in_flight_max: 1, ..options() });
        let mut peer = Peer::multiplexed(&server.path);
        peer.call(1, b"keep");
        let reply = kept.recv().unwrap();
        (2..8).for_each(|id| peer.call(id, &vec![b'k'; length]));
        server.stopper.stop();
        assert_eq!(peer.receive().kind, FrameKind::Goodbye);
        reply.end(b"one");
        assert_eq!(peer.receive(), end(1, b"one"));
        for id in 2..8 {
            let refused = peer.receive();
            assert_eq!((refused.id, refused.fault), (id, Some(Fault::Draining)), "of {length} bytes");
        }
        assert!(peer.rest().is_empty());
    }
}

#[test]
fn requests_that_waited_are_answered_though_their_client_says_nothing_more() {
    for plain in [false, true] {
        let (server, kept) = keeping(ServerOptions { in_flight_max: 1, ..options() });
        let mut peer = if plain { Peer::plain(&server.path) } else { Peer::multiplexed(&server.path) };
        for id in 1..4 {
            if plain { peer.send_plain(b"keep") } else { peer.call(id, b"keep") }
        }
        let first = kept.recv().unwrap();
        peer.stream.shutdown(std::net::Shutdown::Write).unwrap();
        // Another client's answer: by then the end of this one was read.
        let mut other = Peer::plain(&server.path);
        other.send_plain(b"echo");
        assert_eq!(other.receive_plain(), b"echo");
        first.end(b"answer");
        for _ in 2..4 {
            kept.recv_timeout(Duration::from_secs(60)).expect("it was dropped").end(b"answer");
        }
        for id in 1..4 {
            if plain {
                assert_eq!(peer.receive_plain(), b"answer");
            } else {
                assert_eq!(peer.receive(), end(id, b"answer"));
            }
        }
        assert!(peer.rest().is_empty());
    }
}

#[test]
fn a_run_returns_only_when_every_reply_was_answered_or_dropped() {
    let (returned, returns) = channel();
    let (keeper, kept) = channel::<Reply>();
    let options = ServerOptions { drain_grace: Duration::ZERO, ..options() };
    let server = Running::start(options, "test.sock", move |server| {
        let outcome = server.serve(|_: Request<'_>, reply: Reply| keeper.send(reply).unwrap());
        returned.send(()).unwrap();
        outcome
    });
    let mut peer = Peer::plain(&server.path);
    (0..2).for_each(|_| peer.send_plain(b""));
    let (first, second) = (kept.recv().unwrap(), kept.recv().unwrap());
    server.stopper.stop();
    // Its client is left when the grace is over, and its handlers are told; they are waited for all the same.
    eventually(|| first.is_cancelled() && second.is_cancelled());
    assert!(peer.rest().is_empty());
    drop(first);
    assert!(returns.recv_timeout(Duration::from_millis(50)).is_err());
    second.end(b"");
    returns.recv().unwrap();
}

#[test]
fn a_client_that_does_not_take_its_answer_is_left_after_the_grace() {
    let options = ServerOptions { drain_grace: Duration::from_millis(50), ..options() };
    let server = Running::with(options, "test.sock", |_: Request<'_>, reply: Reply| {
        reply.end(&vec![0; 8 << 20]);
    });
    let mut peer = Peer::plain(&server.path);
    peer.send_plain(b"");
    let mut length = [0; LENGTH_BYTES];
    peer.stream.read_exact(&mut length).unwrap();
    // It has begun to come, and nobody takes the rest.
    assert_eq!(server.stop().clients, 0);
}

#[test]
fn a_handler_may_wait_for_a_pool_of_its_own_that_waits_for_nothing_of_ours() {
    // As many calls as there are workers wait for jobs that come behind them.
    let (jobs, taken) = channel::<Box<dyn FnOnce() + Send>>();
    let taken = Arc::new(Mutex::new(taken));
    for _ in 0..2 {
        let taken = Arc::clone(&taken);
        std::thread::spawn(move || {
            loop {
                let Ok(job) = taken.lock().unwrap().recv() else { return };
                job();
            }
        });
    }
    let server = Running::new(move |request: Request<'_>, reply: Reply| {
        let (number, (told, hears)) = (request.frame[0], channel());
        jobs.send(Box::new(move || told.send(number).unwrap())).unwrap();
        // On the reactor's own thread: nobody should, and it must not deadlock.
        reply.end(&[hears.recv().unwrap()]);
    });
    let mut peer = Peer::plain(&server.path);
    (0..100).for_each(|number| peer.send_plain(&[number]));
    (0..100).for_each(|number| assert_eq!(peer.receive_plain(), [number]));
}

#[test]
fn a_server_that_is_dropped_tells_its_handlers_and_frees_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.sock");
    let endpoint: Endpoint = path.to_str().unwrap().parse().unwrap();
    let mut server = Server::bind(std::slice::from_ref(&endpoint), options()).unwrap();
    let again = Server::bind(std::slice::from_ref(&endpoint), options()).unwrap_err();
    assert_eq!(again.fault, Fault::AddressInUse, "{again}");
    for ending in ["sock", "shm"] {
        let nowhere = directory.path().join("run").join("test").with_extension(ending);
        let unmade = Server::bind(&[nowhere.to_str().unwrap().parse().unwrap()], options()).unwrap_err();
        assert_eq!(unmade.fault, Fault::BadArgument, "{unmade}");
        let wanted = format!("there is no directory {}: make it", directory.path().join("run").display());
        assert!(unmade.to_string().contains(&wanted), "{unmade}");
    }
    let mut peer = Peer::plain(&path);
    peer.send_plain(b"a");
    let mut incoming = None;
    while incoming.is_none() {
        server.turn(thalweg_service::Wait::Block).unwrap();
        incoming = server.next();
    }
    let reply = incoming.unwrap().reply;
    assert!(!reply.is_cancelled());
    drop(server);
    assert!(reply.is_cancelled());
    reply.end(b"to nobody");
    assert!(peer.rest().is_empty());
    Server::bind(&[endpoint], options()).unwrap();
}

#[test]
fn endpoints_take_no_clients_places() {
    let directory = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..20).map(|number| directory.path().join(format!("{number}.sock"))).collect();
    let endpoints: Vec<Endpoint> = paths.iter().cloned().map(Endpoint::Socket).collect();
    let mut server = Server::bind(&endpoints, ServerOptions { clients_max: 20, ..options() }).unwrap();
    let stopper = server.stopper();
    let running = std::thread::spawn(move || server.run(|request, response| response.extend(request)));
    let mut peers: Vec<Peer> = paths.iter().map(|path| Peer::plain(path)).collect();
    for peer in &mut peers {
        peer.send_plain(b"a");
        assert_eq!(peer.receive_plain(), b"a");
    }
    stopper.stop();
    running.join().unwrap().unwrap();
}

#[test]
fn what_cannot_be_bound_says_why() {
    let fault = |endpoints: &[Endpoint], options| Server::bind(endpoints, options).unwrap_err().fault;
    assert_eq!(fault(&[], options()), Fault::BadArgument);
    let twice = Server::bind(&[Endpoint::Stdio, Endpoint::Stdio], options()).unwrap_err();
    assert!(twice.fault == Fault::BadArgument && twice.to_string().contains("once"), "{twice}");
    let nowhere: Endpoint = "/nowhere/at/all.sock".parse().unwrap();
    assert_eq!(fault(std::slice::from_ref(&nowhere), options()), Fault::BadArgument);
    assert_eq!(fault(&[nowhere], ServerOptions { in_flight_max: 0, ..options() }), Fault::BadArgument);
    for none in ["a\0b.sock", "a\0b/c.sock"] {
        assert_eq!(fault(&[Endpoint::Socket(none.into())], options()), Fault::BadArgument, "{none:?}");
    }
    let long = Endpoint::Socket(format!("{}.sock", "x".repeat(200)).into());
    let refused = Server::bind(&[long], options()).unwrap_err();
    assert_eq!(refused.fault, Fault::BadArgument);
    assert!(refused.to_string().contains("107 bytes"), "{refused}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a file.sock");
    std::fs::write(&file, b"precious").unwrap();
    assert_eq!(fault(&[file.to_str().unwrap().parse().unwrap()], options()), Fault::BadArgument);
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

#[test]
fn a_stopped_server_refuses_what_stands_behind_too_long_a_request() {
    let (server, hears, lets_go) = holding(ServerOptions { frame_bytes_max: 1_024, ..options() });
    let mut peer = Peer::multiplexed(&server.path);
    peer.call(1, b"hold");
    hears.recv().unwrap();
    // A read in the middle of it brings nothing but what is passed over.
    peer.call(2, &[0; 150_000]);
    peer.call(3, b"late");
    server.stopper.stop();
    lets_go.send(()).unwrap();
    let mut ends: Vec<_> =
        (0..4).map(|_| peer.receive()).filter(|came| came.kind == FrameKind::End).collect();
    ends.sort_by_key(|end| end.id);
    let faults: Vec<_> = ends.iter().map(|end| (end.id, end.fault)).collect();
    assert_eq!(faults, [(1, None), (2, Some(Fault::FrameTooLarge)), (3, Some(Fault::Draining))]);
    assert!(peer.rest().is_empty());
}

const SERVES: &str = "THALWEG_TEST_SERVES";

/// Not a test of its own: what the next one starts in a process of its own, with that process's standard
/// streams.
#[test]
fn serves_standard_streams_when_told_to() {
    if std::env::var_os(SERVES).is_none() {
        return;
    }
    let mut server = Server::bind(&[Endpoint::Stdio], options()).unwrap();
    server.run(|request, response| response.extend(request.iter().rev())).unwrap();
    // Before the test harness says anything on the very same pipe.
    std::process::exit(0);
}

#[test]
fn one_client_on_standard_streams_is_served_until_it_ends() {
    for by_socket in [false, true] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "serves_standard_streams_when_told_to", "--nocapture", "--quiet"]);
        command.env(SERVES, "1").stderr(Stdio::null());
        let (mut input, mut output): (Box<dyn Write>, Box<dyn Read>);
        let mut child;
        if by_socket {
            let (ours, theirs) = UnixStream::pair().unwrap();
            command.stdin(std::os::fd::OwnedFd::from(theirs.try_clone().unwrap()));
            child = command.stdout(std::os::fd::OwnedFd::from(theirs)).spawn().unwrap();
            drop(command);
            (input, output) = (Box::new(ours.try_clone().unwrap()), Box::new(ours));
        } else {
            child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            input = Box::new(child.stdin.take().unwrap());
            output = Box::new(child.stdout.take().unwrap());
        }
        skip_banner(&mut output);
        for request in [&b"abc"[..], b"", &[7; 300_000]] {
            input.write_all(&(request.len() as u32).to_le_bytes()).unwrap();
            input.write_all(request).unwrap();
            let mut length = [0; LENGTH_BYTES];
            output.read_exact(&mut length).unwrap();
            let mut response = vec![0; u32::from_le_bytes(length) as usize];
            output.read_exact(&mut response).unwrap();
            assert!(response.iter().eq(request.iter().rev()));
        }
        drop((input, output));
        assert!(child.wait().unwrap().success());
    }
}

const WAITS: &str = "THALWEG_TEST_WAITS";

/// Not a test of its own: what the next one starts in a process of its own. It keeps the first of two
/// requests, so that the other waits, and ends well if it slept meanwhile.
#[test]
fn waits_with_standard_streams_when_told_to() {
    if std::env::var_os(WAITS).is_none() {
        return;
    }
    let options = ServerOptions { in_flight_max: 1, ..options() };
    let mut server = Server::bind(&[Endpoint::Stdio], options).unwrap();
    let kept = loop {
        server.turn(Wait::Block).unwrap();
        if let Some(incoming) = server.next() {
            break incoming.reply;
        }
    };
    let (until, mut turns) = (Instant::now() + Duration::from_millis(300), 0);
    while Instant::now() < until {
        server.turn(Wait::Until(until)).unwrap();
        assert!(server.next().is_none());
        turns += 1;
    }
    kept.end(b"one");
    server.run(|_, response| response.extend_from_slice(b"two")).unwrap();
    std::process::exit(i32::from(turns > 20));
}

#[test]
fn a_server_sleeps_while_a_client_on_pipes_waits_that_has_said_all_it_will() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "waits_with_standard_streams_when_told_to", "--nocapture", "--quiet"]);
    command.env(WAITS, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    input.write_all(b"\x01\0\0\0a\x01\0\0\0b").unwrap();
    drop(input);
    skip_banner(&mut output);
    let mut answers = Vec::new();
    output.read_to_end(&mut answers).unwrap();
    assert_eq!(answers, b"\x03\0\0\0one\x03\0\0\0two");
    assert!(child.wait().unwrap().success(), "it was told of the end again and again");
}

/// What the test harness of the child says before the test runs: up to the end of its line.
fn skip_banner(output: &mut impl Read) {
    let (mut byte, mut seen) = ([0], Vec::new());
    while !seen.ends_with(b"running 1 test\n") {
        output.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
}
