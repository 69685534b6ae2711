//! What other threads tell the log's service, kept until its reactor's next turn.

use super::cold::ColdWork;
use std::collections::BTreeSet;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use thalweg_log as log;
use thalweg_service::Notifier;

/// What happened since the last look.
#[derive(Default)]
pub(super) struct Batch {
    /// Every ticket up to this one is complete.
    pub(super) complete: u64,
    /// The store failed: what waits will never complete.
    pub(super) failed: bool,
    /// Topics that moved.
    pub(super) advanced: Vec<u64>,
    /// Topics whose tails may go on: there is credit again, or somebody left. Each once, however many of its
    /// tails said so.
    pub(super) resumed: BTreeSet<u64>,
    /// What waited for the disk, one for each job that the pool is done with.
    pub(super) brought: Vec<ColdWork>,
}

/// Where it is told.
pub(crate) struct News {
    batch: Mutex<Batch>,
    notifier: Notifier,
}

impl News {
    pub(crate) fn new(notifier: Notifier) -> Self {
        Self { batch: Mutex::default(), notifier }
    }

    /// Takes everything that was told.
    pub(super) fn take(&self) -> Batch {
        take(&mut *self.lock())
    }

    pub(super) fn resumed(&self, topic_id: u64) {
        self.tell(|batch| {
            batch.resumed.insert(topic_id);
        });
    }

    pub(super) fn brought(&self, brought: ColdWork) {
        self.tell(|batch| batch.brought.push(brought));
    }

    fn tell(&self, tell: impl FnOnce(&mut Batch)) {
        tell(&mut self.lock());
        self.notifier.notify();
    }

    fn lock(&self) -> MutexGuard<'_, Batch> {
        // Nothing panics in between, and a list is whole whatever happened.
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There may be room for what waits: nothing but a turn is needed to see.
impl Wake for News {
    fn wake(self: Arc<Self>) {
        self.notifier.notify();
    }
}

impl log::Watch for News {
    fn complete(&self, up_to: log::Position) {
        self.tell(|batch| batch.complete = batch.complete.max(up_to));
    }

    fn failed(&self) {
        self.tell(|batch| batch.failed = true);
    }

    fn advanced(&self, log: log::LogId) {
        self.tell(|batch| batch.advanced.push(log));
    }
}
