//! The callbacks of a loop, by number, and which events wait for each.

use crate::event::{CallbackId, Subject};
use crate::kind::Kind;
use hashbrown::HashTable;
use std::collections::BTreeSet;

/// What became of an event when it was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It is to be delivered.
    New,
    /// One that says the same waits already.
    Waiting,
    /// Its callback is gone, or never was: the event is dropped.
    Unknown,
}

#[derive(Debug)]
struct Slot<T> {
    id: CallbackId,
    /// Which sides of a descriptor have an event waiting, and which descriptor's they are: there is one, as a
    /// rule.
    waiting: u8,
    subject: Subject,
    /// What waits meanwhile of other descriptors.
    others: BTreeSet<(u8, Subject)>,
    callback: T,
}

impl<T> Slot<T> {
    /// Keeps that an event waits; false where it is kept already.
    #[inline]
    fn keep(&mut self, side: u8, subject: Subject) -> bool {
        if !self.others.is_empty() && self.others.contains(&(side, subject)) {
            return false;
        }
        if self.waiting == 0 {
            self.subject = subject;
        }
        if self.subject != subject {
            return self.others.insert((side, subject));
        }
        let is_new = self.waiting & side == 0;
        self.waiting |= side;
        is_new
    }

    /// The event waits no more.
    #[inline]
    fn let_go(&mut self, side: u8, subject: Subject) {
        if !self.others.is_empty() && self.others.remove(&(side, subject)) {
            return;
        }
        if self.subject == subject {
            self.waiting &= !side;
        }
    }
}

/// The callbacks of one loop. Touched by the loop's owner alone.
///
/// ```
/// use thalweg_events::{Callbacks, Kind, Noted, Subject};
/// let mut callbacks = Callbacks::default();
/// let id = callbacks.insert("reader");
/// let (five, six) = (Subject::Number(5), Subject::Number(6));
/// assert_eq!(callbacks.note(id, Kind::Readable, five), Noted::New);
/// assert_eq!(callbacks.note(id, Kind::Readable, five), Noted::Waiting);
/// assert_eq!(callbacks.note(id, Kind::Readable, six), Noted::New);
/// assert_eq!(callbacks.deliver(id, Kind::Readable, five), Some(&"reader"));
/// assert_eq!(callbacks.note(id, Kind::Readable, five), Noted::New);
/// ```
#[derive(Debug)]
pub struct Callbacks<T> {
    slots: HashTable<Slot<T>>,
}

impl<T> Default for Callbacks<T> {
    fn default() -> Self {
        Self { slots: HashTable::new() }
    }
}

/// Spreads numbers that follow each other over all bits.
#[inline]
fn hash(id: CallbackId) -> u64 {
    id.number().wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26)
}

impl<T> Callbacks<T> {
    /// Takes a callback in and names it.
    pub fn insert(&mut self, callback: T) -> CallbackId {
        let id = CallbackId::next();
        let slot = Slot { id, waiting: 0, subject: Subject::Unsaid, others: BTreeSet::new(), callback };
        self.slots.insert_unique(hash(id), slot, |slot| hash(slot.id));
        id
    }

    /// Lets a callback go; `None` when it was gone already.
    pub fn remove(&mut self, id: CallbackId) -> Option<T> {
        let found = self.slots.find_entry(hash(id), |slot| slot.id == id).ok()?;
        Some(found.remove().0.callback)
    }

    /// The callback of a number.
    #[inline]
    pub fn find(&mut self, id: CallbackId) -> Option<&mut T> {
        self.slot(id).map(|slot| &mut slot.callback)
    }

    /// Notes that an event is going to wait for its callback.
    #[inline]
    pub fn note(&mut self, id: CallbackId, kind: Kind, subject: Subject) -> Noted {
        let Some(slot) = self.slot(id) else { return Noted::Unknown };
        let is_kept = kind.says_the_same_twice() && subject != Subject::Other;
        if !is_kept || slot.keep(kind.number(), subject) { Noted::New } else { Noted::Waiting }
    }

    /// The callback to be told now of an event that was noted; `None` when it is gone since.
    #[inline]
    pub fn deliver(&mut self, id: CallbackId, kind: Kind, subject: Subject) -> Option<&T> {
        let slot = self.slot(id)?;
        if kind.says_the_same_twice() {
            slot.let_go(kind.number(), subject);
        }
        Some(&slot.callback)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|slot| &slot.callback)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Lets all of them go.
    pub fn clear(&mut self) -> Vec<T> {
        self.slots.drain().map(|slot| slot.callback).collect()
    }

    #[inline]
    fn slot(&mut self, id: CallbackId) -> Option<&mut Slot<T>> {
        self.slots.find_mut(hash(id), |slot| slot.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::ROWS;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const SUBJECTS: [Subject; 5] =
        [Subject::Unsaid, Subject::Number(5), Subject::Number(6), Subject::Number(7), Subject::Other];

    proptest! {
        /// Whatever is registered, posted, delivered and let go: the same as in a plain map with a plain set.
        /// Half of the events are of descriptors, few of them, so that the same one comes again and another
        /// between.
        #[test]
        fn agrees_with_a_map_and_a_set(
            steps in proptest::collection::vec(
                (0_u8..4, any::<prop::sample::Index>(), 0..2 * ROWS.len(), 0..SUBJECTS.len()),
                1..200,
            )
        ) {
            let mut callbacks = Callbacks::default();
            let (mut model, mut waiting) = (BTreeMap::new(), BTreeSet::new());
            let mut ids: Vec<CallbackId> = vec![CallbackId::next()];
            for (step, which, kind, subject) in steps {
                let kind = ROWS.get(kind).map_or(Kind::Readable, |row| row.kind);
                let (id, subject) = (ids[which.index(ids.len())], SUBJECTS[subject]);
                let same = kind.number() <= 2 && subject != Subject::Other;
                match step {
                    0 => {
                        let id = callbacks.insert(ids.len());
                        prop_assert!(ids.iter().all(|before| *before < id));
                        model.insert(id, ids.len());
                        ids.push(id);
                    }
                    1 => {
                        prop_assert_eq!(callbacks.remove(id), model.remove(&id));
                        waiting.retain(|(gone, _, _)| *gone != id);
                    }
                    2 => {
                        let wanted = match model.contains_key(&id) {
                            false => Noted::Unknown,
                            true if same && !waiting.insert((id, kind.number(), subject)) => Noted::Waiting,
                            true => Noted::New,
                        };
                        prop_assert_eq!(callbacks.note(id, kind, subject), wanted);
                    }
                    _ => {
                        prop_assert_eq!(callbacks.deliver(id, kind, subject), model.get(&id));
                        waiting.remove(&(id, kind.number(), subject));
                    }
                }
                prop_assert_eq!(callbacks.len(), model.len());
                prop_assert_eq!(callbacks.find(id).copied(), model.get(&id).copied());
                prop_assert!(callbacks.iter().collect::<BTreeSet<_>>().into_iter().eq(model.values()));
            }
            prop_assert_eq!(callbacks.clear().len(), model.len());
            prop_assert!(callbacks.is_empty());
        }
    }
}
