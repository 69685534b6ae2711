//! A process that looks a little for its own answer, and hands out those of others meanwhile.
//!
//! Invariant: as many processes are counted as look. One whose look panics is counted no more, and has the
//! router look in its place. *Checked by* the tests below.

use super::{Connection, State};
use crate::enif::RawTerm;
use crate::term::Env;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};
use thalweg_service::CallId;

/// A process looks so long for its own answer before it waits for a message.
const LOOK: Duration = Duration::from_micros(20);
/// Moments between two looks.
const PAUSE: u32 = 16;

/// Looks for a moment for what is awaited: what came of `own` is returned, what came of others they are told.
pub(crate) fn look(
    env: Env,
    connection: &Connection,
    own: Option<CallId>,
    awaits: impl Fn(&State) -> bool,
) -> Option<RawTerm> {
    let mut looker = Looker::begin(env, connection);
    let until = Instant::now() + LOOK;
    loop {
        let state = looker.state();
        let found = state.look(env, own);
        if found.is_some() || !awaits(state) || Instant::now() >= until {
            return found;
        }
        looker.pause();
        (0..PAUSE).for_each(|_| std::hint::spin_loop());
    }
}

/// A process that looks, until this is dropped. It has the lock, but for pauses.
struct Looker<'c> {
    env: Env,
    connection: &'c Connection,
    state: Option<MutexGuard<'c, State>>,
}

impl<'c> Looker<'c> {
    fn begin(env: Env, connection: &'c Connection) -> Self {
        let mut looker = Self { env, connection, state: None };
        looker.state().lookers += 1;
        looker
    }

    fn state(&mut self) -> &mut State {
        self.state.get_or_insert_with(|| self.connection.lock())
    }

    fn pause(&mut self) {
        self.state = None;
    }
}

impl Drop for Looker<'_> {
    fn drop(&mut self) {
        let env = self.env;
        let state = self.state();
        state.lookers -= 1;
        if std::thread::panicking() {
            // Not here: a second panic would end the virtual machine.
            state.have_router_look(env);
        } else {
            state.see_to(env);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::ConnectionOptions;
    use crate::machine::{self, Value};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_look_that_panics_is_counted_no_more_and_the_router_looks() {
        let (env, router) = (machine::env(), machine::pid());
        let endpoint = "/nowhere/at-all.sock".parse().unwrap();
        let connection = Connection::begin(&endpoint, &ConnectionOptions::default(), router).unwrap();
        connection.lock().router_sleeps = true;
        let panics = || look(env, &connection, None, |_| panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(connection.lock().lookers, 0);
        assert_eq!(machine::sent(router), [Value::atom("look")]);
        assert!(!connection.lock().router_sleeps, "it is told once");
        assert_eq!(look(env, &connection, None, |_| false), None);
        assert_eq!(connection.lock().lookers, 0);
    }
}
