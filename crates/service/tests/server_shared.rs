//! Clients behind shared memory: many of them, full rings, and those that die.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod caller;

use caller::{Peer, Running, hello, options};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use thalweg_service::{
    CallOptions, Client, ClientOptions, Endpoint, Executor, Pool, Reply, Request, ServerOptions,
};
use thalweg_wire::frame::Hello;

fn echo(request: Request<'_>, reply: Reply) {
    reply.end(request.frame);
}

fn connect(server: &Running, ring_bytes: u32) -> Client {
    let endpoint: Endpoint = server.path.to_str().unwrap().parse().unwrap();
    let client =
        Client::connect(&endpoint, ClientOptions { ring_bytes, ..ClientOptions::default() }).unwrap();
    assert!(client.is_shared());
    client
}

fn call(client: &mut Client, request: &[u8]) -> Vec<u8> {
    let call = client.call(request, CallOptions::default()).unwrap();
    client.wait(call).unwrap().to_vec()
}

#[test]
fn calls_and_answers_larger_than_a_ring_flow_through_it() {
    let server = Running::with(options(), "test.shm", echo);
    let mut client = connect(&server, 4_096);
    for bytes in [0, 1, 4_000, 4_096, 5_000, 1 << 20] {
        let request: Vec<u8> = (0..bytes).map(|n: u32| (n % 251) as u8).collect();
        assert!(call(&mut client, &request) == request, "{bytes} bytes came back changed");
    }
}

#[test]
fn a_full_ring_of_answers_pauses_its_client_and_loses_nothing() {
    let options = ServerOptions { unsent_bytes_max: 4_096, ..options() };
    let server = Running::with(options, "test.shm", echo);
    let mut client = connect(&server, 4_096);
    let request = vec![3; 1_000];
    // Far more than both rings and the server's bound hold: the client reads while it writes.
    let calls: Vec<_> = (0..500).map(|_| client.call(&request, CallOptions::default()).unwrap()).collect();
    let mut other = connect(&server, 4_096);
    for _ in 0..100 {
        assert_eq!(call(&mut other, b"quick"), b"quick");
    }
    for call in calls {
        assert_eq!(client.wait(call).unwrap(), request);
    }
}

#[test]
fn answers_of_other_threads_reach_a_client_that_sleeps_and_one_that_is_up() {
    let pool = Pool::new(2);
    let server = Running::with(options(), "test.shm", move |request: Request<'_>, reply: Reply| {
        let frame = request.frame.to_vec();
        pool.execute(Box::new(move || {
            if frame == b"slow" {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            reply.end(&frame);
        }));
    });
    let mut client = connect(&server, 0);
    for round in 0..300 {
        let request: &[u8] = if round % 30 == 0 { b"slow" } else { b"fast" };
        assert_eq!(call(&mut client, request), request);
    }
    let calls: Vec<_> =
        (0..64_u32).map(|n| (n, client.call(&n.to_le_bytes(), CallOptions::default()).unwrap())).collect();
    for (number, call) in calls {
        assert_eq!(client.wait(call).unwrap(), number.to_le_bytes());
    }
}

/// A client at its bound has sent as much as is looked through ahead, so its ring is left alone; the server
/// sleeps until the call that holds it up ends, and has to hear of what comes after that.
#[test]
fn a_client_that_had_to_wait_is_heard_again_by_a_server_that_slept() {
    let pool = Pool::new(1);
    let options = ServerOptions { in_flight_max: 1, ..options() };
    let server = Running::with(options, "test.shm", move |request: Request<'_>, reply: Reply| {
        let first = request.frame[..1].to_vec();
        pool.execute(Box::new(move || {
            std::thread::sleep(std::time::Duration::from_millis(5));
            reply.end(&first);
        }));
    });
    let mut client = connect(&server, 1 << 20);
    for round in 0..10_u8 {
        let calls = [1, 2].map(|_| client.call(&vec![round; 70_000], CallOptions::default()).unwrap());
        for call in calls {
            assert_eq!(client.wait(call).unwrap(), [round]);
        }
        let deadline = Some(std::time::Duration::from_secs(60));
        let call = client.call(&[round], CallOptions { deadline, ..CallOptions::default() }).unwrap();
        assert_eq!(client.wait(call).unwrap(), [round], "nobody heard of it");
    }
}

#[test]
fn a_socket_may_go_over_to_shared_memory_or_not() {
    let server = Running::with(options(), "test.sock", echo);
    let endpoint: Endpoint = server.path.to_str().unwrap().parse().unwrap();
    for shared in [false, true] {
        let mut client =
            Client::connect(&endpoint, ClientOptions { shared, ..ClientOptions::default() }).unwrap();
        assert_eq!(client.is_shared(), shared);
        assert_eq!(call(&mut client, b"a"), b"a");
    }
}

#[test]
fn a_client_that_asks_for_rings_and_sends_before_the_welcome_gets_none() {
    let server = Running::with(options(), "test.sock", echo);
    let mut peer = Peer::plain(&server.path);
    let request = thalweg_wire::frame::Header::new(thalweg_wire::frame::FrameKind::Request, 1, 1).encode();
    let bytes = [&Hello { shared: true, ..hello() }.encode()[..], &request, b"a"].concat();
    std::io::Write::write_all(&mut peer.stream, &bytes).unwrap();
    let mut welcome = [0; thalweg_wire::frame::HELLO_BYTES];
    std::io::Read::read_exact(&mut peer.stream, &mut welcome).unwrap();
    let welcome = thalweg_wire::frame::Welcome::decode(&welcome).unwrap().unwrap();
    assert_eq!((welcome.fault, welcome.ring_bytes), (0, 0));
    assert_eq!(peer.receive(), caller::end(1, b"a"));
}

#[test]
fn what_a_client_asked_before_it_left_is_handled() {
    let (told, hears) = channel();
    let server = Running::with(options(), "test.shm", move |request: Request<'_>, reply: Reply| {
        told.send(request.frame.to_vec()).unwrap();
        reply.end(b"");
    });
    for round in 0..50_u32 {
        let mut client = connect(&server, 4_096);
        for part in 0..20 {
            client.call(&(round * 20 + part).to_le_bytes(), CallOptions::default()).unwrap();
        }
        client.flush().unwrap();
        drop(client);
    }
    let mut numbers: Vec<u32> =
        (0..1_000).map(|_| u32::from_le_bytes(hears.recv().unwrap().try_into().unwrap())).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..1_000));
}

#[test]
fn what_a_client_asked_behind_too_long_a_request_before_it_left_is_handled() {
    let (told, hears) = channel();
    let (lets_go, held) = channel();
    let options = ServerOptions { frame_bytes_max: 1_024, ..options() };
    let server = Running::with(options, "test.shm", move |request: Request<'_>, reply: Reply| {
        told.send(request.frame.to_vec()).unwrap();
        if request.frame == b"hold" {
            held.recv().unwrap();
        }
        reply.end(b"");
    });
    let mut client = connect(&server, 1 << 20);
    let mut say = |request: &[u8]| {
        client.call(request, CallOptions::default()).unwrap();
        client.flush().unwrap();
    };
    say(b"hold");
    assert_eq!(hears.recv().unwrap(), b"hold");
    // Many reads bring nothing but what is passed over.
    say(&[0; 600_000]);
    say(b"last");
    drop(client);
    lets_go.send(()).unwrap();
    let heard = hears.recv_timeout(std::time::Duration::from_secs(60));
    assert_eq!(heard.as_deref(), Ok(&b"last"[..]));
}

const CLIENTS: usize = 1_000;

#[test]
fn a_thousand_clients_with_small_rings_are_served_and_leave_nothing_behind() {
    thalweg_sys::process::raise_descriptors_max(20_000).unwrap();
    let server = Running::with(options(), "test.shm", echo);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| connect(&server, 65_536)).collect();
    for round in 0..3_usize {
        // All of them have a call under way at once.
        let calls: Vec<_> = clients
            .iter_mut()
            .enumerate()
            .map(|(n, client)| {
                let call = client.call(&(n * 3 + round).to_le_bytes(), CallOptions::default()).unwrap();
                client.flush().unwrap();
                call
            })
            .collect();
        for (n, (client, call)) in clients.iter_mut().zip(calls).enumerate() {
            assert_eq!(client.wait(call).unwrap(), (n * 3 + round).to_le_bytes());
        }
    }
    drop(clients);
    let statistics = server.stop();
    assert_eq!((statistics.clients, statistics.shared_clients), (0, 0));
    assert_eq!(statistics.requests, 3 * CLIENTS as u64);
}

const CALLS: &str = "THALWEG_TEST_CALLS";

/// Not a test of its own: what the next one starts in a process of its own, and kills.
#[test]
fn calls_and_hangs_when_told_to() {
    let Some(path) = std::env::var_os(CALLS) else { return };
    let endpoint: Endpoint = path.to_str().unwrap().parse().unwrap();
    let mut client = Client::connect(&endpoint, ClientOptions::default()).unwrap();
    assert_eq!(call(&mut client, b"here"), b"here");
    let _unanswered = client.call(b"keep", CallOptions::default()).unwrap();
    client.flush().unwrap();
    println!("connected");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_killed_clients_place_is_free_and_its_calls_are_told() {
    let kept: Arc<Mutex<Vec<Reply>>> = Arc::default();
    let keeper = Arc::clone(&kept);
    let (told, hears) = channel();
    let options = ServerOptions { clients_max: 1, ..options() };
    let server = Running::with(options, "test.shm", move |request: Request<'_>, reply: Reply| {
        if request.frame == b"keep" {
            keeper.lock().unwrap().push(reply);
            told.send(()).unwrap();
        } else {
            reply.end(request.frame);
        }
    });
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "calls_and_hangs_when_told_to", "--nocapture", "--quiet"]);
    let mut child = command.env(CALLS, &server.path).stdout(Stdio::piped()).spawn().unwrap();
    hears.recv().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("connected")));
    // There is one place, and the child has it: who comes next is in only because the child is gone.
    let endpoint: Endpoint = server.path.to_str().unwrap().parse().unwrap();
    let next = std::thread::spawn(move || {
        let mut client = Client::connect(&endpoint, ClientOptions::default()).unwrap();
        call(&mut client, b"next")
    });
    assert!(!kept.lock().unwrap()[0].is_cancelled());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(next.join().unwrap(), b"next");
    assert!(kept.lock().unwrap()[0].is_cancelled(), "its call's handler was told");
    kept.lock().unwrap().clear();
}
