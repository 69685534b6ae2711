//! A connection's first bytes: whether it is plain or multiplexed, and whether it is accepted.

use crate::server::calls::framing::Framing;
use crate::server::collector::{Collector, ServerCore, client};
use crate::server::connection::busy::{Busy, Stage};
use crate::server::connection::slot::{Entry, Phase, Ring};
use crate::server::engine::Engine;
use std::os::fd::AsFd;
use thalweg_reactor::{Interest, Key};
use thalweg_transport::{RING_BYTES, SharedEnd, WriteOutcome};
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{HELLO_BYTES, Hello, Opening, SchemaHash, VERSION, Welcome, opening};

impl Engine {
    /// Decides what kind of connection this is; `None` until enough has come, or when it is refused.
    pub(crate) fn open(
        &mut self,
        core: &mut ServerCore,
        collector: &mut Collector,
        key: Key,
        busy: &mut Busy,
    ) -> Option<Phase> {
        let fresh = client(core, key)?;
        let shared_only = fresh.shared_only;
        if std::mem::take(&mut fresh.overdue) {
            // It has begun late, and has the same time again for the rest.
            self.overdue.remove(&key);
            self.await_hello(core, key);
        }
        let phase = match opening(busy.input.unread()) {
            Ok(None) => return None,
            Ok(Some(Opening::Plain)) if shared_only => {
                self.tell(busy, Framing::Plain, Fault::NoSharedMemory, "begin with a hello that asks for it");
                busy.stage = Stage::Closing;
                return None;
            }
            Ok(Some(Opening::Plain)) => Phase::Plain,
            Ok(Some(Opening::Hello(hello))) => {
                busy.input.consume(HELLO_BYTES);
                match self.objection_to(&hello, shared_only) {
                    Some(fault) => return self.turn_away(busy, fault),
                    None => self.welcome(core, collector, key, busy, &hello)?,
                }
            }
            Err(error) => return self.turn_away(busy, error.fault()),
        };
        client(core, key)?.phase = phase;
        core.clear_timer(key);
        Some(phase)
    }

    fn objection_to(&self, hello: &Hello, shared_only: bool) -> Option<Fault> {
        if hello.version != VERSION {
            return Some(Fault::VersionMismatch);
        }
        if self.draining {
            return Some(Fault::Draining);
        }
        if !fits(&hello.schema, &self.options.schema) {
            return Some(Fault::SchemaMismatch);
        }
        (shared_only && !hello.shared).then_some(Fault::NoSharedMemory)
    }

    /// Refuses the client with a welcome that says why, and ends the connection.
    fn turn_away(&self, busy: &mut Busy, fault: Fault) -> Option<Phase> {
        let welcome = Welcome { fault: fault as u16, ..self.welcome_with(0) };
        busy.output.buffer().extend_from_slice(&welcome.encode());
        busy.stage = Stage::Closing;
        None
    }

    fn welcome_with(&self, ring_bytes: u32) -> Welcome {
        let credit = self.options.stream_credit;
        Welcome { version: VERSION, fault: 0, ring_bytes, credit, schema: self.options.schema }
    }

    /// Welcomes a client, with shared memory if it asked for it. Where memory is short it stays on its
    /// socket, if the endpoint allows that.
    fn welcome(
        &mut self,
        core: &mut ServerCore,
        collector: &mut Collector,
        key: Key,
        busy: &mut Busy,
        hello: &Hello,
    ) -> Option<Phase> {
        if hello.shared && client(core, key)?.outlet.is_none() {
            match self.hand_over(core, collector, key, busy, hello.ring_bytes) {
                Ok(()) => return Some(Phase::Multiplexed),
                Err(()) if client(core, key)?.shared_only => {
                    return self.turn_away(busy, Fault::NoSharedMemory);
                }
                Err(()) => {}
            }
        }
        busy.output.buffer().extend_from_slice(&self.welcome_with(0).encode());
        Some(Phase::Multiplexed)
    }

    /// Makes rings and hands them over. From here on nothing but bells goes over the socket.
    fn hand_over(
        &mut self,
        core: &mut ServerCore,
        collector: &mut Collector,
        key: Key,
        busy: &mut Busy,
        wanted_bytes: u32,
    ) -> Result<(), ()> {
        let ring_bytes = ring_bytes(wanted_bytes, self.options.ring_bytes_max);
        let Some((Entry::Client(client), socket)) = core.entry_and_descriptor(key) else { return Err(()) };
        if !busy.input.unread().is_empty() {
            // A client that asks for rings waits for them before it says more.
            return Err(());
        }
        let (end, memory) = SharedEnd::create_beside(ring_bytes, self.promised_bytes).map_err(drop)?;
        let welcome = self.welcome_with(ring_bytes).encode();
        self.statistics.writes += 1;
        match thalweg_transport::send_with_descriptor(socket, &welcome, memory.as_fd()) {
            Ok(WriteOutcome::Bytes(HELLO_BYTES)) => {}
            // Nothing was sent on this socket before, so there is room, unless it is broken.
            _ => return Err(()),
        }
        self.promised_bytes += end.promised_bytes();
        let ring = Ring { end, polled: false, active: self.turn, paused: false, blocked: false };
        client.ring = Some(Box::new(ring));
        collector.poll_ring(key, client, self.turn);
        self.statistics.shared_clients += 1;
        // The socket was level-triggered for input, and remains so for bells.
        core.set_interest(key, Interest::READ).map_err(drop)
    }
}

/// Whether two schemas are the same, or either side takes any (zeros).
fn fits(theirs: &SchemaHash, ours: &SchemaHash) -> bool {
    let any = |schema: &SchemaHash| schema.iter().all(|byte| *byte == 0);
    theirs == ours || any(theirs) || any(ours)
}

/// Bytes of a ring for a client that asks for `wanted`: a power of two within what is possible and allowed.
fn ring_bytes(wanted: u32, max: u32) -> u32 {
    let (least, most) = (*RING_BYTES.start(), *RING_BYTES.end());
    let max = max.clamp(least, most);
    let max = if max.is_power_of_two() { max } else { max.next_power_of_two() / 2 };
    if wanted == 0 { max } else { wanted.clamp(least, max).next_power_of_two() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_powers_of_two_within_bounds() {
        assert_eq!(ring_bytes(0, 4 << 20), 4 << 20);
        assert_eq!(ring_bytes(1, 4 << 20), *RING_BYTES.start());
        assert_eq!(ring_bytes(65_000, 4 << 20), 65_536);
        assert_eq!(ring_bytes(u32::MAX, 4 << 20), 4 << 20);
        assert_eq!(ring_bytes(u32::MAX, 5 << 20), 4 << 20);
    }

    #[test]
    fn zeros_fit_any_schema() {
        let (none, one, other) = ([0; 32], [1; 32], [2; 32]);
        assert!(fits(&none, &one) && fits(&one, &none) && fits(&one, &one));
        assert!(!fits(&one, &other));
    }
}
