//! Writing, and the backpressure that follows from what could not be written.
//!
//! A connection over one of its bounds is not read from: calls in flight, bytes of their requests, unsent
//! bytes. Nothing is ever dropped for that, and requests are refused only where streams have to be heard
//! behind them (`ahead`). Reading resumes at half of the bound of unsent bytes (hysteresis). On a plain
//! connection an answer that waits for its turn counts as in flight, and as unsent.

use crate::server::calls::answers::Place;
use crate::server::calls::call::Grant;
use crate::server::calls::framing::Framing;
use crate::server::collector::{Collector, ServerCore, client};
use crate::server::connection::busy::Busy;
use crate::server::connection::slot::{Entry, Phase, Ring};
use crate::server::engine::{Engine, Fate};
use std::os::fd::BorrowedFd;
use thalweg_reactor::{Interest, Key};
use thalweg_transport::WriteOutcome;

impl Engine {
    /// Whether the connection is over its bounds for another call with a request of `bytes` bytes.
    #[inline]
    pub(crate) fn is_overfull(&self, busy: &Busy, bytes: usize) -> bool {
        !self.has_room(busy, bytes) || busy.answered_bytes() > self.options.unsent_bytes_max
    }

    /// Whether one more call, with a request of `bytes` bytes, may be in flight.
    #[inline]
    fn has_room(&self, busy: &Busy, bytes: usize) -> bool {
        let taken = busy.in_flight.bytes();
        busy.calls() < self.options.in_flight_max as usize
            && (taken == 0 || taken + bytes <= self.options.in_flight_bytes_max)
    }

    /// Writes the output, as far as it can be now, and sets which readiness to wait for.
    pub(crate) fn send(
        &mut self,
        core: &mut ServerCore,
        collector: &mut Collector,
        key: Key,
        busy: &mut Busy,
    ) -> Fate {
        if !busy.output.is_empty() && self.write(core, key, busy) == Fate::Gone {
            return Fate::Gone;
        }
        self.regulate(key, busy);
        let Some((entry, socket)) = core.entry_and_descriptor(key) else { return Fate::Gone };
        let Entry::Client(client) = entry else { return Fate::Gone };
        if let Some(ring) = &mut client.ring {
            let was_paused = std::mem::replace(&mut ring.paused, !busy.wants_input());
            ring.blocked = !busy.output.is_empty();
            self.statistics.bells += u64::from(ring_if_wanted(ring, socket));
            // A ring that went to sleep while it was paused asked for no bell.
            if ring.blocked || !ring.paused && (was_paused || ring.end.pending()) {
                collector.poll_ring(key, client, self.turn);
            }
            return Fate::Lives;
        }
        let outlet = client.outlet.as_deref().copied();
        interest(core, key, outlet, busy)
    }

    fn write(&mut self, core: &mut ServerCore, key: Key, busy: &mut Busy) -> Fate {
        let outlet = client(core, key).and_then(|client| client.outlet.as_deref().copied());
        let written = match outlet {
            Some(outlet) => {
                let Some(descriptor) = core.descriptor(outlet) else { return Fate::Gone };
                self.statistics.writes += 1;
                thalweg_transport::write_any(descriptor, busy.output.as_slice())
            }
            None => {
                let Some((Entry::Client(client), socket)) = core.entry_and_descriptor(key) else {
                    return Fate::Gone;
                };
                self.statistics.writes += u64::from(client.ring.is_none());
                client.write(socket, busy.output.as_slice())
            }
        };
        match written {
            Ok(WriteOutcome::Bytes(count)) => busy.output.sent(count),
            Ok(WriteOutcome::WouldBlock) => {}
            Err(_) => return Fate::Gone,
        }
        Fate::Lives
    }

    /// Lets a connection begin calls again, and its streams go on, once what held them up is over.
    fn regulate(&mut self, key: Key, busy: &mut Busy) {
        let relieved_at = self.options.unsent_bytes_max / 2;
        let begins = self.has_room(busy, busy.next_bytes);
        let goes_on = busy.paused && busy.answered_bytes() <= relieved_at && (begins || busy.hides_credit());
        if goes_on {
            busy.paused = false;
            busy.relieved = true;
            self.relieved.push(key);
        }
        // What waits for its turn does not hold up the stream whose turn it is: it may be that very stream's
        // end that it waits for. Those behind it are held when room is granted (`settle`).
        if busy.congested && busy.output.len() <= relieved_at {
            busy.congested = false;
            let places = busy.in_flight.iter().map(|begun| Place { key, id: begun.id, serial: begun.serial });
            self.grants.extend(places.map(|place| (place, Grant::Items(0))));
        }
    }

    /// The connection has more unsent than it may: its streams are told to wait, and so is what asks for room
    /// before it makes an answer.
    pub(crate) fn congest(&self, busy: &mut Busy) {
        if !busy.congested && busy.output.len() > self.options.unsent_bytes_max {
            busy.congested = true;
            busy.in_flight.iter().for_each(|begun| begun.call.congest());
        }
    }

    /// The connection is sent to before the turn ends.
    pub(crate) fn mark_dirty(&mut self, key: Key, busy: &mut Busy) {
        if !std::mem::replace(&mut busy.dirty, true) {
            self.dirty.push(key);
        }
    }

    /// How answers to a call are framed.
    pub(crate) fn framing(phase: Phase, id: u64) -> Framing {
        if phase == Phase::Multiplexed { Framing::Multiplexed(id) } else { Framing::Plain }
    }
}

/// Wakes the peer if it sleeps and waits for what was done; whether it did.
fn ring_if_wanted(ring: &mut Ring, socket: BorrowedFd<'_>) -> bool {
    let wanted = ring.end.bell_wanted();
    if wanted {
        // A peer that is gone shows as a hang-up.
        let _ = thalweg_transport::ring_bell(socket);
    }
    wanted
}

/// Asks to hear of room to write only while it is missing, and of input only while it is wanted.
fn interest(core: &mut ServerCore, key: Key, outlet: Option<Key>, busy: &Busy) -> Fate {
    let reads = busy.wants_input();
    let blocked = !busy.output.is_empty();
    let told = match outlet {
        Some(outlet) => {
            let writes = if blocked { Interest::WRITE } else { Interest::NONE };
            let told = core.set_interest(outlet, writes);
            // A pipe whose writers are gone says so for ever, whether or not its end was read, and there may
            // be requests to take and answers to give yet.
            let inlet = if reads { Interest::READ } else { Interest::ONCE };
            told.and_then(|()| core.set_interest(key, inlet))
        }
        None => {
            let wanted = match (reads, blocked) {
                (true, true) => Interest::BOTH,
                (true, false) => Interest::READ,
                (false, true) => Interest::WRITE,
                (false, false) => Interest::NONE,
            };
            core.set_interest(key, wanted)
        }
    };
    if told.is_ok() { Fate::Lives } else { Fate::Gone }
}
