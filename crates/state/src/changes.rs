//! Changes to a state. Of several changes to a key the last one counts.

use crate::map::{Key, Value};
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::iter::Map;
use std::ops::Bound;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key holds this from here on.
    Put(Key, Value),
    /// The key holds nothing from here on.
    Delete(Key),
}

impl Change {
    /// The key.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put(key, _) | Self::Delete(key) => key,
        }
    }
}

/// Anything that can be iterated over, more than once, as each changed key and its new value (`None` if the
/// key was deleted), in the order of the keys.
pub(crate) trait EachChange<'c>: IntoIterator<Item = (&'c Key, Option<&'c Value>)> + Copy {}

impl<'c, C: IntoIterator<Item = (&'c Key, Option<&'c Value>)> + Copy> EachChange<'c> for C {}

/// The last change of each key, in the order of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    keys: BTreeMap<Key, Option<Value>>,
}

impl Changes {
    /// The key holds `value`.
    pub fn put(&mut self, key: Key, value: Value) {
        self.keys.insert(key, Some(value));
    }

    /// The key holds nothing.
    pub fn delete(&mut self, key: Key) {
        self.keys.insert(key, None);
    }

    /// Adds a change after the others.
    pub fn push(&mut self, change: Change) {
        match change {
            Change::Put(key, value) => self.put(key, value),
            Change::Delete(key) => self.delete(key),
        }
    }

    /// The change of a key: `Some(None)` if it is deleted, `None` if it does not change.
    pub fn get(&self, key: &str) -> Option<Option<&Value>> {
        self.keys.get(key).map(Option::as_ref)
    }

    /// Each changed key and its new value, `None` if it is deleted.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, Option<&Value>)> {
        self.into_iter()
    }

    /// The same, from a key on.
    pub fn scan(&self, from: Bound<&str>) -> impl Iterator<Item = (&Key, Option<&Value>)> {
        self.keys.range::<str, _>((from, Bound::Unbounded)).map(|(key, value)| (key, value.as_ref()))
    }

    /// How many keys they change.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether they change nothing.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl IntoIterator for Changes {
    type Item = (Key, Option<Value>);
    type IntoIter = btree_map::IntoIter<Key, Option<Value>>;

    fn into_iter(self) -> Self::IntoIter {
        self.keys.into_iter()
    }
}

impl<'c> IntoIterator for &'c Changes {
    type Item = (&'c Key, Option<&'c Value>);
    type IntoIter =
        Map<btree_map::Iter<'c, Key, Option<Value>>, fn((&'c Key, &'c Option<Value>)) -> Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.keys.iter().map(|(key, value)| (key, value.as_ref()))
    }
}

impl FromIterator<Change> for Changes {
    fn from_iter<I: IntoIterator<Item = Change>>(changes: I) -> Self {
        let mut all = Self::default();
        changes.into_iter().for_each(|change| all.push(change));
        all
    }
}

impl<'c> FromIterator<(&'c Key, Option<&'c Value>)> for Changes {
    fn from_iter<I: IntoIterator<Item = (&'c Key, Option<&'c Value>)>>(changes: I) -> Self {
        let keys = changes.into_iter().map(|(key, value)| (key.clone(), value.cloned()));
        Self { keys: keys.collect() }
    }
}
