//! The end of a store: with the last of its clones, or when it is closed.
//!
//! Owns the store's thread, the committer, which is started when the store is opened. The store takes no more
//! commits first; then the thread ends, behind what was pending; and then whoever waits for more is woken, in
//! any process, because nothing comes.
//!
//! Invariant: no thread waits for itself, or for one that waits for it: the committer may end the store from
//! within a watcher, and so may a thread that writes a checkpoint. *Checked by* the tests of callbacks and of
//! ends.

use crate::options::Durability;
use crate::store::{Shared, Store};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::thread::{JoinHandle, ThreadId};

/// Ends the committer with the store.
pub(crate) struct Guard {
    shared: Arc<Shared>,
    /// Known without the lock, which a thread has that waits for the committer's end.
    committer: Option<ThreadId>,
    /// Locked while a thread waits for the committer's end.
    pub(crate) running: Mutex<Option<JoinHandle<()>>>,
}

impl Guard {
    /// # Errors
    /// The system starts no thread, and without one nothing would become durable.
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Guard> {
        let wanted = shared.options.durability != Durability::Memory && shared.options.committer_thread;
        let runner = shared.clone();
        let run = move || {
            match runner.options.durability {
                Durability::Sync => runner.run_committer(),
                Durability::Os | Durability::Memory => runner.run_ahead(),
            }
            // It may end behind the last `Store`, and without having shown what is pending: then nobody else
            // tells those who wait for more.
            runner.gate.announce();
        };
        let builder = std::thread::Builder::new().name("committer".into()).stack_size(256 << 10);
        let committer = match wanted.then(|| builder.spawn(run)) {
            Some(Err(error)) if shared.options.durability == Durability::Sync => return Err(error),
            started => started.and_then(Result::ok),
        };
        let id = committer.as_ref().map(|committer| committer.thread().id());
        Ok(Guard { shared: shared.clone(), committer: id, running: Mutex::new(committer) })
    }

    /// Ends the committer; whether it has ended. Who is called back does not wait for that: the committer
    /// itself ends behind telling a watcher, and may wait for the files that this thread is at.
    fn stop(&self) -> bool {
        self.shared.writer.lock().closed = true;
        self.shared.work.notify_all();
        let is_committer = self.committer == Some(std::thread::current().id());
        if is_committer || self.shared.maintenance_locks.replacing.is_at_work_here() {
            return false;
        }
        let mut running = self.running.lock();
        if let Some(committer) = running.take() {
            let _ = committer.join();
        }
        true
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The committer may be the last to have the store, while it tells a watcher.
        let ended = self.stop();
        self.shared.writer.lock().abandoned |= ended;
        // Who waits for more is told that nothing comes, as by [`Store::close`].
        self.shared.gate.announce();
    }
}

impl Store {
    /// Has [`Store::maintain`] rest no more, in calls that are under way in other threads and in later ones:
    /// for a caller that waits for it to end.
    ///
    /// ```
    /// # let store = thalweg_log::Store::memory(thalweg_log::Options::default())?;
    /// std::thread::scope(|scope| {
    ///     let keeper = scope.spawn(|| store.maintain(1_000_000));
    ///     store.stop_throttling();
    ///     keeper.join().unwrap()
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stop_throttling(&self) {
        self.shared.throttle.hurry_for_good();
    }

    /// Closes the store: commits what is pending, writes a checkpoint, seals the tail. Calls on other clones
    /// then say that it is closed; reads go on, and a reader that waits for more is woken and
    /// [told](crate::Ended::StoreClosed). The directory is held until its readers and cursors are gone, too.
    /// A watcher that calls this does not wait for the thread that tells it, nor for a checkpoint that is
    /// under way there.
    ///
    /// # Errors
    /// What the disk said; everything acknowledged before is safe regardless.
    pub fn close(&self) -> io::Result<()> {
        let closed = self.close_files();
        self.shared.gate.announce();
        closed
    }

    fn close_files(&self) -> io::Result<()> {
        self.stop_throttling();
        self.guard.stop();
        if self.durability() == Durability::Memory {
            return Ok(());
        }
        self.flush()?;
        if self.shared.is_damaged() {
            return Ok(());
        }
        self.checkpoint()?;
        let end = {
            let mut writer = self.shared.writer.lock();
            writer.drop_spare();
            writer.staged_end()
        };
        self.shared.control.set_clean_end(end)
    }
}
