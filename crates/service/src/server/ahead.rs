//! Hearing what is said behind a request that has to wait.
//!
//! A multiplexed connection at its bound begins no call until one ends. What may end one is a cancel, or
//! credit for a stream, and these stand behind the request that waits: so the input is looked through, as far
//! as it may reach, for what concerns calls in flight. What was heard is turned into a credit of nothing
//! where it stands. What concerns a call that has not begun stays, to be heard in its place.

use crate::server::answers::Place;
use crate::server::busy::Busy;
use crate::server::call::Pay;
use crate::server::client::Phase;
use crate::server::cut::{self, Cut};
use crate::server::engine::Engine;
use thalweg_reactor::Key;
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{HEADER_BYTES, Header, Kind};

/// Bytes of input that a connection which begins no call may have behind the request that waits.
const AHEAD_BYTES_MAX: usize = 64 * 1024;

impl Busy {
    /// Whether input is wanted: to be dealt with, or at least to be looked through.
    pub(crate) fn wants_input(&self) -> bool {
        !self.ended && !self.closing && (!self.paused || self.input.unread().len() < self.ahead_bytes_max)
    }
}

impl Busy {
    /// Has the request that comes in pieces read to its end, if it begins within what may be read behind the
    /// one that waits: as many as two may lie here whole, and what is said behind further ones is heard once
    /// they begin.
    fn reach_behind(&mut self, waiting_bytes: usize) {
        let begins = self.input.unread().len() - self.input.ahead().len();
        if begins < waiting_bytes + AHEAD_BYTES_MAX {
            let end = begins + cut::first_bytes(self.input.ahead(), HEADER_BYTES);
            self.ahead_bytes_max = self.ahead_bytes_max.max(end + AHEAD_BYTES_MAX);
        }
    }
}

impl Engine {
    /// The connection may not begin the request that comes next: hears what stands behind it.
    pub(crate) fn pause(&mut self, (key, phase): (Key, Phase), busy: &mut Busy) {
        busy.paused = true;
        busy.ahead_bytes_max = 0;
        if phase != Phase::Multiplexed {
            return;
        }
        let waiting_bytes = match cut::multiplexed(busy.input.unread(), self.options.frame_bytes_max) {
            Cut::Request { head, length, .. } => head + length,
            _ => 0,
        };
        busy.ahead_bytes_max = waiting_bytes + AHEAD_BYTES_MAX;
        loop {
            let ahead = busy.input.ahead();
            let passed = match cut::multiplexed(ahead, self.options.frame_bytes_max) {
                Cut::Request { head, length, .. } => head + length,
                Cut::TooLong { bytes, .. } if bytes <= ahead.len() => bytes,
                Cut::Cancel(id) => {
                    if busy.in_flight.find(id).is_some() {
                        busy.input.rewrite_ahead(&Header::new(Kind::Credit, id, 0).encode());
                        self.end_early(busy, key, id, Fault::Cancelled, "the client cancelled it");
                    }
                    HEADER_BYTES
                }
                Cut::Credit(id, items) => {
                    if let Some(begun) = busy.in_flight.find(id) {
                        let place = Place { key, id, serial: begun.serial };
                        self.payments.push((place, Pay::Items(items)));
                        busy.input.rewrite_ahead(&Header::new(Kind::Credit, id, 0).encode());
                    }
                    HEADER_BYTES
                }
                // A second one that comes in pieces, as it may behind one that is whole, hides nothing
                // either.
                Cut::More => return busy.reach_behind(waiting_bytes),
                // What is wrong is told in its place too.
                Cut::TooLong { .. } | Cut::Wrong { .. } => return,
            };
            busy.input.pass_ahead(passed);
        }
    }
}
