//! Bytes that are not in memory: brought there by the pool, while their connection waits and the reactor goes
//! on. A request whose bytes are cold stays in the input and is served again afterwards; a subscriber is
//! served again. At the bound on reads that wait for the disk (`cold_reads_max`) a request is refused. A
//! subscriber waits until one of those reads is done: it was promised what comes, and holds nothing
//! meanwhile. The pool is shared, and the end of another reactor's read is not reported here. So where this
//! reactor has no read in the pool, a timer lets those subscribers ask again.
//!
//! An answer that cannot leave lies here as it was read, in maps of files: the peer's socket is full, or an
//! earlier answer of the connection is still awaited. Its pages may have left memory by the time it may go.
//! So the kernel is asked about them before they are sent, and the pool brings back what has left.
//!
//! Invariant: while a subscriber waits in [`ColdReads`], a read of this reactor is still to be reported, or
//! its timer is set. *Checked by* the tests in `tests/cold.rs`.

use crate::at::At;
use crate::connection::Role;
use crate::limit::Limit;
use crate::live::LiveProgress;
use crate::patience::{now_ms, slow_ms};
use crate::reactor::{ConnectionEnd, Http, HttpCore, Message};
use crate::timer::Timer;
use std::collections::VecDeque;
use thalweg_reactor::{Key, Permit, Pool};
use thalweg_sys::disk::{bring_in, is_present};
use thalweg_wire::exchange::{Announced, Live, Mode, Refusal, Service, Work};
use thalweg_wire::piece::Piece;

/// How many times in a row bytes that were brought in may be gone again before they were sent. Beyond that
/// memory is too scarce.
const WARMINGS_MAX: u8 = 8;
/// How long until a pool that other reactors filled is asked for room again.
const ASK_AGAIN_MS: u32 = 10;

/// What brings cold bytes in, and who waits for that.
#[derive(Debug, Default)]
pub(crate) struct ColdReads {
    /// Without one, cold reads are done in place.
    pub(crate) pool: Option<Pool>,
    /// Connections that were put off because as many reads wait for the disk as may.
    waiting: VecDeque<Key>,
    /// After which they ask again, where no read of this reactor is to be reported.
    timer: Timer,
}

/// What became of work that brings bytes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Warming {
    /// It is done.
    Done,
    /// The pool has it.
    Begun,
    /// As much waits for the disk as may.
    Full,
    /// There is no use in trying again.
    TooOften,
}

impl<S: Service> Http<S> {
    /// Leaves the request where it lies until its bytes are in memory.
    pub(crate) fn warm_request(&mut self, at: &mut At<'_, S>, work: Work) {
        if matches!(self.warm(at, work), Warming::Full | Warming::TooOften) {
            self.meters.overload(Limit::ColdReads);
            self.refuse(at, &TOO_COLD);
        }
    }

    /// Lets a subscriber wait until its bytes are in memory; `None` if they are.
    pub(crate) fn warm_live(
        &mut self,
        at: &mut At<'_, S>,
        live: Live,
        work: Work,
    ) -> Result<Option<LiveProgress>, ConnectionEnd> {
        match self.warm(at, work) {
            Warming::Done if at.active.output.is_empty() => Ok(None),
            Warming::Done | Warming::Begun => Ok(Some(LiveProgress::Parked)),
            Warming::Full => {
                self.await_warmth(at);
                Ok(Some(LiveProgress::Parked))
            }
            Warming::TooOften => {
                self.meters.overload(Limit::ColdReads);
                // Its position is the client's to resume from.
                let ended = match live.mode {
                    Mode::Sse => self.end_sse(at),
                    Mode::LongPoll => {
                        let announced = Announced { live: Some(live), ..Announced::default() };
                        let response = self.service.refuse(&TOO_COLD, announced, Self::now(at.core));
                        self.respond_live(at, &response)
                    }
                };
                ended.map(Some)
            }
        }
    }

    /// Whether all that is kept for a peer is still in memory: unsent bytes, and answers that waited for
    /// earlier ones. If it is not, its connection goes on once it is.
    pub(crate) fn is_kept_warm(&mut self, at: &mut At<'_, S>) -> bool {
        if at.active.output_waits {
            return false;
        }
        let now_ms = now_ms(at.core);
        if now_ms.wrapping_sub(at.active.present_ms) < slow_ms(self.config.stall_timeout_ms) {
            return true;
        }
        let gone: Vec<Piece> = at.active.kept_pieces().filter(|p| !is_present(p)).cloned().collect();
        let warming = match (gone.is_empty(), at.active.warming) {
            (true, _) => Warming::Done,
            // The pool has another read of this connection, whose report has it ask again.
            (false, true) => Warming::Begun,
            (false, false) => self.warm(at, Work(Box::new(move || gone.iter().for_each(|p| bring_in(p))))),
        };
        match warming {
            Warming::Begun => at.active.output_waits = true,
            Warming::Full => self.await_warmth(at),
            // Too often: memory is too scarce, and the write itself waits for the disk.
            Warming::Done | Warming::TooOften => (at.active.present_ms, at.active.warmings) = (now_ms, 0),
        }
        matches!(warming, Warming::Done | Warming::TooOften)
    }

    /// Puts a connection off until the pool has room.
    fn await_warmth(&mut self, at: &mut At<'_, S>) {
        at.active.warmings = 0;
        // Set already where others wait: they were the first.
        let is_first = self.load.cold_reads() == 0 && self.cold.waiting.is_empty();
        if is_first && !self.cold.timer.set(at.core, Role::Cold, ASK_AGAIN_MS) {
            // No timer: the next turn has to do.
            return self.put_off(at);
        }
        if !std::mem::replace(&mut at.active.put_off, true) {
            self.cold.waiting.push_back(at.key);
        }
    }

    /// Hands the work over; room for the report is reserved first, so that it cannot get lost.
    fn warm(&mut self, at: &mut At<'_, S>, Work(work): Work) -> Warming {
        at.active.warmings += 1;
        if at.active.warmings > WARMINGS_MAX {
            return Warming::TooOften;
        }
        let Some(pool) = &self.cold.pool else {
            work();
            return Warming::Done;
        };
        if self.load.cold_reads() >= self.config.cold_reads_max {
            return Warming::Full;
        }
        let Some(permit) = at.core.handle().reserve() else { return Warming::Full };
        let key = at.key;
        let job = move || {
            // Not before: a job that the pool has no room for reports nothing.
            let _report = Report(Some((permit, key)));
            work();
        };
        at.active.warming = pool.submit(Box::new(job)).is_ok();
        if !at.active.warming {
            return Warming::Full;
        }
        self.load.begin_cold();
        Warming::Begun
    }

    /// The bytes are in memory: goes on where the connection waited, and lets one go on that waits for room.
    pub(crate) fn warmed(&mut self, core: &mut HttpCore<S>, key: Key) {
        self.load.end_cold();
        self.with_active(core, key, |http, at| {
            (at.active.warming, at.active.output_waits) = (false, false);
            http.resume_output(at)
        });
        self.ask_pool_again(core);
    }

    /// Lets a subscriber ask for room in the pool again: one, where the report of a read is to come that lets
    /// the next one ask; otherwise all of them.
    pub(crate) fn ask_pool_again(&mut self, core: &mut HttpCore<S>) {
        while let Some(key) = self.cold.waiting.pop_front() {
            core.ready_later(Message::Resume { key });
            if self.load.cold_reads() > 0 && core.entry(key).is_some() {
                break;
            }
        }
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
    code: Limit::ColdReads.name(),
    field: "request",
    detail: "Too many reads wait for the disk; try again in a moment.",
};
