//! Which earlier name a name falls together with. Owns the search, which takes no longer the more names there
//! are; never knows which names may be alike.

use std::collections::BTreeMap;

/// What came earlier under each key.
pub(super) struct Earlier<T> {
    /// The first under each key, and the first that is not the same as it, each with what makes it the same.
    /// Whatever comes later differs from one of the two, so that more need not be kept.
    by_key: BTreeMap<String, (First<T>, Option<First<T>>)>,
}

type First<T> = (String, T);

impl<T> Default for Earlier<T> {
    fn default() -> Self {
        Self { by_key: BTreeMap::new() }
    }
}

impl<T: Copy> Earlier<T> {
    /// Notes `this` under `key`, and returns the first that was noted there before and is not the same.
    pub(super) fn other(&mut self, key: String, same: String, this: T) -> Option<T> {
        let Some((first, second)) = self.by_key.get_mut(&key) else {
            self.by_key.insert(key, ((same, this), None));
            return None;
        };
        if first.0 == same {
            return second.as_ref().map(|(_, other)| *other);
        }
        second.get_or_insert((same, this));
        Some(first.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_that_differs_is_found(all in prop::collection::vec((0_u8..3, 0_u8..3), 0..20)) {
            let mut earlier = Earlier::default();
            for (n, (key, same)) in all.iter().enumerate() {
                let wanted = all[..n].iter().position(|other| other.0 == *key && other.1 != *same);
                prop_assert_eq!(earlier.other(key.to_string(), same.to_string(), n), wanted);
            }
        }
    }
}
