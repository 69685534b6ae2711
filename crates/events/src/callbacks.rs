//! Who is told of what, by number.

use crate::event::CallbackId;
use crate::kind::Kind;
use hashbrown::HashTable;

/// What became of an event when it was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It is to be delivered.
    New,
    /// One that says the same waits already.
    Waiting,
    /// Nobody is told of it: the callback is gone, or never was.
    Unknown,
}

#[derive(Debug)]
struct Slot<T> {
    id: CallbackId,
    /// Which sides of its descriptor have an event waiting.
    waiting: u8,
    callback: T,
}

/// The callbacks of one loop. Touched by the loop's owner alone.
///
/// ```
/// use thalweg_events::{Callbacks, Kind, Noted};
/// let mut callbacks = Callbacks::default();
/// let id = callbacks.insert("reader");
/// assert_eq!(callbacks.note(id, Kind::Readable), Noted::New);
/// assert_eq!(callbacks.note(id, Kind::Readable), Noted::Waiting);
/// assert_eq!(callbacks.deliver(id, Kind::Readable), Some(&"reader"));
/// assert_eq!(callbacks.note(id, Kind::Readable), Noted::New);
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
        self.slots.insert_unique(hash(id), Slot { id, waiting: 0, callback }, |slot| hash(slot.id));
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
    pub fn note(&mut self, id: CallbackId, kind: Kind) -> Noted {
        let Some(slot) = self.slot(id) else { return Noted::Unknown };
        if !kind.says_the_same_twice() {
            return Noted::New;
        }
        let bit = kind.number();
        if slot.waiting & bit != 0 {
            return Noted::Waiting;
        }
        slot.waiting |= bit;
        Noted::New
    }

    /// Who is to be told now of an event that was noted; `None` when the callback is gone since.
    #[inline]
    pub fn deliver(&mut self, id: CallbackId, kind: Kind) -> Option<&T> {
        let slot = self.slot(id)?;
        if kind.says_the_same_twice() {
            slot.waiting &= !kind.number();
        }
        Some(&slot.callback)
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
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        /// Whatever is registered, posted, delivered and let go: the same as in a plain map with a plain set.
        #[test]
        fn agrees_with_a_map_and_a_set(
            steps in proptest::collection::vec((0_u8..4, any::<prop::sample::Index>(), 0..ROWS.len()), 1..200)
        ) {
            let mut callbacks = Callbacks::default();
            let (mut model, mut waiting) = (BTreeMap::new(), BTreeSet::new());
            let mut ids: Vec<CallbackId> = vec![CallbackId::next()];
            for (step, which, kind) in steps {
                let (id, kind) = (ids[which.index(ids.len())], ROWS[kind].kind);
                let same = kind.number() <= 2;
                match step {
                    0 => {
                        let id = callbacks.insert(ids.len());
                        prop_assert!(ids.iter().all(|before| *before < id));
                        model.insert(id, ids.len());
                        ids.push(id);
                    }
                    1 => {
                        prop_assert_eq!(callbacks.remove(id), model.remove(&id));
                        waiting.retain(|(gone, _)| *gone != id);
                    }
                    2 => {
                        let wanted = match model.contains_key(&id) {
                            false => Noted::Unknown,
                            true if same && !waiting.insert((id, kind.number())) => Noted::Waiting,
                            true => Noted::New,
                        };
                        prop_assert_eq!(callbacks.note(id, kind), wanted);
                    }
                    _ => {
                        prop_assert_eq!(callbacks.deliver(id, kind), model.get(&id));
                        waiting.remove(&(id, kind.number()));
                    }
                }
                prop_assert_eq!(callbacks.len(), model.len());
                prop_assert_eq!(callbacks.find(id).copied(), model.get(&id).copied());
            }
            prop_assert_eq!(callbacks.clear().len(), model.len());
            prop_assert!(callbacks.is_empty());
        }
    }
}
