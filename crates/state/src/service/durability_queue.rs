//! Answers that wait until their commits are durable.
//!
//! They are kept by ticket, and released by the thread that announces the ticket, after the committed views
//! have advanced. No thread waits, and one pass releases all answers of a group of commits.

use super::answer::{Answer, refuse};
use super::refusal::Refusal;
use crate::durable::DurabilityListener;
use crate::state::State;
use parking_lot::Mutex;
use thalweg_log::Position;
use thalweg_queue::{Admission, ByTicket};
use thalweg_service::Reply;

#[derive(Default)]
pub(super) struct DurabilityQueue {
    answers: Mutex<ByTicket<(Reply, Answer)>>,
}

impl DurabilityQueue {
    /// Gives an answer once a ticket is durable.
    pub(super) fn give(&self, state: &State, ticket: Position, answer: Answer, reply: Reply) {
        if ticket == 0 {
            return answer.give(reply);
        }
        let mut answers = self.answers.lock();
        // Checked under the lock, which the announcing thread takes after it has advanced the views.
        let stands = match state.is_durable(ticket) {
            Ok(false) => answers.wait(ticket, (reply, answer)),
            Ok(true) => Admission::Complete((reply, answer)),
            Err(_) => Admission::Failed((reply, answer)),
        };
        drop(answers);
        match stands {
            Admission::Waits => {}
            Admission::Complete((reply, answer)) => answer.give(reply),
            Admission::Failed((reply, _)) => refuse(&Refusal::Unknown, None, reply),
        }
    }
}

impl DurabilityListener for DurabilityQueue {
    fn complete(&self, up_to: Position) {
        let done: Vec<_> = self.answers.lock().complete(up_to).collect();
        done.into_iter().for_each(|(reply, answer)| answer.give(reply));
    }

    fn failed(&self) {
        let lost: Vec<_> = self.answers.lock().fail().collect();
        lost.into_iter().for_each(|(reply, _)| refuse(&Refusal::Unknown, None, reply));
    }
}
