//! Calls about forks and about sessions as such.

use super::Core;
use super::answer::{Answer, Wrote};
use super::order::{Budget, Held, Key, Outcome, Places};
use super::refusal::Refusal;
use super::sessions::{Live, Token};
use crate::generated::types::{
    Line, StateCloseResponse, StateDrop, StateDropResponse, StateFork, StateForkResponse, StateForksResponse,
    StateOpen, StateOpenResponse, StateRejoinResponse,
};
use crate::session::Session;
use crate::state::ForkId;
use parking_lot::MappedMutexGuard;
use std::sync::Arc;
use thalweg_log::{Receipt, now};
use thalweg_service::Access;

/// The cost of a change that is committed, in keys that are only scanned past.
const COMMIT_COST: usize = 4;
/// Bytes of changes whose commit costs as much as such a key.
const BYTES_PER_COST: usize = 32;
/// The cost of a fork in a list, in keys that are only scanned past.
const LINE_COST: usize = 32;

/// A session in its turn.
pub(super) struct Turn {
    live: Live,
    token: Token,
    /// Of the session, and of its fork where that is needed.
    _held: Vec<Held>,
    budget: Budget,
}

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

    pub(super) fn open_session(&self, open: &StateOpen<'_>) -> Result<Outcome, Refusal> {
        let session = self.open()?.session(self.fork(&open.fork)?)?;
        let (token, lease_ms) = self.sessions.open(session, open.lease_ms)?;
        let response = StateOpenResponse { session: token.to_string().into(), lease_ms };
        Ok(Outcome::done(Answer::of(&response)))
    }

    /// Does something with a session, in its turn.
    pub(super) fn in_session(
        self: &Arc<Self>,
        session: &str,
        act: fn(&Arc<Self>, Turn) -> Outcome,
    ) -> Result<Outcome, Refusal> {
        self.in_turns(session, |token, _| vec![(Key::Session(token.name), Access::Write)], act)
    }

    /// Does something with a session and its fork, in the turns of both.
    pub(super) fn in_session_and_fork(
        self: &Arc<Self>,
        session: &str,
        act: fn(&Arc<Self>, Turn) -> Outcome,
    ) -> Result<Outcome, Refusal> {
        self.in_turns(session, |token, live| both(token, live, Access::Write), act)
    }

    fn in_turns(
        self: &Arc<Self>,
        session: &str,
        places: impl FnOnce(Token, &Live) -> Places,
        act: fn(&Arc<Self>, Turn) -> Outcome,
    ) -> Result<Outcome, Refusal> {
        let token = Self::token(session)?;
        let live = self.sessions.find(token)?;
        Ok(Outcome::in_turns(places(token, &live), move |core, held, budget| {
            act(core, Turn { live, token, _held: held, budget })
        }))
    }

    pub(super) fn rejoin(self: &Arc<Self>, turn: Turn) -> Outcome {
        let answer = |session: &Session| {
            let fork = session.fork();
            let is_main = self.state.get().is_some_and(|state| state.main() == fork);
            Answer::of(&StateRejoinResponse {
                fork: if is_main { "main".into() } else { fork.to_string().into() },
                pending: session.is_pending(),
                lease_ms: u32::try_from(turn.live.lease().as_millis()).unwrap_or(u32::MAX),
            })
        };
        turn.live.lock().map(|session| Outcome::done(answer(&session))).into()
    }

    pub(super) fn snapshot(self: &Arc<Self>, turn: Turn) -> Outcome {
        self.commit_then(turn, Wrote::Snapshot)
    }

    pub(super) fn commit(self: &Arc<Self>, turn: Turn) -> Outcome {
        self.commit_then(turn, Wrote::Commit)
    }

    pub(super) fn rollback(self: &Arc<Self>, turn: Turn) -> Outcome {
        let rolled = turn.live.lock().and_then(|mut session| Ok(session.rollback()?));
        rolled.map(|()| Outcome::done(Answer::RolledBack)).into()
    }

    pub(super) fn close(self: &Arc<Self>, turn: Turn) -> Outcome {
        let closed = self.sessions.close(turn.token, &turn.live);
        closed.map(|()| Outcome::done(Answer::of(&StateCloseResponse {}))).into()
    }

    /// Commits what is pending, as both commit and snapshot do: alone on the fork.
    fn commit_then(self: &Arc<Self>, turn: Turn, wrote: Wrote) -> Outcome {
        let cost = match turn.live.lock() {
            Ok(session) => session.changes() * COMMIT_COST + session.changed_bytes() / BYTES_PER_COST,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        if cost <= turn.budget {
            return self.commit_now(&turn, wrote);
        }
        Outcome::holding(move |core| core.commit_now(&turn, wrote))
    }

    fn commit_now(self: &Arc<Self>, turn: &Turn, wrote: Wrote) -> Outcome {
        let commit = |mut session: MappedMutexGuard<'_, Session>| {
            let grows = session.changes() > 0;
            let receipt =
                if wrote == Wrote::Snapshot { session.snapshot(now()) } else { session.commit(now()) }?;
            if grows {
                self.grown(receipt);
            }
            Ok(Outcome::Done(
                receipt.ticket,
                Answer::Offset { wrote, offset: receipt.next, _live: Some(turn.live.clone()) },
            ))
        };
        turn.live.lock().and_then(commit).into()
    }
}

/// Turns of a session and of its fork.
pub(super) fn both(token: Token, live: &Live, access: Access) -> Places {
    vec![(Key::Session(token.name), access), (Key::Fork(live.fork()), access)]
}
