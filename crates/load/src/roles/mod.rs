//! What a connection does. A role says what to send, is told what came, and knows nothing of sockets.

mod churn;
mod follow;
mod read;
mod rest;
mod write;

use crate::counts::Counts;
use crate::driver::Shared;
use thalweg_wire::http1::ResponseHead;

pub(crate) use churn::Churn;
pub(crate) use follow::Follow;
pub(crate) use read::Read;
pub(crate) use rest::Rest;
pub(crate) use write::{Pace, Work, Write};

/// What a role does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The request is written: send it, and come back when it is answered.
    Sent,
    /// The same, but come back after this number of milliseconds if it is not answered by then.
    SentUntil(u32),
    /// Come back after this number of milliseconds.
    Wait(u32),
    /// Nothing: come back when something is received.
    Rest,
    /// Come back on a new connection.
    Anew,
    /// The role has ended.
    Over,
}

/// A role.
pub(crate) trait Role {
    /// Its name, for complaints.
    fn name(&self) -> &'static str;

    /// The stream that its request is about.
    fn stream(&self) -> u64;

    /// What comes next. Asked on a fresh connection, behind each answer, and when a wait is over.
    fn next(&mut self, shared: &mut Shared, out: &mut Vec<u8>) -> Next;

    /// The head of an answer.
    fn head(&mut self, shared: &mut Shared, head: &ResponseHead<'_>) {
        if !(200..300).contains(&head.status) {
            shared.refused(self.name(), self.stream(), head);
        }
    }

    /// Bytes of its body.
    fn body(&mut self, shared: &mut Shared, bytes: &[u8]) {
        let _ = (shared, bytes);
    }

    /// The answer is whole.
    fn answered(&mut self, shared: &mut Shared);

    /// The span ends while an answer is owed: counts the request that waits for it and what was due behind
    /// it, each at its age. By default nothing: followers and idle clients wait for no answer.
    fn unanswered(&self, now_ns: u64, counts: &mut Counts) {
        let _ = (now_ns, counts);
    }

    /// Whether the request under way is HEAD, whose answer has no body.
    fn asks_for_head(&self) -> bool {
        false
    }

    /// The connection broke, which was counted as a failure; whether to go on with another.
    fn lost(&mut self, shared: &mut Shared) -> bool {
        let _ = shared;
        false
    }
}
