//! A handler that is told of clients that are gone and have not read what they were answered.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use thalweg_service::{
    CallOptions, Client, ClientId, ClientOptions, Endpoint, Handler, Reply, Request, Server, ServerOptions,
};

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
