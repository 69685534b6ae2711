//! Calls whose answers are told of together: one message, once all have ended.
//!
//! Short answers are read into the group's letter as they are found. One that was put aside was read into a
//! letter of its own, and terms that large are copied where that keeps no process waiting: by the reader of
//! what is put aside (`held`), with the lock free meanwhile.

use super::State;
use crate::atoms::atoms;
use crate::enif::{Pid, RawTerm};
use crate::term::{Env, Letter};
use thalweg_service::{CallId, Error};
use thalweg_wire::fault::Fault;

#[derive(Debug)]
pub(super) struct Group {
    pub(super) pid: Pid,
    /// Where the results are made, and the reference lives.
    pub(super) letter: Letter,
    reference: RawTerm,
    pub(super) results: Vec<RawTerm>,
    /// Those that lie in letters of their own, and their places.
    apart: Vec<(usize, Letter, RawTerm)>,
    missing: usize,
    /// Those that were begun.
    calls: Vec<u64>,
}

impl Group {
    /// Has all results in the group's letter. It may take long.
    pub(super) fn join(&mut self) {
        for (at, letter, term) in self.apart.drain(..) {
            self.results[at] = self.letter.copy(term);
            drop(letter);
        }
    }

    pub(super) fn tell(mut self, env: Env) {
        let letter = self.letter.env();
        let results = letter.make_list(&self.results);
        let message = letter.make_tuple(&[atoms(env).thalweg, self.reference, results]);
        self.letter.send(env, &self.pid, message);
    }
}

impl State {
    /// A group of so many calls, whose answers come as one message.
    pub(crate) fn begin_group(&mut self, pid: Pid, reference: RawTerm, count: usize) -> Result<u64, Error> {
        let mut letter = Letter::new().ok_or_else(|| Error::new(Fault::System, "out of memory"))?;
        let reference = letter.copy(reference);
        self.group_count += 1;
        let (results, calls) = (vec![0; count], Vec::with_capacity(count));
        let group = Group { pid, letter, reference, results, apart: Vec::new(), missing: count, calls };
        self.groups.insert(self.group_count, group);
        Ok(self.group_count)
    }

    /// A call was begun for a group.
    pub(super) fn joins(&mut self, group: u64, number: u64) {
        if let Some(of) = self.groups.get_mut(&group) {
            of.calls.push(number);
        }
    }

    /// What one of a group came to, where its call was not even begun.
    pub(crate) fn fill(&mut self, env: Env, group: u64, at: usize, tell: impl FnOnce(Env) -> RawTerm) {
        if let Some(of) = self.groups.get_mut(&group) {
            of.results[at] = tell(of.letter.env());
        }
        self.filled(env, group);
    }

    /// What one of a group came to that was read into a letter of its own.
    pub(super) fn fill_apart(&mut self, env: Env, group: u64, at: usize, (letter, term): (Letter, RawTerm)) {
        if let Some(of) = self.groups.get_mut(&group) {
            of.apart.push((at, letter, term));
        }
        self.filled(env, group);
    }

    /// One more of a group is there; the last one sends them, or has them joined first.
    pub(super) fn filled(&mut self, env: Env, group: u64) {
        let Some(of) = self.groups.get_mut(&group) else { return };
        of.missing -= 1;
        if of.missing > 0 {
            return;
        }
        if !of.apart.is_empty() {
            self.shelf.put_group(group);
            self.have_held_read(env);
        } else if let Some(of) = self.groups.remove(&group) {
            of.tell(env);
        }
    }

    /// Whether a group is still to be told of.
    pub(crate) fn awaits_group(&self, group: u64) -> bool {
        self.groups.contains_key(&group) || self.shelf.joins(group)
    }

    /// Cancels what is left of a group.
    pub(crate) fn cancel_group(&mut self, group: u64) {
        self.shelf.leave_group(group);
        let calls = self.groups.remove(&group).map_or(Vec::new(), |of| of.calls);
        calls.into_iter().for_each(|number| self.cancel(CallId::from_number(number)));
    }
}
