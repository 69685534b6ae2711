//! Logs in the order of their ids, which is that of their creation, for those who hear of new ones.
//!
//! Who hears of every log asks only for those behind the last one it was told of, as often as one is created.
//! Most stores have nobody who does, so it is an [`Order`], kept only once it was asked for, at the cost of
//! about 30 bytes a log. A visit shares a shard's lock: lookups go on meanwhile.
//!
//! *Checked by* the tests below.

use crate::LogId;
use crate::catalogue::{Catalogue, Shard};
use crate::log::Log;
use crate::order::{Kept, Order};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One shard's logs, by id.
#[derive(Debug, Default)]
pub(crate) struct Births(BTreeMap<LogId, Arc<Log>>);

impl Order for Births {
    fn of(shard: &mut Shard) -> &mut Option<Kept<Births>> {
        &mut shard.births
    }

    fn put(&mut self, log: &Arc<Log>) {
        self.0.insert(log.id(), log.clone());
    }
}

impl Births {
    /// Takes a log out.
    pub(crate) fn remove(&mut self, log: &Log) {
        self.0.remove(&log.id());
    }
}

impl Catalogue {
    /// Visits every log from an id on, holding one shard's lock at a time, shared. Complexity: 16 searches
    /// and a step for each; the first time, every log is put in order.
    pub(crate) fn visit_from(&self, first: LogId, mut visitor: impl FnMut(&Arc<Log>)) {
        for shard in self.shards() {
            let mut known = shard.read();
            if known.births.as_ref().and_then(Kept::whole).is_none() {
                drop(known);
                self.put_in_order::<Births>(shard);
                known = shard.read();
            }
            if let Some(births) = known.births.as_ref().and_then(Kept::whole) {
                births.0.range(first..).for_each(|(_, log)| visitor(log));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Commit, Config, Lifetime, LogId, Options, Store};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        /// Beside a plain map, whenever the order is asked for first.
        #[test]
        fn those_from_an_id_on_are_those_that_the_table_has(
            steps in proptest::collection::vec(("[ab]{1,3}", 0..3_u8), 0..80),
            asked_at in 0..80_usize,
        ) {
            let store = Store::memory(Options::default()).unwrap();
            let config = Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited };
            let from = |first: LogId| -> Vec<LogId> {
                let mut found = Vec::new();
                store.shared.catalogue.visit_from(first, |log| found.push(log.id()));
                found.sort_unstable();
                found
            };
            let mut model: BTreeMap<LogId, String> = BTreeMap::new();
            for (index, (name, kind)) in steps.iter().enumerate() {
                if index == asked_at {
                    from(0);
                }
                if *kind > 0 {
                    let created = store.create(name.as_bytes(), &config, None, &Commit::default(), None);
                    model.extend(created.ok().map(|(log, _)| (log.id(), name.clone())));
                } else if let Some(log) = store.find(name.as_bytes()) {
                    store.delete(&log, log.staged().unwrap().version, 0, None).unwrap();
                    model.remove(&log.id());
                }
            }
            for first in 0..=model.len() as LogId + 1 {
                prop_assert_eq!(from(first), model.range(first..).map(|(id, _)| *id).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn lookups_go_on_while_logs_are_visited_for_the_first_time() {
        let store = Store::memory(Options::default()).unwrap();
        (0..100).for_each(|n| drop(store.log(format!("{n}").as_bytes()).unwrap()));
        let (catalogue, mut visited) = (&store.shared.catalogue, 0);
        catalogue.visit_from(0, |log| {
            let shard = &catalogue.shards()[catalogue.shard_of(log.name())];
            assert!(shard.try_read().is_some(), "a lookup would wait");
            visited += 1;
        });
        assert_eq!(visited, 100);
    }

    #[test]
    fn order_is_made_while_others_create_and_delete() {
        const LOGS: u64 = 4_000;
        let store = Store::memory(Options::default()).unwrap();
        let name = |n: u64| n.to_string().into_bytes();
        (0..LOGS).for_each(|n| drop(store.log(&name(n)).unwrap()));
        let ids = || {
            let mut ids = BTreeSet::new();
            store.shared.catalogue.visit_from(0, |log| assert!(ids.insert(log.id()), "visited twice"));
            ids
        };
        let (barrier, kept) = (std::sync::Barrier::new(3), LOGS / 2..LOGS);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                for n in 0..LOGS / 2 {
                    store.log(&name(LOGS + n)).unwrap();
                    let log = store.find(&name(n)).unwrap();
                    store.delete(&log, log.staged().unwrap().version, 0, None).unwrap();
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    barrier.wait();
                    let ids = ids();
                    let is_met = |n| ids.contains(&store.find(&name(n)).unwrap().id());
                    assert!(kept.clone().all(is_met), "one that was there all the time is missing");
                });
            }
        });
        let mut all = BTreeSet::new();
        store.visit(|log| _ = all.insert(log.id()));
        assert_eq!((ids(), all.len() as u64), (all, LOGS));
    }
}
