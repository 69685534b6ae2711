//! Calls that end before they are answered: cancelled, given up with their process, with their worker, or
//! with the connection.
//!
//! What ends with a process that streams, or with a group, is found by it, however many other calls there
//! are. The walks for callers that are no more and for what ends with its worker, and the one that a closed
//! connection takes, are made of steps, of [`TENDED_MAX`] and of [`HANDED_OUT_MAX`] calls, between which the
//! lock is free. What is begun while a scheduler walks for a worker's end is not given up with it, so that
//! the walk has an end.
//! *Checked by* the tests beside this file.

use super::{HANDED_OUT_MAX, State, send};
use crate::enif::Pid;
use crate::term::Env;
use crate::waiter::{self, Expect, Waiter};
use std::collections::hash_map::Entry;
use std::ops::{Bound, Range};
use thalweg_service::{CallId, Error, EventKind};
use thalweg_wire::fault::Fault;

#[cfg(test)]
mod tests;

/// Waiters that are looked at in one step: whether their processes are there, or end with the worker.
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

    /// The numbers of what was begun and is not over.
    pub(crate) fn begun(&self) -> Range<u64> {
        0..self.waiters.last_key_value().map_or(0, |(number, _)| number + 1)
    }

    /// Gives up calls and streams of these numbers, a part of them at a time, which it takes off, and tells
    /// their waiters that the worker ends: the worker has yet to hear of that, and may see to what it was
    /// amid. Whether there are more.
    pub(crate) fn give_up(&mut self, env: Env, left: &mut Range<u64>) -> bool {
        let ends = EventKind::Failed(Error::new(Fault::Disconnected, "the worker was stopped"));
        let part: Vec<(u64, Expect)> = self
            .waiters
            .range(left.clone())
            .take(TENDED_MAX)
            .map(|(number, waiter)| (*number, waiter.expect))
            .collect();
        left.start = part.get(TENDED_MAX - 1).map_or(left.end, |(number, _)| number + 1);
        for (number, _) in part.into_iter().filter(|(_, expect)| expect.is_bounded()) {
            self.tell_end(env, number, &ends);
            self.cancel(CallId::from_number(number));
        }
        self.leave(env);
        !left.is_empty()
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
