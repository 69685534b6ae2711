//! Changes to a state: of one key the last one counts.

use crate::map::{Key, Value};
use imbl::OrdMap;
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

/// Changes, each key's last one, in the order of the keys. A copy costs nothing, and one more change to either of two copies
/// what lies on the way to its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    keys: OrdMap<Key, Option<Value>>,
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

    /// Adds one behind the others.
    pub fn push(&mut self, change: Change) {
        match change {
            Change::Put(key, value) => self.put(key, value),
            Change::Delete(key) => self.delete(key),
        }
    }

    /// What a key holds by these: `Some(None)` for nothing, `None` when they do not say.
    pub fn get(&self, key: &str) -> Option<Option<&Value>> {
        self.keys.get(key).map(Option::as_ref)
    }

    /// Each key and what it holds by these.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, Option<&Value>)> {
        self.keys.iter().map(|(key, value)| (key, value.as_ref()))
    }

    /// The same, from a key on.
    pub fn scan(&self, from: Bound<&str>) -> impl Iterator<Item = (&Key, Option<&Value>)> {
        self.keys.range::<_, str>((from, Bound::Unbounded)).map(|(key, value)| (key, value.as_ref()))
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
    type IntoIter = <OrdMap<Key, Option<Value>> as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        self.keys.into_iter()
    }
}

impl FromIterator<Change> for Changes {
    fn from_iter<I: IntoIterator<Item = Change>>(changes: I) -> Self {
        let mut all = Self::default();
        changes.into_iter().for_each(|change| all.push(change));
        all
    }
}
