//! Bytes that are not in memory: brought there by the pool, while their connection waits and the reactor
//! goes on. A request that finds its bytes cold stays in the input and is served again; a subscriber is
//! asked again.

use crate::connection::Active;
use crate::reactor::{Gone, Http, HttpCore, Message};
use thalweg_reactor::{Key, Permit};
use thalweg_wire::exchange::{Refusal, Service, Work};

/// So often in a row what was brought in may be gone again before it was sent; then memory is too scarce.
const WARMINGS_MAX: u8 = 8;

impl<S: Service> Http<S> {
    /// Leaves the request where it lies until its bytes are in memory.
    pub(crate) fn warm_request(
        &mut self,
        core: &mut HttpCore<S>,
        key: Key,
        active: &mut Active<S::Topic>,
        work: Work,
    ) {
        if !self.warm(core, key, active, work) {
            self.meters.overload();
            self.refuse(core, active, &TOO_COLD);
        }
    }

    /// Lets a subscriber wait until its bytes are in memory.
    pub(crate) fn warm_live(
        &mut self,
        core: &mut HttpCore<S>,
        key: Key,
        active: &mut Active<S::Topic>,
        work: Work,
    ) -> Result<(), Gone> {
        // Its position is the client's to resume from.
        if self.warm(core, key, active, work) { Ok(()) } else { Err(Gone::Close) }
    }

    /// Hands the work over; room for the report is reserved first, so that it cannot get lost. `false`:
    /// there is no room, or no use in trying again.
    fn warm(
        &mut self,
        core: &mut HttpCore<S>,
        key: Key,
        active: &mut Active<S::Topic>,
        Work(work): Work,
    ) -> bool {
        active.warmings += 1;
        if active.warmings > WARMINGS_MAX {
            return false;
        }
        let Some(pool) = &self.pool else {
            work();
            return true;
        };
        if self.load.cold_reads >= self.config.cold_reads_max {
            return false;
        }
        let Some(permit) = core.handle().reserve() else { return false };
        let job = move || {
            let _report = Report(Some((permit, key)));
            work();
        };
        active.warming = pool.submit(Box::new(job)).is_ok();
        self.load.cold_reads += usize::from(active.warming);
        active.warming
    }

    /// The bytes are in memory: goes on where the connection waited.
    pub(crate) fn warmed(&mut self, core: &mut HttpCore<S>, key: Key) {
        self.load.cold_reads -= 1;
        self.with_active(core, key, |http, core, key, active| {
            active.warming = false;
            http.drive(core, key, active)
        });
    }
}

/// Says that work was done, or that it panicked: the connection waits for either, and asks again.
struct Report(Option<(Permit<Message>, Key)>);

impl Drop for Report {
    fn drop(&mut self) {
        if let Some((permit, key)) = self.0.take() {
            permit.post(Message::Warmed { key });
        }
    }
}

const TOO_COLD: Refusal = Refusal {
    status: 503,
    code: "reads-overloaded",
    field: "request",
    detail: "Too many reads wait for the disk; try again in a moment.",
};
