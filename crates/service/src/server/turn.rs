//! Acts on what a turn of the reactor brought. [`ServerTurn`] borrows all that this takes for as long as it
//! lasts: the engine, the reactor, the events of the turn, and the handler.
//!
//! A connection's box ([`Busy`]) is taken out of its slot while the connection is worked on. Afterwards
//! [`ServerTurn::put_back`] returns it to the slot, keeps it as a spare, or drops it with the connection.

use crate::server::collector::{Collector, ServerCore, client};
use crate::server::connection::busy::{Busy, Stage};
use crate::server::connection::slot::Client;
use crate::server::engine::{Engine, Fate, STOP_POLLING_EVERY};
use crate::server::handler::Handler;
use thalweg_reactor::{Key, Readiness};
use thalweg_sync::contain::contain;

/// Calls that were given up for which room is kept.
const GIVEN_UP_KEPT: usize = 64;

/// All that acting on a turn's events takes.
pub(crate) struct ServerTurn<'t, H> {
    pub(crate) engine: &'t mut Engine,
    pub(crate) core: &'t mut ServerCore,
    pub(crate) collector: &'t mut Collector,
    pub(crate) handler: &'t mut H,
}

impl<H: Handler> ServerTurn<'_, H> {
    /// Acts on everything that a turn brought, and on what lies in rings; how many rings had something.
    pub(crate) fn act(&mut self) -> usize {
        self.engine.turn += 1;
        if self.collector.answers && self.engine.answers.take_notified() {
            contain(|| self.handler.notified());
        }
        let heard = self.engine.sort_out(self.core, self.collector);
        let mut due = std::mem::take(&mut self.engine.due);
        let only_one = due.len() == 1 && !self.collector.answers;
        for (key, readiness) in due.drain(..) {
            self.on_ready(key, readiness, only_one);
        }
        self.engine.due = due;
        while let Some(key) = self.engine.hung_up.pop() {
            self.drain_departed(key);
        }
        if std::mem::take(&mut self.collector.answers) {
            self.engine.take_answers(self.core);
        }
        while let Some(key) = self.collector.timers.pop() {
            self.engine.timer(self.core, self.collector, key);
        }
        self.clear_up();
        self.collector.working = self.engine.statistics.in_flight > 0;
        if self.engine.turn.is_multiple_of(STOP_POLLING_EVERY) {
            self.engine.stop_polling(self.core, self.collector);
        }
        heard
    }

    /// Something can be read or written.
    fn on_ready(&mut self, key: Key, readiness: Readiness, only_one: bool) {
        let Some(client) = client(self.core, key) else { return };
        let (is_ring, is_piped) = (client.ring.is_some(), client.outlet.is_some());
        let mut busy = client.busy.take().unwrap_or_else(|| self.engine.spare.take());
        let mut fate = Fate::Lives;
        let (reads, mut has_ended) = (busy.wants_input(), false);
        let readable = is_ring || readiness.readable() || readiness.error() || readiness.hangup();
        if reads && readable {
            if self.engine.receive(self.core, key, &mut busy).is_some() {
                has_ended = busy.stage == Stage::HalfClosed;
                let alone = self.core.has_to_itself(key) && only_one && self.engine.statistics.in_flight == 0;
                self.serve(key, &mut busy, alone);
            } else {
                fate = Fate::Gone;
            }
        }
        if readiness.hangup() && !is_piped && (has_ended || !reads) {
            // The client is gone and takes no answer.
            fate = Fate::Gone;
        }
        self.put_back(key, busy, fate);
    }

    /// Handles what a client that is gone left in its ring, as on a socket: at most as many bytes as a ring
    /// can hold, whatever the shared memory says.
    fn drain_departed(&mut self, key: Key) {
        let Some(Client { busy, ring: Some(ring), .. }) = client(self.core, key) else { return };
        let mut busy = busy.take().unwrap_or_else(|| self.engine.spare.take());
        let most_bytes = ring.end.ring_bytes() as usize;
        self.hear_out(key, &mut busy, most_bytes);
        self.engine.remove(self.core, self.collector, key, busy);
    }

    /// Deals with up to about `most_bytes` of what a client has sent, as far as it may begin calls. The
    /// bound is for a client that never stops sending.
    pub(crate) fn hear_out(&mut self, key: Key, busy: &mut Busy, most_bytes: usize) -> Fate {
        let mut left_bytes = most_bytes;
        while left_bytes > 0 && !busy.paused && busy.stage == Stage::Open {
            match self.engine.receive(self.core, key, busy) {
                None => return Fate::Gone,
                Some(0) => return Fate::Lives,
                Some(came) => left_bytes = left_bytes.saturating_sub(came),
            }
            self.serve(key, busy, false);
        }
        Fate::Lives
    }

    /// Sends what is to be sent, and lets go of whatever has nothing left to do.
    pub(crate) fn put_back(&mut self, key: Key, mut busy: Box<Busy>, mut fate: Fate) {
        if fate == Fate::Lives {
            fate = self.engine.send(self.core, self.collector, key, &mut busy);
        }
        // The input of a relieved connection is still to be answered, or refused.
        let over = match busy.stage {
            Stage::Closing | Stage::Reset => true,
            Stage::Open if !self.engine.draining => false,
            Stage::Open | Stage::HalfClosed => !busy.paused && !busy.relieved,
        };
        if fate == Fate::Gone || (over && busy.has_answered_all()) {
            self.engine.remove(self.core, self.collector, key, busy);
        } else if busy.is_idle() {
            self.engine.spare.give(busy);
        } else if let Some(client) = client(self.core, key) {
            busy.input.dealt_with();
            self.engine.spare.strip(&mut busy);
            client.busy = Some(busy);
        }
    }

    /// Tells the handler of calls that were given up: before each request, so that no later one of the client
    /// overtakes what it said.
    #[inline]
    pub(crate) fn tell_given_up(&mut self) {
        if !self.engine.given_up.is_empty() {
            self.tell_each_given_up();
        }
    }

    fn tell_each_given_up(&mut self) {
        while let Some((client, call)) = self.engine.given_up.pop_front() {
            contain(|| self.handler.given_up(client, call));
        }
        self.engine.given_up.shrink_to(GIVEN_UP_KEPT);
    }

    /// Works off what acting itself queued: credit, relieved and dirty connections, calls that were given up,
    /// undelivered answers. Each connection is written to once.
    pub(crate) fn clear_up(&mut self) {
        loop {
            self.engine.grant_all(self.core);
            if let Some(key) = self.engine.relieved.pop() {
                let Some(mut busy) = client(self.core, key).and_then(|client| client.busy.take()) else {
                    continue;
                };
                busy.relieved = false;
                self.serve(key, &mut busy, false);
                let fate = if self.engine.draining {
                    let most_bytes = self.engine.left_behind_bytes_max();
                    self.hear_out(key, &mut busy, most_bytes)
                } else {
                    Fate::Lives
                };
                self.put_back(key, busy, fate);
            } else if let Some(key) = self.engine.dirty.pop() {
                let Some(mut busy) = client(self.core, key).and_then(|client| client.busy.take()) else {
                    continue;
                };
                busy.dirty = false;
                self.put_back(key, busy, Fate::Lives);
            } else if !self.engine.given_up.is_empty() {
                self.tell_given_up();
            } else if let Some(client) = self.engine.undelivered.pop() {
                contain(|| self.handler.undelivered(client));
            } else {
                return;
            }
        }
    }
}
