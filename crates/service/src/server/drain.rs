//! Draining: the server takes no new call, answers the calls that began, and disconnects clients that do not
//! take their answers in time.
//!
//! The listeners close first and their paths are removed, so that another server may follow at once. Every
//! client is told; requests that it sent before it could know are refused as
//! [`Fault::Draining`](thalweg_wire::fault::Fault::Draining), which is safe to repeat elsewhere. After the
//! grace period clients are disconnected, whatever they are owed. Handlers are waited for without a limit:
//! once the run returns, none uses the server.

use crate::server::collector::{Collector, ServerCore, client};
use crate::server::connection::busy::{NEVER_MS, Stage};
use crate::server::connection::slot::{Entry, Phase};
use crate::server::engine::Engine;
use crate::server::handler::Handler;
use crate::server::turn::ServerTurn;
use thalweg_reactor::Key;
use thalweg_transport::RING_BYTES_DEFAULT;
use thalweg_wire::frame::{FrameKind, Header};

impl<H: Handler> ServerTurn<'_, H> {
    pub(crate) fn begin_to_drain(&mut self) {
        let Self { engine, core, .. } = self;
        if engine.draining {
            return;
        }
        engine.draining = true;
        for source in std::mem::take(&mut engine.sources) {
            core.remove(source.key);
        }
        let grace_ms = u64::try_from(engine.options.drain_grace.as_millis()).unwrap_or(NEVER_MS);
        let until_ms = core.fresh_now_ms().saturating_add(grace_ms);
        engine.drain_until_ms = Some(until_ms);
        for key in clients(core) {
            let Self { engine, core, .. } = self;
            let Some(client) = client(core, key) else { continue };
            let (phase, mut busy) = (client.phase, client.busy.take().unwrap_or_else(|| engine.spare.take()));
            if phase == Phase::Multiplexed && busy.stage != Stage::Closing {
                busy.output.buffer().extend_from_slice(&Header::new(FrameKind::Goodbye, 0, 0).encode());
            }
            let most_bytes = engine.left_behind_bytes_max();
            let fate = self.hear_out(key, &mut busy, most_bytes);
            // The timer of a client still connected then causes the turn that ends it, in a foreign loop too.
            self.engine.watch_deadline(self.core, key, &mut busy, until_ms);
            self.put_back(key, busy, fate);
        }
        self.clear_up();
    }

    /// Whether a drain has come to its end. Clients that did not take their answers in time are left on the
    /// way.
    pub(crate) fn has_drained(&mut self) -> bool {
        let Some(until_ms) = self.engine.drain_until_ms else { return false };
        if self.engine.statistics.clients > 0 && self.core.fresh_now_ms() >= until_ms {
            self.engine.leave_clients(self.core, self.collector);
            // No turn may follow, and the handler is to hear of the clients that did not get their answers.
            self.clear_up();
        }
        self.engine.statistics.clients == 0 && self.engine.statistics.in_flight == 0
    }
}

impl Engine {
    /// Bytes that a client may have sent before it could know: what a ring or a socket holds.
    pub(crate) fn left_behind_bytes_max(&self) -> usize {
        self.options.ring_bytes_max.max(RING_BYTES_DEFAULT) as usize
    }

    /// Lets every client go, and tells the handlers of their calls.
    pub(crate) fn leave_clients(&mut self, core: &mut ServerCore, collector: &mut Collector) {
        for key in clients(core) {
            self.lose(core, collector, key);
        }
    }
}

fn clients(core: &mut ServerCore) -> Vec<Key> {
    let keys: Vec<Key> = core.keys().collect();
    keys.into_iter().filter(|key| matches!(core.entry(*key), Some(Entry::Client(_)))).collect()
}
