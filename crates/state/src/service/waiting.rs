//! Answers that wait until what they say is durable.
//!
//! They are held by ticket and released by whichever thread makes it durable, after the state has taken note: no thread
//! waits, and a group of commits is one walk over those that it completes.

use super::answer::{Answer, refuse};
use super::refusal::Refusal;
use crate::durable::Listen;
use crate::state::State;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use thalweg_log::Position;
use thalweg_service::Reply;

#[derive(Default)]
pub(super) struct Waiting {
    answers: Mutex<BTreeMap<Position, Vec<(Reply, Answer)>>>,
}

impl Waiting {
    /// Answers once a ticket is durable.
    pub(super) fn give(&self, state: &State, ticket: Position, answer: Answer, reply: Reply) {
        if ticket == 0 {
            return answer.give(reply);
        }
        let mut answers = self.answers.lock();
        // Looked at under the lock: whoever announces takes it afterwards.
        match state.is_durable(ticket) {
            Ok(false) => answers.entry(ticket).or_default().push((reply, answer)),
            Ok(true) => {
                drop(answers);
                answer.give(reply);
            }
            Err(_) => {
                drop(answers);
                refuse(&Refusal::Unknown, None, reply);
            }
        }
    }
}

impl Listen for Waiting {
    fn complete(&self, up_to: Position) {
        let mut answers = self.answers.lock();
        let left = answers.split_off(&up_to.saturating_add(1));
        let done = std::mem::replace(&mut *answers, left);
        drop(answers);
        done.into_values().flatten().for_each(|(reply, answer)| answer.give(reply));
    }

    fn failed(&self) {
        let lost = std::mem::take(&mut *self.answers.lock());
        lost.into_values().flatten().for_each(|(reply, _)| refuse(&Refusal::Unknown, None, reply));
    }
}
