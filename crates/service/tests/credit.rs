//! Streams against their credit: however it is given, wherever items are made (while the handler is being
//! called, or on a thread of their own), and whenever calls are cancelled, no item comes that nobody had room
//! for, none is lost, none changes places, and a cancelled call ends as one. The ledger is kept here, beside
//! the client's own.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

use proptest::prelude::*;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use thalweg_service::{
    CallId, CallOptions, Client, ClientOptions, Endpoint, EventKind, Reply, Request, Server, ServerOptions,
};
use thalweg_wire::fault::Fault;
use thalweg_wire::service::Flow;

/// Where a stream's first items are made.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Origin {
    /// In the handler, as far as its credit goes.
    Here = 0,
    /// On a thread of its own from the first on.
    There = 1,
}

#[derive(Clone, Debug)]
enum Step {
    Begin(Origin, u32),
    /// One item, if there must be one, of some stream.
    Take(prop::sample::Index),
    Grant(prop::sample::Index, u32),
    /// Some stream is cancelled, and heard of to its end.
    Cancel(prop::sample::Index),
    Forget(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = any::<prop::sample::Index>;
    let origin = prop_oneof![Just(Origin::Here), Just(Origin::There)];
    let step = prop_oneof![
        3 => (origin, 1..6_u32).prop_map(|(origin, credit)| Step::Begin(origin, credit)),
        6 => which().prop_map(Step::Take),
        3 => (which(), 1..6_u32).prop_map(|(which, items)| Step::Grant(which, items)),
        2 => which().prop_map(Step::Cancel),
        1 => which().prop_map(Step::Forget),
    ];
    proptest::collection::vec(step, 1..80)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Numbers without an end, as fast as they are taken.
fn count(mut number: u32, mut reply: Reply) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match reply.item(&number.to_le_bytes()) {
            Flow::Go => {}
            Flow::Wait => {
                reply.changed(&waker);
                thread::park();
            }
            Flow::Gone => return reply.end(b""),
        }
        number += 1;
    }
}

fn begin(request: Request<'_>, mut reply: Reply) {
    let mut number = 0;
    if request.frame == [Origin::Here as u8] {
        while reply.flow() == Flow::Go {
            reply.item(&u32::to_le_bytes(number));
            number += 1;
        }
    }
    thread::spawn(move || count(number, reply));
}

struct Stream {
    call: CallId,
    taken: u32,
    granted: u32,
}

impl Stream {
    /// The next item, which has to be there.
    fn take(&mut self, client: &mut Client) {
        let event = client.wait_event(self.call).unwrap();
        assert!(matches!(event.kind, EventKind::Item), "{:?}", event.kind);
        assert_eq!(event.frame, self.taken.to_le_bytes());
        self.taken += 1;
    }

    /// What had left before the server knew, and then how it ended.
    fn end(mut self, client: &mut Client) {
        client.cancel(self.call);
        loop {
            let event = client.wait_event(self.call).unwrap();
            match event.kind {
                EventKind::Item => assert_eq!(event.frame, self.taken.to_le_bytes()),
                EventKind::Failed(error) => return assert_eq!(error.fault, Fault::Cancelled, "{error}"),
                EventKind::End => panic!("it ended by itself"),
            }
            self.taken += 1;
            assert!(self.taken <= self.granted, "an item that nobody had room for");
        }
    }
}

fn run(client: &mut Client, steps: &[Step]) {
    let mut streams: Vec<Stream> = Vec::new();
    for step in steps {
        match step {
            Step::Begin(origin, credit) => {
                let options = CallOptions { credit: Some(*credit), ..CallOptions::default() };
                let call = client.call(&[*origin as u8], options).unwrap();
                streams.push(Stream { call, taken: 0, granted: *credit });
            }
            _ if streams.is_empty() => {}
            Step::Take(which) => {
                let stream = which.get_mut(&mut streams);
                if stream.taken < stream.granted {
                    stream.take(client);
                }
            }
            Step::Grant(which, items) => {
                let stream = which.get_mut(&mut streams);
                client.grant(stream.call, *items);
                stream.granted += items;
            }
            Step::Cancel(which) => streams.swap_remove(which.index(streams.len())).end(client),
            Step::Forget(which) => client.forget(streams.swap_remove(which.index(streams.len())).call),
        }
    }
    streams.into_iter().for_each(|stream| stream.end(client));
    assert!(client.is_connected() && client.in_flight() == 0);
}

fn serve(name: &str) {
    let directory = tempfile::tempdir().unwrap();
    let endpoint: Endpoint = directory.path().join(name).to_str().unwrap().parse().unwrap();
    let mut server = Server::bind(std::slice::from_ref(&endpoint), ServerOptions::default()).unwrap();
    let stopper = server.stopper();
    thread::scope(|scope| {
        let running = scope.spawn(move || server.serve(begin));
        let options = ClientOptions { ring_bytes: 4_096, ..ClientOptions::default() };
        // One for all: what a run leaves behind is there for the next.
        let client = std::cell::RefCell::new(Client::connect(&endpoint, options).unwrap());
        let config = ProptestConfig::with_cases(64);
        let outcome = proptest::test_runner::TestRunner::new(config).run(&steps(), |steps| {
            run(&mut client.borrow_mut(), &steps);
            Ok(())
        });
        drop(client);
        stopper.stop();
        running.join().unwrap().unwrap();
        outcome.unwrap();
    });
}

#[test]
fn no_item_comes_beyond_its_credit_over_a_socket() {
    serve("credit.sock");
}

#[test]
fn no_item_comes_beyond_its_credit_through_shared_memory() {
    serve("credit.shm");
}
