//! Dispatch: from a request's frame to the method that carries it out.

use super::Core;
use super::order::{Budget, Outcome};
use super::pending_call::{frame_bytes, request_bytes};
use super::refusal::Refusal;
use super::sessions::Token;
use super::writes::{Write, WriteRequest};
use crate::generated::types::StateRequest;
use crate::state::ForkId;
use std::sync::Arc;
use thalweg_wire::excerpt::excerpt;

/// How callers name the main line.
pub(super) const MAIN: &str = "main";

/// The target of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Fork(ForkId),
    Session(Token),
}

impl Core {
    /// Parses a place.
    pub(super) fn place(&self, text: &str) -> Result<Place, Refusal> {
        if let Some(token) = Token::parse(text) {
            return Ok(Place::Session(token));
        }
        if text == MAIN {
            return Ok(Place::Fork(self.open()?.main()));
        }
        let number = text.bytes().next().filter(u8::is_ascii_digit).and_then(|_| text.parse().ok());
        number.map(Place::Fork).ok_or_else(|| Refusal::Place(excerpt(text).to_owned()))
    }

    /// Parses a place that has to be a fork.
    pub(super) fn fork(&self, text: &str) -> Result<ForkId, Refusal> {
        match self.place(text)? {
            Place::Fork(fork) => Ok(fork),
            Place::Session(_) => Err(Refusal::NoForkHere(excerpt(text).to_owned())),
        }
    }

    /// How callers name a fork.
    pub(super) fn fork_name(&self, fork: ForkId) -> String {
        let is_main = self.state.get().is_some_and(|state| state.main() == fork);
        if is_main { MAIN.to_owned() } else { fork.to_string() }
    }

    /// Parses a session's token.
    pub(super) fn token(text: &str) -> Result<Token, Refusal> {
        Token::parse(text).ok_or_else(|| Refusal::NoSessionHere(excerpt(text).to_owned()))
    }

    /// Carries out a request as far as possible at once. Also returns the bytes to reserve if the call has to
    /// wait.
    pub(super) fn begin(self: &Arc<Self>, frame: &[u8], budget: Budget) -> (Outcome, usize) {
        if let Some((place, write)) = WriteRequest::long(frame) {
            return (self.write(write, &place, budget).into(), frame_bytes(frame));
        }
        match StateRequest::decode(frame) {
            Ok(request) => {
                let bytes = request_bytes(&request, frame);
                (self.try_begin(request, frame, budget).into(), bytes)
            }
            Err(wrong) => (Outcome::NoRequest(wrong), frame_bytes(frame)),
        }
    }

    fn try_begin(
        self: &Arc<Self>,
        request: StateRequest<'_>,
        frame: &[u8],
        budget: Budget,
    ) -> Result<Outcome, Refusal> {
        match request {
            StateRequest::Get(get) => self.get(&get, budget),
            StateRequest::Scan(scan) => self.scan(&scan, budget),
            StateRequest::Count(count) => self.count(&count, budget),
            StateRequest::Root(root) => self.root(&root, budget),
            StateRequest::Diff(diff) => self.diff(diff.into_owned()),
            StateRequest::History(history) => self.history(history.into_owned()),
            StateRequest::Put(put) => self.write(Write::put(&put).into(), &put.place, budget),
            StateRequest::Remove(remove) => self.write(Write::remove(&remove).into(), &remove.place, budget),
            StateRequest::Batch(batch) => {
                self.write(WriteRequest::batch(&batch, frame, budget), &batch.place, budget)
            }
            StateRequest::Fork(fork) => self.branch(&fork),
            StateRequest::Drop(drop) => self.drop_fork(&drop),
            StateRequest::Forks(forks) => self.forks(&forks, budget),
            StateRequest::Open(open) => self.open_session(&open),
            StateRequest::Rejoin(rejoin) => self.in_session(&rejoin.session, Self::rejoin),
            StateRequest::Snapshot(snapshot) => self.in_session_and_fork(&snapshot.session, Self::snapshot),
            StateRequest::Commit(commit) => self.in_session_and_fork(&commit.session, Self::commit),
            StateRequest::Rollback(rollback) => self.in_session(&rollback.session, Self::rollback),
            StateRequest::Close(close) => self.in_session(&close.session, Self::close),
        }
    }
}
