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
        self.put_aside(reference, Expect::Frame, [(EventKind::End, frame)]);
    }

    /// What came of a call of its own, all of which was put aside.
    fn put_aside<const N: usize>(&self, reference: &str, expect: Expect, came: [(EventKind, &[u8]); N]) {
        let mut state = self.connection.lock();
        state.buffer.clear();
        let reference = self.env.atom(reference);
        let call = state.begin(self.waiter, reference, expect, CallOptions::default()).unwrap();
        state.waiters.get_mut(&call.number()).unwrap().held += N;
        for (kind, frame) in came {
            state.shelf.put(call.number(), expect, kind, frame);
        }
        state.have_held_read(self.env);
    }

    /// Reads, but not what says `none`.
    fn unpack_all_but_none(&self) {
        let read = |frame: &HeldFrame, pid| if frame.frame == b"none" { None } else { read(frame, pid) };
        assert!(self.connection.unpack_by(self.env, read));
    }

    fn calls_to_read(&self) -> usize {
        machine::sent(self.router).into_iter().filter(|message| *message == Value::atom("large")).count()
    }
}

fn told(reference: &str, answer: &str) -> Value {
    tells(reference, Value::tuple([Value::atom("ok"), Value::Binary(answer.into())]))
}

fn tells(reference: &str, what: Value) -> Value {
    Value::tuple([Value::atom("thalweg"), Value::atom(reference), what])
}

/// What a waiter is told in place of a frame that was not read.
fn failed(why: &str) -> Value {
    let error = Error::new(Fault::System, why);
    let detail = Value::Binary(error.to_string().into());
    let fault = Value::tuple([Value::atom("fault"), Value::atom(error.fault.word()), detail]);
    Value::tuple([Value::atom("error"), fault])
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
    assert_eq!(machine::sent(held.waiter), [tells("first", failed(PANICKED))]);
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
    held.unpack_all_but_none();
    assert_eq!(machine::sent(held.waiter), [tells("first", failed(NO_MEMORY)), told("second", "b")]);
    assert!(held.connection.unpack(held.env), "nobody reads by now");
    assert_eq!(machine::sent(held.waiter), [], "everything was told once");
    assert!(held.connection.lock().waiters.is_empty());
}

#[test]
fn a_stream_ends_with_what_cannot_be_read() {
    let held = Held::new();
    let frames: [&[u8]; 3] = [b"a", b"none", b"never told"];
    held.put_aside("stream", Expect::Frames, frames.map(|frame| (EventKind::Item, frame)));
    held.unpack_all_but_none();
    let first = Value::tuple([Value::atom("frame"), Value::Binary(b"a".into())]);
    assert_eq!(machine::sent(held.waiter), [tells("stream", first), tells("stream", failed(NO_MEMORY))]);
    assert!(held.connection.lock().waiters.is_empty(), "what still comes of it has no receiver");
}

#[test]
fn a_group_is_told_of_a_part_that_cannot_be_read() {
    let held = Held::new();
    let group = held.connection.lock().begin_group(held.waiter, held.env.atom("group"), 1).unwrap();
    held.put_aside("part", Expect::Part(group, 0), [(EventKind::End, b"none")]);
    held.unpack_all_but_none();
    let results = Value::List(vec![failed(NO_MEMORY)]);
    assert_eq!(machine::sent(held.waiter), [tells("group", results)]);
}

/// A group of which one answer was found short, and another is put aside.
fn group_of_two(held: &Held) -> u64 {
    let mut state = held.connection.lock();
    let group = state.begin_group(held.waiter, held.env.atom("group"), 2).unwrap();
    state.fill(held.env, group, 0, |env| env.atom("short"));
    drop(state);
    held.put_aside("part", Expect::Part(group, 1), [(EventKind::End, b"long")]);
    group
}

fn deliver_long(reader: &Reader<'_>) {
    let Some(super::Held::Frame(..)) = reader.next() else { panic!("an answer was put aside") };
    let mut letter = Letter::new().unwrap();
    let term = letter.env().atom("long");
    reader.deliver(ReadFrame { letter, term, is_last: true, to: None, line: None });
}

fn told_of_two() -> Value {
    tells("group", Value::List(vec![Value::atom("short"), Value::atom("long")]))
}

#[test]
fn a_group_is_joined_with_the_lock_free_and_told_in_the_order_of_its_calls() {
    let held = Held::new();
    let group = group_of_two(&held);
    let reader = Reader::begin(&held.connection, held.env).unwrap();
    deliver_long(&reader);
    let Some(super::Held::Group(mut joined)) = reader.next() else { panic!("the group is complete") };
    assert!(held.connection.state.try_lock().is_ok(), "whoever calls need not wait");
    assert!(held.connection.lock().awaits_group(group));
    joined.join();
    held.connection.lock().tell_group(held.env, joined);
    assert_eq!(machine::sent(held.waiter), [told_of_two()]);
    assert!(!held.connection.lock().awaits_group(group));
}

#[test]
fn a_group_that_is_cancelled_while_it_is_joined_is_told_of_no_more() {
    let held = Held::new();
    let group = group_of_two(&held);
    let reader = Reader::begin(&held.connection, held.env).unwrap();
    deliver_long(&reader);
    let Some(super::Held::Group(mut joined)) = reader.next() else { panic!("the group is complete") };
    joined.join();
    held.connection.lock().cancel_group(group);
    assert!(!held.connection.lock().awaits_group(group));
    held.connection.lock().tell_group(held.env, joined);
    assert_eq!(machine::sent(held.waiter), []);
}

#[test]
fn a_group_that_waits_to_be_joined_when_its_connection_is_closed_is_told_of() {
    let held = Held::new();
    group_of_two(&held);
    deliver_long(&Reader::begin(&held.connection, held.env).unwrap());
    assert_eq!(machine::sent(held.waiter), []);
    while held.connection.lock().close(held.env) {}
    assert!(held.connection.lock().has_groups());
    assert!(held.connection.unpack(held.env));
    assert_eq!(machine::sent(held.waiter), [told_of_two()]);
    assert!(!held.connection.lock().has_groups());
}
