//! Calls about sessions themselves. All but `Open` are done in the turn of their session, and those that read
//! or write the fork also in the fork's turn.

use super::Core;
use super::answer::{Answer, WriteKind};
use super::order::{Budget, Held, Key, Outcome, Places};
use super::refusal::Refusal;
use super::sessions::{LiveSession, Token};
use crate::generated::types::{StateCloseResponse, StateOpen, StateOpenResponse, StateRejoinResponse};
use crate::session::Session;
use parking_lot::MappedMutexGuard;
use std::sync::Arc;
use thalweg_log::now;
use thalweg_service::Access;

/// The cost of a change that is committed, as a number of keys that are only counted.
const COMMIT_COST: usize = 4;
/// The bytes of changes whose commit costs as much as such a key.
const BYTES_PER_COST: usize = 32;

/// A session in its turn.
pub(super) struct SessionTurn {
    live: LiveSession,
    token: Token,
    /// The turns of the session and, if needed, of its fork.
    _held: Vec<Held>,
    budget: Budget,
}

impl Core {
    pub(super) fn open_session(&self, open: &StateOpen<'_>) -> Result<Outcome, Refusal> {
        let session = self.open()?.session(self.fork(&open.fork)?)?;
        let (token, lease_ms) = self.sessions.open(session, open.lease_ms)?;
        let response = StateOpenResponse { session: token.to_string().into(), lease_ms };
        Ok(Outcome::done(Answer::of(&response)))
    }

    /// Carries out `act` in the turn of a session.
    pub(super) fn in_session(
        self: &Arc<Self>,
        session: &str,
        act: fn(&Arc<Self>, SessionTurn) -> Outcome,
    ) -> Result<Outcome, Refusal> {
        self.in_turns(session, |token, _| vec![(Key::Session(token.name), Access::Write)], act)
    }

    /// Carries out `act` in the turns of a session and its fork.
    pub(super) fn in_session_and_fork(
        self: &Arc<Self>,
        session: &str,
        act: fn(&Arc<Self>, SessionTurn) -> Outcome,
    ) -> Result<Outcome, Refusal> {
        self.in_turns(session, |token, live| both(token, live, Access::Write), act)
    }

    fn in_turns(
        self: &Arc<Self>,
        session: &str,
        places: impl FnOnce(Token, &LiveSession) -> Places,
        act: fn(&Arc<Self>, SessionTurn) -> Outcome,
    ) -> Result<Outcome, Refusal> {
        let token = Self::token(session)?;
        let live = self.sessions.find(token)?;
        Ok(Outcome::in_turns(places(token, &live), move |core, held, budget| {
            act(core, SessionTurn { live, token, _held: held, budget })
        }))
    }

    pub(super) fn rejoin(self: &Arc<Self>, turn: SessionTurn) -> Outcome {
        let answer = |session: &Session| {
            Answer::of(&StateRejoinResponse {
                fork: self.fork_name(session.fork()).into(),
                pending: session.is_pending(),
                lease_ms: u32::try_from(turn.live.lease().as_millis()).unwrap_or(u32::MAX),
            })
        };
        turn.live.lock().map(|session| Outcome::done(answer(&session))).into()
    }

    pub(super) fn snapshot(self: &Arc<Self>, turn: SessionTurn) -> Outcome {
        self.commit_then(turn, WriteKind::Snapshot)
    }

    pub(super) fn commit(self: &Arc<Self>, turn: SessionTurn) -> Outcome {
        self.commit_then(turn, WriteKind::Commit)
    }

    pub(super) fn rollback(self: &Arc<Self>, turn: SessionTurn) -> Outcome {
        let rolled = turn.live.lock().and_then(|mut session| Ok(session.rollback()?));
        rolled.map(|()| Outcome::done(Answer::RolledBack)).into()
    }

    pub(super) fn close(self: &Arc<Self>, turn: SessionTurn) -> Outcome {
        let closed = self.sessions.close(turn.token, &turn.live);
        closed.map(|()| Outcome::done(Answer::of(&StateCloseResponse {}))).into()
    }

    /// Commits pending changes, which `Commit` and `Snapshot` both do.
    fn commit_then(self: &Arc<Self>, turn: SessionTurn, kind: WriteKind) -> Outcome {
        let cost = match turn.live.lock() {
            Ok(session) => session.changes() * COMMIT_COST + session.changed_bytes() / BYTES_PER_COST,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        if cost <= turn.budget {
            return self.commit_now(&turn, kind);
        }
        Outcome::holding(move |core| core.commit_now(&turn, kind))
    }

    fn commit_now(self: &Arc<Self>, turn: &SessionTurn, kind: WriteKind) -> Outcome {
        let commit = |mut session: MappedMutexGuard<'_, Session>| {
            let grows = session.changes() > 0;
            let receipt =
                if kind == WriteKind::Snapshot { session.snapshot(now()) } else { session.commit(now()) }?;
            if grows {
                self.grown(receipt);
            }
            Ok(Outcome::Done(
                receipt.ticket,
                Answer::Offset { kind, offset: receipt.next, _live: Some(turn.live.clone()) },
            ))
        };
        turn.live.lock().and_then(commit).into()
    }
}

/// Turns of a session and of its fork.
pub(super) fn both(token: Token, live: &LiveSession, access: Access) -> Places {
    vec![(Key::Session(token.name), access), (Key::Fork(live.fork()), access)]
}
