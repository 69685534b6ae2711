//! An incremental digest of a set of entries. Two replicas with the same entries have the same root. Updating
//! it takes time in proportion to what changed, not to the size of the set.
//!
//! LtHash (Bellare and Micciancio 1997; parameters of Lewi, Kim, Maykov and Weis 2019, "Securing update
//! propagation with homomorphic hashing"): each entry is hashed to 1,024 words of 16 bits, and the digest is
//! their sum. Finding two sets with one sum is as hard as a lattice problem that is taken to be beyond 200
//! bits. The root is a hash of the sum.

use crate::map::{Key, Map, Value};
use std::ops::Bound;
use std::thread::Builder;

const LANES: usize = 1_024;
/// The fewest entries for which a thread is started.
const PART_MIN: usize = 4_096;

/// What a state is compared by: 32 bytes.
pub type Root = [u8; 32];

/// The digest of a set of entries: the sum of their hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    lanes: Box<[u16; LANES]>,
}

impl Default for Digest {
    fn default() -> Self {
        Self { lanes: Box::new([0; LANES]) }
    }
}

impl Digest {
    /// The digest of a map. That of a large one is computed on all processors, as far as the system starts
    /// threads.
    pub fn of(map: &Map) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self::on(threads, || Builder::new().name("root".to_owned()), map)
    }

    fn on(threads: usize, thread: impl Fn() -> Builder, map: &Map) -> Self {
        let entries: Vec<_> = map.scan(Bound::Unbounded).collect();
        let mut parts = entries.chunks(entries.len().div_ceil(threads).max(PART_MIN));
        let own = parts.next().unwrap_or_default();
        std::thread::scope(|scope| {
            let begin = |part| (part, thread().spawn_scoped(scope, move || Self::sum(part)).ok());
            let others: Vec<_> = parts.map(begin).collect();
            let mut digest = Self::sum(own);
            for (part, other) in others {
                // This thread does the part of a thread that did not start, or did not finish.
                let sum = other.and_then(|other| other.join().ok());
                digest.join(&sum.unwrap_or_else(|| Self::sum(part)));
            }
            digest
        })
    }

    fn sum(entries: &[(&Key, &Value)]) -> Self {
        let mut digest = Self::default();
        entries.iter().for_each(|(key, value)| digest.add(key, value));
        digest
    }

    fn join(&mut self, other: &Self) {
        self.lanes.iter_mut().zip(&*other.lanes).for_each(|(lane, more)| *lane = lane.wrapping_add(*more));
    }

    /// Updates the digest of `before` to that of `before` with `changes`.
    pub fn follow<'c>(
        &mut self,
        before: &Map,
        changes: impl IntoIterator<Item = (&'c Key, Option<&'c Value>)>,
    ) {
        for (key, value) in changes {
            let held = before.get(key);
            if held == value {
                continue;
            }
            if let Some(held) = held {
                self.remove(key, held);
            }
            if let Some(value) = value {
                self.add(key, value);
            }
        }
    }

    /// The root.
    pub fn root(&self) -> Root {
        let mut hasher = blake3::Hasher::new();
        self.lanes.iter().for_each(|lane| {
            hasher.update(&lane.to_le_bytes());
        });
        *hasher.finalize().as_bytes()
    }

    fn add(&mut self, key: &str, value: &Value) {
        let words = words(key, value);
        self.lanes.iter_mut().zip(words).for_each(|(lane, word)| *lane = lane.wrapping_add(word));
    }

    fn remove(&mut self, key: &str, value: &Value) {
        let words = words(key, value);
        self.lanes.iter_mut().zip(words).for_each(|(lane, word)| *lane = lane.wrapping_sub(word));
    }
}

/// The hash of an entry, as words. The key's length in front keeps `("ab", "c")` apart from `("a", "bc")`.
fn words(key: &str, value: &Value) -> impl Iterator<Item = u16> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key.as_bytes());
    hasher.update(value);
    let mut bytes = [0; LANES * 2];
    hasher.finalize_xof().fill(&mut bytes);
    (0..LANES).map(move |lane| u16::from_le_bytes([bytes[lane * 2], bytes[lane * 2 + 1]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::{Change, Changes};
    use proptest::prelude::*;

    proptest! {
        /// Whatever changes came, in whatever groups, the digest that followed them is that of what there is.
        #[test]
        fn following_comes_to_the_same_as_counting(
            groups in proptest::collection::vec(
                proptest::collection::vec((0_u8..12, proptest::option::of(any::<u8>())), 0..6), 0..12),
        ) {
            let (mut map, mut digest) = (Map::default(), Digest::default());
            for group in groups {
                let changes: Changes = group.into_iter().map(|(key, value)| {
                    let key: crate::Key = format!("key-{key}").into();
                    value.map_or(Change::Delete(key.clone()), |value| Change::Put(key, [value].into()))
                }).collect();
                digest.follow(&map, &changes);
                map.apply(&changes);
                prop_assert_eq!(&digest, &Digest::of(&map));
                prop_assert_eq!(digest.root(), Digest::of(&map).root());
            }
        }
    }

    #[test]
    fn where_no_thread_is_to_be_had_the_digest_is_the_same() {
        let entries = (0..PART_MIN * 2 + 1).map(|n| (format!("{n}").into(), b"1"[..].into()));
        let map = Map::of(entries.collect());
        let alone = Digest::on(1, Builder::new, &map);
        assert_eq!(Digest::on(3, Builder::new, &map), alone);
        // Nobody has memory for such a stack.
        assert_eq!(Digest::on(3, || Builder::new().stack_size(1 << 62), &map), alone);
    }

    #[test]
    fn keys_and_values_are_kept_apart() {
        let root = |key: &str, value: &[u8]| {
            let mut map = Map::default();
            map.apply(&[Change::Put(key.into(), value.into())].into_iter().collect());
            Digest::of(&map).root()
        };
        assert_ne!(root("ab", b"c"), root("a", b"bc"));
        assert_ne!(root("a", b""), Digest::default().root());
    }
}
