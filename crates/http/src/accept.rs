//! New connections, and too many of them.

use crate::connection::{Connection, Role};
use crate::drive::note_deadline;
use crate::reactor::{Http, HttpCore};
use crate::request::OVERLOADED;
use std::os::fd::OwnedFd;
use thalweg_reactor::{Interest, Key};
use thalweg_wire::exchange::Service;

/// Connections taken from one listener per turn: a storm of them does not keep the others waiting.
const BATCH: usize = 64;
/// After which a listener is asked again when the process had no descriptor left.
const RETRY_MS: u32 = 100;

impl<S: Service> Http<S> {
    /// Takes connections in, a bounded batch. How many there were.
    pub(crate) fn accept(&mut self, core: &mut HttpCore<S>, key: Key) -> usize {
        let Some((entry, descriptor)) = core.entry_and_descriptor(key) else { return 0 };
        let Some(acceptor) = self.acceptors.get_mut(usize::from(entry.flavour)) else { return 0 };
        let mut taken = std::mem::take(&mut self.accepted);
        match acceptor.accept(descriptor, BATCH, |connection| taken.push(connection)) {
            Ok(accepted) => {
                if accepted.shed > 0 {
                    tracing::warn!(shed = accepted.shed, "no descriptor left: raise the limit (ulimit -n)");
                }
                if accepted.exhausted {
                    self.pause_accepting(core, key);
                }
            }
            Err(error) => {
                tracing::error!(%error, "a listener does not accept");
                self.pause_accepting(core, key);
            }
        }
        let count = taken.len();
        for connection in taken.drain(..) {
            self.admit(core, connection);
        }
        self.accepted = taken;
        count
    }

    fn admit(&mut self, core: &mut HttpCore<S>, connection: OwnedFd) {
        let room = self.connections < self.config.connections_max;
        let Ok(key) = core.insert(connection, Connection::new(Role::Request), Interest::READ) else {
            // Even those who are told that there is no room are too many: closed without a word.
            return;
        };
        self.connections += 1;
        self.meters.open();
        note_deadline(core, key, self.config.idle_timeout_ms);
        core.set_timer(key, self.config.idle_timeout_ms);
        if !room {
            self.with_active(core, key, |http, core, key, active| {
                http.refuse(core, active, &OVERLOADED);
                http.drive(core, key, active)
            });
        }
    }

    fn pause_accepting(&mut self, core: &mut HttpCore<S>, key: Key) {
        // A shared listener cannot be paused by itself; its acceptor sheds instead.
        if core.set_interest(key, Interest::NONE).is_ok() {
            core.set_timer(key, RETRY_MS);
        }
    }

    /// Looks again whether there are descriptors.
    pub(crate) fn accept_again(&mut self, core: &mut HttpCore<S>, key: Key) {
        if core.set_interest(key, Interest::READ).is_ok() {
            self.accept(core, key);
        }
    }
}
