//! Calls about forks themselves: `Fork`, `Drop` and `Forks`.

use super::Core;
use super::answer::Answer;
use super::order::{Budget, Key, Outcome};
use super::page::{limit, paged};
use super::refusal::Refusal;
use crate::fork_info::ForkInfo;
use crate::generated::types::{
    ForkInfo as ListedFork, StateDrop, StateDropResponse, StateFork, StateForkResponse, StateForks,
    StateForksResponse,
};
use crate::state::ForkId;
use std::sync::Arc;
use thalweg_log::{Receipt, now};
use thalweg_service::Access;

/// The cost of a fork in a list, as a number of keys that are only counted.
const FORK_COST: usize = 32;

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
                    // Writes do not wait for the replay; dropping the fork does.
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

    pub(super) fn forks(&self, asked: &StateForks<'_>, budget: Budget) -> Result<Outcome, Refusal> {
        let from = asked.start.as_deref().map_or(Ok(0), |start| self.fork(start))?;
        let limit = limit(asked.limit);
        let cost = limit.min(self.open()?.count()).saturating_mul(FORK_COST);
        if cost <= budget {
            return Ok(Outcome::done(self.fork_page(from, limit)?));
        }
        Ok(Outcome::elsewhere(cost, move |core, _| core.fork_page(from, limit).map(Outcome::done).into()))
    }

    fn fork_page(&self, from: ForkId, limit: usize) -> Result<Answer, Refusal> {
        let infos = self.open()?.fork_infos(from, limit + 1);
        let bytes_of = |info: &ForkInfo| info.log.len() + info.unreadable.as_ref().map_or(0, String::len);
        let (forks, next) = paged(infos, limit, bytes_of);
        let listed = |info: ForkInfo| ListedFork {
            fork: self.fork_name(info.fork).into(),
            stream: info.log.into(),
            offset: info.offset,
            keys: info.keys as u64,
            unreadable: info.unreadable.map(Into::into),
        };
        let next = next.map(|info| self.fork_name(info.fork).into());
        Ok(Answer::of(&StateForksResponse { forks: forks.into_iter().map(listed).collect(), next }))
    }
}
