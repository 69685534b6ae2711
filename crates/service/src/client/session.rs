//! The client's side of the protocol: bytes in, bytes out, with no descriptor and no clock.
//!
//! `calls` are those in flight, `deadlines` when they are overdue; `incoming` and `outgoing` are the bytes of
//! a connection, `receive` cuts those that came into frames, `order` tells whose answer a plain one brings,
//! and `kept` holds what was not taken.
//!
//! Ownership: belongs to one [`crate::Client`], which moves its bytes and hands it the time. Waiting is the
//! client's business, so a blocking wait, a foreign loop's turn and a future share everything here.
//!
//! Invariants, checked by the tests beside this file:
//! - a call that began ends exactly once, by an answer or by an error; what comes for it later is dropped;
//! - events are given out in the order they came, unless a caller asks for those of one call;
//! - a call whose connection ended is [`Fault::NotSent`] only when its request never left whole, and one
//!   whose deadline passed when nothing of it left, or will: so no server can have begun it;
//! - a call whose connection ended has nothing to do with the next one, also while its failure is not taken;
//! - of a multiplexed call that is given up the server is told, if it may have the request, before any later
//!   request; and an answer that comes after its deadline is not taken for one, because the server may have
//!   taken back what it names. A plain connection has no cancels, and what comes counts until the failure of
//!   the call was told.

mod calls;
mod deadlines;
mod incoming;
mod kept;
mod order;
mod outgoing;
mod receive;

pub(crate) use self::calls::CALLS_MAX;
use self::calls::{Calls, UNCOUNTED};
use self::deadlines::Deadlines;
use self::incoming::Incoming;
use self::kept::Kept;
use self::order::Order;
use self::outgoing::Outgoing;
use crate::call::{CallId, CallOptions, EventKind};
use crate::error::Error;
use std::ops::Range;
use std::time::{Duration, Instant};
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{FrameKind, HEADER_BYTES, Header, LENGTH_BYTES, Welcome};

/// Bytes received and not taken at which reading pauses; also the most bytes of items that are kept while
/// another call is waited for.
pub const BACKLOG_BYTES: usize = 4 << 20;

/// The bounds of a session; see [`crate::ClientOptions`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) plain: bool,
    pub(crate) frame_bytes_max: u32,
    pub(crate) in_flight_max: u32,
    pub(crate) unsent_bytes_max: usize,
}

/// What came of a call, and where its frame lies.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) call: CallId,
    pub(crate) kind: EventKind,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Nowhere,
    /// In the receive buffer.
    Received(Range<usize>),
    /// In `held`.
    Held,
}

/// A frame that came while another call's was waited for.
#[derive(Debug)]
struct Stashed {
    kind: EventKind,
    frame: Vec<u8>,
    /// A deadline put it here, and no wait for another call.
    is_set_aside: bool,
}

impl Stashed {
    fn item_bytes(&self) -> usize {
        if matches!(self.kind, EventKind::Item) { self.bytes() } else { 0 }
    }

    fn set_aside_bytes(&self) -> usize {
        if self.is_set_aside { self.bytes() } else { 0 }
    }

    fn bytes(&self) -> usize {
        self.frame.len() + size_of::<Self>()
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    bounds: Bounds,
    calls: Calls,
    /// Plain only: calls in the order of their answers.
    order: Order,
    outgoing: Outgoing,
    incoming: Incoming,
    stash: Kept<Stashed>,
    /// Bytes of items in it.
    stashed_bytes: usize,
    /// Bytes in it that a deadline put there.
    set_aside_bytes: usize,
    /// The caller looked last for what came of one call, and not for what came next.
    is_by_name: bool,
    /// The frame that was last given out from the stash.
    held: Vec<u8>,
    /// Calls that failed here, and were not told so.
    failures: Kept<Error>,
    deadlines: Deadlines,
    /// The last call of all connections before this one.
    last_of_former: CallId,
    /// Reading pauses until the caller says otherwise, because it keeps enough already.
    is_held_back: bool,
    /// Why no further byte of this connection can be understood.
    broken: Option<Error>,
    /// The server takes no new calls.
    draining: bool,
    /// Items that each new stream may send to begin with, as the welcome says; `None` until there was one.
    credit: Option<u32>,
}

impl Session {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            calls: Calls::default(),
            order: Order::default(),
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            stash: Kept::default(),
            stashed_bytes: 0,
            set_aside_bytes: 0,
            is_by_name: false,
            held: Vec::new(),
            failures: Kept::default(),
            deadlines: Deadlines::default(),
            last_of_former: CallId(0),
            is_held_back: false,
            broken: None,
            draining: false,
            credit: None,
        }
    }

    /// There is a connection, whose welcome gives each new stream `credit` items.
    pub(crate) fn welcome(&mut self, credit: u32) {
        self.credit = Some(credit);
        if !self.bounds.plain {
            self.calls.count(credit);
        }
    }

    /// Items that each new stream may send to begin with; 0 where streams know no credit.
    pub(crate) fn credit(&self) -> u32 {
        self.credit.unwrap_or(0)
    }

    /// Whether a request may be made now.
    ///
    /// # Errors
    /// [`Fault::FrameTooLarge`], [`Fault::Overloaded`].
    pub(crate) fn admit(&self, request: &[u8]) -> Result<(), Error> {
        let Bounds { frame_bytes_max, in_flight_max, unsent_bytes_max, .. } = self.bounds;
        if request.len() > frame_bytes_max as usize {
            let detail = format!("a request of {} bytes, {frame_bytes_max} are allowed", request.len());
            return Err(Error::new(Fault::FrameTooLarge, detail));
        }
        if self.calls.len() >= in_flight_max as usize {
            return Err(Error::new(Fault::Overloaded, format!("{in_flight_max} calls are in flight")));
        }
        let unsent = self.outgoing.len();
        if unsent > 0 && unsent.saturating_add(request.len()) > unsent_bytes_max {
            let detail = format!("{unsent} bytes are still to be sent, {unsent_bytes_max} are allowed");
            return Err(Error::new(Fault::Overloaded, detail));
        }
        Ok(())
    }

    /// Begins a call that was admitted; returns the header of its request. [`Session::queue`] comes next.
    pub(crate) fn begin(
        &mut self,
        length: usize,
        deadline: Option<Duration>,
        options: &CallOptions,
    ) -> (CallId, Head) {
        let credit = options.credit.unwrap_or(0);
        // Credit is not counted where there is none, and before the welcome has said how much there is.
        let known = if credit > 0 { Some(credit) } else { self.credit };
        let known = known.filter(|_| !self.bounds.plain).map_or(UNCOUNTED, u64::from);
        let call = self.calls.begin(known, options.unary);
        // Admitted requests are far shorter than four gibibytes.
        let length = length as u32;
        if self.bounds.plain {
            self.order.push(call);
            return (call, Head::Plain(length.to_le_bytes()));
        }
        let deadline_ms = deadline
            .map_or(0, |left| u32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX).max(1));
        let header = Header { deadline_ms, credit, ..Header::new(FrameKind::Request, call.0, length) };
        (call, Head::Multiplexed(header.encode()))
    }

    /// Sets the call's deadline.
    pub(crate) fn until(&mut self, call: CallId, at: Instant) {
        self.deadlines.add(at, call, self.calls.len(), |call| self.calls.is_current(call));
    }

    /// Queues a request, of which `departed` bytes have left already, its head included.
    #[inline]
    pub(crate) fn queue(&mut self, call: CallId, head: &Head, request: &[u8], departed: usize) {
        self.outgoing.went_past(departed);
        let head = head.bytes();
        let rest = departed.saturating_sub(head.len());
        let end = self.outgoing.push([&head[departed.min(head.len())..], &request[rest..]]);
        self.calls.lies_at(call, end - (head.len() + request.len()) as u64..end);
    }

    /// Takes back the call's request if nothing of it has left; whether it did.
    fn take_back(&mut self, call: CallId) -> bool {
        let Some(place) = self.calls.take_back(call, self.outgoing.gone()) else { return false };
        self.outgoing.take_back(place);
        if self.outgoing.is_sparse(self.calls.slots()) {
            self.calls.cut(&self.outgoing.cut());
        }
        if self.bounds.plain {
            self.order.take_back(call);
        }
        true
    }

    /// Cancels the call, which still ends: at once if it is plain, or if nothing of its request has left. Of
    /// one whose answer is here, and was not taken, the server is told as well.
    pub(crate) fn cancel(&mut self, call: CallId) {
        if !self.calls.is_current(call) {
            if self.stash.any(call, |stashed| matches!(stashed.kind, EventKind::End)) {
                self.leave_unread(call);
            }
            return;
        }
        if self.take_back(call) || self.bounds.plain {
            self.failures.push(call, Error::new(Fault::Cancelled, ""));
        } else {
            self.tell(Header::new(FrameKind::Cancel, call.0, 0));
        }
    }

    /// As [`Session::cancel`], and nothing more is ever heard of the call: not the answer either that is
    /// here.
    pub(crate) fn forget(&mut self, call: CallId) {
        if self.calls.is_current(call) && !self.take_back(call) && !self.bounds.plain {
            self.tell(Header::new(FrameKind::Cancel, call.0, 0));
        }
        self.end(call);
        while let Some(stashed) = self.stash.take(call) {
            self.uncount(&stashed);
            if matches!(stashed.kind, EventKind::End) {
                self.leave_unread(call);
            }
        }
    }

    /// Nobody takes the answer that came of the call: tells the server that gave it, if that is still there.
    pub(crate) fn leave_unread(&mut self, call: CallId) {
        if !self.bounds.plain && call > self.last_of_former {
            self.tell(Header::new(FrameKind::Cancel, call.0, 0));
        }
    }

    /// Lets a stream send `items` more items.
    pub(crate) fn grant(&mut self, call: CallId, items: u32) {
        if items > 0 && !self.bounds.plain && self.calls.is_current(call) {
            self.calls.grant(call, items);
            self.tell(Header { credit: items, ..Header::new(FrameKind::Credit, call.0, 0) });
        }
    }

    fn tell(&mut self, header: Header) {
        self.outgoing.push([&header.encode(), &[]]);
    }

    pub(crate) const fn in_flight(&self) -> usize {
        self.calls.len()
    }

    pub(crate) const fn is_draining(&self) -> bool {
        self.draining
    }

    /// What is to be written, in its order.
    #[inline]
    pub(crate) fn unsent(&self) -> impl Iterator<Item = &[u8]> {
        self.outgoing.pieces()
    }

    pub(crate) fn sent(&mut self, count: usize) {
        self.outgoing.sent(count);
    }

    /// Bytes that wait to be written.
    pub(crate) const fn unsent_bytes(&self) -> usize {
        self.outgoing.len()
    }

    pub(crate) const fn has_unsent(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Where to read to.
    pub(crate) fn room(&mut self) -> &mut Vec<u8> {
        self.incoming.room()
    }

    /// Whether reading should pause: the caller holds it up, or [`BACKLOG_BYTES`] came that were not taken.
    /// For one that looks for one call what came of others is kept beside them.
    pub(crate) fn is_full(&self) -> bool {
        let set_aside_bytes = if self.is_by_name { 0 } else { self.set_aside_bytes };
        self.is_held_back
            || self.incoming.len() + set_aside_bytes >= BACKLOG_BYTES
                && (set_aside_bytes > 0 || self.has_arrived())
    }

    /// Whether it is the caller that holds reading up; then it is the caller that ends that.
    pub(crate) const fn is_held_back(&self) -> bool {
        self.is_held_back
    }

    pub(crate) fn hold_back(&mut self, holds: bool) {
        self.is_held_back = holds;
    }

    /// Whether a wait for one call would keep more of other calls' streams than it may: plain ones have no
    /// credit, and end nowhere.
    pub(crate) const fn is_choked(&self) -> bool {
        self.bounds.plain && self.stashed_bytes >= BACKLOG_BYTES
    }

    /// Whether [`Session::next`] would bring something, or find out that the connection is beyond
    /// understanding.
    pub(crate) fn is_ready(&self) -> bool {
        !self.stash.is_empty() || !self.failures.is_empty() || self.has_arrived()
    }

    /// Whether what was read has something to say.
    fn has_arrived(&self) -> bool {
        self.broken.is_some() || self.incoming.is_ready(self.bounds.plain, self.bounds.frame_bytes_max)
    }

    /// Whether something came of one call, or may have.
    pub(crate) fn is_ready_for(&self, call: CallId) -> bool {
        self.has_arrived() || self.stash.has(call) || self.failures.has(call)
    }

    /// The next deadline.
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        self.deadlines.next(|call| self.calls.is_current(call))
    }

    /// Fails the calls whose deadline passed; how many. A request that is still here never leaves. Of one
    /// that may be under way the server is told, whose own time may not be over: so an answer that is here
    /// counts, and one that comes later does not.
    pub(crate) fn expire(&mut self, now: Instant) -> usize {
        let passed: Vec<CallId> = std::iter::from_fn(|| self.deadlines.passed(now)).collect();
        if !self.bounds.plain && passed.iter().any(|call| self.calls.is_current(*call)) {
            self.stash_arrived(true);
        }
        let passed: Vec<CallId> = passed.into_iter().filter(|call| self.calls.is_current(*call)).collect();
        for &call in &passed {
            let error = if self.take_back(call) {
                Error::new(Fault::NotSent, "its deadline passed before")
            } else {
                if !self.bounds.plain {
                    self.tell(Header::new(FrameKind::Cancel, call.0, 0));
                    self.calls.give_up(call);
                }
                Error::new(Fault::DeadlineExceeded, "")
            };
            self.failures.push(call, error);
        }
        passed.len()
    }

    /// What came next.
    pub(crate) fn next(&mut self) -> Option<Found> {
        self.is_by_name = false;
        if let Some((call, stashed)) = self.stash.pop() {
            return Some(self.hold(call, stashed));
        }
        self.arrive().or_else(|| {
            while let Some((call, error)) = self.failures.pop() {
                if self.calls.end(call) {
                    return Some(Found { call, kind: EventKind::Failed(error), place: Place::Nowhere });
                }
            }
            None
        })
    }

    /// What came next of one call. What comes of others meanwhile is kept for them.
    pub(crate) fn take(&mut self, call: CallId) -> Option<Found> {
        if let Some(stashed) = self.stash.take(call) {
            return Some(self.hold(call, stashed));
        }
        self.is_by_name = true;
        while let Some(found) = self.arrive() {
            if found.call == call {
                return Some(found);
            }
            self.stash(found, false);
        }
        let error = self.failures.take(call)?;
        self.end(call).then_some(Found { call, kind: EventKind::Failed(error), place: Place::Nowhere })
    }

    /// Ends the call, and whatever else was to end it; `false` when it was not in flight.
    #[inline]
    fn end(&mut self, call: CallId) -> bool {
        if !self.failures.is_empty() {
            while self.failures.take(call).is_some() {}
        }
        self.calls.end(call)
    }

    /// Whether anything will come, or has come, of the call.
    pub(crate) fn knows(&self, call: CallId) -> bool {
        self.calls.has(call) || self.stash.has(call)
    }

    /// The frame of what was found, until the next use.
    #[inline]
    pub(crate) fn frame(&self, found: &Found) -> &[u8] {
        match &found.place {
            Place::Nowhere => &[],
            Place::Received(range) => self.incoming.frame(range.clone()),
            Place::Held => &self.held,
        }
    }

    /// Why nothing more can be understood, once.
    pub(crate) fn take_broken(&mut self) -> Option<Error> {
        self.broken.take()
    }

    /// What a server that does not take us says before it closes. Plain frames have no welcome, so it stands
    /// where an answer would, and as a length it is beyond all of them.
    pub(crate) fn turned_away(&mut self) -> Option<Welcome> {
        let welcome = self.bounds.plain.then(|| self.incoming.welcome())?;
        welcome.filter(|welcome| welcome.fault != 0)
    }

    /// The connection ended, or is given up, and of what was written last the peer never read `unread_bytes`.
    /// What arrived whole is kept, every other call fails with what `why` says of one whose request may have
    /// left, or has not.
    pub(crate) fn disconnect(&mut self, unread_bytes: u64, why: impl Fn(bool) -> Error) {
        self.stash_arrived(false);
        for (call, left) in self.calls.lose(self.outgoing.read_up_to(unread_bytes)) {
            self.failures.push(call, why(left));
        }
        self.last_of_former = self.calls.last();
        self.outgoing = Outgoing::default();
        self.incoming = Incoming::default();
        self.order.clear();
        self.broken = None;
        self.draining = false;
        // The next server may have another.
        self.credit = None;
    }

    fn hold(&mut self, call: CallId, stashed: Stashed) -> Found {
        self.uncount(&stashed);
        self.held = stashed.frame;
        Found { call, kind: stashed.kind, place: Place::Held }
    }

    /// Keeps what arrived whole.
    fn stash_arrived(&mut self, is_set_aside: bool) {
        while let Some(found) = self.arrive() {
            self.stash(found, is_set_aside);
        }
    }

    /// Something was taken out of the stash.
    fn uncount(&mut self, stashed: &Stashed) {
        self.stashed_bytes -= stashed.item_bytes();
        self.set_aside_bytes -= stashed.set_aside_bytes();
    }

    fn stash(&mut self, found: Found, is_set_aside: bool) {
        let frame = self.frame(&found).to_vec();
        let stashed = Stashed { kind: found.kind, frame, is_set_aside };
        self.stashed_bytes += stashed.item_bytes();
        self.set_aside_bytes += stashed.set_aside_bytes();
        self.stash.push(found.call, stashed);
    }
}

/// The header of a request.
#[derive(Debug)]
pub(crate) enum Head {
    Plain([u8; LENGTH_BYTES]),
    Multiplexed([u8; HEADER_BYTES]),
}

impl Head {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Multiplexed(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests;
