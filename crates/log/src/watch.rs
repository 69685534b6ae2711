//! Who is told when something becomes durable: one watcher per reactor.
//!
//! A watcher hears of completion once per group it has a commit in, and of a log's movement once between
//! two acknowledgements, so what is under way to it is bounded by the number of logs it is interested in.
//! It is told with no lock held, of what is visible by then: on its way it may be overtaken by what is told
//! by another thread.

use crate::Position;
use parking_lot::RwLock;
use std::sync::Arc;
use thalweg_sync::contain::contain;

/// Receives announcements, on the thread that makes something durable; in `os` and `memory` mode on the one
/// that commits, before its call returns. It may look at every log, append, commit and purge. It may not wait
/// for what other threads do. A checkpoint that it asks for, also by
/// [`Store::maintain`](crate::Store::maintain), by closing the store or by a purge, is not written where the
/// thread is writing one or compacting. A watcher that panics is not told of it.
///
/// Several threads may tell it at once, and in another order than that in which things became visible: what
/// is told says where to look, and not what there is to be seen.
pub trait Watch: Send + Sync {
    /// Every receipt with a ticket up to this one is durable. One that is lower than before says nothing new.
    fn complete(&self, up_to: Position);
    /// The store failed: receipts not yet complete have an unknown outcome, and nothing becomes durable any
    /// more.
    fn failed(&self);
    /// A log of interest moved: more bytes, closed, or deleted. What was on its way when the watcher lost its
    /// interest may still come. A watcher that acknowledges a log in here and then commits to it is told of
    /// that at once, within that commit, where commits need not wait for a disk.
    fn advanced(&self, log: crate::LogId);
}

/// A place is a bit of a word.
const WATCHERS_MAX: usize = u32::BITS as usize;

/// A watcher's place, below 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatcherId {
    place: u8,
    in_turns: bool,
}

impl WatcherId {
    /// The same for a watcher that commits in turns and calls [`Store::end_turn`](crate::Store::end_turn) at
    /// the end of each, also of a turn in which it was only told something: its commits wake no thread
    /// before.
    #[must_use]
    pub fn commits_in_turns(self) -> WatcherId {
        WatcherId { in_turns: true, ..self }
    }

    pub(crate) fn is_in_turns(self) -> bool {
        self.in_turns
    }

    pub(crate) fn bit(self) -> u32 {
        1 << self.place
    }
}

#[derive(Default)]
pub(crate) struct Watchers {
    /// By place; one that is empty is the next watcher's.
    list: RwLock<[Option<Arc<dyn Watch>>; WATCHERS_MAX]>,
}

impl Watchers {
    /// `None` when all places are taken.
    pub(crate) fn add(&self, watch: Arc<dyn Watch>) -> Option<WatcherId> {
        let mut list = self.list.write();
        let free = list.iter().position(Option::is_none)?;
        list[free] = Some(watch);
        Some(WatcherId { place: u8::try_from(free).ok()?, in_turns: false })
    }

    pub(crate) fn remove(&self, watcher: WatcherId) {
        let watch = self.list.write()[usize::from(watcher.place)].take();
        // Outside of the lock: what it holds may have much to let go of.
        drop(watch);
    }

    #[inline]
    pub(crate) fn tell(&self, mask: u32, say: impl Fn(&dyn Watch)) {
        if mask != 0 {
            self.tell_each(mask, say);
        }
    }

    fn tell_each(&self, mask: u32, say: impl Fn(&dyn Watch)) {
        let mut left = mask;
        while left != 0 {
            let place = left.trailing_zeros() as usize;
            left &= left - 1;
            // Not under the lock: the watcher told may be the last to hold what dismisses another.
            let watch = self.list.read()[place].clone();
            if let Some(watch) = watch {
                // One that panics keeps nothing from the others.
                contain(|| say(&*watch));
            }
        }
    }
}
