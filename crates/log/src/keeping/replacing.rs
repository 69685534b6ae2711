//! The lock of whatever removes or replaces files: checkpoints, compaction, removal, the end of settling.
//!
//! Purpose: one thread at a time does that. While it does, it makes commits durable, and so tells watchers
//! and wakes tasks. These run on the same thread, and may purge or ask for a checkpoint in their turn: the
//! thread would wait for itself. Such a caller is refused instead, and leaves the work to the one that is
//! under way, or to the next housekeeping.
//!
//! Invariant: a thread that holds the lock waits for no other that may want it. The committer is one, since
//! it tells watchers, too. *Checked by* the tests of callbacks (`tests/callbacks.rs`).

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use std::cell::Cell;

/// Whether the thread that holds the lock is at work.
#[derive(Default)]
pub(crate) struct Replacing {
    at_work: ReentrantMutex<Cell<bool>>,
    /// How often a thread found another at work.
    #[cfg(test)]
    pub(crate) comers: parking_lot::Mutex<u64>,
}

/// Held while files are removed or replaced.
pub(crate) struct ReplacingGuard<'l>(ReentrantMutexGuard<'l, Cell<bool>>);

impl Replacing {
    /// Waits until no other thread is at work. `None`: this thread is.
    pub(crate) fn lock(&self) -> Option<ReplacingGuard<'_>> {
        let at_work = self.at_work.try_lock().unwrap_or_else(|| {
            #[cfg(test)]
            {
                *self.comers.lock() += 1;
            }
            self.at_work.lock()
        });
        (!at_work.replace(true)).then(|| ReplacingGuard(at_work))
    }

    /// Whether this thread is at work: it was called back.
    pub(crate) fn is_at_work_here(&self) -> bool {
        self.at_work.is_owned_by_current_thread()
    }
}

impl Drop for ReplacingGuard<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
