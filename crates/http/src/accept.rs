//! New connections, and too many of them.

use crate::config::OVERFLOW_CONNECTIONS_MAX;
use crate::connection::{Connection, Flags, Role};
use crate::limit::Limit;
use crate::overflow::turn_away;
use crate::patience::note_deadline;
use crate::reactor::{Http, HttpCore};
use crate::tls::Identity;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use thalweg_reactor::{Interest, Key};
use thalweg_sync::places::Places;
use thalweg_transport::{Acceptor, same_user_or_root};
use thalweg_wire::exchange::Service;
use thalweg_wire::host::Hosts;

/// Connections taken from one listener per turn: a storm of them does not keep the others waiting.
const BATCH: usize = 64;
/// The same where there is no place for them: until they are told so they hold descriptors that others need.
const BATCH_BEYOND: usize = 8;
/// After which a listener is asked again when the process had no descriptor left.
const RETRY_MS: u32 = 100;

/// What a reactor accepts from.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// One per listener, by the index in its entry.
    pub(crate) sockets: Vec<ListenSocket>,
    /// The names of this server.
    pub(crate) hosts: Hosts,
    /// A list's memory, for the connections of one batch.
    accepted: Vec<OwnedFd>,
}

impl Listeners {
    pub(crate) fn new(sockets: Vec<ListenSocket>) -> Self {
        Self { sockets, hosts: Hosts::default(), accepted: Vec::new() }
    }
}

/// A listener, as one reactor accepts from it.
#[derive(Debug)]
pub(crate) struct ListenSocket {
    pub(crate) acceptor: Acceptor,
    /// How it is watched, but for a pause.
    pub(crate) interest: Interest,
    pub(crate) identity: Option<Identity>,
    pub(crate) handed_over: bool,
    pub(crate) same_user_only: bool,
    pub(crate) known_hosts_only: bool,
}

/// The connections of a reactor.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// How many there are.
    pub(crate) connections: usize,
    /// Those of them that came when there was no room: see `overflow`.
    pub(crate) overflow: usize,
    /// The places of all reactors together, of which every other connection has one.
    pub(crate) places: Arc<Places>,
}

impl Admitted {
    pub(crate) fn new(places: Arc<Places>) -> Self {
        Self { connections: 0, overflow: 0, places }
    }

    /// A connection is gone.
    pub(crate) fn leave(&mut self, is_overflow: bool) {
        self.connections -= 1;
        if is_overflow {
            self.overflow -= 1;
        } else {
            self.places.give();
        }
    }
}

impl<S: Service> Http<S> {
    /// Takes connections in, a bounded batch. How many there were.
    pub(crate) fn accept(&mut self, core: &mut HttpCore<S>, key: Key) -> usize {
        let (now, now_ms) = (Self::now(core), core.now_ms());
        self.date.refresh(core.wall_us());
        let places = self
            .admitted
            .places
            .free()
            .saturating_add(self.config.overflow_connections_max.saturating_sub(self.admitted.overflow));
        let batch = places.clamp(BATCH_BEYOND, BATCH);
        let mut taken = std::mem::take(&mut self.listeners.accepted);
        let Self { listeners, service, date, meters, warnings, .. } = self;
        let Some((entry, descriptor)) = core.entry_and_descriptor(key) else { return 0 };
        let Some(socket) = listeners.sockets.get_mut(usize::from(entry.flavour)) else { return 0 };
        let (same_user_only, naming) = (socket.same_user_only, socket.known_hosts_only);
        let identity = socket.identity.clone();
        // A sealed peer would not understand.
        let mut shed = |connection: BorrowedFd<'_>| match identity {
            None => turn_away(service, date, meters, now, Limit::Descriptors, connection),
            Some(_) => meters.overload(Limit::Descriptors),
        };
        match socket.acceptor.accept_or(descriptor, batch, |connection| taken.push(connection), &mut shed) {
            Ok(accepted) => {
                if accepted.exhausted {
                    self.pause_accepting(core, key);
                }
            }
            Err(error) => {
                if let Some(times) = warnings.deaf.note(now_ms, 1) {
                    tracing::error!(%error, times, "a listener does not accept");
                }
                self.pause_accepting(core, key);
            }
        }
        let count = taken.len();
        for connection in taken.drain(..) {
            if same_user_only && !same_user_or_root(connection.as_fd()).unwrap_or(false) {
                if let Some(peers) = self.warnings.strangers.note(now_ms, 1) {
                    tracing::warn!(peers, "peers of another user are turned away");
                }
                continue;
            }
            self.admit(core, connection, identity.as_ref(), naming);
        }
        self.listeners.accepted = taken;
        count
    }

    fn admit(
        &mut self,
        core: &mut HttpCore<S>,
        connection: OwnedFd,
        identity: Option<&Identity>,
        naming: bool,
    ) {
        let greeted = identity.is_none() || self.has_room_for_handshake(core);
        let room = greeted && self.admitted.places.take();
        let overflow_connections_max = if identity.is_some() {
            0
        } else {
            self.config.overflow_connections_max.min(OVERFLOW_CONNECTIONS_MAX)
        };
        if !room && self.admitted.overflow >= overflow_connections_max {
            let limit = if greeted { Limit::Connections } else { Limit::Handshakes };
            return self.refuse_connection(core, connection.as_fd(), identity, limit);
        }
        let mut entry = Connection::new(Role::Request);
        entry.flags.set(Flags::OVERFLOW, !room);
        entry.flags.set(Flags::NAMING, naming);
        let key = match core.insert(connection, entry, Interest::READ) {
            Ok(key) => key,
            Err(rejected) => {
                if room {
                    self.admitted.places.give();
                }
                let rejected = rejected.descriptor;
                return self.refuse_connection(core, rejected.as_fd(), identity, Limit::Connections);
            }
        };
        self.admitted.connections += 1;
        self.admitted.overflow += usize::from(!room);
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
            None if room => self.config.idle_timeout_ms,
            None => self.config.linger_ms,
        };
        note_deadline(core, key, patience_ms);
        core.set_timer(key, patience_ms);
    }

    /// Whether one more handshake may begin. At the bound, the oldest connection makes room that has sent no
    /// record yet: that costs its peer nothing, and a real client sends its first record at once.
    fn has_room_for_handshake(&mut self, core: &mut HttpCore<S>) -> bool {
        if self.secure.handshakes() >= self.config.handshakes_max
            && let Some(key) = self.secure.oldest_silent()
        {
            self.meters.overload(Limit::Handshakes);
            self.remove(core, key);
        }
        self.secure.handshakes() < self.config.handshakes_max
    }

    /// Tells a peer that there is no place for it; a sealed peer would need the handshake first.
    fn refuse_connection(
        &mut self,
        core: &mut HttpCore<S>,
        connection: BorrowedFd<'_>,
        identity: Option<&Identity>,
        limit: Limit,
    ) {
        if identity.is_some() {
            return self.meters.overload(limit);
        }
        let now = Self::now(core);
        turn_away(&mut self.service, &self.date, &self.meters, now, limit, connection);
    }

    fn pause_accepting(&mut self, core: &mut HttpCore<S>, key: Key) {
        // One that goes on being told of connections asks for them sooner, and no harm is done.
        let _ = core.set_interest(key, Interest::NONE);
        core.set_timer(key, RETRY_MS);
    }

    /// Looks again whether there are descriptors.
    pub(crate) fn accept_again(&mut self, core: &mut HttpCore<S>, key: Key) {
        let socket = core.entry(key).and_then(|entry| self.listeners.sockets.get(usize::from(entry.flavour)));
        let interest = socket.map_or(Interest::READ, |socket| socket.interest);
        match core.set_interest(key, interest) {
            Ok(()) => drop(self.accept(core, key)),
            // Connections are not reported meanwhile.
            Err(_) => core.set_timer(key, RETRY_MS),
        }
    }
}
