//! The subscribers of each topic: one intrusive list of slots per topic.
//!
//! # Shape
//!
//! A topic's record (identity, first subscriber, count, the handler's value) lies in a chunked slab; a
//! hash table of 4-byte indices finds it by identity. Subscribers link to each other inside their own
//! slab slots. So a subscriber costs its slot alone, and a topic about 32 bytes beside its value.
//!
//! # Invariants
//!
//! 1. A slot subscribes to at most one topic.
//! 2. A record exists exactly while its topic has a subscriber.
//! 3. `count` is the length of the list; the first has no `prev`, the last no `next`.
//!
//! Checked against a plain map by the property test below.

use crate::chunks::{Chunks, Vacancy};
use hashbrown::HashTable;

const NONE: u32 = u32::MAX;

/// A slot's place in its topic's list: twelve bytes inside each slab slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subscription {
    prev: u32,
    next: u32,
    /// Index of the topic's record.
    topic: u32,
}

impl Subscription {
    /// Subscribed to nothing.
    pub(crate) const ABSENT: Self = Self { prev: NONE, next: NONE, topic: NONE };

    pub(crate) fn is_present(self) -> bool {
        self.topic != NONE
    }
}

/// Where the topics find subscriptions: the slab, or a test's vector.
pub(crate) trait Subscriptions {
    /// The subscription of a slot that is, or is just being, subscribed.
    fn subscription(&mut self, slot: u32) -> &mut Subscription;
}

#[derive(Debug)]
enum Record<T> {
    Vacant { next: u32 },
    Occupied { id: u64, first: u32, count: u32, topic: T },
}

impl<T> Vacancy for Record<T> {
    fn vacant(next: u32) -> Self {
        Self::Vacant { next }
    }

    fn next(&self) -> Option<u32> {
        match self {
            Self::Vacant { next } => Some(*next),
            Self::Occupied { .. } => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Topics<T> {
    records: Chunks<Record<T>>,
    index: HashTable<u32>,
}

impl<T> Topics<T> {
    pub(crate) const fn new() -> Self {
        Self { records: Chunks::new(), index: HashTable::new() }
    }

    /// Topics that have a subscriber.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Subscribes a slot, which must not be subscribed; whether it is the topic's first.
    pub(crate) fn subscribe(
        &mut self,
        slots: &mut impl Subscriptions,
        slot: u32,
        id: u64,
        topic: impl FnOnce() -> T,
    ) -> bool {
        let known = self.find(id);
        let index = known.unwrap_or_else(|| self.open(id, topic()));
        let Some(Record::Occupied { first, count, .. }) = self.records.at_mut(index) else {
            return false;
        };
        let next = std::mem::replace(first, slot);
        *count += 1;
        *slots.subscription(slot) = Subscription { prev: NONE, next, topic: index };
        if next != NONE {
            slots.subscription(next).prev = slot;
        }
        known.is_none()
    }

    /// Unsubscribes a slot, which must be subscribed: the topic's identity, and its value if it was
    /// the last subscriber.
    pub(crate) fn unsubscribe(
        &mut self,
        slots: &mut impl Subscriptions,
        slot: u32,
    ) -> Option<(u64, Option<T>)> {
        let place = std::mem::replace(slots.subscription(slot), Subscription::ABSENT);
        if place.next != NONE {
            slots.subscription(place.next).prev = place.prev;
        }
        if place.prev != NONE {
            slots.subscription(place.prev).next = place.next;
        }
        let Record::Occupied { id, first, count, .. } = self.records.at_mut(place.topic)? else {
            return None;
        };
        if place.prev == NONE {
            *first = place.next;
        }
        *count -= 1;
        let (id, left) = (*id, *count);
        Some((id, if left == 0 { self.close(place.topic, id) } else { None }))
    }

    /// A topic's value, while it has a subscriber.
    pub(crate) fn topic(&self, id: u64) -> Option<&T> {
        match self.records.at(self.find(id)?)? {
            Record::Occupied { topic, .. } => Some(topic),
            Record::Vacant { .. } => None,
        }
    }

    /// The identity of the topic of a subscription.
    pub(crate) fn id_of(&self, subscription: Subscription) -> Option<u64> {
        match self.records.at(subscription.topic)? {
            Record::Occupied { id, .. } => Some(*id),
            Record::Vacant { .. } => None,
        }
    }

    /// How many are subscribed, and the first of them: the last to have come.
    pub(crate) fn first(&self, id: u64) -> Option<(u32, u32)> {
        match self.records.at(self.find(id)?)? {
            Record::Occupied { first, count, .. } => Some((*count, *first)),
            Record::Vacant { .. } => None,
        }
    }

    /// The subscriber after one.
    pub(crate) fn next(subscription: Subscription) -> Option<u32> {
        (subscription.next != NONE).then_some(subscription.next)
    }

    fn find(&self, id: u64) -> Option<u32> {
        let is_it = |index: &u32| matches!(self.records.at(*index), Some(Record::Occupied { id: other, .. }) if *other == id);
        self.index.find(hash(id), is_it).copied()
    }

    fn open(&mut self, id: u64, topic: T) -> u32 {
        let index = self.records.first_vacant();
        self.records.fill(Record::Occupied { id, first: NONE, count: 0, topic });
        let records = &self.records;
        let rehash = |index: &u32| match records.at(*index) {
            Some(Record::Occupied { id, .. }) => hash(*id),
            _ => 0,
        };
        self.index.insert_unique(hash(id), index, rehash);
        index
    }

    fn close(&mut self, index: u32, id: u64) -> Option<T> {
        if let Ok(entry) = self.index.find_entry(hash(id), |other| *other == index) {
            entry.remove();
        }
        match self.records.vacate(index, |next| Record::Vacant { next })? {
            Record::Occupied { topic, .. } => Some(topic),
            Record::Vacant { .. } => None,
        }
    }
}

/// Identities are given out by ourselves, so none is chosen to collide: a multiplication spreads them, and
/// the fold brings the well-mixed high half down to where the table looks first.
fn hash(id: u64) -> u64 {
    let product = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    struct Slots(Vec<Subscription>);

    impl Subscriptions for Slots {
        fn subscription(&mut self, slot: u32) -> &mut Subscription {
            &mut self.0[slot as usize]
        }
    }

    fn walk(topics: &Topics<u64>, slots: &Slots, id: u64) -> Vec<u32> {
        let first = topics.first(id).map(|(_, first)| first);
        std::iter::successors(first, |slot| Topics::<u64>::next(slots.0[*slot as usize])).collect()
    }

    proptest! {
        /// Lists, counts, firsts and lasts agree with a plain model, whatever comes and goes.
        #[test]
        fn agrees_with_a_plain_model(steps in proptest::collection::vec((0_u32..40, 0_u64..6), 1..400)) {
            let mut slots = Slots(vec![Subscription::ABSENT; 40]);
            let mut topics = Topics::new();
            // Topic to subscribers, latest first.
            let mut model: HashMap<u64, Vec<u32>> = HashMap::new();
            for (slot, pick) in steps {
                // Identities far apart, and near ones, and zero.
                let id = [0, 1, 2, 1 << 40, u64::MAX, 77][pick as usize];
                if slots.0[slot as usize].is_present() {
                    let was = topics.id_of(slots.0[slot as usize]).unwrap();
                    let list = model.get_mut(&was).unwrap();
                    list.retain(|other| *other != slot);
                    let last = list.is_empty();
                    if last {
                        model.remove(&was);
                    }
                    prop_assert_eq!(topics.unsubscribe(&mut slots, slot), Some((was, last.then_some(was ^ 5))));
                } else {
                    let first = !model.contains_key(&id);
                    prop_assert_eq!(topics.subscribe(&mut slots, slot, id, || id ^ 5), first);
                    model.entry(id).or_default().insert(0, slot);
                }
                prop_assert_eq!(topics.len(), model.len());
                for (id, list) in &model {
                    prop_assert_eq!(&walk(&topics, &slots, *id), list);
                    prop_assert_eq!(topics.first(*id), Some((list.len() as u32, list[0])));
                    prop_assert_eq!(topics.topic(*id), Some(&(*id ^ 5)));
                }
            }
        }
    }

    #[test]
    fn ten_thousand_topics_cost_their_records_and_a_small_index() {
        let mut slots = Slots(vec![Subscription::ABSENT; 10_000]);
        let mut topics: Topics<std::sync::Arc<u8>> = Topics::new();
        let topic = std::sync::Arc::new(0);
        for slot in 0..10_000 {
            assert!(topics.subscribe(&mut slots, slot, u64::from(slot) << 20, || topic.clone()));
        }
        assert_eq!(size_of::<Record<std::sync::Arc<u8>>>(), 24);
        assert!(topics.records.len() < 10_000 + crate::chunks::CHUNK);
        let bytes = topics.records.len() * 24 + topics.index.allocation_size();
        assert!(bytes / 10_000 <= 33, "{bytes} bytes for 10,000 topics");
        for slot in 0..10_000 {
            assert!(topics.unsubscribe(&mut slots, slot).unwrap().1.is_some());
        }
        assert_eq!(topics.len(), 0);
        assert!(topics.subscribe(&mut slots, 0, 1, || topic.clone()));
        assert!(topics.records.len() < 10_000 + crate::chunks::CHUNK, "records are used again");
    }
}
