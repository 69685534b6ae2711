//! How long appends take, from the turn that read one whole to the moment its answer may leave. The service
//! says which requests are appends.
//!
//! No clock is read for any of them. The reactor reads one when a turn begins, and what a store reports
//! complete is mostly the first thing of a turn. An append that was answered at once counts from the turn's
//! beginning to its end, where the reactor reads the clock anyway before it waits. So a measure is as fine as
//! a turn is long, and costs two additions.

use crate::connection::Reply;
use crate::meters::Meters;
use crate::reactor::HttpCore;
use thalweg_wire::exchange::Service;

/// What one turn has seen so far.
#[derive(Debug, Default)]
pub(crate) struct AppendLatency {
    /// Answered, and waiting for nothing but the turn's end.
    answered: u64,
    /// The turn's clock is older than something that was done in the turn.
    acted: bool,
}

impl AppendLatency {
    /// Something was done.
    pub(crate) fn acted(&mut self) {
        self.acted = true;
    }

    /// An answer was ready at once.
    pub(crate) fn answered(&mut self, reply: &Reply) {
        self.answered += u64::from(succeeded(reply));
    }

    /// This moment, microseconds on the monotonic clock: read again, once for all that became complete, if
    /// something else was done in this turn before.
    pub(crate) fn moment_us<S: Service>(&self, core: &HttpCore<S>) -> u64 {
        if self.acted { core.fresh_now_us() } else { core.now_us() }
    }

    /// Counts what was answered at once. The last thing of a turn.
    pub(crate) fn turn_ended<S: Service>(&mut self, core: &mut HttpCore<S>, meters: &Meters) {
        if self.answered > 0 {
            let took_us = core.turn_ended_us().saturating_sub(core.now_us());
            meters.appends(self.answered, took_us);
        }
        *self = Self::default();
    }
}

/// Whether it answers an append that was carried out.
pub(crate) fn succeeded(reply: &Reply) -> bool {
    reply.manner.appends && reply.response.status < 300
}
