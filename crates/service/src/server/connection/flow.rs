//! Calls that end before their handlers do: cancelled, overdue, or left by a client that is gone.

use crate::server::calls::answers::Place;
use crate::server::calls::call::Call;
use crate::server::collector::{Collector, ServerCore, client};
use crate::server::connection::busy::{Busy, NEVER_MS};
use crate::server::connection::slot::{Client, Entry, Phase};
use crate::server::engine::Engine;
use crate::server::handler::ClientId;
use std::sync::Arc;
use thalweg_reactor::Key;
use thalweg_wire::fault::Fault;
use thalweg_wire::service::error_frame;

impl Engine {
    /// Ends a call for its client, and tells its handler. It counts against the connection's bound until the
    /// handler ends it too. Of a call that has ended already the handler is told, and nothing else is done.
    pub(crate) fn end_early(&mut self, busy: &mut Busy, key: Key, id: u64, fault: Fault, message: &str) {
        self.given_up.push_back((ClientId::of(key), id));
        let Some(begun) = busy.in_flight.find(id) else { return };
        let place = Place { key, id, serial: begun.serial };
        let call = Arc::clone(&begun.call);
        if !self.abandon(&call) {
            self.statistics.in_flight_bytes += busy.in_flight.abandon(id);
        }
        drop(call);
        let frame = error_frame(&self.options.error_tag, &format!("{fault}: {message}"));
        self.end_call(busy, place, fault as u16, &frame);
    }

    /// Tells a handler that its answer is not wanted any more; whether it had ended the call already.
    pub(crate) fn abandon(&mut self, call: &Call) -> bool {
        let had_ended = call.cancel();
        if had_ended {
            self.statistics.in_flight -= 1;
        }
        had_ended
    }

    /// Sets the connection's timer to `deadline_ms`, unless it is due earlier.
    pub(crate) fn watch_deadline(&self, core: &mut ServerCore, key: Key, busy: &mut Busy, deadline_ms: u64) {
        if deadline_ms < busy.timer_ms {
            busy.timer_ms = deadline_ms;
            let after_ms = deadline_ms.saturating_sub(core.fresh_now_ms());
            core.set_timer(key, u32::try_from(after_ms).unwrap_or(u32::MAX));
        }
    }

    /// A connection's timer came due: its overdue calls end, or it has not begun in time.
    pub(crate) fn timer(&mut self, core: &mut ServerCore, collector: &mut Collector, key: Key) {
        match core.entry(key) {
            Some(Entry::Listener(index)) => {
                let index = *index;
                return self.listen(core, index);
            }
            Some(Entry::Client(Client { phase: Phase::Fresh, .. })) => {
                return self.miss_hello(core, collector, key);
            }
            _ => {}
        }
        let Some(mut busy) = client(core, key).and_then(|client| client.busy.take()) else { return };
        let now_ms = core.fresh_now_ms();
        let overdue = busy.in_flight.iter().filter(|begun| begun.deadline_ms <= now_ms);
        let mut overdue: Vec<(u64, u64)> = overdue.map(|begun| (begun.deadline_ms, begun.id)).collect();
        overdue.sort_unstable();
        for (_, id) in overdue {
            self.end_early(&mut busy, key, id, Fault::DeadlineExceeded, "its handler goes on");
        }
        busy.timer_ms = NEVER_MS;
        let deadlines = busy.in_flight.iter().map(|begun| begun.deadline_ms);
        let next_ms = deadlines.chain(self.drain_until_ms).min().unwrap_or(NEVER_MS);
        self.watch_deadline(core, key, &mut busy, next_ms);
        self.mark_dirty(key, &mut busy);
        if let Some(client) = client(core, key) {
            client.busy = Some(busy);
        }
    }
}
