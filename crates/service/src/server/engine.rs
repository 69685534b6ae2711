//! What a server does with what a turn of its reactor brought.
//!
//! The parts, each a file: `accept` lets clients in, `opening` finds out what kind of connection each is,
//! `serve` cuts its input into calls and has them handled, `settle` brings in what was answered elsewhere,
//! `flow` does credit, cancelling and deadlines, `send` writes and applies back-pressure, `drain` ends it
//! all.
//!
//! *A connection's box* ([`Busy`]) is taken out of its slot while something is done to it and
//! put back, given to the spare ones, or lost with the connection at the end of that ([`Engine::put_back`]).

use crate::server::accept::Source;
use crate::server::answers::{Answers, Batch, Place};
use crate::server::busy::{Busy, Spare, Stage};
use crate::server::call::{Calls, Grant};
use crate::server::client::{Client, Entry};
use crate::server::collector::{Collector, ServerCore, client};
use crate::server::handler::{ClientId, Handler};
use crate::server::options::ServerOptions;
use crate::server::statistics::Statistics;
use std::io::ErrorKind;
use std::sync::Arc;
use thalweg_reactor::{Key, Readiness};
use thalweg_transport::{Heard, Read};

/// Turns between two looks for rings that have gone quiet.
const STOP_POLLING_EVERY: u64 = 256;
/// A ring that brought nothing for so many turns need not be looked at every turn.
const QUIET_TURNS: u64 = 2_048;

pub(crate) struct Engine {
    pub(crate) options: ServerOptions,
    pub(crate) answers: Arc<Answers>,
    pub(crate) batch: Batch,
    pub(crate) calls: Calls,
    pub(crate) spare: Spare,
    pub(crate) sources: Vec<Source>,
    /// Connections with something to send at the end of this turn.
    pub(crate) dirty: Vec<Key>,
    /// Connections whose input may be dealt with again.
    pub(crate) relieved: Vec<Key>,
    /// Credit that calls are owed.
    pub(crate) grants: Vec<(Place, Grant)>,
    /// Clients behind shared memory that are gone, but may have left requests.
    hung_up: Vec<Key>,
    /// Clients that are gone and have not read all they were answered, for the handler to hear of.
    undelivered: Vec<ClientId>,
    /// Connections to be served in this turn.
    due: Vec<(Key, Readiness)>,
    pub(crate) serial: u64,
    pub(crate) turn: u64,
    pub(crate) draining: bool,
    /// When the grace of a drain is over, in the reactor's milliseconds.
    pub(crate) drain_until_ms: Option<u64>,
    /// Clients over the bound wait to be accepted.
    pub(crate) crowded: bool,
    /// What the rings of all clients may come to need.
    pub(crate) promised_bytes: u64,
    pub(crate) statistics: Statistics,
}

/// What became of a connection while something was done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Lives,
    Gone,
}

impl Engine {
    pub(crate) fn new(options: ServerOptions, answers: Arc<Answers>) -> Self {
        let calls = Calls::new(Arc::clone(&answers), options.stream_credit);
        Self {
            options,
            answers,
            batch: Batch::default(),
            calls,
            spare: Spare::default(),
            sources: Vec::new(),
            dirty: Vec::new(),
            relieved: Vec::new(),
            grants: Vec::new(),
            hung_up: Vec::new(),
            undelivered: Vec::new(),
            due: Vec::new(),
            serial: 0,
            turn: 0,
            draining: false,
            drain_until_ms: None,
            crowded: false,
            promised_bytes: 0,
            statistics: Statistics::default(),
        }
    }

    /// Acts on everything that a turn brought, and on what lies in rings; how many of them had something.
    pub(crate) fn act<H: Handler>(
        &mut self,
        core: &mut ServerCore,
        collector: &mut Collector,
        handler: &mut H,
    ) -> usize {
        self.turn += 1;
        if collector.answers && self.answers.take_ring() {
            handler.rung();
        }
        let heard = self.sort_out(core, collector);
        let mut due = std::mem::take(&mut self.due);
        let only_one = due.len() == 1 && !collector.answers;
        for (key, readiness) in due.drain(..) {
            self.on_ready(core, collector, (key, readiness), only_one, handler);
        }
        self.due = due;
        while let Some(key) = self.hung_up.pop() {
            self.drain_departed(core, collector, key, handler);
        }
        if std::mem::take(&mut collector.answers) {
            self.take_answers(core);
        }
        while let Some(key) = collector.timers.pop() {
            self.timer(core, key);
        }
        self.clear_up(core, collector, handler);
        collector.working = self.statistics.in_flight > 0;
        if self.turn.is_multiple_of(STOP_POLLING_EVERY) {
            self.stop_polling(core, collector);
        }
        heard
    }

    /// Lets clients in, hears bells, and finds whose input is to be served. How many rings are up and have
    /// something: nothing else tells of these.
    fn sort_out(&mut self, core: &mut ServerCore, collector: &mut Collector) -> usize {
        let mut ready = std::mem::take(&mut collector.ready);
        for (key, readiness) in ready.drain(..) {
            match core.entry(key) {
                Some(Entry::Listener(index)) => {
                    let index = *index;
                    self.accept(core, index);
                }
                Some(Entry::Client(Client { ring: Some(_), .. })) => self.on_bell(core, collector, key),
                Some(Entry::Client(_)) => self.due.push((key, readiness)),
                Some(Entry::Outlet(inlet)) => {
                    let inlet = *inlet;
                    if readiness.hangup() || readiness.error() {
                        self.lose(core, collector, inlet);
                    } else {
                        self.dirty.push(inlet);
                    }
                }
                None => {}
            }
        }
        collector.ready = ready;
        let others = self.due.len();
        for key in &collector.polled {
            let ring = client(core, *key).and_then(|client| client.ring.as_mut());
            if ring.is_some_and(|ring| ring.is_ready()) {
                self.due.push((*key, Readiness::default()));
            }
        }
        self.due.len() - others
    }

    /// A peer behind shared memory rang, or is gone.
    fn on_bell(&mut self, core: &mut ServerCore, collector: &mut Collector, key: Key) {
        self.statistics.reads += 1;
        let heard = core.descriptor(key).map(thalweg_transport::hush);
        let Some(client) = client(core, key) else { return };
        match heard {
            Some(Ok(Heard::Bells | Heard::Nothing)) => collector.poll_ring(key, client, self.turn),
            _ => self.hung_up.push(key),
        }
    }

    /// What a client left behind in its ring is handled before it is forgotten, as it would be on a socket:
    /// as much as a ring can hold, whatever the memory says.
    fn drain_departed<H: Handler>(
        &mut self,
        core: &mut ServerCore,
        collector: &mut Collector,
        key: Key,
        handler: &mut H,
    ) {
        let Some(Client { busy, ring: Some(ring), .. }) = client(core, key) else { return };
        let mut busy = busy.take().unwrap_or_else(|| self.spare.take());
        let most_bytes = ring.end.ring_bytes() as usize;
        self.hear_out(core, collector, (key, &mut busy), most_bytes, handler);
        self.remove(core, collector, key, busy);
    }

    /// Deals with what a client has sent, as far as it may begin calls, up to about so many bytes: it may
    /// send without an end.
    pub(crate) fn hear_out<H: Handler>(
        &mut self,
        core: &mut ServerCore,
        collector: &mut Collector,
        (key, busy): (Key, &mut Busy),
        most_bytes: usize,
        handler: &mut H,
    ) -> Fate {
        let mut left_bytes = most_bytes;
        while left_bytes > 0 && !busy.paused && busy.stage == Stage::Open {
            match self.receive(core, key, busy) {
                None => return Fate::Gone,
                Some(0) => return Fate::Lives,
                Some(came) => left_bytes = left_bytes.saturating_sub(came),
            }
            self.serve(core, collector, key, busy, false, handler);
        }
        Fate::Lives
    }

    /// A client is gone.
    pub(crate) fn lose(&mut self, core: &mut ServerCore, collector: &mut Collector, key: Key) {
        let Some(client) = client(core, key) else { return };
        let busy = client.busy.take().unwrap_or_else(|| self.spare.take());
        self.remove(core, collector, key, busy);
    }

    /// Something can be read or written.
    fn on_ready<H: Handler>(
        &mut self,
        core: &mut ServerCore,
        collector: &mut Collector,
        (key, readiness): (Key, Readiness),
        only_one: bool,
        handler: &mut H,
    ) {
        let Some(client) = client(core, key) else { return };
        let (is_ring, is_piped) = (client.ring.is_some(), client.outlet.is_some());
        let mut busy = client.busy.take().unwrap_or_else(|| self.spare.take());
        let mut fate = Fate::Lives;
        let (reads, mut has_ended) = (busy.wants_input(), false);
        let readable = is_ring || readiness.readable() || readiness.error() || readiness.hangup();
        if reads && readable {
            if self.receive(core, key, &mut busy).is_some() {
                has_ended = busy.stage == Stage::HalfClosed;
                let alone = only_one && self.statistics.in_flight == 0 && core.alone();
                self.serve(core, collector, key, &mut busy, alone, handler);
            } else {
                fate = Fate::Gone;
            }
        }
        if readiness.hangup() && !is_piped && (has_ended || !reads) {
            // Nobody is there to take an answer.
            fate = Fate::Gone;
        }
        self.put_back(core, collector, key, busy, fate);
    }

    /// One read: how many bytes came, those included that are passed over; `None` of a client that is gone.
    fn receive(&mut self, core: &mut ServerCore, key: Key, busy: &mut Busy) -> Option<usize> {
        let Some((Entry::Client(client), socket)) = core.entry_and_descriptor(key) else { return None };
        match &mut client.ring {
            Some(ring) => ring.active = self.turn,
            None => self.statistics.reads += 1,
        }
        self.spare.equip(busy);
        let found = client.read(socket, busy.input.room());
        busy.input.grown();
        match found {
            Ok(Read::Bytes(count)) => Some(count),
            Ok(Read::WouldBlock) => Some(0),
            Ok(Read::End) => {
                busy.stage = Stage::HalfClosed;
                Some(0)
            }
            Err(error) => {
                // So the kernel says of a socket that was closed with bytes in it.
                if error.kind() == ErrorKind::ConnectionReset {
                    busy.stage = Stage::Reset;
                }
                None
            }
        }
    }

    /// Sends what is to be sent, and lets go of whatever has nothing left to do.
    pub(crate) fn put_back(
        &mut self,
        core: &mut ServerCore,
        collector: &mut Collector,
        key: Key,
        mut busy: Box<Busy>,
        mut fate: Fate,
    ) {
        if fate == Fate::Lives {
            fate = self.send(core, collector, key, &mut busy);
        }
        // Of one that is relieved the input is still to be answered, or refused.
        let over = match busy.stage {
            Stage::Closing | Stage::Reset => true,
            Stage::Open if !self.draining => false,
            Stage::Open | Stage::HalfClosed => !busy.paused && !busy.relieved,
        };
        if fate == Fate::Gone || (over && busy.has_answered_all()) {
            self.remove(core, collector, key, busy);
        } else if busy.is_idle() {
            self.spare.give(busy);
        } else if let Some(client) = client(core, key) {
            busy.input.dealt_with();
            self.spare.strip(&mut busy);
            client.busy = Some(busy);
        }
    }

    /// A client is gone, or has to go.
    pub(crate) fn remove(
        &mut self,
        core: &mut ServerCore,
        collector: &mut Collector,
        key: Key,
        mut busy: Box<Busy>,
    ) {
        let mut is_heard = busy.has_answered_all() && busy.stage != Stage::Reset;
        self.statistics.in_flight_bytes -= busy.in_flight.bytes() as u64;
        for begun in busy.in_flight.drain() {
            self.abandon(&begun.call);
        }
        self.spare.give(busy);
        let Some(removed) = core.remove(key) else { return };
        self.statistics.clients -= 1;
        if let Entry::Client(client) = removed.entry {
            if let Some(ring) = &client.ring {
                is_heard &= ring.end.is_read();
                self.promised_bytes -= ring.end.promised_bytes();
                self.statistics.shared_clients -= 1;
                collector.polled.retain(|polled| *polled != key);
            }
            if let Some(outlet) = client.outlet {
                core.remove(*outlet);
                // Nobody else can come where there is no listener.
                if self.sources.is_empty() && !self.draining {
                    core.stop();
                }
            }
        }
        if !is_heard {
            self.undelivered.push(ClientId::of(key));
        }
        self.let_in_again(core);
    }

    /// Does what acting itself made necessary: each connection is sent to once.
    pub(crate) fn clear_up<H: Handler>(
        &mut self,
        core: &mut ServerCore,
        collector: &mut Collector,
        handler: &mut H,
    ) {
        loop {
            self.grant_all(core);
            if let Some(key) = self.relieved.pop() {
                let Some(mut busy) = client(core, key).and_then(|client| client.busy.take()) else {
                    continue;
                };
                busy.relieved = false;
                self.serve(core, collector, key, &mut busy, false, handler);
                let fate = if self.draining {
                    let most_bytes = self.left_behind_bytes_max();
                    self.hear_out(core, collector, (key, &mut busy), most_bytes, handler)
                } else {
                    Fate::Lives
                };
                self.put_back(core, collector, key, busy, fate);
            } else if let Some(key) = self.dirty.pop() {
                let Some(mut busy) = client(core, key).and_then(|client| client.busy.take()) else {
                    continue;
                };
                busy.dirty = false;
                self.put_back(core, collector, key, busy, Fate::Lives);
            } else if let Some(client) = self.undelivered.pop() {
                handler.undelivered(client);
            } else {
                return;
            }
        }
    }

    /// Rings that have been quiet for long ring from here on, instead of being looked at.
    fn stop_polling(&mut self, core: &mut ServerCore, collector: &mut Collector) {
        let turn = self.turn;
        collector.polled.retain(|key| {
            let ring = client(core, *key).and_then(|client| client.ring.as_mut());
            ring.is_some_and(|ring| {
                let quiet = turn.saturating_sub(ring.active) > QUIET_TURNS;
                ring.polled = !(quiet && ring.prepare_to_sleep());
                ring.polled
            })
        });
    }
}
