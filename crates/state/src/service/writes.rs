//! Calls that write: to a fork, or in a session beside its snapshot.
//!
//! Many changes, or a long value, take longer to write than to receive. Such a write is queued by its place
//! alone, and decoded in its turn, on a worker thread.

use super::Core;
use super::answer::{Answer, WriteKind};
use super::calls::Place;
use super::order::{Budget, ENDLESS, Held, Key, LONG, Outcome, UNLIMITED};
use super::refusal::Refusal;
use super::session_calls::both;
use super::sessions::LiveSession;
use crate::changes::{Change, Changes};
use crate::digest::Root;
use crate::error::Error;
use crate::fork::View;
use crate::generated::types::{StateBatch, StatePut, StateRemove, StateRequest};
use crate::read_view::ReadView;
use crate::state::{ForkId, State};
use std::borrow::Cow;
use std::sync::Arc;
use thalweg_log::{Offset, Receipt, now};
use thalweg_service::Access;
use thalweg_wire::hex::Hex;
use thalweg_wire::messagepack::{DecodeError, Message, Reader};

/// The cost of a key that is written, as a number of keys that are only counted.
const WRITE_COST: usize = 4;
/// The cost of a key that is hashed for a root, in the same unit.
const HASH_COST: usize = 128;
/// A longer frame is not decoded on a reactor: a batch of short keys of this length takes 0.2 ms. Its values
/// are copied, and encoded as the log has them, in time proportional to their bytes.
const SHORT_BYTES: usize = 64 << 10;

/// A write before its turn.
pub(super) enum WriteRequest {
    /// Decoded.
    Read(Write),
    /// The frame of a batch or a put, to be decoded on a worker thread.
    Frame(Vec<u8>),
}

impl From<Write> for WriteRequest {
    fn from(write: Write) -> Self {
        Self::Read(write)
    }
}

/// Whether a write can be done within a budget.
enum Attempt {
    Now(Write),
    Later(WriteRequest),
    /// Its frame is no request.
    Undecodable(DecodeError),
}

impl WriteRequest {
    /// The place and the frame of a batch or a put that is too long to be decoded on a reactor.
    pub(super) fn long(frame: &[u8]) -> Option<(Cow<'_, str>, Self)> {
        let place = if frame.len() > SHORT_BYTES { place(frame) } else { None }?;
        Some((place, Self::Frame(frame.to_vec())))
    }

    /// A decoded batch. Its changes are only put in order if they are few; otherwise its frame is kept.
    pub(super) fn batch(batch: &StateBatch<'_>, frame: &[u8], budget: Budget) -> Self {
        if is_short(batch.changes.len(), budget) {
            return Self::Read(Write::batch(batch));
        }
        Self::Frame(frame.to_vec())
    }

    /// `read_view` is the view of its place.
    fn within(self, budget: Budget, read_view: impl Fn() -> Option<ReadView>) -> Attempt {
        match self {
            Self::Read(write) if fits(write.changes.len(), write.if_root, budget, &read_view) => {
                Attempt::Now(write)
            }
            Self::Frame(frame) if budget >= UNLIMITED => {
                let fits =
                    |batch: &StateBatch<'_>| fits(batch.changes.len(), batch.if_root, budget, read_view);
                // `long` lets nothing else pass.
                let read = |request| match request {
                    StateRequest::Put(put) => Some(Write::put(&put)),
                    StateRequest::Batch(batch) if fits(&batch) => Some(Write::batch(&batch)),
                    _ => None,
                };
                match StateRequest::decode(&frame).map(read) {
                    Ok(Some(write)) => Attempt::Now(write),
                    Ok(None) => Attempt::Later(Self::Frame(frame)),
                    Err(error) => Attempt::Undecodable(error),
                }
            }
            later => Attempt::Later(later),
        }
    }
}

/// A decoded write, its changes in order.
pub(super) struct Write {
    kind: WriteKind,
    changes: Changes,
    if_offset: Option<Offset>,
    if_root: Option<Root>,
}

impl Write {
    fn one(kind: WriteKind, change: Change) -> Self {
        Self { kind, changes: std::iter::once(change).collect(), if_offset: None, if_root: None }
    }

    pub(super) fn put(put: &StatePut<'_>) -> Self {
        Self::one(WriteKind::Put, Change::Put((&*put.key).into(), (&*put.value).into()))
    }

    pub(super) fn remove(remove: &StateRemove<'_>) -> Self {
        Self::one(WriteKind::Remove, Change::Delete((&*remove.key).into()))
    }

    fn batch(batch: &StateBatch<'_>) -> Self {
        let change = |change: &crate::generated::types::Change<'_>| match &change.value {
            Some(value) => Change::Put((&*change.key).into(), (&**value).into()),
            None => Change::Delete((&*change.key).into()),
        };
        let changes = batch.changes.iter().map(change).collect();
        Self { kind: WriteKind::Batch, changes, if_offset: batch.if_offset, if_root: batch.if_root }
    }

    fn is_conditional(&self) -> bool {
        self.if_offset.is_some() || self.if_root.is_some()
    }

    /// Checks the conditions of a batch.
    fn check(&self, fork: ForkId, read_view: &ReadView) -> Result<(), Refusal> {
        if let Some(base) = self.if_offset
            && base != read_view.offset()
        {
            return Err(Error::Conflict { fork, base, tail: read_view.offset() }.into());
        }
        match self.if_root {
            Some(root) if root != read_view.root() => Err(Refusal::Root(Hex(&root).to_string())),
            _ => Ok(()),
        }
    }

    /// The outcome of a write; `live` is its session, if it has one.
    fn done(&self, receipt: Receipt, live: Option<&LiveSession>) -> Outcome {
        let answer = Answer::Offset { kind: self.kind, offset: receipt.next, _live: live.cloned() };
        Outcome::Done(receipt.ticket, answer)
    }

    /// The caller has the fork's turn.
    fn on_fork(&self, state: &State, fork: ForkId) -> Result<Receipt, Refusal> {
        if !self.is_conditional() {
            return Ok(state.write(fork, &self.changes, now())?);
        }
        let read_view = state.read_view(fork, View::Pending)?;
        self.check(fork, &read_view)?;
        // Users of the `State` in this process do not take turns, and may write meanwhile.
        Ok(state.write_at(fork, read_view.offset(), &self.changes, now())?)
    }

    /// The caller has the session's turn, and there is a snapshot.
    fn beside(mut self, live: &LiveSession) -> Result<Outcome, Refusal> {
        let mut session = live.lock()?;
        if self.is_conditional() {
            self.check(session.fork(), &session.read_view()?)?;
        }
        let receipt = session.write(std::mem::take(&mut self.changes), now())?;
        Ok(self.done(receipt, None))
    }
}

impl Core {
    pub(super) fn write(
        self: &Arc<Self>,
        write: WriteRequest,
        place: &str,
        budget: Budget,
    ) -> Result<Outcome, Refusal> {
        match self.place(place)? {
            Place::Fork(fork) => Ok(self.write_fork(write, fork, budget)),
            Place::Session(token) => {
                let live = self.sessions.find(token)?;
                // A session with a snapshot does not need its fork's turn.
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
        write: WriteRequest,
        live: LiveSession,
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
        write: WriteRequest,
        live: LiveSession,
        held: H,
        budget: Budget,
    ) -> Result<Outcome, Refusal> {
        match write.within(budget, || live.lock().ok()?.read_view().ok()) {
            Attempt::Now(write) => {
                let outcome = write.beside(&live);
                drop(held);
                outcome
            }
            Attempt::Later(write) => {
                Ok(longer(budget, move |core, budget| core.write_beside(write, live, held, budget).into()))
            }
            Attempt::Undecodable(error) => Ok(Outcome::NoRequest(error)),
        }
    }

    fn write_fork(self: &Arc<Self>, write: WriteRequest, fork: ForkId, budget: Budget) -> Outcome {
        let key = Key::Fork(fork);
        match self.turn(key, Access::Write) {
            Some(held) => self.write_here(write, fork, (held, None), budget),
            None => Outcome::in_turn(key, Access::Write, move |core, held, budget| {
                core.write_here(write, fork, (held, None), budget)
            }),
        }
    }

    /// `beside` is the session that writes, if one does. The caller has its turn.
    fn write_now(self: &Arc<Self>, write: &Write, fork: ForkId, beside: Option<&LiveSession>) -> Outcome {
        let written = self.open().and_then(|state| write.on_fork(state, fork));
        let done = |receipt| {
            self.grown(receipt);
            // A closed session needs no receipt.
            if let Some(mut session) = beside.and_then(|live| live.lock().ok()) {
                session.wrote(receipt);
            }
            write.done(receipt, beside)
        };
        written.map(done).into()
    }

    /// `held` is the fork's turn, and that of the session `beside` if one writes.
    fn write_here<H: Send + 'static>(
        self: &Arc<Self>,
        write: WriteRequest,
        fork: ForkId,
        (held, beside): (H, Option<LiveSession>),
        budget: Budget,
    ) -> Outcome {
        let read_view = || self.open().ok()?.read_view(fork, View::Pending).ok();
        match write.within(budget, read_view) {
            Attempt::Now(write) => {
                let outcome = self.write_now(&write, fork, beside.as_ref());
                drop(held);
                outcome
            }
            Attempt::Later(write) => {
                longer(budget, move |core, budget| core.write_here(write, fork, (held, beside), budget))
            }
            Attempt::Undecodable(error) => Outcome::NoRequest(error),
        }
    }
}

/// The place of a batch or a put, if it is the frame's first field, as every encoder writes it.
fn place(frame: &[u8]) -> Option<Cow<'_, str>> {
    let mut reader = Reader::new(frame);
    let tag = reader.request().ok()?;
    let tag = [StateBatch::TAG, StatePut::TAG].into_iter().find(|known| known.as_bytes() == tag)?;
    let has_place = reader.fields(tag).ok()? > 0 && reader.key().ok()? == b"place";
    if has_place { reader.string().ok() } else { None }
}

/// Whether a number of changes fits into a budget.
fn is_short(changes: usize, budget: Budget) -> bool {
    budget >= UNLIMITED || changes * WRITE_COST <= budget
}

/// Whether they do together with the root that is expected, if one is. On a reactor or a worker thread a root
/// is computed only if little changed since the last one.
fn fits(
    changes: usize,
    if_root: Option<Root>,
    budget: Budget,
    read_view: impl FnOnce() -> Option<ReadView>,
) -> bool {
    let is_near = || read_view().is_none_or(|read_view| read_view.is_near(budget.min(LONG) / HASH_COST));
    is_short(changes, budget) && (if_root.is_none() || budget == ENDLESS || is_near())
}

/// Continues a write that does not fit into its budget where there is a larger one. It keeps its turns, so
/// that later calls take effect after it.
fn longer(budget: Budget, rest: impl FnOnce(&Arc<Core>, Budget) -> Outcome + Send + 'static) -> Outcome {
    if budget < UNLIMITED {
        return Outcome::holding(|core| rest(core, UNLIMITED));
    }
    Outcome::in_line(|core| rest(core, ENDLESS))
}
