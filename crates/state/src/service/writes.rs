//! Calls that write: to a fork, or in a session beside its snapshot.

use super::Core;
use super::answer::{Answer, Wrote};
use super::calls::Place;
use super::lines::both;
use super::order::{Budget, ENDLESS, Held, Key, LONG, Outcome, UNLIMITED};
use super::refusal::Refusal;
use super::sessions::Live;
use crate::changes::{Change, Changes};
use crate::digest::Root;
use crate::error::Error;
use crate::fork::View;
use crate::generated::types::{StateBatch, StatePut, StateRemove};
use crate::sight::Sight;
use crate::state::{ForkId, State};
use std::sync::Arc;
use thalweg_log::{Offset, Receipt, now};
use thalweg_service::Access;
use thalweg_wire::hex::Hex;

/// A key takes as long to write as so many to pass.
const WRITE_COST: usize = 4;
/// And to be hashed for a root as so many.
const HASH_COST: usize = 128;

/// What is to be written.
pub(super) struct Write {
    wrote: Wrote,
    changes: Changes,
    if_offset: Option<Offset>,
    if_root: Option<Root>,
}

impl Write {
    fn one(wrote: Wrote, change: Change) -> Self {
        Self { wrote, changes: std::iter::once(change).collect(), if_offset: None, if_root: None }
    }

    pub(super) fn put(put: &StatePut<'_>) -> Self {
        Self::one(Wrote::Put, Change::Put((&*put.key).into(), (&*put.value).into()))
    }

    pub(super) fn remove(remove: &StateRemove<'_>) -> Self {
        Self::one(Wrote::Remove, Change::Delete((&*remove.key).into()))
    }

    pub(super) fn batch(batch: &StateBatch<'_>) -> Self {
        let change = |change: &crate::generated::types::Change<'_>| match &change.value {
            Some(value) => Change::Put((&*change.key).into(), (&**value).into()),
            None => Change::Delete((&*change.key).into()),
        };
        let changes = batch.changes.iter().map(change).collect();
        Self { wrote: Wrote::Batch, changes, if_offset: batch.if_offset, if_root: batch.if_root }
    }

    /// Whether it can be done within a budget, over what is seen there. Where others wait for what takes long a root is reckoned
    /// only if little changed since the last one.
    fn fits(&self, budget: Budget, sight: impl FnOnce() -> Option<Sight>) -> bool {
        let is_near = || sight().is_none_or(|sight| sight.is_near(budget.min(LONG) / HASH_COST));
        let is_short = budget >= UNLIMITED || self.changes.len() * WRITE_COST <= budget;
        is_short && (self.if_root.is_none() || budget == ENDLESS || is_near())
    }

    fn is_conditional(&self) -> bool {
        self.if_offset.is_some() || self.if_root.is_some()
    }

    /// Refuses what does not find what it expects.
    fn check(&self, fork: ForkId, sight: &Sight) -> Result<(), Refusal> {
        if let Some(base) = self.if_offset
            && base != sight.offset()
        {
            return Err(Error::Conflict { fork, base, tail: sight.offset() }.into());
        }
        match self.if_root {
            Some(root) if root != sight.root() => Err(Refusal::Root(Hex(&root).to_string())),
            _ => Ok(()),
        }
    }

    fn done(&self, receipt: Receipt) -> Outcome {
        Outcome::Done(receipt.ticket, Answer::Offset(self.wrote, receipt.next))
    }

    /// Whoever calls this has the fork's turn.
    fn on_fork(&self, state: &State, fork: ForkId) -> Result<Receipt, Refusal> {
        if !self.is_conditional() {
            return Ok(state.write(fork, &self.changes, now())?);
        }
        let sight = state.sight(fork, View::Pending)?;
        self.check(fork, &sight)?;
        // Others in this process may write meanwhile.
        Ok(state.write_at(fork, sight.offset(), &self.changes, now())?)
    }

    /// Whoever calls this has the session's turn, and there is a snapshot.
    fn beside(mut self, live: &Live) -> Result<Outcome, Refusal> {
        let mut session = live.lock()?;
        if self.is_conditional() {
            self.check(session.fork(), &session.sight()?)?;
        }
        let receipt = session.write(std::mem::take(&mut self.changes), now())?;
        Ok(self.done(receipt))
    }
}

impl Core {
    pub(super) fn write(
        self: &Arc<Self>,
        write: Write,
        place: &str,
        budget: Budget,
    ) -> Result<Outcome, Refusal> {
        match self.place(place)? {
            Place::Fork(fork) => Ok(self.write_fork(write, fork, budget)),
            Place::Session(token) => {
                let live = self.sessions.find(token)?;
                // Beside its snapshot it has nothing to do with its fork.
                if let Some(held) = self.turn(Key::Session(token.name), Access::Write)
                    && live.lock()?.is_pending()
                {
                    return self.write_beside(write, live, held, budget);
                }
                Ok(Outcome::in_turns(both(token, &live, Access::Write), |core, held, budget| {
                    core.write_session(write, live, held, budget).into()
                }))
            }
        }
    }

    /// `held` are the turns of the session and of its fork.
    fn write_session(
        self: &Arc<Self>,
        write: Write,
        live: Live,
        mut held: Vec<Held>,
        budget: Budget,
    ) -> Result<Outcome, Refusal> {
        if !live.lock()?.is_pending() {
            let fork = live.fork();
            return Ok(self.write_here(write, fork, (held, Some(live)), budget));
        }
        drop(held.split_off(1));
        self.write_beside(write, live, held, budget)
    }

    /// `held` is the turn of the session, which has a snapshot.
    fn write_beside<H: Send + 'static>(
        self: &Arc<Self>,
        write: Write,
        live: Live,
        held: H,
        budget: Budget,
    ) -> Result<Outcome, Refusal> {
        if write.fits(budget, || live.lock().ok()?.sight().ok()) {
            let outcome = write.beside(&live);
            drop(held);
            return outcome;
        }
        Ok(longer(budget, move |core, budget| core.write_beside(write, live, held, budget).into()))
    }

    fn write_fork(self: &Arc<Self>, write: Write, fork: ForkId, budget: Budget) -> Outcome {
        let key = Key::Fork(fork);
        match self.turn(key, Access::Write) {
            Some(held) => self.write_here(write, fork, (held, None), budget),
            None => Outcome::in_turn(key, Access::Write, move |core, held, budget| {
                core.write_here(write, fork, (held, None), budget)
            }),
        }
    }

    /// `beside` is the session that writes, if one does, in its turn.
    fn write_now(self: &Arc<Self>, write: &Write, fork: ForkId, beside: Option<&Live>) -> Outcome {
        let written = self.open().and_then(|state| write.on_fork(state, fork));
        let done = |receipt| {
            self.grown(receipt);
            // One that was closed has nobody who would ask.
            if let Some(mut session) = beside.and_then(|live| live.lock().ok()) {
                session.wrote(receipt);
            }
            write.done(receipt)
        };
        written.map(done).into()
    }

    /// `held` is the fork's turn, and that of the session `beside` if one writes.
    fn write_here<H: Send + 'static>(
        self: &Arc<Self>,
        write: Write,
        fork: ForkId,
        (held, beside): (H, Option<Live>),
        budget: Budget,
    ) -> Outcome {
        let sight = || self.open().ok()?.sight(fork, View::Pending).ok();
        if write.fits(budget, sight) {
            let outcome = self.write_now(&write, fork, beside.as_ref());
            drop(held);
            return outcome;
        }
        longer(budget, move |core, budget| core.write_here(write, fork, (held, beside), budget))
    }
}

/// What does not fit into a budget goes on where there is a larger one, and keeps the turns that it has: what comes behind it
/// takes effect behind it.
fn longer(budget: Budget, rest: impl FnOnce(&Arc<Core>, Budget) -> Outcome + Send + 'static) -> Outcome {
    if budget < UNLIMITED {
        return Outcome::elsewhere(|core| rest(core, UNLIMITED));
    }
    Outcome::in_line(|core| rest(core, ENDLESS))
}
