//! Ending: nothing new is taken, what was begun is answered, and who does not take its answers in time is left.
//!
//! The listeners go first, with their paths, so that another server may follow at once. Every client is told; what it
//! had sent before it could know is refused as [`Fault::Draining`](thalweg_wire::fault::Fault::Draining), which is safe
//! to repeat elsewhere. After the grace clients go, whatever they are owed. A handler is waited for without a limit:
//! whoever stops a server may rely on nobody using it any more.

use crate::server::client::{Entry, Phase};
use crate::server::collector::{Collector, ServerCore, client};
use crate::server::engine::{Engine, Fate};
use crate::server::handler::Handler;
use std::time::Instant;
use thalweg_reactor::Key;
use thalweg_wire::frame::{Header, Kind};

impl Engine {
    pub(crate) fn begin_to_drain<H: Handler>(
        &mut self,
        core: &mut ServerCore,
        collector: &mut Collector,
        handler: &mut H,
    ) {
        if self.drain_until.is_some() {
            return;
        }
        self.draining = true;
        self.drain_until = Instant::now().checked_add(self.options.drain_grace).or(Some(Instant::now()));
        for source in std::mem::take(&mut self.sources) {
            core.remove(source.key);
        }
        for key in clients(core) {
            let Some(client) = client(core, key) else { continue };
            let (phase, mut busy) = (client.phase, client.busy.take().unwrap_or_else(|| self.spare.take()));
            if phase == Phase::Multiplexed && !busy.closing {
                busy.output.bytes.extend_from_slice(&Header::new(Kind::Goodbye, 0, 0).encode());
            }
            let mut fate = Fate::Lives;
            if !busy.paused && !busy.ended && !busy.closing {
                fate = self.receive(core, key, &mut busy);
                self.serve(core, collector, key, &mut busy, false, handler);
            }
            self.put_back(core, collector, key, busy, fate);
        }
        self.clear_up(core, collector, handler);
    }

    /// Whether a drain has come to its end. Clients that did not take their answers in time are left on the way.
    pub(crate) fn has_drained(&mut self, core: &mut ServerCore, collector: &mut Collector) -> bool {
        let Some(until) = self.drain_until else { return false };
        if self.statistics.clients > 0 && Instant::now() >= until {
            self.leave_clients(core, collector);
        }
        self.statistics.clients == 0 && self.statistics.in_flight == 0
    }

    /// When the grace of a drain that goes on is over.
    pub(crate) fn drain_until(&self) -> Option<Instant> {
        self.drain_until.filter(|_| self.statistics.clients > 0)
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
