//! Calls whose answers are told of together: one message, once all have ended.

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
    missing: usize,
    /// Those that were begun.
    calls: Vec<u64>,
}

impl State {
    /// A group of so many calls, whose answers come as one message.
    pub(crate) fn begin_group(&mut self, pid: Pid, reference: RawTerm, count: usize) -> Result<u64, Error> {
        let mut letter = Letter::new().ok_or_else(|| Error::new(Fault::System, "out of memory"))?;
        let reference = letter.copy(reference);
        self.group_count += 1;
        let results = vec![0; count];
        let calls = Vec::with_capacity(count);
        self.groups
            .insert(self.group_count, Group { pid, letter, reference, results, missing: count, calls });
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

    /// One more of a group is there; the last one sends them.
    pub(super) fn filled(&mut self, env: Env, group: u64) {
        let Some(of) = self.groups.get_mut(&group) else { return };
        of.missing -= 1;
        if of.missing == 0
            && let Some(mut of) = self.groups.remove(&group)
        {
            let letter = of.letter.env();
            let message =
                letter.make_tuple(&[atoms(env).thalweg, of.reference, letter.make_list(&of.results)]);
            of.letter.send(env, &of.pid, message);
        }
    }

    /// Whether some of a group have not ended.
    pub(crate) fn awaits_group(&self, group: u64) -> bool {
        self.groups.contains_key(&group)
    }

    /// Cancels what is left of a group.
    pub(crate) fn cancel_group(&mut self, group: u64) {
        let calls = self.groups.remove(&group).map_or(Vec::new(), |of| of.calls);
        calls.into_iter().for_each(|number| self.cancel(CallId::from_number(number)));
    }
}
