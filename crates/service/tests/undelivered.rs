//! A handler that is told of clients that have not read what they were answered: they gave the call up, or
//! are gone.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use thalweg_service::{
    CallOptions, Client, ClientId, ClientOptions, Endpoint, Handler, Reply, Request, Server, ServerOptions,
};
use thalweg_wire::fault::Fault;

/// More than any socket or ring holds.
const LONG_BYTES: usize = 12 << 20;

/// Answers with who asked, but what it is to keep, and with much if it is asked for that.
struct Notes {
    undelivered: Sender<ClientId>,
    kept: Vec<Reply>,
}

impl Handler for Notes {
    fn request(&mut self, request: Request<'_>, reply: Reply) {
        match request.frame {
            b"keep" => self.kept.push(reply),
            b"long" => reply.end(&vec![0; LONG_BYTES]),
            _ => reply.end(&request.client.number().to_le_bytes()),
        }
    }

    fn undelivered(&mut self, client: ClientId) {
        // A server that ends waits for what its handler keeps.
        self.kept.clear();
        self.undelivered.send(client).unwrap();
    }
}

/// Asks who it is.
fn name(client: &mut Client) -> u64 {
    let call = client.call(b"who", CallOptions::default()).unwrap();
    let answer = client.wait(call).unwrap();
    u64::from_le_bytes(answer.try_into().unwrap())
}

/// Has a request sent, and reads nothing.
fn send(client: &mut Client, request: &[u8]) {
    client.call(request, CallOptions::default()).unwrap();
    client.flush().unwrap();
}

#[test]
fn who_goes_without_having_read_is_told_of_and_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    for file in ["notes.sock", "notes.shm"] {
        let endpoint: Endpoint = directory.path().join(file).to_str().unwrap().parse().unwrap();
        let mut server = Server::bind(std::slice::from_ref(&endpoint), ServerOptions::default()).unwrap();
        let stopper = server.stopper();
        let (sender, undelivered) = channel();
        let running = std::thread::spawn(move || server.serve(Notes { undelivered: sender, kept: vec![] }));
        let connect = || Client::connect(&endpoint, ClientOptions::default()).unwrap();
        let told = || undelivered.recv_timeout(Duration::from_secs(60)).unwrap().number();
        let mut witness = connect();
        // What it asked was answered, and read.
        name(&mut connect());
        // Answered, by the time that somebody else was twice; not read.
        let mut deaf = connect();
        let deaf_name = name(&mut deaf);
        send(&mut deaf, b"again");
        let witness_name = (name(&mut witness), name(&mut witness)).1;
        drop(deaf);
        assert_eq!(told(), deaf_name, "{file}");
        // Never answered.
        let mut hasty = connect();
        let hasty_name = name(&mut hasty);
        send(&mut hasty, b"keep");
        drop(hasty);
        assert_eq!(told(), hasty_name, "{file}");
        assert_eq!(name(&mut witness), witness_name);
        assert!(undelivered.try_recv().is_err(), "{file}: nobody else is told of");
        stopper.stop();
        drop(witness);
        running.join().unwrap().unwrap();
    }
}

#[test]
fn who_has_not_read_when_a_drain_ends_is_told_of() {
    let directory = tempfile::tempdir().unwrap();
    for file in ["notes.sock", "notes.shm"] {
        let endpoint: Endpoint = directory.path().join(file).to_str().unwrap().parse().unwrap();
        let options = ServerOptions { drain_grace: Duration::from_millis(50), ..ServerOptions::default() };
        let mut server = Server::bind(std::slice::from_ref(&endpoint), options).unwrap();
        let stopper = server.stopper();
        let (sender, undelivered) = channel();
        let running = std::thread::spawn(move || server.serve(Notes { undelivered: sender, kept: vec![] }));
        let mut deaf = Client::connect(&endpoint, ClientOptions::default()).unwrap();
        let deaf_name = name(&mut deaf);
        send(&mut deaf, b"long");
        // It was answered by the time that somebody else was twice.
        let mut witness = Client::connect(&endpoint, ClientOptions::default()).unwrap();
        name(&mut witness);
        name(&mut witness);
        drop(witness);
        stopper.stop();
        running.join().unwrap().unwrap();
        let told: Vec<u64> = undelivered.iter().map(ClientId::number).collect();
        assert_eq!(told, [deaf_name], "{file}");
    }
}

/// Answers what it is asked, and a request in particular only when it is told to go on.
struct Held {
    undelivered: Sender<ClientId>,
    begun: Sender<()>,
    go_on: Receiver<()>,
}

impl Handler for Held {
    fn request(&mut self, request: Request<'_>, reply: Reply) {
        if request.frame == b"held" {
            self.begun.send(()).unwrap();
            self.go_on.recv().unwrap();
        }
        reply.end(&request.client.number().to_le_bytes());
    }

    fn undelivered(&mut self, client: ClientId) {
        self.undelivered.send(client).unwrap();
    }
}

#[test]
fn who_read_all_and_goes_when_a_drain_begins_is_not_told_of() {
    let directory = tempfile::tempdir().unwrap();
    for file in ["notes.sock", "notes.shm"] {
        let endpoint: Endpoint = directory.path().join(file).to_str().unwrap().parse().unwrap();
        let mut server = Server::bind(std::slice::from_ref(&endpoint), ServerOptions::default()).unwrap();
        let stopper = server.stopper();
        let ((told, undelivered), (started, begun), (go, go_on)) = (channel(), channel(), channel());
        let handler = Held { undelivered: told, begun: started, go_on };
        let running = std::thread::spawn(move || server.serve(handler));
        let mut goes = Client::connect(&endpoint, ClientOptions::default()).unwrap();
        let mut stays = Client::connect(&endpoint, ClientOptions::default()).unwrap();
        let goes_name = name(&mut goes);
        let held = stays.call(b"held", CallOptions::default()).unwrap();
        stays.flush().unwrap();
        begun.recv().unwrap();
        // The server finds both in one turn.
        drop(goes);
        stopper.stop();
        go.send(()).unwrap();
        stays.wait(held).unwrap();
        drop(stays);
        running.join().unwrap().unwrap();
        assert!(undelivered.iter().all(|client| client.number() != goes_name), "{file}");
    }
}

/// What a handler heard, in its order.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Request(ClientId, u64),
    /// Whether the call is in flight, and its reply says that nobody wants it.
    GivenUp(ClientId, u64, Option<bool>),
}

/// Answers at once, but what it is to keep until it is given up.
struct Listener {
    heard: Sender<Heard>,
    kept: Vec<(u64, Reply)>,
}

impl Handler for Listener {
    fn request(&mut self, request: Request<'_>, reply: Reply) {
        self.heard.send(Heard::Request(request.client, request.call)).unwrap();
        match request.frame {
            b"keep" => self.kept.push((request.call, reply)),
            _ => reply.end(b"answer"),
        }
    }

    fn given_up(&mut self, client: ClientId, call: u64) {
        let kept = self.kept.iter().position(|(kept, _)| *kept == call);
        let is_cancelled = kept.map(|at| self.kept.remove(at).1.is_cancelled());
        self.heard.send(Heard::GivenUp(client, call, is_cancelled)).unwrap();
    }
}

/// A server whose handler says what it hears, for one test with one client.
fn listened(test: impl Fn(&str, &mut Client, &Receiver<Heard>)) {
    let directory = tempfile::tempdir().unwrap();
    for file in ["listener.sock", "listener.shm"] {
        let endpoint: Endpoint = directory.path().join(file).to_str().unwrap().parse().unwrap();
        let mut server = Server::bind(std::slice::from_ref(&endpoint), ServerOptions::default()).unwrap();
        let stopper = server.stopper();
        let (sender, heard) = channel();
        let running = std::thread::spawn(move || server.serve(Listener { heard: sender, kept: vec![] }));
        let mut client = Client::connect(&endpoint, ClientOptions::default()).unwrap();
        test(file, &mut client, &heard);
        drop(client);
        stopper.stop();
        running.join().unwrap().unwrap();
    }
}

fn next(heard: &Receiver<Heard>) -> Heard {
    heard.recv_timeout(Duration::from_secs(60)).unwrap()
}

#[test]
fn a_handler_is_told_of_what_is_given_up_behind_its_answer_before_the_next_request() {
    listened(|file, client, heard| {
        let answered = client.call(b"now", CallOptions::default()).unwrap();
        client.flush().unwrap();
        let Heard::Request(name, call) = next(heard) else { panic!("{file}") };
        assert_eq!(call, answered.number(), "{file}");
        // The answer is written by the time that this one is, and is read by nobody.
        let other = client.call(b"now", CallOptions::default()).unwrap();
        client.flush().unwrap();
        assert_eq!(next(heard), Heard::Request(name, other.number()), "{file}");
        client.forget(answered);
        let last = client.call(b"now", CallOptions::default()).unwrap();
        assert_eq!(client.wait(last).unwrap(), b"answer", "{file}");
        assert_eq!(next(heard), Heard::GivenUp(name, answered.number(), None), "{file}");
        assert_eq!(next(heard), Heard::Request(name, last.number()), "{file}");
        assert_eq!(client.wait(other).unwrap(), b"answer", "{file}");
        assert!(heard.try_recv().is_err(), "{file}: of no other call it is told");
    });
}

#[test]
fn a_handler_is_told_of_what_is_given_up_before_its_answer() {
    listened(|file, client, heard| {
        let kept = client.call(b"keep", CallOptions::default()).unwrap();
        client.flush().unwrap();
        let Heard::Request(name, _) = next(heard) else { panic!("{file}") };
        client.cancel(kept);
        assert_eq!(client.wait(kept).unwrap_err().fault, Fault::Cancelled, "{file}");
        assert_eq!(next(heard), Heard::GivenUp(name, kept.number(), Some(true)), "{file}");
    });
}

#[test]
fn a_handler_is_told_of_a_deadline_that_passed_before_the_next_request() {
    listened(|file, client, heard| {
        // Far more than it takes to send it, on a machine that does nothing else.
        let limit = CallOptions { deadline: Some(Duration::from_millis(200)), ..CallOptions::default() };
        let (late, name) = loop {
            let late = client.call(b"keep", limit).unwrap();
            assert!(client.wait(late).is_err(), "{file}: nobody answers");
            let next_one = client.call(b"now", CallOptions::default()).unwrap();
            client.wait(next_one).unwrap();
            let (mut name, mut told) = (None, false);
            loop {
                match next(heard) {
                    Heard::Request(_, call) if call == next_one.number() => break,
                    Heard::Request(client, _) => name = Some(client),
                    Heard::GivenUp(_, call, _) => told |= call == late.number(),
                }
            }
            // On a busy machine it may not have left in time, or not have been begun.
            if let Some(name) = name {
                assert!(told, "{file}");
                break (late, name);
            }
        };
        // It may be told of it twice: by its own time and by the client.
        for again in heard.try_iter() {
            let Heard::GivenUp(client, call, None) = again else { panic!("{file}: {again:?}") };
            assert_eq!((client, call), (name, late.number()), "{file}");
        }
    });
}
