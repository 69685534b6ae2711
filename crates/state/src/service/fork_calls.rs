//! Calls about forks as such: made, dropped and listed.

use super::Core;
use super::answer::Answer;
use super::order::{Budget, Key, Outcome};
use super::refusal::Refusal;
use crate::generated::types::{
    Line, StateDrop, StateDropResponse, StateFork, StateForkResponse, StateForksResponse,
};
use crate::state::ForkId;
use std::sync::Arc;
use thalweg_log::{Receipt, now};
use thalweg_service::Access;

/// The cost of a fork in a list, in keys that are only scanned past.
const LINE_COST: usize = 32;

impl Core {
    pub(super) fn branch(self: &Arc<Self>, fork: &StateFork<'_>) -> Result<Outcome, Refusal> {
        let parent = self.fork(&fork.parent)?;
        let answer = |(fork, receipt): (ForkId, Receipt)| {
            let response = StateForkResponse { fork: fork.to_string().into(), offset: receipt.next };
            Outcome::Done(receipt.ticket, Answer::of(&response))
        };
        if let Some(offset) = fork.offset {
            let make = move |core: &Arc<Self>| {
                let forked = core.open().and_then(|state| Ok(state.fork_at(parent, offset, now())?));
                forked.map(answer).into()
            };
            return Ok(Outcome::in_turn(Key::Fork(parent), Access::Read, move |_, held, _| {
                Outcome::in_turn(Key::Past(parent), Access::Read, move |_, past, _| {
                    // Who writes waits for no replay; who drops the fork does.
                    drop(held);
                    Outcome::apart(move |core| {
                        let outcome = make(core);
                        drop(past);
                        outcome
                    })
                })
            }));
        }
        Ok(Outcome::in_turn(Key::Fork(parent), Access::Read, move |core, _held, _| {
            core.open().and_then(|state| Ok(state.fork(parent, now())?)).map(answer).into()
        }))
    }

    pub(super) fn drop_fork(self: &Arc<Self>, asked: &StateDrop<'_>) -> Result<Outcome, Refusal> {
        let fork = self.fork(&asked.fork)?;
        Ok(Outcome::in_turn(Key::Fork(fork), Access::Write, move |_, held, _| {
            Outcome::in_turn(Key::Past(fork), Access::Write, move |core, past, _| {
                let dropped = core.open().and_then(|state| Ok(state.drop_fork(fork, now())?));
                drop((past, held));
                dropped.map(|receipt| Outcome::Done(receipt.ticket, Answer::of(&StateDropResponse {}))).into()
            })
        }))
    }

    pub(super) fn forks(&self, budget: Budget) -> Result<Outcome, Refusal> {
        let count = self.open()?.count();
        if count.saturating_mul(LINE_COST) <= budget {
            return Ok(Outcome::done(self.lines()?));
        }
        Ok(Outcome::elsewhere(|core| core.lines().map(Outcome::done).into()))
    }

    fn lines(&self) -> Result<Answer, Refusal> {
        let state = self.open()?;
        let lines = state.lines();
        let line = |line: &crate::state::Line| Line {
            fork: if line.fork == state.main() { "main".into() } else { line.fork.to_string().into() },
            stream: line.log.clone().into(),
            offset: line.offset,
            keys: line.keys as u64,
        };
        Ok(Answer::of(&StateForksResponse { forks: lines.iter().map(line).collect() }))
    }
}
