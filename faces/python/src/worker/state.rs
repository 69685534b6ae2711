//! What a desk has in hand: functions that run, callbacks that are waited for, and what came and waits for
//! its turn.

use super::job::Job;
use pyo3::prelude::*;
use std::collections::{HashMap, VecDeque};
use thalweg_service::{Incoming, Reply};

#[derive(Default)]
pub(super) struct State {
    /// Jobs that have begun, so far.
    pub(super) jobs: u64,
    /// Jobs that were begun in this turn.
    pub(super) fresh: usize,
    /// What came while a callback was waited for, and is none of its business.
    pub(super) later: VecDeque<Incoming>,
    /// What a thread took in that is none of its business.
    pub(super) taken: VecDeque<Incoming>,
    /// Events that the loop's mailbox had no room for, in order.
    pub(super) posts: VecDeque<Posting>,
    /// Callbacks that are waited for, the innermost last.
    pub(super) waiting: Vec<u64>,
    /// Answers that came, of those.
    pub(super) answers: HashMap<u64, (bool, Vec<u8>)>,
    /// Functions that run, the innermost last.
    pub(super) running: Vec<Running>,
    /// An interrupt asked whether what runs is wanted while something else waited for it to be done.
    pub(super) was_asked: bool,
    pub(super) had_client: bool,
    /// The event loop was asked for a turn that it has not begun.
    pub(super) owes_turn: bool,
}

/// An event on its way to the loop's mailbox. As long as it waits it is in flight over there, where that is
/// bounded.
pub(super) struct Posting {
    pub(super) kind: u32,
    pub(super) number: u64,
    pub(super) value: Py<PyAny>,
    pub(super) reply: Reply,
}

/// The caller of what runs: of the first step of a coroutine, and of everything that is no coroutine.
pub(super) enum Running {
    /// And whether it was told that its answer is not awaited any more.
    Call(Reply, bool),
    /// A generator is being made, and brings what it has with its first step.
    Job(Py<Job>),
    /// No job: the desk does something of its own.
    Desk,
}

impl Running {
    /// As [`Job::give_up`].
    pub(super) fn give_up(&mut self) -> bool {
        match self {
            Self::Call(reply, was_told) => reply.is_cancelled() && !std::mem::replace(was_told, true),
            Self::Job(job) => job.get().give_up(),
            Self::Desk => false,
        }
    }
}

impl State {
    /// Keeps the answer to a callback that a function waits for; `false` where none does.
    pub(super) fn keeps(&mut self, number: u64, ok: bool, value: &[u8]) -> bool {
        let is_waited_for = self.waiting.contains(&number);
        if is_waited_for {
            self.answers.insert(number, (ok, value.to_vec()));
        }
        is_waited_for
    }
}

/// The next of them that was not given up meanwhile: one that was is dropped, which answers it.
pub(super) fn wanted(requests: &mut VecDeque<Incoming>) -> Option<Incoming> {
    while let Some(incoming) = requests.pop_front() {
        if !incoming.reply.is_cancelled() {
            return Some(incoming);
        }
    }
    None
}
