//! What keys hold: a persistent ordered map, whose copies share what they have in common.

use crate::changes::Changes;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use smol_str::SmolStr;
use std::ops::Bound;
use std::sync::Arc;

/// A key: text, not empty. Short ones lie in the map itself.
pub type Key = SmolStr;
/// What a key holds: any bytes.
pub type Value = Arc<[u8]>;

/// Keys and what they hold. A copy costs nothing, and a change to one of two copies what lies on the way to
/// the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    entries: OrdMap<Key, Value>,
}

impl Map {
    /// What a key holds. Complexity: logarithmic.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// Whether the two are one in memory: then they hold the same.
    pub(crate) fn is_same(&self, other: &Map) -> bool {
        self.entries.ptr_eq(&other.entries)
    }

    /// The map with these entries.
    pub(crate) fn of(entries: Vec<(Key, Value)>) -> Self {
        Self { entries: entries.into_iter().collect() }
    }

    /// The same, and one in memory with `other` wherever the two hold the same. Complexity: a look at every
    /// key of either.
    pub(crate) fn sharing(&self, other: &Map) -> Self {
        let mut map = other.clone();
        map.extend(other.differences(self));
        map
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries from `from` on, in the order of their keys.
    pub fn scan(&self, from: Bound<&str>) -> impl Iterator<Item = (&Key, &Value)> {
        self.range(from, Bound::Unbounded)
    }

    /// The same, up to a key; none where `from` lies behind `until`. Complexity: two searches, and constant
    /// for each entry: no key is compared with where it ends.
    pub fn range(&self, from: Bound<&str>, until: Bound<&str>) -> impl Iterator<Item = (&Key, &Value)> {
        self.entries.range::<_, str>((from, until))
    }

    /// Makes changes.
    pub fn apply(&mut self, changes: &Changes) {
        self.extend(changes);
    }

    /// What makes `other` of this one. Complexity: what the two do not share, times the logarithm.
    pub fn changes_to(&self, other: &Map) -> Changes {
        self.differences(other).collect()
    }

    /// The same one by one, in the order of the keys: each that differs, and what `other` holds for it.
    pub fn differences<'m>(
        &'m self,
        other: &'m Map,
    ) -> impl Iterator<Item = (&'m Key, Option<&'m Value>)> + use<'m> {
        self.entries.diff(&other.entries).map(|item| match item {
            DiffItem::Add(key, value) | DiffItem::Update { new: (key, value), .. } => (key, Some(value)),
            DiffItem::Remove(key, _) => (key, None),
        })
    }
}

/// Makes changes: each key, and what it holds from here on.
impl<'c> Extend<(&'c Key, Option<&'c Value>)> for Map {
    fn extend<C: IntoIterator<Item = (&'c Key, Option<&'c Value>)>>(&mut self, changes: C) {
        for (key, value) in changes {
            match value {
                Some(value) => drop(self.entries.insert(key.clone(), value.clone())),
                None => drop(self.entries.remove(key.as_str())),
            }
        }
    }
}
