//! Durability: commits on their way to the disk, and the callbacks that wait for them.
//!
//! A commit is noted before any thread but its writer can learn its ticket: from then on it is pending.
//! The store announces each group of durable commits once. Then, in this order: the committed view of each
//! fork advances; the waiters are called back. A thread that asks about a ticket advances the views itself
//! where the announcing thread has not come so far. So a caller that hears that a commit is durable sees it.

use crate::error::Error;
use crate::fork::Fork;
use parking_lot::{Mutex, RwLock};
use std::sync::{Arc, Weak};
use thalweg_log::{CommitError, Durability, LogId, Position, Store, Watch, WatcherId};
use thalweg_queue::{Admission, ByTicket};
use thalweg_sync::contain::contain;

/// Called once what it waits for is durable, or never will be.
type Callback = Box<dyn FnOnce(Result<(), CommitError>) + Send>;

/// Is told what becomes durable, after the committed views have advanced. Must not block.
pub trait DurabilityListener: Send + Sync {
    /// Every receipt with a ticket up to this one is durable, and what it wrote is committed.
    fn complete(&self, up_to: Position);
    /// The store failed: the outcome of receipts that are not complete is unknown. No further call follows.
    fn failed(&self);
}

/// Commits that are not durable yet, and what waits for them.
pub(crate) struct Durable {
    store: Store,
    /// None for a store that does not sync: its commits are complete as soon as they are made.
    pub(crate) watcher: Option<WatcherId>,
    /// Forks with commits on their way. A failure is told to the waiters only.
    under_way: Mutex<ByTicket<Arc<Fork>>>,
    waiting: Mutex<ByTicket<Callback>>,
    listeners: RwLock<Vec<Weak<dyn DurabilityListener>>>,
}

impl Durable {
    /// Watches a store, which may refuse one more watcher.
    pub(crate) fn over(store: &Store) -> Result<Arc<Self>, Error> {
        let watch = Arc::new(Watcher(Mutex::new(Weak::new())));
        let watcher = match store.durability() {
            Durability::Sync => Some(store.watcher(watch.clone()).ok_or(Error::Crowded)?),
            Durability::Os | Durability::Memory => None,
        };
        let durable = Arc::new(Self {
            store: store.clone(),
            watcher,
            under_way: Mutex::default(),
            waiting: Mutex::default(),
            listeners: RwLock::default(),
        });
        *watch.0.lock() = Arc::downgrade(&durable);
        Ok(durable)
    }

    /// Whether everything up to a ticket is durable; then the committed views show it. If it is not, the
    /// store announces it later.
    ///
    /// # Errors
    /// The store failed, so it never will be.
    pub(crate) fn is(&self, ticket: Position) -> Result<bool, CommitError> {
        let is_durable = self.store.wait_for(ticket, self.watcher)? == 0;
        if is_durable {
            self.advance(self.store.durable());
        }
        Ok(is_durable)
    }

    /// Notes that a fork has a commit on its way, and publishes it with `show`.
    pub(crate) fn note<R>(&self, ticket: Position, fork: Arc<Fork>, show: impl FnOnce() -> R) -> R {
        let mut under_way = self.under_way.lock();
        // Both under the lock: a reader that sees the commit finds it noted, and the thread that announces it
        // finds it in the fork.
        let shown = show();
        let stands = under_way.wait(ticket, fork);
        let before = match &stands {
            // It was announced before this thread noted it.
            Admission::Complete(fork) => fork.complete(ticket),
            Admission::Waits | Admission::Failed(_) => Vec::new(),
        };
        drop(under_way);
        drop((before, stands));
        // It may have become durable before it was noted. An error is told to the waiters.
        let _ = self.is(ticket);
        shown
    }

    /// Prevents commits from being noted while it is held.
    #[cfg(test)]
    pub(crate) fn stand_still(&self) -> impl Drop {
        self.under_way.lock()
    }

    /// Calls back once everything up to a ticket is durable.
    pub(crate) fn when(&self, ticket: Position, callback: Callback) {
        let mut waiting = self.waiting.lock();
        // Checked under the lock, which the announcing thread takes after it has advanced the views.
        let (stands, error) = match self.is(ticket) {
            Ok(false) => (waiting.wait(ticket, callback), None),
            Ok(true) => (Admission::Complete(callback), None),
            Err(error) => (Admission::Failed(callback), Some(error)),
        };
        drop(waiting);
        match stands {
            Admission::Waits => {}
            Admission::Complete(callback) => callback(Ok(())),
            Admission::Failed(callback) => callback(Err(error.unwrap_or_else(unknown))),
        }
    }

    /// Adds a listener, which is told until it is dropped.
    pub(crate) fn listen(&self, listener: Weak<dyn DurabilityListener>) {
        let mut listeners = self.listeners.write();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(listener);
    }

    fn complete(&self, up_to: Position) {
        self.advance(up_to);
        let done: Vec<_> = self.waiting.lock().complete(up_to).collect();
        done.into_iter().for_each(|callback| contain(|| callback(Ok(()))));
        self.tell(|listener| listener.complete(up_to));
    }

    fn fail(&self) {
        let lost: Vec<_> = self.waiting.lock().fail().collect();
        lost.into_iter().for_each(|callback| contain(|| callback(Err(unknown()))));
        self.tell(|listener| listener.failed());
    }

    /// Advances the committed view of each fork.
    fn advance(&self, up_to: Position) {
        let mut under_way = self.under_way.lock();
        // Under the lock: a thread that finds nothing pending has to find it committed.
        let before: Vec<_> = under_way.complete(up_to).map(|fork| (fork.complete(up_to), fork)).collect();
        drop(under_way);
        // Dropped without the lock: the last owner of a state may have much to free.
        drop(before);
    }

    fn tell(&self, say: impl Fn(&dyn DurabilityListener)) {
        self.listeners.read().iter().filter_map(Weak::upgrade).for_each(|listener| say(&*listener));
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        if let Some(watcher) = self.watcher {
            self.store.dismiss(watcher);
        }
    }
}

/// The error for a commit that was not durable when the store failed.
fn unknown() -> CommitError {
    CommitError::Failed("whether the commit lasts is not known".to_owned())
}

/// Passes on what the store announces, until the state is dropped.
struct Watcher(Mutex<Weak<Durable>>);

impl Watch for Watcher {
    fn complete(&self, up_to: Position) {
        let durable = self.0.lock().upgrade();
        if let Some(durable) = durable {
            durable.complete(up_to);
        }
    }

    fn failed(&self) {
        let durable = self.0.lock().upgrade();
        if let Some(durable) = durable {
            durable.fail();
        }
    }

    fn advanced(&self, _log: LogId) {}
}
