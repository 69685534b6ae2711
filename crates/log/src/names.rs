//! Logs in the order of their names, for callers that list them page by page.
//!
//! It is an [`Order`], which each shard of the catalogue keeps from the first call of [`Store::order`] on.
//! *Checked by* `a_page_is_what_sorting_would_give`, against a plain sorted map, with pages taken meanwhile.

use crate::catalogue::{Catalogue, Shard};
use crate::log::Log;
use crate::order::{Kept, Order};
use crate::store::Store;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// A log that sorts by its name.
#[derive(Debug)]
struct Named(Arc<Log>);

impl Borrow<[u8]> for Named {
    fn borrow(&self) -> &[u8] {
        self.0.name()
    }
}

impl Ord for Named {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.name().cmp(other.0.name())
    }
}

impl PartialOrd for Named {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Named {}

/// One shard's logs in order.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeSet<Named>);

impl Order for Names {
    fn of(shard: &mut Shard) -> &mut Option<Kept<Names>> {
        &mut shard.names
    }

    fn put(&mut self, log: &Arc<Log>) {
        self.0.replace(Named(log.clone()));
    }
}

impl Names {
    /// Takes a log out, unless its name belongs to another by now.
    pub(crate) fn remove(&mut self, log: &Arc<Log>) {
        if self.0.get(log.name()).is_some_and(|found| Arc::ptr_eq(&found.0, log)) {
            self.0.remove(log.name());
        }
    }

    fn page(&self, prefix: &[u8], after: &[u8], limit: usize, into: &mut Vec<Arc<Log>>) {
        let from = if after >= prefix { Bound::Excluded(after) } else { Bound::Included(prefix) };
        let range = self.0.range::<[u8], _>((from, Bound::Unbounded));
        let matching = range.take_while(|named| named.0.name().starts_with(prefix));
        into.extend(matching.take(limit).map(|named| named.0.clone()));
    }
}

impl Catalogue {
    /// Has every shard keep its logs in order from now on.
    fn order(&self) {
        for shard in self.shards() {
            let is_kept = shard.read().names.as_ref().and_then(Kept::whole).is_some();
            if !is_kept {
                self.put_in_order::<Names>(shard);
            }
        }
    }

    fn page(&self, prefix: &[u8], after: &[u8], limit: usize) -> Option<Vec<Arc<Log>>> {
        let mut logs = Vec::new();
        for shard in self.shards() {
            let shard = shard.read();
            let names = shard.names.as_ref().and_then(Kept::whole)?;
            names.page(prefix, after, limit, &mut logs);
        }
        logs.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        logs.truncate(limit);
        Some(logs)
    }
}

impl Store {
    /// Every visible log, in the order of their names.
    pub fn logs(&self) -> Vec<Arc<Log>> {
        let mut logs = Vec::new();
        self.visit(|log| logs.extend(log.visible().map(|_| log.clone())));
        logs.sort_by(|a, b| a.name().cmp(b.name()));
        logs
    }

    /// At most `limit` logs whose names begin with `prefix` and sort behind `after`, in the order of their
    /// names as bytes, those that are not visible included. `None` until [`Store::order`] has run.
    /// Complexity: 16 sorted sets are searched and give `limit` logs each, one lock held at a time.
    pub fn page(&self, prefix: &[u8], after: &[u8], limit: usize) -> Option<Vec<Arc<Log>>> {
        self.shared.catalogue.page(prefix, after, limit)
    }

    /// Has the catalogue keep its logs in order from now on, so that [`Store::page`] answers. Complexity:
    /// the first time, every log is visited; then nothing. For a thread that may take its time.
    pub fn order(&self) {
        self.shared.catalogue.order();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Commit, Config, Lifetime, Options};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn create(store: &Store, name: &str) -> Option<Arc<Log>> {
        let config = Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited };
        store.create(name.as_bytes(), &config, None, &Commit::default(), None).ok().map(|(log, _)| log)
    }

    /// Every page, one after the other.
    fn pages(store: &Store, prefix: &str, limit: usize) -> Option<Vec<Arc<Log>>> {
        let mut all: Vec<Arc<Log>> = Vec::new();
        loop {
            let after = all.last().map_or(Vec::new(), |log| log.name().to_vec());
            let page = store.page(prefix.as_bytes(), &after, limit)?;
            assert!(page.len() <= limit);
            if page.is_empty() {
                return Some(all);
            }
            all.extend(page);
        }
    }

    proptest! {
        #[test]
        fn a_page_is_what_sorting_would_give(
            steps in proptest::collection::vec(("[ab/]{1,3}", 0..3_u8), 0..120),
            ordered_at in 0..120_usize,
            limit in 1..5_usize,
            prefix in "[ab/]{0,2}",
        ) {
            let store = Store::memory(Options::default()).unwrap();
            let mut model: BTreeMap<Vec<u8>, Arc<Log>> = BTreeMap::new();
            for (index, (name, kind)) in steps.iter().enumerate() {
                if index == ordered_at {
                    prop_assert!(store.page(b"", b"", 1).is_none());
                    store.order();
                }
                if *kind > 0 {
                    model.extend(create(&store, name).map(|log| (name.clone().into_bytes(), log)));
                } else if let Some(log) = model.remove(name.as_bytes()) {
                    store.delete(&log, log.staged().unwrap().version, 0, None).unwrap();
                }
            }
            store.order();
            let wanted: Vec<u64> =
                model.iter().filter(|(n, _)| n.starts_with(prefix.as_bytes())).map(|(_, l)| l.id()).collect();
            let found: Vec<u64> = pages(&store, &prefix, limit).unwrap().iter().map(|log| log.id()).collect();
            prop_assert_eq!(found, wanted);
        }
    }

    #[test]
    fn order_is_made_while_others_create_and_delete() {
        let store = Store::memory(Options::default()).unwrap();
        (0..2_000).for_each(|index| drop(create(&store, &format!("old/{index:05}")).unwrap()));
        let other = store.clone();
        let busy = std::thread::spawn(move || {
            for index in 0..2_000 {
                create(&other, &format!("new/{index:05}")).unwrap();
                let log = other.find(format!("old/{index:05}").as_bytes()).unwrap();
                other.delete(&log, log.staged().unwrap().version, 0, None).unwrap();
            }
        });
        store.order();
        busy.join().unwrap();
        assert_eq!(pages(&store, "new/", 300).unwrap().len(), 2_000);
        assert_eq!(pages(&store, "old/", 300).unwrap().len(), 0);
    }
}
