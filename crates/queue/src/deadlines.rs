//! What is due at a time: each thing once, under the time that was set for it last.
//!
//! A time is a number that grows; which clock it is from is its user's to know. Checked by the tests here
//! against a plain map.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Things by when they are due, each with a value that comes along with it. Two indexes that are kept in
/// step: what is next costs as little to find as what is set or cleared by its name.
///
/// ```
/// use thalweg_queue::Deadlines;
///
/// let mut looks = Deadlines::default();
/// looks.set("tea", 300);
/// looks.set("eggs", 240);
/// looks.set("tea", 180);
/// looks.set("bread", 200);
/// looks.clear(&"bread");
/// assert_eq!(looks.next(), Some(180));
/// assert_eq!(looks.due(200), Some(("tea", ())));
/// assert_eq!(looks.due(200), None);
/// assert_eq!(looks.next(), Some(240));
/// ```
#[derive(Debug)]
pub struct Deadlines<K, V = ()> {
    by_time: BTreeMap<(u64, K), V>,
    by_key: HashMap<K, u64>,
}

impl<K, V> Default for Deadlines<K, V> {
    fn default() -> Self {
        Self { by_time: BTreeMap::new(), by_key: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash + Ord> Deadlines<K> {
    /// `key` is due at `at`, and no longer when it was before.
    pub fn set(&mut self, key: K, at: u64) {
        self.set_with(key, at, ());
    }
}

impl<K: Clone + Eq + Hash + Ord, V> Deadlines<K, V> {
    /// The same, with a value in place of the one before.
    pub fn set_with(&mut self, key: K, at: u64, value: V) {
        let key = match self.by_key.insert(key.clone(), at) {
            Some(before) => {
                let entry = (before, key);
                self.by_time.remove(&entry);
                entry.1
            }
            None => key,
        };
        self.by_time.insert((at, key), value);
    }

    /// `key` is not due any more.
    pub fn clear(&mut self, key: &K) {
        if let Some((key, at)) = self.by_key.remove_entry(key) {
            self.by_time.remove(&(at, key));
        }
    }

    /// When `key` is due.
    pub fn at(&self, key: &K) -> Option<u64> {
        self.by_key.get(key).copied()
    }

    /// When the first is due.
    pub fn next(&self) -> Option<u64> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the first that is due by `now`; of those due at the same time, the one with the lowest key.
    pub fn due(&mut self, now: u64) -> Option<(K, V)> {
        let first = self.by_time.first_entry().filter(|first| first.key().0 <= now)?;
        let ((_, key), value) = first.remove_entry();
        self.by_key.remove(&key);
        Some((key, value))
    }

    /// How many are due some time.
    pub fn len(&self) -> usize {
        self.by_time.len()
    }

    /// Whether nothing ever is.
    pub fn is_empty(&self) -> bool {
        self.by_time.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Set(u8, u64),
        Clear(u8),
        Due(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Few keys and few times, so that they are set again, and due together.
        let step = prop_oneof![
            6 => (0_u8..8, 0_u64..12).prop_map(|(key, at)| Step::Set(key, at)),
            2 => (0_u8..8).prop_map(Step::Clear),
            4 => (0_u64..12).prop_map(Step::Due),
        ];
        proptest::collection::vec(step, 0..80)
    }

    proptest! {
        /// A map that is searched from end to end says the same.
        #[test]
        fn it_is_a_map_with_times(steps in steps()) {
            let mut deadlines = Deadlines::default();
            let mut model: HashMap<u8, (u64, usize)> = HashMap::new();
            for (value, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Set(key, at) => {
                        deadlines.set_with(key, at, value);
                        model.insert(key, (at, value));
                    }
                    Step::Clear(key) => {
                        deadlines.clear(&key);
                        model.remove(&key);
                    }
                    Step::Due(now) => {
                        let first = model.iter().map(|(key, (at, _))| (*at, *key)).min();
                        let due = first.filter(|(at, _)| *at <= now);
                        let due = due.and_then(|(_, key)| Some((key, model.remove(&key)?.1)));
                        prop_assert_eq!(deadlines.due(now), due);
                    }
                }
                prop_assert_eq!(deadlines.next(), model.values().map(|(at, _)| *at).min());
                prop_assert_eq!((deadlines.len(), deadlines.is_empty()), (model.len(), model.is_empty()));
                for key in 0..8 {
                    prop_assert_eq!(deadlines.at(&key), model.get(&key).map(|(at, _)| *at));
                }
                prop_assert_eq!(deadlines.by_key.len(), deadlines.by_time.len());
            }
        }
    }
}
