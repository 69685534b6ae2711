//! The state that all connections of a server share, and what is done to a connection as a whole: it is read
//! from, and removed. What becomes of its bytes is in [`connection`](super::connection).

use crate::server::calls::answers::{Answers, Batch, Place};
use crate::server::calls::call::{Calls, Grant};
use crate::server::collector::{Collector, ServerCore, client};
use crate::server::connection::accept::Source;
use crate::server::connection::busy::{Busy, Spare, Stage};
use crate::server::connection::slot::{Client, Entry, Phase};
use crate::server::handler::ClientId;
use crate::server::options::ServerOptions;
use crate::server::statistics::Statistics;
use std::collections::{BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::sync::Arc;
use thalweg_reactor::{Key, Readiness};
use thalweg_transport::{DrainOutcome, ReadOutcome};
use thalweg_wire::frame::HEADER_BYTES;

/// Turns between two searches for rings that have gone quiet.
pub(crate) const STOP_POLLING_EVERY: u64 = 256;
/// Turns without input after which a ring is no longer polled every turn.
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
    /// Connections that were paused and may begin calls again.
    pub(crate) relieved: Vec<Key>,
    /// Credit that calls are owed.
    pub(crate) grants: Vec<(Place, Grant)>,
    /// Clients behind shared memory that are gone, but may have left requests.
    pub(crate) hung_up: Vec<Key>,
    /// Calls that were given up, by client and number, of which the handler is to be told.
    pub(crate) given_up: VecDeque<(ClientId, u64)>,
    /// Clients that left without reading all of their answers, of which the handler is to be told.
    pub(crate) undelivered: Vec<ClientId>,
    /// Connections to be served in this turn.
    pub(crate) due: Vec<(Key, Readiness)>,
    pub(crate) serial: u64,
    pub(crate) turn: u64,
    pub(crate) draining: bool,
    /// When the grace of a drain is over, in the reactor's milliseconds.
    pub(crate) drain_until_ms: Option<u64>,
    /// Clients over the bound wait to be accepted.
    pub(crate) crowded: bool,
    /// Clients that said nothing in time, and lose their places when others wait.
    pub(crate) overdue: BTreeSet<Key>,
    /// The most memory that the rings of all clients may need.
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
            given_up: VecDeque::new(),
            undelivered: Vec::new(),
            due: Vec::new(),
            serial: 0,
            turn: 0,
            draining: false,
            drain_until_ms: None,
            crowded: false,
            overdue: BTreeSet::new(),
            promised_bytes: 0,
            statistics: Statistics::default(),
        }
    }

    /// Accepts clients, takes bells, and lists the connections to serve. Returns the number of polled rings
    /// that have something: no descriptor reports these.
    pub(crate) fn sort_out(&mut self, core: &mut ServerCore, collector: &mut Collector) -> usize {
        let mut ready = std::mem::take(&mut collector.ready);
        for (key, readiness) in ready.drain(..) {
            match core.entry(key) {
                Some(Entry::Listener(index)) => {
                    let index = *index;
                    self.accept(core, collector, index);
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
        let heard = core.descriptor(key).map(thalweg_transport::drain_bell);
        let Some(client) = client(core, key) else { return };
        match heard {
            Some(Ok(DrainOutcome::Rung | DrainOutcome::Empty)) => collector.poll_ring(key, client, self.turn),
            _ => self.hung_up.push(key),
        }
    }

    /// A client is gone.
    pub(crate) fn lose(&mut self, core: &mut ServerCore, collector: &mut Collector, key: Key) {
        let Some(client) = client(core, key) else { return };
        let busy = client.busy.take().unwrap_or_else(|| self.spare.take());
        self.remove(core, collector, key, busy);
    }

    /// Reads once. Returns the bytes received, skipped ones included; `None` if the client is gone.
    pub(crate) fn receive(&mut self, core: &mut ServerCore, key: Key, busy: &mut Busy) -> Option<usize> {
        let Some((Entry::Client(client), socket)) = core.entry_and_descriptor(key) else { return None };
        match &mut client.ring {
            Some(ring) => ring.active = self.turn,
            None => self.statistics.reads += 1,
        }
        self.spare.equip(busy);
        let found = client.read(socket, busy.input.room());
        busy.input.grown();
        match found {
            Ok(ReadOutcome::Bytes(count)) => Some(count),
            Ok(ReadOutcome::WouldBlock) => Some(0),
            Ok(ReadOutcome::End) => {
                busy.stage = Stage::HalfClosed;
                Some(0)
            }
            Err(error) => {
                // The kernel reports this for a socket that was closed with unread bytes in it.
                if error.kind() == ErrorKind::ConnectionReset {
                    busy.stage = Stage::Reset;
                }
                None
            }
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
        let mut owed_bytes = busy.output.len() as u64;
        let has_ended_all = busy.has_ended_all() && busy.stage != Stage::Reset;
        self.statistics.in_flight_bytes -= busy.in_flight.bytes() as u64;
        // They end with their client, whatever their handlers go on to do.
        self.statistics.answers += busy.in_flight.len() as u64;
        for begun in busy.in_flight.drain() {
            self.abandon(&begun.call);
        }
        self.spare.give(busy);
        let Some(removed) = core.remove(key) else { return };
        self.statistics.clients -= 1;
        let mut goodbye_bytes = 0;
        if let Entry::Client(client) = removed.entry {
            if self.draining && client.phase == Phase::Multiplexed {
                goodbye_bytes = HEADER_BYTES as u64;
            }
            if client.overdue {
                self.overdue.remove(&key);
            }
            if let Some(ring) = &client.ring {
                owed_bytes += ring.end.unread_bytes();
                self.promised_bytes -= ring.end.promised_bytes();
                self.statistics.shared_clients -= 1;
                collector.polled.retain(|polled| *polled != key);
            }
            if let Some(outlet) = client.outlet {
                core.remove(*outlet);
                // Without a listener no other client can connect.
                if self.sources.is_empty() && !self.draining {
                    core.stop();
                }
            }
        }
        // A goodbye is no answer, and an answer that says anything is longer.
        if !has_ended_all || owed_bytes > goodbye_bytes {
            self.undelivered.push(ClientId::of(key));
        }
        self.let_in_again(core);
    }

    /// Stops polling rings that have been quiet for long: their clients ring a bell from here on.
    pub(crate) fn stop_polling(&mut self, core: &mut ServerCore, collector: &mut Collector) {
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
