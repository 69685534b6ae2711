//! What few logs have, kept apart, so that the million others pay for one pointer.

use crate::error::Damage;
use crate::fork_needs::ForkNeeds;
use crate::log::{ClosedBy, Inner};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct Uncommon {
    closed_by: Option<Box<ClosedBy>>,
    /// The highest that was accepted.
    writer_seq: Option<Arc<[u8]>>,
    damage: Option<Box<Damage>>,
    /// What its forks need of it, if they need something.
    fork_needs: Option<Box<ForkNeeds>>,
}

impl Inner {
    /// The producer that closed it, if one did.
    pub(crate) fn closed_by(&self) -> Option<&ClosedBy> {
        self.uncommon.as_ref()?.closed_by.as_deref()
    }

    pub(crate) fn set_closed_by(&mut self, closed_by: Option<ClosedBy>) {
        if closed_by.is_some() || self.uncommon.is_some() {
            self.uncommon.get_or_insert_default().closed_by = closed_by.map(Box::new);
        }
    }

    /// The highest writer sequence accepted.
    pub(crate) fn writer_seq(&self) -> Option<&Arc<[u8]>> {
        self.uncommon.as_ref()?.writer_seq.as_ref()
    }

    pub(crate) fn set_writer_seq(&mut self, writer_seq: &[u8]) {
        self.uncommon.get_or_insert_default().writer_seq = Some(writer_seq.into());
    }

    /// What its forks need of it, if they need something.
    pub(crate) fn fork_needs(&self) -> Option<&ForkNeeds> {
        self.uncommon.as_ref()?.fork_needs.as_deref()
    }

    pub(crate) fn with_fork_needs<T>(&mut self, change: impl FnOnce(&mut ForkNeeds) -> T) -> T {
        let uncommon = self.uncommon.get_or_insert_default();
        let mut needs = uncommon.fork_needs.take().unwrap_or_default();
        let changed = change(&mut needs);
        uncommon.fork_needs = (!needs.is_empty()).then_some(needs);
        changed
    }

    /// What is wrong with it, if anything is.
    #[inline]
    pub(crate) fn damage(&self) -> Option<&Damage> {
        self.uncommon.as_ref()?.damage.as_deref()
    }

    pub(crate) fn set_damage(&mut self, damage: Damage) {
        self.uncommon.get_or_insert_default().damage = Some(Box::new(damage));
    }

    /// The same, unless something was wrong before: what was found first is told of.
    pub(crate) fn note_damage(&mut self, damage: impl FnOnce() -> Damage) {
        if self.damage().is_none() {
            self.set_damage(damage());
        }
    }
}
