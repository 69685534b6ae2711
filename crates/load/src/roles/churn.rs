//! The client that connects and leaves: after one answer, after half a request, after a moment of following,
//! and after it created and deleted a stream.

use super::{Next, Role};
use crate::driver::Shared;
use crate::target::Body;
use thalweg_wire::http1::ResponseHead;

/// How long one stays in the middle of something.
const STAY_MS: u32 = 20;
/// The step that deletes, and how many there are.
const DELETE: u64 = 7;
const STEPS: u64 = 8;

/// The role.
pub(crate) struct Churn {
    /// Whose stream it creates and deletes.
    number: u64,
    /// Of the others it takes one after the other.
    streams: u64,
    step: u64,
    head: bool,
}

impl Churn {
    pub(crate) fn new(number: u64, streams: u64) -> Self {
        // Not between the create and the delete.
        Self { number, streams, step: number % DELETE, head: false }
    }
}

impl Role for Churn {
    fn name(&self) -> &'static str {
        "churn"
    }

    fn stream(&self) -> u64 {
        self.streams + self.number
    }

    fn next(&mut self, shared: &mut Shared, out: &mut Vec<u8>) -> Next {
        let (step, stream) = (self.step % STEPS, self.step % self.streams.max(1));
        self.step += 1;
        self.head = step == 0;
        let own = self.streams + self.number;
        let target = &shared.target;
        match step {
            0 => target.request(out, "HEAD", stream, "", &Body::None),
            2 => {
                target.request(out, "POST", stream, "", &Body::Bytes(&[b'x'; 100], "text/plain"));
                out.truncate(out.len() - 50);
                return Next::SentUntil(STAY_MS);
            }
            4 => {
                target.request(out, "GET", stream, "?offset=now&live=sse", &Body::None);
                return Next::SentUntil(STAY_MS);
            }
            6 => target.request(out, "PUT", own, "", &Body::Empty("Content-Type: text/plain\r\n")),
            DELETE => target.request(out, "DELETE", own, "", &Body::None),
            _ => return Next::Anew,
        }
        Next::Sent
    }

    /// Counts a refusal, and never ends the load: other clients may have left the streams in any state.
    fn head(&mut self, shared: &mut Shared, head: &ResponseHead<'_>) {
        if !(200..300).contains(&head.status) {
            shared.counts.fail(|| format!("churn: status {}", head.status));
        }
    }

    fn answered(&mut self, _: &mut Shared) {}

    fn asks_for_head(&self) -> bool {
        self.head
    }

    fn lost(&mut self, _: &mut Shared) -> bool {
        true
    }
}
