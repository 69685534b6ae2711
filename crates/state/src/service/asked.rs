//! Calls that were taken in, until they are answered: what they hold while they wait.
//!
//! A connection's bound is on how many of its calls are in flight, not on their bytes, and a client may have
//! any number of connections. So a call that is not done where it came in takes room for its request, in line
//! for a turn or for a thread, and one for which there is no room is refused there and then, with nothing
//! done.

use super::Core;
use crate::generated::types::StateRequest;
use crate::room::Held;
use thalweg_service::Reply;
use thalweg_wire::fault::Fault;

/// What any call takes that waits: its places in lines, and whom to answer.
const CALL_BYTES: usize = 512;
/// What a change takes beside its key and its value.
const CHANGE_BYTES: usize = 128;

/// A call that is to be answered.
pub(super) struct Asked {
    reply: Reply,
    /// What it takes while it waits.
    bytes: usize,
    /// What it has taken, since it waits.
    room: Option<Held>,
}

impl Asked {
    pub(super) fn new(bytes: usize, reply: Reply) -> Self {
        Self { reply, bytes, room: None }
    }

    /// Whether nobody waits for the answer any more.
    pub(super) fn is_cancelled(&self) -> bool {
        self.reply.is_cancelled()
    }

    /// Gives back what it took: who hears the answer finds the room.
    pub(super) fn ended(self) -> Reply {
        self.reply
    }
}

/// What a request that is so long takes as it is.
pub(super) fn frame_bytes(frame: &[u8]) -> usize {
    CALL_BYTES + frame.len()
}

/// And what it takes once it was read.
pub(super) fn request_bytes(request: &StateRequest<'_>, frame: &[u8]) -> usize {
    let changes = if let StateRequest::Batch(batch) = request { batch.changes.len() } else { 1 };
    frame_bytes(frame) + changes * CHANGE_BYTES
}

impl Core {
    /// Lets a call wait, or refuses it; whoever calls this has done nothing that anybody could see.
    pub(super) fn let_wait(&self, mut asked: Asked) -> Option<Asked> {
        if asked.room.is_none() {
            asked.room = self.room.take(asked.bytes);
        }
        if asked.room.is_some() {
            return Some(asked);
        }
        let message = format!(
            "calls that wait may hold {} bytes together, and there is no room for {} more: ask again once some are answered",
            self.room.limit(),
            asked.bytes
        );
        asked.reply.fail(Fault::Overloaded, &message);
        None
    }
}
