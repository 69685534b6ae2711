//! Calls that end with their process, their group and their connection, beside many others.

use super::*;
use crate::connection::{Connection, ConnectionOptions};
use crate::machine::{self, Value};
use thalweg_service::CallOptions;

/// More than two steps of any walk.
const MANY: usize = 2 * TENDED_MAX + 100;

/// A connection to a server that is never there.
struct Calls {
    connection: Connection,
    env: Env,
}

impl Calls {
    fn new() -> Self {
        let endpoint = "/nowhere/at-all.sock".parse().unwrap();
        let wishes = ConnectionOptions { in_flight_max: 1 << 16, ..ConnectionOptions::default() };
        let connection = Connection::begin(&endpoint, &wishes, machine::pid()).unwrap();
        Self { connection, env: machine::env() }
    }

    fn begin(&self, pid: Pid, expect: Expect, count: usize) -> Vec<u64> {
        let mut state = self.connection.lock();
        let begin = |_| {
            state.buffer.clear();
            state.begin(pid, self.env.atom("call"), expect, CallOptions::default()).unwrap().number()
        };
        (0..count).map(begin).collect()
    }

    fn left(&self) -> usize {
        self.connection.lock().waiters.len()
    }
}

#[test]
fn the_calls_of_a_process_that_ended_are_found_a_part_at_a_time() {
    let calls = Calls::new();
    let (ended, there) = (machine::pid(), machine::pid());
    for _ in 0..MANY / 2 {
        calls.begin(ended, Expect::Outcome, 1);
        calls.begin(there, Expect::Outcome, 1);
    }
    machine::end(ended);
    let tend = || calls.connection.lock().tend(calls.env);
    assert_eq!(tend(), Tended::Again);
    assert_eq!(calls.left(), MANY - TENDED_MAX / 2, "of one part");
    assert_eq!(tend(), Tended::Again);
    assert_eq!(tend(), Tended::Later);
    assert_eq!(calls.left(), MANY / 2);
    // The next round begins with the first.
    machine::end(there);
    while tend() == Tended::Again {}
    assert_eq!(calls.left(), 0);
    assert_eq!(tend(), Tended::Done);
}

#[test]
fn the_streams_of_a_process_end_with_it_and_no_other_calls() {
    let calls = Calls::new();
    let (ended, there) = (machine::pid(), machine::pid());
    calls.begin(there, Expect::Values, MANY);
    calls.begin(ended, Expect::Outcome, 1);
    let streams = calls.begin(ended, Expect::Values, 3);
    let mut state = calls.connection.lock();
    state.cancel(CallId::from_number(streams[1]));
    assert_eq!(state.streams[&ended].len(), 2, "what is over is not held on to");
    state.bereave(ended);
    assert!(!state.streams.contains_key(&ended));
    assert_eq!((state.waiters.len(), state.patient), (MANY + 1, MANY));
}

#[test]
fn what_is_left_of_a_group_ends_with_it() {
    let calls = Calls::new();
    let pid = machine::pid();
    calls.begin(pid, Expect::Outcome, MANY);
    for ends in
        [
            State::cancel_group as fn(&mut State, u64),
            |state, _| while state.tend(machine::env()) == Tended::Again {},
        ]
    {
        let caller = machine::pid();
        let group = calls.connection.lock().begin_group(caller, calls.env.atom("group"), 2).unwrap();
        calls.begin(caller, Expect::Part(group, 0), 1);
        calls.begin(caller, Expect::Part(group, 1), 1);
        assert_eq!(calls.left(), MANY + 2);
        machine::end(caller);
        ends(&mut calls.connection.lock(), group);
        assert!(!calls.connection.lock().awaits_group(group));
        assert_eq!(calls.left(), MANY);
        assert_eq!(machine::sent(caller), []);
    }
}

#[test]
fn a_worker_that_stops_has_its_calls_given_up_a_part_at_a_time_and_none_that_are_begun_behind_it() {
    let calls = Calls::new();
    let pid = machine::pid();
    calls.begin(pid, Expect::Events, 1);
    calls.begin(pid, Expect::Outcome, MANY);
    let mut left = calls.connection.lock().begun();
    let mut give_up = || calls.connection.lock().give_up(calls.env, &mut left);
    assert!(give_up(), "there are more");
    // The worker's own word of what happens is one of the part.
    let first = machine::sent(pid);
    assert_eq!((first.len(), calls.left()), (TENDED_MAX - 1, 1 + MANY - (TENDED_MAX - 1)));
    calls.begin(pid, Expect::Outcome, MANY);
    while give_up() {}
    let rest = machine::sent(pid);
    assert_eq!(first.len() + rest.len(), MANY);
    assert_eq!(calls.left(), 1 + MANY);
}

#[test]
fn a_connection_that_is_closed_tells_every_call_once_a_part_at_a_time() {
    let calls = Calls::new();
    let pid = machine::pid();
    calls.begin(pid, Expect::Frame, MANY);
    let close = || calls.connection.lock().close(calls.env);
    assert!(close(), "there are more");
    let first = machine::sent(pid);
    assert_eq!(first.len(), HANDED_OUT_MAX);
    while close() {}
    let rest = machine::sent(pid);
    assert_eq!(first.len() + rest.len(), MANY);
    let is_failure = |told: &Value| matches!(told, Value::Tuple(of) if matches!(&of[2], Value::Tuple(of) if of[0] == Value::atom("error")));
    assert!(first.iter().chain(&rest).all(is_failure));
    assert_eq!(calls.left(), 0);
}
