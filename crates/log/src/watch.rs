//! Who is told when something becomes durable: one watcher per reactor.
//!
//! A watcher hears of completion once per group it has a commit in, and of a log's movement once between
//! two acknowledgements, so what is under way to it is bounded by the number of logs it is interested in.

use crate::Position;
use parking_lot::RwLock;
use std::sync::Arc;

/// Receives announcements, on whatever thread makes something durable. Must not block.
pub trait Watch: Send + Sync {
    /// Every receipt with a ticket up to this one is durable.
    fn complete(&self, up_to: Position);
    /// The store failed: receipts not yet complete have an unknown outcome, and nothing follows.
    fn failed(&self);
    /// A log of interest moved: more bytes, closed, or deleted.
    fn advanced(&self, log: crate::LogId);
}

/// A watcher's place, below 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatcherId {
    place: u8,
    carries: bool,
}

impl WatcherId {
    /// The same for whoever commits in turns and calls [`Store::carry`](crate::Store::carry) at the end of each, also of a turn
    /// that it was told something in: nobody is woken for its commits before.
    #[must_use]
    pub fn carrying(self) -> WatcherId {
        WatcherId { carries: true, ..self }
    }

    pub(crate) fn carries(self) -> bool {
        self.carries
    }

    pub(crate) fn bit(self) -> u32 {
        1 << self.place
    }
}

#[derive(Default)]
pub(crate) struct Watchers {
    list: RwLock<Vec<Arc<dyn Watch>>>,
}

impl Watchers {
    /// `None` when 32 watch already.
    pub(crate) fn add(&self, watch: Arc<dyn Watch>) -> Option<WatcherId> {
        let mut list = self.list.write();
        let place = u8::try_from(list.len()).ok().filter(|place| *place < 32)?;
        list.push(watch);
        Some(WatcherId { place, carries: false })
    }

    pub(crate) fn tell(&self, mask: u32, say: impl Fn(&dyn Watch)) {
        if mask != 0 {
            for (place, watch) in self.list.read().iter().enumerate() {
                if mask & 1 << place != 0 {
                    say(&**watch);
                }
            }
        }
    }
}
