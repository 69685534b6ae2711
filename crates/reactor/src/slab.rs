//! The slab: slots in chunks, each vacant or held by one entry and what the reactor keeps beside it.
//!
//! Invariant: a slot's generation is another one for each entry that lives in it, so a [`Key`] finds the
//! entry that it was given for, or nothing. [`Slab::get`] and [`Slab::get_mut`] alone compare generations;
//! a slot without one comes only from a list that only entries are in. *Checked by* the tests of the
//! reactor's first invariant.

use crate::chunks::{Chunks, Vacancy};
use crate::key::{Interest, Key};
use crate::topics::{Subscription, Subscriptions};
use crate::wheel::{Link, Links};
use std::os::fd::OwnedFd;

/// Slots stay below this, so that a wheel's link can tell a slot from a list.
pub(crate) const SLOTS_MAX: u32 = 1 << 30;

/// One slab slot. What marks a vacant one is no valid value of something in an occupant, of its descriptor
/// say, so the mark costs nothing.
#[derive(Debug)]
enum Slot<E> {
    Vacant { generation: u32, next: u32 },
    Occupied(Occupant<E>),
}

/// What lives in a slot.
#[derive(Debug)]
pub(crate) struct Occupant<E> {
    generation: u32,
    pub(crate) descriptor: OwnedFd,
    timer: Link,
    pub(crate) subscription: Subscription,
    pub(crate) interest: Interest,
    /// The subscription's.
    pub(crate) offset: u64,
    pub(crate) entry: E,
}

impl<E> Vacancy for Slot<E> {
    fn vacant(next: u32) -> Self {
        Self::Vacant { generation: 0, next }
    }

    fn next(&self) -> Option<u32> {
        match self {
            Self::Vacant { next, .. } => Some(*next),
            Self::Occupied(_) => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Slab<E> {
    slots: Chunks<Slot<E>>,
    len: u32,
}

impl<E> Links for Slab<E> {
    fn link(&mut self, slot: u32) -> &mut Link {
        match self.slots.at_mut(slot) {
            Some(Slot::Occupied(occupant)) => &mut occupant.timer,
            _ => unreachable!("the wheel links occupied slots only: removing an entry unlinks it first"),
        }
    }
}

impl<E> Subscriptions for Slab<E> {
    fn subscription(&mut self, slot: u32) -> &mut Subscription {
        match self.slots.at_mut(slot) {
            Some(Slot::Occupied(occupant)) => &mut occupant.subscription,
            _ => unreachable!("topics link occupied slots only: removing an entry unlinks it first"),
        }
    }
}

impl<E> Slab<E> {
    pub(crate) const fn new() -> Self {
        Self { slots: Chunks::new(), len: 0 }
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// What the key names, while it lives.
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&Occupant<E>> {
        match self.slots.at(key.slot)? {
            Slot::Occupied(occupant) if occupant.generation == key.generation => Some(occupant),
            _ => None,
        }
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Occupant<E>> {
        match self.slots.at_mut(key.slot)? {
            Slot::Occupied(occupant) if occupant.generation == key.generation => Some(occupant),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn is_alive(&self, key: Key) -> bool {
        self.get(key).is_some()
    }

    /// What lives in a slot now, and its key.
    pub(crate) fn at(&self, slot: u32) -> Option<(Key, &Occupant<E>)> {
        match self.slots.at(slot)? {
            Slot::Occupied(occupant) => Some((Key { slot, generation: occupant.generation }, occupant)),
            Slot::Vacant { .. } => None,
        }
    }

    /// The key of the next entry. Grows by a chunk if it must.
    pub(crate) fn next_key(&mut self) -> Key {
        let slot = self.slots.first_vacant();
        match self.slots.at(slot) {
            Some(Slot::Vacant { generation, .. }) => Key { slot, generation: *generation },
            _ => unreachable!("the list of vacant slots holds vacant slots"),
        }
    }

    /// Has an entry live under the key that is next.
    pub(crate) fn fill(&mut self, key: Key, descriptor: OwnedFd, interest: Interest, entry: E) {
        self.slots.fill(Slot::Occupied(Occupant {
            generation: key.generation,
            descriptor,
            timer: Link::UNSET,
            subscription: Subscription::ABSENT,
            interest,
            offset: 0,
            entry,
        }));
        self.len += 1;
    }

    /// Ends the life of what the key, which is alive, names.
    pub(crate) fn vacate(&mut self, key: Key) -> Option<Occupant<E>> {
        // Generations wrap after four billion lives of one slot; the all-ones one is the reactor's own.
        let generation = if key.generation >= u32::MAX - 1 { 0 } else { key.generation + 1 };
        match self.slots.vacate(key.slot, |next| Slot::Vacant { generation, next })? {
            Slot::Occupied(occupant) => {
                self.len -= 1;
                Some(occupant)
            }
            Slot::Vacant { .. } => None,
        }
    }

    /// The keys of all entries, by their slots.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.slots.iter().enumerate().filter_map(|(slot, place)| match place {
            Slot::Occupied(Occupant { generation, .. }) => {
                Some(Key { slot: slot as u32, generation: *generation })
            }
            Slot::Vacant { .. } => None,
        })
    }

    /// Bytes of it made so far.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot<E>>()
    }
}

/// Bytes of one slab slot around an entry of type `E`.
pub const fn slot_bytes<E>() -> usize {
    size_of::<Slot<E>>()
}
