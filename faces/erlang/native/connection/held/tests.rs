//! Readers of what was put aside that end in the middle, by themselves or by a panic.

use super::*;
use crate::connection::ConnectionOptions;
use crate::machine::{self, Value};
use std::panic::{AssertUnwindSafe, catch_unwind};
use thalweg_service::CallOptions;

/// A connection to a server that is never there, and a process each for its router and a waiter.
struct Held {
    connection: Connection,
    env: Env,
    router: Pid,
    waiter: Pid,
}

impl Held {
    fn new() -> Self {
        let (router, waiter) = (machine::pid(), machine::pid());
        let endpoint = "/nowhere/at-all.sock".parse().unwrap();
        let connection = Connection::begin(&endpoint, &ConnectionOptions::default(), router).unwrap();
        Self { connection, env: machine::env(), router, waiter }
    }

    /// An answer to a call of its own that was put aside, and of which the router was told.
    fn answer(&self, reference: &str, frame: &[u8]) {
        let mut state = self.connection.lock();
        state.buffer.clear();
        let reference = self.env.atom(reference);
        let options = CallOptions::default();
        let call = state.begin(self.waiter, reference, Expect::Frame, options).unwrap();
        state.waiters.get_mut(&call.number()).unwrap().held += 1;
        state.shelf.put(call.number(), Expect::Frame, EventKind::End, frame);
        state.have_held_read(self.env);
    }

    fn calls_to_read(&self) -> usize {
        machine::sent(self.router).into_iter().filter(|message| *message == Value::atom("large")).count()
    }
}

fn told(reference: &str, answer: &str) -> Value {
    let answer = Value::tuple([Value::atom("ok"), Value::Binary(answer.into())]);
    Value::tuple([Value::atom("thalweg"), Value::atom(reference), answer])
}

#[test]
fn a_reader_that_panics_has_the_rest_read() {
    let held = Held::new();
    held.answer("first", b"lost");
    held.answer("second", b"read");
    assert_eq!(held.calls_to_read(), 1);
    let unpack = || held.connection.unpack_by(held.env, |_, _| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(unpack)).is_err());
    assert_eq!(held.calls_to_read(), 1, "for the frame that is left");
    assert!(held.connection.unpack(held.env), "nobody reads by now");
    assert_eq!(machine::sent(held.waiter), [told("second", "read")]);
    assert_eq!(held.calls_to_read(), 0);
}

#[test]
fn one_process_reads_and_what_comes_meanwhile_is_read() {
    let held = Held::new();
    held.answer("first", b"a");
    let unpacked = held.connection.unpack_by(held.env, |frame, pid| {
        if frame.frame == b"a" {
            for _ in 0..2 {
                assert!(!held.connection.unpack(held.env), "another process reads");
            }
            held.answer("second", b"b");
        }
        read(frame, pid)
    });
    assert!(unpacked);
    assert_eq!(machine::sent(held.waiter), [told("first", "a"), told("second", "b")]);
    // Whoever is asked now finds that nobody reads.
    assert!(held.connection.unpack(held.env));
}

#[test]
fn a_frame_that_cannot_be_read_leaves_the_next_ones_to_be() {
    let held = Held::new();
    held.answer("first", b"none");
    held.answer("second", b"b");
    let unpacked = held
        .connection
        .unpack_by(held.env, |frame, pid| if frame.frame == b"none" { None } else { read(frame, pid) });
    assert!(unpacked);
    assert_eq!(machine::sent(held.waiter), [told("second", "b")]);
    assert!(held.connection.unpack(held.env), "nobody reads by now");
}
