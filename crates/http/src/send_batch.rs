//! Batched sends: where many connections are served one after the other, what each is sent is handed to the
//! kernel in one call (io_uring), if the kernel allows that.
//!
//! Purpose: a delivery to many subscribers, the answers to many writes that became durable together, and
//! those to many requests that were ready in one turn, are many small writes. Each would be a system call of
//! its own. Small writes join the batch. A later write on the same connection takes the earlier one out again
//! and is sent with it, and so does the connection's end, so that each connection keeps its order. What a
//! socket does not take is kept as usual.
//!
//! Invariants: nothing is collected but between [`SendBatch::begin`] and [`Http::end_batch`], or between
//! [`SendBatch::begin_turn`] and [`Http::end_turn_batch`], and nothing is left behind those; a connection is
//! in the batch once, its entry says so (`Flags::JOINED`), and while it is being served only at the end of
//! it; it is not ended while it is in it. While a connection is being served the batch is not sent: what the
//! connection's socket did not take would find its active part out of its entry. Nor does one join that is
//! served meanwhile, to make room for the first. *Checked by* the tests below, `tests/send_batch.rs` and the
//! tests of live reads, which run with it.

use crate::at::At;
use crate::connection::Flags;
use crate::reactor::{ConnectionEnd, Http, HttpCore};
use crate::send::Segment;
use bytes::Bytes;
use smallvec::SmallVec;
use std::io;
use std::ops::Range;
use thalweg_reactor::Key;
use thalweg_sys::send_ring::SendRing;
use thalweg_wire::exchange::Service;

/// Fewer connections than this are sent to one by one.
const TOGETHER_MIN: usize = 8;
/// Writes in one batch at most; the more the better.
const TOGETHER_MAX: usize = 512;
/// What is larger goes by itself.
const JOINS_BYTES_MAX: usize = 2 * 1024;

/// The way to the kernel.
#[derive(Debug)]
enum Ring {
    /// Made when it is first of use: many servers never have as many subscribers.
    Untried,
    Ready(Box<SendRing>),
    /// Not wanted, or not to be had.
    Absent,
}

/// What a connection is sent.
#[derive(Debug)]
enum Delivery {
    /// The same as others, perhaps.
    Shared(Bytes),
    /// A range of what was copied.
    Copied(Range<usize>),
}

impl Delivery {
    fn bytes<'d>(&'d self, copied: &'d [u8]) -> &'d [u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Copied(range) => &copied[range.clone()],
        }
    }

    /// What is left of it behind its first `taken` bytes.
    fn rest(&self, copied: &[u8], taken: usize) -> Bytes {
        match self {
            Self::Shared(bytes) => bytes.slice(taken..),
            Self::Copied(range) => Bytes::copy_from_slice(&copied[range.start + taken..range.end]),
        }
    }
}

/// Deliveries that wait for each other.
#[derive(Debug)]
pub(crate) struct SendBatch {
    ring: Ring,
    /// What is sent may wait until this turn's readiness has been seen to.
    turn: bool,
    /// And until those have been served who are being served one after the other.
    round: bool,
    /// Connections that are being served: one, and those that are served meanwhile.
    pub(crate) served: u8,
    deliveries: Vec<(Key, Delivery)>,
    copied: Vec<u8>,
}

impl SendBatch {
    /// None at all, unless they are wanted.
    pub(crate) fn new(wanted: bool) -> SendBatch {
        let ring = if wanted { Ring::Untried } else { Ring::Absent };
        SendBatch { ring, turn: false, round: false, served: 0, deliveries: Vec::new(), copied: Vec::new() }
    }

    /// A turn begins in which `connections` are ready. It ends with [`Http::end_turn_batch`].
    pub(crate) fn begin_turn(&mut self, connections: usize) {
        self.turn = self.turn || self.is_worth(connections);
    }

    /// A round begins in which `connections` are served. It ends with [`Http::end_batch`].
    pub(crate) fn begin(&mut self, connections: usize) {
        self.round = self.is_worth(connections);
    }

    /// Whether writes to this many connections are worth one call, and there is a ring for it.
    fn is_worth(&mut self, connections: usize) -> bool {
        if connections < TOGETHER_MIN {
            return false;
        }
        if matches!(self.ring, Ring::Untried) {
            self.ring = SendRing::new().map_or_else(
                |error| {
                    tracing::debug!(%error, "deliveries are sent one by one");
                    Ring::Absent
                },
                |ring| Ring::Ready(Box::new(ring)),
            );
        }
        matches!(self.ring, Ring::Ready(_))
    }

    /// Whether no delivery waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.deliveries.is_empty()
    }

    /// Whether no more of them may join.
    fn is_full(&self) -> bool {
        self.deliveries.len() >= TOGETHER_MAX
    }
}

impl<S: Service> Http<S> {
    /// Has a delivery wait for the others'. `false`: it is to be sent by itself.
    pub(crate) fn join_batch(&mut self, at: &mut At<'_, S>, bytes: &Bytes) -> bool {
        let joins = self.staged.segments.is_empty() && self.may_join(at, bytes.len());
        if joins {
            self.join(at.core, at.key, Delivery::Shared(bytes.clone()));
        }
        joins
    }

    /// Has what was staged wait for the others'. `false`: it is to be sent by itself.
    pub(crate) fn join_staged(&mut self, at: &mut At<'_, S>) -> bool {
        let [Segment::Scratch(range)] = &self.staged.segments[..] else { return false };
        let range = range.clone();
        let joins = self.may_join(at, range.len());
        if joins {
            let start = self.batch.copied.len();
            self.batch.copied.extend_from_slice(&self.staged.scratch[range]);
            self.join(at.core, at.key, Delivery::Copied(start..self.batch.copied.len()));
            self.unstage();
        }
        joins
    }

    fn may_join(&self, at: &mut At<'_, S>, bytes: usize) -> bool {
        // One that is about to end would do so before the batch goes.
        let stays = !(at.active.closing || at.active.ended || self.draining);
        (self.batch.turn || self.batch.round)
            && self.batch.served == 1
            && stays
            && at.active.output.is_empty()
            && bytes <= JOINS_BYTES_MAX
            && at.entry().is_ok_and(|entry| !(entry.secure || entry.flags.has(Flags::JOINED)))
    }

    fn join(&mut self, core: &mut HttpCore<S>, key: Key, delivery: Delivery) {
        self.batch.deliveries.push((key, delivery));
        if let Some(entry) = core.entry(key) {
            entry.flags.set(Flags::JOINED, true);
        }
    }

    /// Stages what waits for the connection that is being served, in front of whatever is sent to it next.
    /// Whether there was anything.
    pub(crate) fn leave_batch(&mut self, core: &mut HttpCore<S>, key: Key) -> bool {
        let Some((_, delivery)) = self.batch.deliveries.pop_if(|(last, _)| *last == key) else {
            return false;
        };
        if let Some(entry) = core.entry(key) {
            entry.flags.set(Flags::JOINED, false);
        }
        let bytes = delivery.rest(&self.batch.copied, 0);
        if let Delivery::Copied(range) = delivery {
            self.batch.copied.truncate(range.start);
        }
        self.staged.segments.insert(0, Segment::Piece(bytes.into()));
        true
    }

    /// Before a connection is served, or ended: what waits for it goes, and all else with it, unless another
    /// is being served.
    pub(crate) fn settle_batch(&mut self, core: &mut HttpCore<S>, key: Key) {
        let joined = core.entry(key).is_some_and(|entry| entry.flags.has(Flags::JOINED));
        if self.batch.served == 0 {
            if joined || self.batch.is_full() {
                self.send_batch(core);
            }
        } else if joined {
            self.send_alone(core, key);
        }
    }

    /// Sends what waits for one connection, and leaves the others' where it is.
    fn send_alone(&mut self, core: &mut HttpCore<S>, key: Key) {
        let Some(place) = self.batch.deliveries.iter().position(|(joined, _)| *joined == key) else { return };
        // What was copied for it stays, unused, until the batch goes.
        let (_, delivery) = self.batch.deliveries.remove(place);
        if let Some(entry) = core.entry(key) {
            entry.flags.set(Flags::JOINED, false);
        }
        let bytes = delivery.rest(&self.batch.copied, 0);
        self.with_active(core, key, |http, at| {
            http.staged.segments.push(Segment::Piece(bytes.into()));
            http.send_staged(at)
        });
    }

    /// Those who were served one after the other have been: sends what was collected.
    pub(crate) fn end_batch(&mut self, core: &mut HttpCore<S>) {
        self.send_batch(core);
        self.batch.round = false;
    }

    /// The turn's readiness has been seen to: sends what was collected.
    pub(crate) fn end_turn_batch(&mut self, core: &mut HttpCore<S>) {
        self.send_batch(core);
        self.batch.turn = false;
    }

    /// Sends what was collected. None of these connections is being served.
    pub(crate) fn send_batch(&mut self, core: &mut HttpCore<S>) {
        if self.batch.is_empty() {
            return;
        }
        debug_assert_eq!(self.batch.served, 0, "somebody's active part is out of its entry");
        let (mut deliveries, mut copied) =
            (std::mem::take(&mut self.batch.deliveries), std::mem::take(&mut self.batch.copied));
        // Who is gone meanwhile has nothing to take.
        deliveries
            .retain(|(key, _)| core.entry(*key).map(|entry| entry.flags.set(Flags::JOINED, false)).is_some());
        self.load.spend(deliveries.iter().map(|(_, delivery)| delivery.bytes(&copied).len()).sum());
        let mut taken = Vec::with_capacity(deliveries.len());
        if let Ring::Ready(ring) = &mut self.batch.ring {
            self.meters.write();
            let sends: SmallVec<[_; 64]> = deliveries
                .iter()
                .filter_map(|(key, delivery)| Some((core.descriptor(*key)?, delivery.bytes(&copied))))
                .collect();
            debug_assert_eq!(sends.len(), deliveries.len());
            if let Err(error) = ring.send(&sends, &mut taken) {
                tracing::warn!(%error, "what is sent is sent one by one from now on");
                self.batch = SendBatch::new(false);
            }
        }
        taken.resize_with(deliveries.len(), || Ok(None));
        for ((key, delivery), taken) in deliveries.drain(..).zip(taken) {
            let taken = taken.map(Option::unwrap_or_default);
            self.meters.sent(*taken.as_ref().unwrap_or(&0));
            let rest = taken.map(|taken| delivery.rest(&copied, taken));
            if !rest.as_ref().is_ok_and(Bytes::is_empty) {
                self.keep_untaken(core, key, rest);
            }
        }
        copied.clear();
        debug_assert!(self.batch.deliveries.is_empty(), "something joined while the batch went");
        (self.batch.deliveries, self.batch.copied) = (deliveries, copied);
    }

    /// What a socket did not take becomes its connection's output.
    fn keep_untaken(&mut self, core: &mut HttpCore<S>, key: Key, rest: io::Result<Bytes>) {
        self.with_active(core, key, |http, at| {
            let rest = rest.map_err(|_| ConnectionEnd::Close)?;
            let before = at.active.output.bytes();
            at.active.output.push(rest.into());
            http.load.unsent(before, at.active.output.bytes());
            http.await_peer(at);
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::connection::{Connection, Role};
    use crate::reactor::insert;
    use std::convert::Infallible;
    use std::os::fd::{AsFd, OwnedFd};
    use thalweg_reactor::{Interest, Reactor};
    use thalweg_sys::socket;
    use thalweg_wire::exchange::{Advance, Announced, Answer, Live, Now, Refusal, Request, Response};

    /// A service that nobody asks for anything.
    struct Silent;

    impl Service for Silent {
        type Topic = Infallible;

        fn call(&mut self, _request: &Request<'_>, _now: Now) -> Answer<Infallible> {
            Answer::Respond(Response::default())
        }

        fn failed(&mut self, _now: Now) -> Response {
            Response::default()
        }

        fn watch(&mut self, topic: &Infallible) {
            match *topic {}
        }

        fn unwatch(&mut self, topic: &Infallible) {
            match *topic {}
        }

        fn acknowledge(&mut self, topic: &Infallible) {
            match *topic {}
        }

        fn advance(&mut self, topic: &Infallible, _live: &Live, _now: Now) -> Advance {
            match *topic {}
        }

        fn deadline(&mut self, topic: &Infallible, _live: &Live, _now: Now) -> Response {
            match *topic {}
        }

        fn refuse(&mut self, _refusal: &Refusal, _announced: Announced<'_>, _now: Now) -> Response {
            Response::default()
        }
    }

    fn reactor() -> Reactor<Http<Silent>> {
        let config = thalweg_reactor::Config::default();
        Reactor::new(config, |core| Http::new(core, Silent, Config::default(), Vec::new())).unwrap()
    }

    /// A connection, and its peer's end.
    fn connect(core: &mut HttpCore<Silent>, http: &mut Http<Silent>) -> (Key, OwnedFd) {
        let (ours, theirs) = socket::pair().unwrap();
        assert!(http.admitted.places.take());
        http.admitted.connections += 1;
        http.meters.open();
        (insert(core, ours, Connection::new(Role::Request), Interest::READ).unwrap(), theirs)
    }

    /// Sends until the socket takes no more.
    fn fill(core: &mut HttpCore<Silent>, key: Key) {
        let ours = core.descriptor(key).unwrap();
        while socket::send(ours, &[0; 4_096]).unwrap().is_some() {}
    }

    /// What a peer was sent.
    fn received(theirs: &OwnedFd) -> String {
        let mut bytes = Vec::with_capacity(1 << 20);
        while socket::receive(theirs.as_fd(), &mut bytes, 1 << 16).unwrap().is_some() {
            bytes.reserve(1 << 16);
        }
        String::from_utf8(bytes).unwrap()
    }

    fn say(http: &mut Http<Silent>, at: &mut At<'_, Silent>, text: &str) -> Result<(), ConnectionEnd> {
        http.stage_bytes(text.as_bytes());
        http.send_staged(at)
    }

    /// Serves one whose socket is full, which says something before and after another is served meanwhile;
    /// what each was sent.
    fn serve_inside(core: &mut HttpCore<Silent>, http: &mut Http<Silent>, other: Key) -> String {
        let (key, peer) = connect(core, http);
        fill(core, key);
        http.with_active(core, key, |http, at| {
            // It has to be kept: more of a request is to come.
            at.active.partial = true;
            say(http, at, "first, ")?;
            http.with_active(at.core, other, |http, at| say(http, at, "inside"));
            say(http, at, "second")
        });
        http.end_turn_batch(core);
        received(&peer);
        http.with_active(core, key, Http::resume_output);
        received(&peer)
    }

    #[test]
    fn a_batch_that_is_full_waits_until_nobody_in_it_is_being_served() {
        let mut reactor = reactor();
        let (core, http) = reactor.parts();
        let ((gone, _), (other, peer)) = (connect(core, http), connect(core, http));
        http.remove(core, gone);
        http.batch.turn = true;
        for _ in 1..TOGETHER_MAX {
            http.join(core, gone, Delivery::Shared(Bytes::from_static(b"nobody")));
        }
        assert_eq!(serve_inside(core, http, other), "first, second");
        assert_eq!(received(&peer), "inside");
    }

    #[test]
    fn what_waits_for_one_who_is_served_while_another_is_goes_by_itself() {
        let mut reactor = reactor();
        let (core, http) = reactor.parts();
        let (other, peer) = connect(core, http);
        http.batch.turn = true;
        http.with_active(core, other, |http, at| say(http, at, "before, "));
        assert!(!http.batch.is_empty());
        assert_eq!(serve_inside(core, http, other), "first, second");
        assert_eq!(received(&peer), "before, inside");
    }
}
