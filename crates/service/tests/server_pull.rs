//! A server inside a loop of somebody else's: its descriptor, turns, and asking for what came.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod caller;

use caller::{Peer, end, options};
use std::path::PathBuf;
use thalweg_service::{
    CallOptions, Client, ClientOptions, Endpoint, Incoming, Reply, Server, ServerOptions, Wait,
};
use thalweg_sys::epoll::wait_readable;
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{FrameKind, Header};

struct Embedded {
    server: Server,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Embedded {
    fn new(name: &str, options: ServerOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        let endpoint: Endpoint = path.to_str().unwrap().parse().unwrap();
        let mut server = Server::bind(&[endpoint], options).unwrap();
        server.turn(Wait::Poll).unwrap();
        Self { server, path, _directory: directory }
    }

    /// What a foreign loop does: waits for the descriptor, takes a turn, takes what came.
    fn round(&mut self, mut take: impl FnMut(Incoming)) {
        assert!(wait_readable(self.server.descriptor(), 30_000).unwrap(), "the loop was told nothing");
        self.server.turn(Wait::Poll).unwrap();
        while let Some(incoming) = self.server.next() {
            take(incoming);
        }
    }

    fn is_quiet(&self) -> bool {
        !wait_readable(self.server.descriptor(), 0).unwrap()
    }
}

#[test]
fn requests_are_asked_for_and_answers_leave_with_the_last_of_them() {
    let mut embedded = Embedded::new("test.sock", options());
    let path = embedded.path.clone();
    let client = std::thread::spawn(move || {
        let mut peer = Peer::multiplexed(&path);
        for id in 0..100 {
            peer.call(id, &[id as u8]);
            assert_eq!(peer.receive(), end(id, &[id as u8]));
        }
    });
    let mut taken = 0;
    while taken < 100 {
        embedded.round(|incoming| {
            taken += 1;
            let frame = incoming.request;
            incoming.reply.end(&frame);
        });
    }
    client.join().unwrap();
}

#[test]
fn the_descriptor_is_silent_while_there_is_nothing_and_speaks_for_answers_of_others() {
    let mut embedded = Embedded::new("test.sock", options());
    let mut peer = greeted(&mut embedded);
    peer.call(1, b"a");
    let mut kept: Vec<Reply> = Vec::new();
    while kept.is_empty() {
        embedded.round(|incoming| kept.push(incoming.reply));
    }
    assert!(embedded.is_quiet(), "nothing is to be done until there is an answer");
    let answers = std::thread::spawn(move || kept.pop().unwrap().end(b"b"));
    embedded.round(|_| panic!("nobody asked"));
    answers.join().unwrap();
    assert_eq!(peer.receive(), end(1, b"b"));
}

/// A client whose greeting is through: it needs the server's turns.
fn greeted(embedded: &mut Embedded) -> Peer {
    let path = embedded.path.clone();
    let greeting = std::thread::spawn(move || {
        let mut peer = Peer::multiplexed(&path);
        peer.call(0, b"greeting");
        assert_eq!(peer.receive(), end(0, b"greeting"));
        peer
    });
    let mut answered = false;
    while !answered {
        embedded.round(|incoming| {
            incoming.reply.end(b"greeting");
            answered = true;
        });
    }
    greeting.join().unwrap()
}

#[test]
fn what_is_cancelled_or_overdue_before_it_is_asked_for_is_not_handed_out() {
    let mut embedded = Embedded::new("test.sock", options());
    let mut peer = greeted(&mut embedded);
    peer.call(1, b"cancelled");
    peer.cancel(1);
    peer.send(Header { deadline_ms: 1, ..Header::new(FrameKind::Request, 2, 0) }, b"overdue");
    peer.call(3, b"wanted");
    let mut turns = 0;
    while embedded.server.statistics().answers < 3 {
        // Turns alone: nothing is asked for until both have ended.
        embedded.server.turn(Wait::Block).unwrap();
        turns += 1;
        assert!(turns < 1_000);
    }
    let mut taken = Vec::new();
    while let Some(incoming) = embedded.server.next() {
        taken.push(incoming.request.clone());
        incoming.reply.end(b"yes");
    }
    assert_eq!(taken, [b"wanted".to_vec()]);
    embedded.server.turn(Wait::Poll).unwrap();
    assert_eq!(embedded.server.next().map(|incoming| incoming.request), None);
    let (first, second) = (peer.receive(), peer.receive());
    assert_eq!((first.id, first.fault), (1, Some(Fault::Cancelled)));
    assert_eq!((second.id, second.fault), (2, Some(Fault::DeadlineExceeded)));
    assert_eq!(peer.receive(), end(3, b"yes"));
    assert_eq!(embedded.server.statistics().in_flight, 0);
}

#[test]
fn rings_ring_while_a_foreign_loop_has_the_thread() {
    let mut embedded = Embedded::new("test.shm", options());
    let endpoint: Endpoint = embedded.path.to_str().unwrap().parse().unwrap();
    let client = std::thread::spawn(move || {
        let mut client = Client::connect(&endpoint, ClientOptions::default()).unwrap();
        assert!(client.is_shared());
        for number in 0..200_u32 {
            let call = client.call(&number.to_le_bytes(), CallOptions::default()).unwrap();
            assert_eq!(client.wait(call).unwrap(), number.to_le_bytes());
        }
    });
    let mut taken = 0;
    while taken < 200 {
        embedded.round(|incoming| {
            taken += 1;
            let frame = incoming.request;
            incoming.reply.end(&frame);
        });
    }
    client.join().unwrap();
}

#[test]
fn a_ring_while_requests_are_asked_for_is_not_the_last_one_heard() {
    let mut embedded = Embedded::new("test.sock", options());
    let mut peer = greeted(&mut embedded);
    let notifier = embedded.server.notifier();
    for id in 1..=3 {
        peer.call(id, b"x");
        assert!(wait_readable(embedded.server.descriptor(), 30_000).unwrap());
        embedded.server.turn(Wait::Poll).unwrap();
        notifier.notify();
        while let Some(incoming) = embedded.server.next() {
            incoming.reply.end(b"y");
        }
        assert_eq!(peer.receive(), end(id, b"y"));
    }
    while !embedded.is_quiet() {
        embedded.round(drop);
    }
    notifier.notify();
    assert!(!embedded.is_quiet(), "nobody is told of it");
}

#[test]
fn turns_count_what_they_read_from_a_ring_until_it_is_empty() {
    let mut embedded = Embedded::new("test.shm", options());
    let endpoint: Endpoint = embedded.path.to_str().unwrap().parse().unwrap();
    let mut client = Client::begin(&endpoint, ClientOptions::default()).unwrap();
    while !client.is_connected() {
        embedded.server.turn(Wait::Poll).unwrap();
        client.turn(Wait::Poll).unwrap();
    }
    // Far more than one read takes, and a last word behind it.
    let kept = client.call(b"kept", CallOptions::default()).unwrap();
    client.flush().unwrap();
    let mut incoming = None;
    embedded.round(|came| incoming = Some(came));
    let incoming = incoming.unwrap();
    client.call(&vec![7; 1 << 20], CallOptions::default()).unwrap();
    client.cancel(kept);
    client.flush().unwrap();
    assert!(!client.has_unsent());
    let turns = (0..1_000).take_while(|_| embedded.server.turn(Wait::Poll).unwrap() > 0).count();
    assert!((2..1_000).contains(&turns), "{turns} turns");
    assert!(incoming.reply.is_cancelled());
}

#[test]
fn a_stop_is_taken_in_turns_too() {
    let mut embedded = Embedded::new("test.sock", options());
    let mut peer = greeted(&mut embedded);
    peer.call(1, b"last");
    let mut kept = Vec::new();
    while kept.is_empty() {
        embedded.round(|incoming| kept.push(incoming.reply));
    }
    embedded.server.stopper().stop();
    embedded.round(|_| panic!("nobody asked"));
    assert!(!embedded.server.is_stopped());
    kept.pop().unwrap().end(b"answer");
    while !embedded.server.is_stopped() {
        embedded.round(|_| panic!("nobody asked"));
    }
    assert_eq!(peer.receive().kind, FrameKind::Goodbye);
    assert_eq!(peer.receive(), end(1, b"answer"));
    assert!(peer.rest().is_empty());
}

#[test]
fn a_drain_that_ends_with_the_answers_behind_a_turn_is_told() {
    let mut embedded = Embedded::new("test.sock", options());
    let mut peer = greeted(&mut embedded);
    // One turn brings both.
    peer.call(1, b"last");
    embedded.server.stopper().stop();
    let mut taken = 0;
    embedded.round(|incoming| {
        taken += 1;
        incoming.reply.end(b"answer");
    });
    assert_eq!(taken, 1);
    assert!(embedded.server.is_stopped(), "everything was answered, and the client is gone");
    // A loop that asks behind turns has one to take; behind that there is nothing more.
    embedded.round(|_| panic!("nobody asked"));
    assert!(embedded.server.is_stopped() && embedded.is_quiet());
    assert_eq!(peer.receive().kind, FrameKind::Goodbye);
    assert_eq!(peer.receive(), end(1, b"answer"));
    assert!(peer.rest().is_empty());
}

#[test]
fn a_foreign_loop_is_told_when_the_grace_of_a_drain_is_over() {
    let options = ServerOptions { drain_grace: std::time::Duration::from_millis(20), ..options() };
    let mut embedded = Embedded::new("test.sock", options);
    let mut peer = greeted(&mut embedded);
    peer.call(1, b"kept");
    let mut kept: Vec<Reply> = Vec::new();
    while kept.is_empty() {
        embedded.round(|incoming| kept.push(incoming.reply));
    }
    embedded.server.stopper().stop();
    // Nothing else happens that could wake the loop: neither the client nor the handler does anything.
    while !kept[0].is_cancelled() {
        embedded.round(|_| panic!("a server that ends takes nothing"));
    }
    assert!(!embedded.server.is_stopped(), "a handler is waited for without a limit");
    kept.clear();
    while !embedded.server.is_stopped() {
        embedded.round(|_| panic!("a server that ends takes nothing"));
    }
}

#[test]
fn bytes_in_flight_are_counted_until_their_handlers_end_them_or_their_client_goes() {
    let Embedded { mut server, path, _directory } = Embedded::new("test.sock", options());
    let endpoint = path.to_str().unwrap().parse().unwrap();
    let mut client = Client::begin(&endpoint, ClientOptions::default()).unwrap();
    let calls: Vec<_> = (0..3).map(|_| client.call(&[7; 1_000], CallOptions::default()).unwrap()).collect();
    let mut taken = vec![];
    let mut until = |client: &mut Option<Client>, holds: &dyn Fn(&Server, &[Incoming]) -> bool| {
        while !holds(&server, &taken) {
            if let Some(client) = client {
                client.turn(Wait::Poll).unwrap();
            }
            server.turn(Wait::Poll).unwrap();
            taken.extend(std::iter::from_fn(|| server.next()));
        }
        (server.statistics().in_flight_bytes, std::mem::take(&mut taken))
    };
    client.flush().unwrap();
    let mut client = Some(client);
    let (bytes, mut incoming) = until(&mut client, &|_, taken| taken.len() == 3);
    assert_eq!(bytes, 3_000);
    client.as_mut().unwrap().cancel(calls[0]);
    let cancelled = incoming.remove(0).reply;
    let (bytes, _) = until(&mut client, &|_, _| cancelled.is_cancelled());
    assert_eq!(bytes, 3_000, "its handler has it");
    drop(cancelled);
    let (bytes, _) = until(&mut client, &|server, _| server.statistics().in_flight == 2);
    assert_eq!(bytes, 2_000);
    incoming.remove(0).reply.end(b"");
    let (bytes, _) = until(&mut client, &|server, _| server.statistics().in_flight == 1);
    assert_eq!(bytes, 1_000);
    client = None;
    let (bytes, _) = until(&mut client, &|server, _| server.statistics().clients == 0);
    assert_eq!(bytes, 0);
}
