//! An order in which each shard of the catalogue keeps its logs once it was asked for: by name, by id.
//!
//! To ask for one is rare and a create is not, so until then it costs nothing. From then on it lies beside
//! the shard's table, under the table's lock. Building it takes that lock for a slice at a time, so lookups
//! go on meanwhile.
//!
//! Invariant: a shard's order holds no log that its table does not hold; once it is whole, it holds all that
//! the table holds. *Checked by* the tests of `names` and of `births`, against plain sorted maps.

use crate::catalogue::{Catalogue, Shard};
use crate::log::Log;
use parking_lot::RwLock;
use std::sync::Arc;

/// Logs entered under one hold of a shard's lock while its order is built.
const SLICE: usize = 256;

/// Logs of one shard in some order.
pub(crate) trait Order: Default {
    /// Where a shard keeps it.
    fn of(shard: &mut Shard) -> &mut Option<Kept<Self>>;

    /// Enters a log in place of whatever had its key.
    fn put(&mut self, log: &Arc<Log>);
}

/// An order that was asked for.
#[derive(Debug, Default)]
pub(crate) struct Kept<O> {
    pub(crate) logs: O,
    is_whole: bool,
}

impl<O> Kept<O> {
    /// The order once it holds every log. It stays so.
    pub(crate) fn whole(&self) -> Option<&O> {
        self.is_whole.then_some(&self.logs)
    }
}

impl Catalogue {
    /// Has a shard keep an order from now on. Several threads may be at it: each enters the same.
    pub(crate) fn put_in_order<O: Order>(&self, shard: &RwLock<Shard>) {
        // From here on a create enters its log; those that are there already follow.
        O::of(&mut shard.write()).get_or_insert_default();
        let known: Vec<Arc<Log>> = shard.read().table.iter().cloned().collect();
        for slice in known.chunks(SLICE) {
            let mut shard = shard.write();
            for log in slice {
                if self.holds(&shard, log)
                    && let Some(order) = O::of(&mut shard)
                {
                    order.logs.put(log);
                }
            }
        }
        if let Some(order) = O::of(&mut shard.write()) {
            order.is_whole = true;
        }
    }
}
