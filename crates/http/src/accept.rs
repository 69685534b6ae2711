//! New connections, and too many of them.

use crate::connection::{Connection, Role};
use crate::drive::note_deadline;
use crate::reactor::{Http, HttpCore};
use crate::request::OVERLOADED;
use crate::tls::Identity;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use thalweg_reactor::{Interest, Key};
use thalweg_transport::{peer, same_user};
use thalweg_wire::exchange::Service;

/// Connections taken from one listener per turn: a storm of them does not keep the others waiting.
const BATCH: usize = 64;
/// After which a listener is asked again when the process had no descriptor left.
const RETRY_MS: u32 = 100;

impl<S: Service> Http<S> {
    /// Takes connections in, a bounded batch. How many there were.
    pub(crate) fn accept(&mut self, core: &mut HttpCore<S>, key: Key) -> usize {
        let Some((entry, descriptor)) = core.entry_and_descriptor(key) else { return 0 };
        let Some(door) = self.doors.get_mut(usize::from(entry.flavour)) else { return 0 };
        let (identity, same_user_only) = (door.identity.clone(), door.same_user_only);
        let mut taken = std::mem::take(&mut self.accepted);
        match door.acceptor.accept(descriptor, BATCH, |connection| taken.push(connection)) {
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
            if same_user_only && !is_ours(connection.as_fd()) {
                tracing::warn!("a peer of another user is turned away");
                continue;
            }
            self.admit(core, connection, identity.as_ref());
        }
        self.accepted = taken;
        count
    }

    fn admit(&mut self, core: &mut HttpCore<S>, connection: OwnedFd, identity: Option<&Identity>) {
        let room = self.connections < self.config.connections_max;
        if identity.is_some() && (!room || self.secure.handshakes() >= self.config.handshakes_max) {
            // To be told why would take the handshake that there is no room for.
            self.meters.overload();
            return;
        }
        let Ok(key) = core.insert(connection, Connection::new(Role::Request), Interest::READ) else {
            // Even those who are told that there is no room are too many: closed without a word.
            return;
        };
        self.connections += 1;
        self.meters.open();
        let patience_ms = match identity {
            Some(identity) => {
                if !self.secure.begin(key, identity) {
                    return self.remove(core, key);
                }
                if let Some(entry) = core.entry(key) {
                    entry.secure = true;
                }
                self.config.handshake_timeout_ms
            }
            None => self.config.idle_timeout_ms,
        };
        note_deadline(core, key, patience_ms);
        core.set_timer(key, patience_ms);
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

/// Whether a Unix socket's peer is this user, or the superuser, who may everything here anyway.
fn is_ours(connection: BorrowedFd<'_>) -> bool {
    same_user(connection).unwrap_or(false) || peer(connection).is_ok_and(|peer| peer.user == 0)
}
