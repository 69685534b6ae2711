//! Which logs there are, by name. Sharded, so that lookups from many threads seldom meet.

use crate::births::Births;
use crate::log::Log;
use crate::names::Names;
use crate::order::{Kept, Order};
use hashbrown::HashTable;
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::Arc;

const SHARDS: usize = 16;
/// The bits of a hash that say which shard. Not its lowest, by which a table finds the bucket, nor its
/// highest seven, by which it tells those of a bucket apart: what all of a shard have in common tells nothing
/// apart.
const SHARD_SHIFT: u32 = 40;

/// The latest opening of a store in this process, attachments included. Zero is none.
static LATEST: Mutex<u32> = Mutex::new(0);

/// Names that a stranger chooses must not collide on purpose.
#[cfg(not(test))]
type State = std::hash::RandomState;
/// A seed of the simulation has to take the same way again.
#[cfg(test)]
type State = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

#[derive(Debug)]
pub(crate) struct Catalogue {
    /// Which opening of which store its logs are of. They say so themselves, because nothing but an identity
    /// within a store tells a log from one of another.
    opening: u32,
    hasher: State,
    shards: [RwLock<Shard>; SHARDS],
    content_types: Mutex<HashSet<Arc<str>>>,
}

#[derive(Debug, Default)]
pub(crate) struct Shard {
    pub(crate) table: HashTable<Arc<Log>>,
    /// The same in order, once they were listed.
    pub(crate) names: Option<Kept<Names>>,
    /// The same by id, once somebody hears of new ones.
    pub(crate) births: Option<Kept<Births>>,
}

/// A name's place, held exclusively: no other thread creates or removes that name meanwhile.
pub(crate) struct Place<'a> {
    opening: u32,
    shard: RwLockWriteGuard<'a, Shard>,
    hasher: &'a State,
    hash: u64,
}

impl Catalogue {
    pub(crate) fn new() -> Catalogue {
        let opening = {
            let mut latest = LATEST.lock();
            *latest = latest.wrapping_add(1);
            *latest
        };
        Catalogue {
            opening,
            hasher: State::default(),
            shards: Default::default(),
            content_types: Mutex::default(),
        }
    }

    /// Which opening its logs are of.
    #[inline]
    pub(crate) fn opening(&self) -> u32 {
        self.opening
    }

    /// Goes on in the place of one that was before: of the same opening.
    pub(crate) fn succeed(&mut self, before: &Catalogue) {
        self.opening = before.opening;
    }

    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        &self.shards[place_of(hash)]
    }

    /// Which shard a name is in: where a walk comes to it.
    #[cfg(test)]
    pub(crate) fn shard_of(&self, name: &[u8]) -> usize {
        place_of(self.hasher.hash_one(name))
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<Arc<Log>> {
        let hash = self.hasher.hash_one(name);
        self.shard(hash).read().table.find(hash, |log| log.name() == name).cloned()
    }

    pub(crate) fn place(&self, name: &[u8]) -> Place<'_> {
        let hash = self.hasher.hash_one(name);
        Place { opening: self.opening, shard: self.shard(hash).write(), hasher: &self.hasher, hash }
    }

    /// Forgets a deleted log, unless its name belongs to another by now.
    pub(crate) fn remove(&self, log: &Arc<Log>) {
        let mut place = self.place(log.name());
        let hash = place.hash;
        if let Ok(entry) = place.shard.table.find_entry(hash, |other| Arc::ptr_eq(other, log)) {
            entry.remove();
            if let Some(names) = &mut place.shard.names {
                names.logs.remove(log);
            }
            if let Some(births) = &mut place.shard.births {
                births.logs.remove(log);
            }
        }
    }

    /// Whether the log is the one its shard knows under its name.
    pub(crate) fn holds(&self, shard: &Shard, log: &Arc<Log>) -> bool {
        let hash = self.hasher.hash_one(log.name());
        shard.table.find(hash, |other| Arc::ptr_eq(other, log)).is_some()
    }

    pub(crate) fn shards(&self) -> &[RwLock<Shard>] {
        &self.shards
    }

    /// Drops content types that no log has any more.
    pub(crate) fn forget_content_types(&self) {
        self.content_types.lock().retain(|content_type| Arc::strong_count(content_type) > 1);
    }

    /// One shared copy of each content type.
    pub(crate) fn intern(&self, content_type: &Arc<str>) -> Arc<str> {
        let mut known = self.content_types.lock();
        if let Some(same) = known.get(content_type) {
            return same.clone();
        }
        known.insert(content_type.clone());
        content_type.clone()
    }

    /// Visits every log, holding one shard's lock at a time.
    pub(crate) fn visit(&self, mut visitor: impl FnMut(&Arc<Log>)) {
        for shard in &self.shards {
            shard.read().table.iter().for_each(&mut visitor);
        }
    }

    /// Visits every log with nothing locked, however long that takes: those that a shard had when its turn
    /// came.
    pub(crate) fn visit_unlocked(&self, mut visitor: impl FnMut(&Arc<Log>), pause: impl Fn()) {
        for shard in &self.shards {
            let logs: Vec<Arc<Log>> = shard.read().table.iter().cloned().collect();
            logs.iter().for_each(&mut visitor);
            pause();
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().table.len()).sum()
    }
}

fn place_of(hash: u64) -> usize {
    (hash >> SHARD_SHIFT) as usize % SHARDS
}

impl Place<'_> {
    /// Whether a log of that name takes commits or is retained.
    pub(crate) fn occupied(&self, name: &[u8]) -> bool {
        let found = self.shard.table.find(self.hash, |log| log.name() == name);
        found.is_some_and(|log| log.lock().has_name())
    }

    /// Puts a log in place of whatever had the name.
    pub(crate) fn put(&mut self, log: Arc<Log>) {
        log.lock().opening = self.opening;
        let hash = self.hash;
        let former = self.shard.table.find_entry(hash, |other| other.name() == log.name());
        let former = former.ok().map(|entry| entry.remove().0);
        if let Some(names) = &mut self.shard.names {
            names.logs.put(&log);
        }
        if let Some(births) = &mut self.shard.births {
            former.iter().for_each(|former| births.logs.remove(former));
            births.logs.put(&log);
        }
        let hasher = self.hasher;
        self.shard.table.insert_unique(hash, log, |other| hasher.hash_one(other.name()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Highest bits of a hash by which a table tells the entries of a bucket apart. The lowest bits name the
    /// bucket.
    const TAG_BITS: u32 = 7;

    #[test]
    fn what_a_table_goes_by_differs_among_the_names_of_a_shard() {
        let catalogue = Catalogue::new();
        let hashes = (0..1 << 15).map(|n: u32| catalogue.hasher.hash_one(&n.to_le_bytes()[..]));
        let (mut tags, mut buckets) = (vec![HashSet::new(); SHARDS], vec![HashSet::new(); SHARDS]);
        for hash in hashes {
            tags[place_of(hash)].insert(hash >> (u64::BITS - TAG_BITS));
            buckets[place_of(hash)].insert(hash & 0x3f);
        }
        assert!(
            tags.iter().all(|tags| tags.len() == 1 << TAG_BITS),
            "a shard's names share bits of their tags"
        );
        assert!(buckets.iter().all(|buckets| buckets.len() == 0x40), "a shard's names share buckets");
    }
}
