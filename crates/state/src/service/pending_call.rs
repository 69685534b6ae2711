//! Calls that are not answered yet, and the memory that is reserved for those that wait.
//!
//! A connection's bound is on how many of its calls are in flight, not on their bytes, and a client may have
//! any number of connections. So a call that has to wait, for its turn or for a thread, reserves memory for
//! its request first. A call for which there is none is refused at once, with nothing done.

use super::Core;
use crate::generated::types::StateRequest;
use crate::memory_budget::Reservation;
use std::task::Waker;
use thalweg_service::Reply;
use thalweg_wire::fault::Fault;

/// Bytes that any waiting call takes, for its places in queues and its reply.
const CALL_BYTES: usize = 512;
/// Bytes that a change takes beside its key and its value.
const CHANGE_BYTES: usize = 128;

/// A call that is not answered yet.
pub(super) struct PendingCall {
    reply: Reply,
    /// The bytes to reserve if it waits.
    bytes: usize,
    /// The reservation, if it waits.
    reservation: Option<Reservation>,
}

impl PendingCall {
    pub(super) fn new(bytes: usize, reply: Reply) -> Self {
        Self { reply, bytes, reservation: None }
    }

    /// Whether its caller has given up.
    pub(super) fn is_cancelled(&self) -> bool {
        self.reply.is_cancelled()
    }

    /// Whether its connection has room for a long answer, or its caller has given up.
    pub(super) fn has_room(&self) -> bool {
        self.reply.has_room()
    }

    /// Has `waker` woken once it has room; `false`, and no wake, if it has now.
    pub(super) fn await_room(&mut self, waker: &Waker) -> bool {
        self.reply.await_room(waker)
    }

    /// Releases its memory, and returns its reply: a client that has the answer finds the memory free.
    pub(super) fn ended(self) -> Reply {
        self.reply
    }
}

/// Bytes that a request takes before it was decoded.
pub(super) fn frame_bytes(frame: &[u8]) -> usize {
    CALL_BYTES + frame.len()
}

/// Bytes that it takes once it was decoded.
pub(super) fn request_bytes(request: &StateRequest<'_>, frame: &[u8]) -> usize {
    let changes = if let StateRequest::Batch(batch) = request { batch.changes.len() } else { 1 };
    frame_bytes(frame) + changes * CHANGE_BYTES
}

impl Core {
    /// Reserves the memory of a call that has to wait, or refuses the call. Nothing visible of it was done
    /// yet.
    pub(super) fn let_wait(&self, mut pending: PendingCall) -> Option<PendingCall> {
        if pending.reservation.is_none() {
            pending.reservation = self.memory.reserve(pending.bytes);
        }
        if pending.reservation.is_some() {
            return Some(pending);
        }
        let message = format!(
            "waiting calls may hold {} bytes together, and there is no room for {} more: repeat it once some are answered",
            self.memory.limit(),
            pending.bytes
        );
        pending.reply.fail(Fault::Overloaded, &message);
        None
    }
}
