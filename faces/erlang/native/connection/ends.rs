//! Calls that end before they are answered: cancelled, given up with their process, with their worker, or
//! with the connection.
//!
//! What ends with a process that streams, or with a group, is found by it, however many other calls there
//! are. The walk for callers that are no more, and the one that a closed connection takes, are made of steps,
//! of [`TENDED_MAX`] and of [`HANDED_OUT_MAX`] calls, between which the lock is free. A worker's end is one
//! step: what is begun behind it is no longer given up. *Checked by* the tests beside this file.

use super::{HANDED_OUT_MAX, State, send};
use crate::enif::Pid;
use crate::term::Env;
use crate::waiter::{self, Expect, Waiter};
use std::collections::hash_map::Entry;
use std::ops::Bound;
use thalweg_service::{CallId, Error, EventKind};
use thalweg_wire::fault::Fault;

#[cfg(test)]
mod tests;

/// Waiters of whose processes it is asked at once whether they are there.
const TENDED_MAX: usize = 256;

/// When it is to be looked again whether callers are no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tended {
    /// At once, after others had a turn: there are more.
    Again,
    /// Before long.
    Later,
    /// Once there are callers to be tended.
    Done,
}

impl State {
    /// Cancels the call: what still comes of it is dropped.
    pub(crate) fn cancel(&mut self, call: CallId) {
        self.has_given_up |= self.waiters.contains_key(&call.number());
        self.forget(call);
    }

    pub(super) fn forget(&mut self, call: CallId) {
        if let Some(client) = &mut self.client {
            client.forget(call);
        }
        self.retire(call.number());
    }

    /// Whether the end of a process is still to be asked for. It is taken to be from here on.
    pub(crate) fn begin_to_watch(&mut self, pid: Pid) -> bool {
        self.watched.insert(pid)
    }

    /// Cancels the streams of a process that is no more.
    pub(crate) fn bereave(&mut self, pid: Pid) {
        self.watched.remove(&pid);
        let streams = self.streams.get(&pid).map_or(Vec::new(), |calls| calls.iter().copied().collect());
        streams.into_iter().for_each(|number| self.cancel(CallId::from_number(number)));
    }

    /// A process has a stream less.
    pub(super) fn end_stream(&mut self, pid: &Pid, number: u64) {
        if let Entry::Occupied(mut of) = self.streams.entry(*pid) {
            of.get_mut().remove(&number);
            if of.get().is_empty() {
                of.remove();
            }
        }
    }

    /// Gives up calls of processes that are no more: of a part of all, and the next time of the next part.
    pub(crate) fn tend(&mut self, env: Env) -> Tended {
        let behind = self.tended_up_to.map_or(Bound::Unbounded, Bound::Excluded);
        let part: Vec<u64> = self
            .waiters
            .range((behind, Bound::Unbounded))
            .take(TENDED_MAX)
            .map(|(number, _)| *number)
            .collect();
        self.tended_up_to = part.last().copied().filter(|_| part.len() == TENDED_MAX);
        for number in part {
            match self.waiters.get(&number) {
                Some(waiter) if !waiter.expect.is_awaited() || env.is_alive(&waiter.pid) => {}
                Some(Waiter { expect: Expect::Part(group, _), .. }) => self.cancel_group(*group),
                Some(_) => self.cancel(CallId::from_number(number)),
                // It went with its group.
                None => {}
            }
        }
        self.is_tended = self.tended_up_to.is_some() || self.hurried() > 0;
        self.leave(env);
        match (self.tended_up_to, self.is_tended) {
            (Some(_), _) => Tended::Again,
            (None, true) => Tended::Later,
            (None, false) => Tended::Done,
        }
    }

    /// Gives up every call and stream, and tells its waiter that the worker ends: the worker has yet to
    /// hear of that, and may see to what it was amid.
    pub(crate) fn give_up_all(&mut self, env: Env) {
        let ends = EventKind::Failed(Error::new(Fault::Disconnected, "the worker was stopped"));
        let of = |waiter: &Waiter| waiter.expect.is_bounded();
        let calls = self.waiters.iter().filter(|(_, waiter)| of(waiter)).map(|(number, _)| *number);
        for number in calls.collect::<Vec<_>>() {
            self.tell_end(env, number, &ends);
            self.cancel(CallId::from_number(number));
        }
        self.leave(env);
    }

    /// Tells the waiter for a call, if it is there still, why nothing more comes of it.
    pub(super) fn tell_end(&mut self, env: Env, number: u64, why: &EventKind) {
        let Some(waiter) = self.waiters.get_mut(&number) else { return };
        if let Expect::Part(group, at) = waiter.expect {
            self.fill(env, group, at, |env| waiter::tell(env, Expect::Outcome, why, &[]).term);
        } else {
            send(env, waiter, (&mut self.scratch, &mut self.lines), why, &[]);
        }
    }

    /// Ends the connection: every call is told so, a part of them at a time. Whether there are more.
    pub(crate) fn close(&mut self, env: Env) -> bool {
        if !std::mem::replace(&mut self.is_closed, true)
            && let Some(client) = &mut self.client
        {
            self.lost = self.lost.take().or_else(|| client.failure().cloned());
            client.close();
        }
        self.hand_out(env, None);
        self.has_more || self.abandon_held(env, HANDED_OUT_MAX)
    }
}
