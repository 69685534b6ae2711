//! How a client's connection comes about against a peer that is written out by hand, and what it says when it
//! does not.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod peer;

use peer::{Peer, Way, echo, options, serve, serve_times};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};
use thalweg_reactor::Wait;
use thalweg_service::{CallId, CallOptions, Client, ClientOptions, Error, Reconnect};
use thalweg_transport::Endpoint;
use thalweg_wire::fault::{Fault, Retry};

const WAYS: [Way; 3] = [Way::Plain, Way::Multiplexed, Way::Shared];

fn call(client: &mut Client, request: &[u8]) -> CallId {
    client.call(request, CallOptions::default()).unwrap()
}

fn fault(outcome: Result<&[u8], Error>) -> Fault {
    outcome.unwrap_err().fault
}

#[test]
fn a_client_that_may_connects_anew_for_the_next_call() {
    for way in WAYS {
        let (endpoint, _peer) = serve_times(3, way, |peer| {
            let request = peer.request();
            peer.end(&request.header, &request.payload);
            peer.request();
        });
        let reconnect =
            Reconnect::Backoff { first: Duration::from_millis(1), most: Duration::from_millis(20) };
        let mut client = Client::connect(&endpoint, ClientOptions { reconnect, ..options(way) }).unwrap();
        for _ in 0..3 {
            let id = call(&mut client, b"once");
            assert_eq!(client.wait(id).unwrap(), b"once", "{way:?}");
            let id = call(&mut client, b"twice");
            assert_eq!(fault(client.wait(id)), Fault::Disconnected, "{way:?}");
        }
    }
}

#[test]
fn a_foreign_loop_connects_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("late.sock");
    let endpoint = Endpoint::Socket(path);
    let mut client = Client::begin(&endpoint, options(Way::Multiplexed)).unwrap();
    let id = call(&mut client, b"early");
    client.turn(Wait::Poll).unwrap();
    client.descriptor().unwrap();
    assert!(!client.is_connected());
    let _peer = peer::serve_at(&endpoint, 1, Way::Multiplexed, echo);
    loop {
        if let Some(event) = client.next() {
            assert_eq!((event.call, event.frame), (id, &b"early"[..]));
            break;
        }
        assert!(thalweg_sys::epoll::wait_readable(client.descriptor().unwrap(), 60_000).unwrap());
        client.turn(Wait::Poll).unwrap();
    }
}

#[test]
fn calls_that_waited_for_a_connection_in_vain_say_why_and_the_next_tries_again() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::Socket(directory.path().join("nobody.sock"));
    let reconnect = Reconnect::Backoff { first: Duration::from_millis(1), most: Duration::from_millis(5) };
    let connect_within = Duration::from_millis(20);
    let again = ClientOptions { reconnect, connect_within, ..options(Way::Multiplexed) };
    let mut client = Client::begin(&endpoint, again).unwrap();
    client.descriptor().unwrap();
    for _ in 0..2 {
        let calls = [b"a", b"b"].map(|request| call(&mut client, request));
        client.turn(Wait::Poll).unwrap();
        while client.failure().is_none() {
            assert!(thalweg_sys::epoll::wait_readable(client.descriptor().unwrap(), 60_000).unwrap());
            client.turn(Wait::Poll).unwrap();
        }
        assert_eq!(calls.map(|id| fault(client.wait(id))), [Fault::NoServer; 2]);
    }
    let _peer = peer::serve_at(&endpoint, 1_000, Way::Multiplexed, echo);
    // An attempt is as short as those in vain, and where the machine stalls another follows it.
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let id = call(&mut client, b"at last");
        match client.wait(id) {
            Ok(answer) => break assert_eq!(answer, b"at last"),
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    }

    let mut never = Client::begin(
        &Endpoint::Socket(directory.path().join("nothing.sock")),
        ClientOptions { connect_within, ..options(Way::Multiplexed) },
    )
    .unwrap();
    let id = call(&mut never, b"a");
    assert_eq!(fault(never.wait(id)), Fault::NoServer);
    assert_eq!(never.call(b"b", CallOptions::default()).unwrap_err().fault, Fault::NoServer);
}

#[test]
fn a_connection_that_does_not_come_about_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let soon = |way| ClientOptions { connect_within: Duration::from_millis(30), ..options(way) };
    let connect = |endpoint: &Endpoint, options| Client::connect(endpoint, options).unwrap_err();
    let path = |name: &str| directory.path().join(name);

    let nothing = Endpoint::Socket(path("nothing.sock"));
    let error = connect(&nothing, soon(Way::Plain));
    assert_eq!((error.fault, error.retry()), (Fault::NoServer, Retry::Safe));
    assert!(error.to_string().contains("nothing.sock"), "{error}");

    drop(UnixListener::bind(path("stale.sock")).unwrap());
    assert_eq!(connect(&Endpoint::Socket(path("stale.sock")), soon(Way::Plain)).fault, Fault::NoServer);

    let silent = UnixListener::bind(path("silent.sock")).unwrap();
    let error = connect(&Endpoint::Socket(path("silent.sock")), soon(Way::Multiplexed));
    assert_eq!(error.fault, Fault::ConnectTimeout, "it is connected to and says nothing");
    drop(silent);

    let long = Endpoint::Socket(path(&format!("{}.sock", "x".repeat(200))));
    assert_eq!(connect(&long, soon(Way::Plain)).fault, Fault::BadArgument);

    let plain = Endpoint::Shared(path("plain.shm"));
    assert_eq!(connect(&plain, soon(Way::Plain)).fault, Fault::BadArgument);
    let none = ClientOptions { in_flight_max: 0, ..soon(Way::Plain) };
    assert_eq!(connect(&nothing, none).fault, Fault::BadArgument);
}

#[test]
fn who_tries_once_is_greeted_all_the_same() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, echo);
        let once = ClientOptions { connect_within: Duration::ZERO, ..options(way) };
        let mut client = Client::connect(&endpoint, once).unwrap();
        let id = call(&mut client, b"hello");
        assert_eq!(client.wait(id).unwrap(), b"hello", "{way:?}");
    }
    let (ours, theirs) = UnixStream::pair().unwrap();
    let peer = std::thread::spawn(move || echo(&mut Peer::over(theirs, Way::Multiplexed)));
    let once = ClientOptions { connect_within: Duration::ZERO, ..options(Way::Multiplexed) };
    let mut client = Client::over(OwnedFd::from(ours), once).unwrap();
    let id = call(&mut client, b"hello");
    assert_eq!(client.wait(id).unwrap(), b"hello");
    client.close();
    peer.join().unwrap();
}

#[test]
fn a_path_that_may_not_be_used_says_so_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("forbidden.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    let outcome = Client::connect(&Endpoint::Socket(path.clone()), options(Way::Plain));
    // The superuser may use what nobody may.
    if UnixStream::connect(&path).is_err() {
        assert_eq!(outcome.unwrap_err().fault, Fault::PermissionDenied);
    }
}

#[test]
fn a_path_that_none_can_have_is_told_from_one_that_is_too_long() {
    for (path, why) in
        [("a\0b.sock".to_owned(), "zero byte"), (format!("{}.sock", "x".repeat(200)), "107 bytes")]
    {
        let refused = Client::connect(&Endpoint::Socket(path.into()), ClientOptions::default()).unwrap_err();
        assert_eq!(refused.fault, Fault::BadArgument);
        assert!(refused.detail.contains(why), "{refused}");
    }
}

#[test]
fn a_full_backlog_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("full.sock");
    let listener = UnixListener::from(thalweg_sys::socket::listen_unix(&path, 1).unwrap());
    let endpoint = Endpoint::Socket(path.clone());
    let mut waiting = Vec::new();
    while let Ok(socket) = thalweg_sys::socket::connect_unix(&path) {
        waiting.push(socket);
    }
    let soon = ClientOptions { connect_within: Duration::from_millis(30), ..options(Way::Plain) };
    assert_eq!(Client::connect(&endpoint, soon).unwrap_err().fault, Fault::ConnectTimeout);
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| Client::connect(&endpoint, options(Way::Plain)).map(drop));
        listener.set_nonblocking(false).unwrap();
        let accepted: Vec<_> = (0..=waiting.len()).map(|_| listener.accept().unwrap()).collect();
        connecting.join().unwrap().unwrap();
        drop(accepted);
    });
}

#[test]
fn a_refusal_at_the_door_is_the_fault_it_names() {
    for refusal in [Fault::SchemaMismatch, Fault::NoSharedMemory, Fault::VersionMismatch] {
        let (endpoint, _peer) = peer::refuse(refusal);
        let error = Client::connect(&endpoint, options(Way::Multiplexed)).unwrap_err();
        assert_eq!(error.fault, refusal);
        assert!(error.detail.contains(&endpoint.to_string()));
        if refusal == Fault::SchemaMismatch {
            assert!(error.detail.contains("00000000…") && error.detail.contains("07070707…"), "{error}");
        }
    }
}

#[test]
fn a_client_that_was_closed_says_so() {
    for way in WAYS {
        let (endpoint, _peer) = serve(way, echo);
        let mut client = Client::connect(&endpoint, options(way)).unwrap();
        let left = call(&mut client, b"a");
        client.flush().unwrap();
        let unsent = call(&mut client, b"b");
        client.close();
        assert_eq!(fault(client.wait(left)), Fault::Disconnected);
        assert_eq!(fault(client.wait(unsent)), Fault::NotSent);
        assert_eq!(client.call(b"c", CallOptions::default()).unwrap_err().fault, Fault::Closed);
    }
}

#[test]
fn a_pair_of_sockets_is_enough() {
    for way in WAYS {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let peer = std::thread::spawn(move || echo(&mut Peer::over(theirs, way)));
        let options = ClientOptions { shared: way == Way::Shared, ..options(way) };
        let mut client = Client::over(OwnedFd::from(ours), options).unwrap();
        let id = call(&mut client, b"hello");
        assert_eq!(client.wait(id).unwrap(), b"hello");
        client.close();
        peer.join().unwrap();
    }
    let file = || OwnedFd::from(tempfile::tempfile().unwrap());
    for way in [Way::Multiplexed, Way::Plain] {
        assert!(Client::over(file(), options(way)).is_err(), "a file is no connection");
    }
}
