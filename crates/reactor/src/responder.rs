//! The right, and the duty, to answer one question, from any thread.

use crate::handle::{Handle, Permit};
use crate::key::Key;
use crate::ordered::Sequence;
use std::fmt;

/// How a question ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<R> {
    /// With an answer.
    Answered(R),
    /// Its responder was dropped without one: whoever asked must be told that it failed.
    Abandoned,
}

/// Answers one question, once, by posting to the reactor its connection lives on. Room in the mailbox is
/// reserved when it is made, so answering never fails. Dropped unanswered it posts
/// [`Outcome::Abandoned`]: an error, never silence.
pub struct Responder<M, R> {
    /// `None` once answered.
    permit: Option<Permit<M>>,
    key: Key,
    sequence: Sequence,
    make: fn(Key, Sequence, Outcome<R>) -> M,
}

impl<M, R> Responder<M, R> {
    /// A responder for the question at `sequence` on connection `key`; `make` wraps the outcome into the
    /// reactor's message. `None` when the mailbox is at its bound: the question must be refused, since
    /// its answer could be lost.
    pub fn new(
        handle: &Handle<M>,
        key: Key,
        sequence: Sequence,
        make: fn(Key, Sequence, Outcome<R>) -> M,
    ) -> Option<Self> {
        handle.reserve().map(|permit| Self { permit: Some(permit), key, sequence, make })
    }

    /// Answers.
    pub fn answer(mut self, answer: R) {
        self.post(Outcome::Answered(answer));
    }

    /// The connection that asked.
    pub fn key(&self) -> Key {
        self.key
    }

    fn post(&mut self, outcome: Outcome<R>) {
        if let Some(permit) = self.permit.take() {
            permit.post((self.make)(self.key, self.sequence, outcome));
        }
    }
}

impl<M, R> Drop for Responder<M, R> {
    fn drop(&mut self) {
        self.post(Outcome::Abandoned);
    }
}

impl<M, R> fmt::Debug for Responder<M, R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Responder").field("key", &self.key).finish_non_exhaustive()
    }
}
