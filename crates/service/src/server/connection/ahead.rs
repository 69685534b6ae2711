//! Acts on cancels and credit that stand behind a request which has to wait.
//!
//! A multiplexed connection at its bound begins no call until one ends. What may end one is a cancel, or
//! credit for a stream, and these stand behind the request that waits: so the input is looked through, as far
//! as it may reach, for what concerns calls in flight. What was heard is turned into a credit of nothing
//! where it stands. What concerns a call that has not begun stays, to be heard in its place.
//!
//! Where that is used up and streams are in flight, the oldest requests in it are refused until there is room
//! again: a stream may wait for the very credit that stands behind them, and they for its end. Without
//! streams they wait: calls end by themselves.

use crate::server::calls::answers::Place;
use crate::server::calls::call::Grant;
use crate::server::calls::framing::Framing;
use crate::server::connection::busy::{Busy, Stage};
use crate::server::connection::next_frame::{self, NextFrame, RequestHead};
use crate::server::connection::slot::Phase;
use crate::server::engine::Engine;
use thalweg_reactor::Key;
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{FrameKind, HEADER_BYTES, Header};

/// Bytes of input that a connection which begins no call may have behind the request that waits.
const AHEAD_BYTES_MAX: usize = 64 * 1024;

impl Busy {
    /// Whether input is wanted: to be dealt with, or at least to be looked through.
    pub(crate) fn wants_input(&self) -> bool {
        self.stage == Stage::Open && (!self.paused || self.input.unread().len() < self.ahead_bytes_max)
    }

    /// Whether streams are in flight, and what their client says of them comes to be heard only once a
    /// request goes that waits before it.
    pub(crate) fn hides_credit(&self) -> bool {
        let is_used_up = self.ahead_bytes_max > 0 && self.input.unread().len() >= self.ahead_bytes_max;
        self.paused && is_used_up && self.in_flight.iter().any(|begun| begun.is_stream)
    }

    /// Sets how far to read behind the waiting request. A request that begins within [`AHEAD_BYTES_MAX`] is
    /// read to its end, and so are [`AHEAD_BYTES_MAX`] bytes behind it: two requests may lie here whole, and
    /// what stands behind further ones is heard once they begin.
    fn reach_behind(&mut self, waiting_bytes: usize) {
        let passed = self.input.unread().len() - self.input.ahead().len();
        let reach = waiting_bytes + AHEAD_BYTES_MAX;
        let end = if passed < reach {
            passed + next_frame::first_bytes(self.input.ahead(), HEADER_BYTES)
        } else if self.input.last_ahead() < reach {
            passed
        } else {
            return;
        };
        self.ahead_bytes_max = self.ahead_bytes_max.max(end + AHEAD_BYTES_MAX);
    }
}

impl Engine {
    /// Refuses the request that comes next, so that what is said behind it is heard.
    pub(crate) fn shed(&mut self, busy: &mut Busy, head: RequestHead) {
        self.statistics.requests += 1;
        busy.input.consume(head.total());
        busy.paused = false;
        let full = (Fault::Overloaded, "too many calls of this connection wait behind its streams");
        let (fault, message) = self.objection(busy, Phase::Multiplexed, head.id).unwrap_or(full);
        self.refuse(busy, Framing::Multiplexed(head.id), fault, message);
    }

    /// The connection may not begin the request that comes next: hears what stands behind it.
    pub(crate) fn pause(&mut self, (key, phase): (Key, Phase), busy: &mut Busy) {
        busy.paused = true;
        busy.ahead_bytes_max = 0;
        if phase != Phase::Multiplexed {
            return;
        }
        let waiting_bytes = match next_frame::multiplexed(busy.input.unread(), self.options.frame_bytes_max) {
            NextFrame::Request(head) => head.total(),
            _ => 0,
        };
        busy.ahead_bytes_max = waiting_bytes + AHEAD_BYTES_MAX;
        loop {
            let ahead = busy.input.ahead();
            let passed = match next_frame::multiplexed(ahead, self.options.frame_bytes_max) {
                NextFrame::Request(head) => head.total(),
                NextFrame::TooLong { bytes, .. } if bytes <= ahead.len() => bytes,
                NextFrame::Cancel(id) => {
                    if busy.in_flight.find(id).is_some() {
                        busy.input.rewrite_ahead(&Header::new(FrameKind::Credit, id, 0).encode());
                        self.end_early(busy, key, id, Fault::Cancelled, "the client cancelled it");
                    }
                    HEADER_BYTES
                }
                NextFrame::Credit(id, items) => {
                    if let Some(begun) = busy.in_flight.find(id) {
                        let place = Place { key, id, serial: begun.serial };
                        self.grants.push((place, Grant::Items(items)));
                        busy.input.rewrite_ahead(&Header::new(FrameKind::Credit, id, 0).encode());
                    }
                    HEADER_BYTES
                }
                // A second one that comes in pieces, as it may behind one that is whole, hides nothing
                // either.
                NextFrame::More => return busy.reach_behind(waiting_bytes),
                // What is wrong is told in its place too.
                NextFrame::TooLong { .. } | NextFrame::ProtocolError { .. } => return,
            };
            busy.input.pass_ahead(passed);
        }
    }
}
