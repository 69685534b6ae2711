//! An immutable view of a place (a fork or a session): a map, and the changes of a session over it.
//!
//! Taking a read view takes constant time, and it does not change, whatever becomes of the place. So a long
//! read takes one in its turn, and reads it after it has given up the turn.

use crate::digest::{Digest, Root};
use crate::fork::{Fork, Moment, Rooted};
use crate::map::{Key, Map, Value};
use crate::overlay::Overlay;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use thalweg_log::Offset;

/// An immutable view of a state.
#[derive(Clone, Debug)]
pub struct ReadView {
    moment: Moment,
    over: Option<Arc<Overlay>>,
    /// The fork, from whose kept digest a root is computed. Without it a root is computed from every key.
    fork: Option<Arc<Fork>>,
    /// Keeps the digest of a session's snapshot as long as the snapshot.
    rooted: Option<Arc<OnceLock<Rooted>>>,
}

impl ReadView {
    pub(crate) fn new(moment: Moment, over: Option<Arc<Overlay>>, fork: Option<Arc<Fork>>) -> Self {
        Self { moment, over: over.filter(|over| !over.is_empty()), fork, rooted: None }
    }

    /// The same for a session's snapshot, which keeps its digest.
    pub(crate) fn kept_by(self, rooted: Arc<OnceLock<Rooted>>) -> Self {
        Self { rooted: Some(rooted), ..self }
    }

    /// Whether the two share their memory, so that they are equal. If false, they may still be equal.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_same_over = match (&self.over, &other.over) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        is_same_over && self.moment.map.is_same(&other.moment.map)
    }

    /// The same without the references that speed up roots, which would keep the fork in memory.
    pub(crate) fn alone(self) -> Self {
        Self { fork: None, rooted: None, ..self }
    }

    /// The offset at which the fork's log ended.
    pub fn offset(&self) -> Offset {
        self.moment.offset
    }

    /// What a key holds. Complexity: logarithmic.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self.over.as_ref().and_then(|over| over.get(key)) {
            Some(written) => written,
            None => self.moment.map.get(key),
        }
    }

    /// The entries from `from` on, in the order of their keys. Complexity: logarithmic, then constant for
    /// each.
    pub fn scan(&self, from: Bound<&str>) -> impl Iterator<Item = (&Key, &Value)> {
        self.range(from, Bound::Unbounded)
    }

    /// The same, up to a key; none where `from` lies behind `until`. Complexity: two searches, and constant
    /// for each: no key is compared with where it ends.
    ///
    /// ```
    /// # use thalweg_log::{Options as StoreOptions, Store};
    /// # use thalweg_state::{Change, Options, State, View};
    /// # let store = Store::memory(StoreOptions::default())?;
    /// # let state = State::open(&store, "accounts", Options::default())?;
    /// use std::ops::Bound;
    /// let accounts = ["ann", "bob", "eve"].map(|name| Change::Put(name.into(), b"10"[..].into()));
    /// state.write(state.main(), &accounts.into_iter().collect(), 1)?;
    /// let view = state.read_view(state.main(), View::Committed)?;
    /// assert_eq!(view.range(Bound::Excluded("ann"), Bound::Excluded("eve")).count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range(&self, from: Bound<&str>, until: Bound<&str>) -> impl Iterator<Item = (&Key, &Value)> {
        let over = self.over.as_deref().map(|over| over.range(from, until));
        Merged { under: self.moment.map.range(from, until).peekable(), over: over.map(Iterator::peekable) }
    }

    /// The map with everything in it. Complexity: that of what was written over it.
    pub fn map(&self) -> Map {
        let mut map = self.moment.map.clone();
        if let Some(over) = &self.over {
            map.extend(&**over);
        }
        map
    }

    /// The root. Complexity: what differs from the fork's kept digest. For a session's snapshot only the
    /// first time; later what the session wrote.
    pub fn root(&self) -> Root {
        let Some(fork) = &self.fork else { return Digest::of(&self.map()).root() };
        let under = match &self.rooted {
            Some(rooted) => rooted.get_or_init(|| fork.digest_apart(&self.moment)).clone(),
            None => fork.digest(&self.moment),
        };
        let Some(over) = &self.over else { return under.1.root() };
        let mut digest = under.1.clone();
        digest.follow(&self.moment.map, &**over);
        digest.root()
    }

    /// Whether computing the root hashes at most `most` entries.
    pub(crate) fn is_near(&self, most: usize) -> bool {
        let Some(left) = most.checked_sub(self.over.as_ref().map_or(0, |over| over.len())) else {
            return false;
        };
        match &self.fork {
            Some(_) if self.rooted.as_ref().is_some_and(|rooted| rooted.get().is_some()) => true,
            Some(fork) => fork.is_near(&self.moment.map, left),
            None => self.moment.map.len() <= left,
        }
    }
}

/// Merges two iterators in the order of their keys; where both have a key, `over` decides.
struct Merged<U: Iterator, O: Iterator> {
    under: Peekable<U>,
    over: Option<Peekable<O>>,
}

impl<'s, U, O> Iterator for Merged<U, O>
where
    U: Iterator<Item = (&'s Key, &'s Value)>,
    O: Iterator<Item = (&'s Key, Option<&'s Value>)>,
{
    type Item = (&'s Key, &'s Value);

    fn next(&mut self) -> Option<Self::Item> {
        let Some(over) = &mut self.over else { return self.under.next() };
        loop {
            let written = match (self.under.peek(), over.peek()) {
                (_, None) => return self.under.next(),
                (Some((below, _)), Some((above, _))) if below < above => return self.under.next(),
                (Some((below, _)), Some((above, _))) if below == above => {
                    self.under.next();
                    over.next()
                }
                _ => over.next(),
            };
            if let Some((key, Some(value))) = written {
                return Some((key, value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::{Change, Changes};
    use crate::memory_budget::MemoryBudget;
    use proptest::prelude::*;

    fn bound() -> impl Strategy<Value = Bound<String>> {
        prop_oneof![
            Just(Bound::Unbounded),
            "[a-c]{0,3}".prop_map(Bound::Included),
            "[a-c]{0,3}".prop_map(Bound::Excluded),
        ]
    }

    proptest! {
        #[test]
        fn a_range_is_the_part_of_a_scan_between_its_bounds(
            under in proptest::collection::vec("[a-c]{1,4}", 0..120),
            over in proptest::collection::vec(("[a-c]{1,4}", any::<bool>()), 0..20),
            (from, until) in (bound(), bound()),
        ) {
            let value = |text: &str| Value::from(text.as_bytes());
            let map = Map::of(under.iter().map(|key| (Key::from(&**key), value("under"))).collect());
            let change = |(key, puts): &(String, bool)| match puts {
                true => Change::Put(key.as_str().into(), value("over")),
                false => Change::Delete(key.as_str().into()),
            };
            let mut overlay = Overlay::new(&MemoryBudget::new(1 << 20));
            overlay.write("entry", over.iter().map(change).collect::<Changes>()).unwrap();
            let view = ReadView::new(Moment { map, offset: 0 }, Some(Arc::new(overlay)), None);
            let [from, until] = [&from, &until].map(|bound| bound.as_ref().map(String::as_str));
            let begins = |key: &str| match from {
                Bound::Included(from) => key >= from,
                Bound::Excluded(from) => key > from,
                Bound::Unbounded => true,
            };
            let goes_on = |key: &str| match until {
                Bound::Included(until) => key <= until,
                Bound::Excluded(until) => key < until,
                Bound::Unbounded => true,
            };
            let all = view.scan(Bound::Unbounded);
            let part: Vec<_> = all.filter(|(key, _)| begins(key) && goes_on(key)).collect();
            prop_assert_eq!(view.range(from, until).collect::<Vec<_>>(), part);
        }
    }
}
