//! Logs in the order of their ids, which is that of their creation, for those who hear of new ones.
//!
//! Who hears of every log asks only for those behind the last one it was told of, as often as one is created.
//! Most stores have nobody who does, so the order is kept only once it was asked for: from then on each shard
//! of the catalogue keeps it beside its table, under the table's lock, at the cost of about 30 bytes a log.
//!
//! Invariant: once a shard keeps the order, it holds what the table holds. *Checked by* the test below.

use crate::LogId;
use crate::catalogue::Catalogue;
use crate::log::Log;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One shard's logs, by id.
#[derive(Debug, Default)]
pub(crate) struct Births(BTreeMap<LogId, Arc<Log>>);

impl Births {
    /// Enters a log.
    pub(crate) fn put(&mut self, log: &Arc<Log>) {
        self.0.insert(log.id(), log.clone());
    }

    /// Takes a log out.
    pub(crate) fn remove(&mut self, log: &Log) {
        self.0.remove(&log.id());
    }
}

impl<'l> FromIterator<&'l Arc<Log>> for Births {
    fn from_iter<I: IntoIterator<Item = &'l Arc<Log>>>(logs: I) -> Births {
        Births(logs.into_iter().map(|log| (log.id(), log.clone())).collect())
    }
}

impl Catalogue {
    /// Visits every log from an id on, holding one shard's lock at a time. Complexity: 16 searches and a step
    /// for each; the first time, every log is put in order.
    pub(crate) fn visit_from(&self, first: LogId, mut visitor: impl FnMut(&Arc<Log>)) {
        let mut visit = |births: &Births| births.0.range(first..).for_each(|(_, log)| visitor(log));
        for shard in self.shards() {
            let known = shard.read();
            if let Some(births) = &known.births {
                visit(births);
                continue;
            }
            drop(known);
            let mut shard = shard.write();
            // Another thread may have put them in order since.
            let births = shard.births.take().unwrap_or_else(|| shard.table.iter().collect());
            visit(shard.births.insert(births));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Commit, Config, Lifetime, LogId, Options, Store};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

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
}
