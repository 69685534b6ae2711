//! A server that serves: its threads are watched, SIGHUP reloads the configuration, and a signal to end
//! drains it.
//!
//! The first thread waits for signals here. [`threads`] owns the others, [`housekeeping`] is the one that may
//! wait for the disk, and [`second_signal`] says which signal ends a drain at once.

mod control;
mod housekeeping;
pub(crate) mod second_signal;
mod threads;

pub(crate) use control::Control;
pub(crate) use housekeeping::Housekeeper;
pub(crate) use threads::{ReactorThread, Threads};

use self::second_signal::FirstSignal;
use crate::engine::Engine;
use crate::start::{ServerError, Supervisor};
use std::os::fd::AsFd;
use std::time::Instant;
use thalweg_sys::epoll::wait_readable;
use thalweg_sys::signal::{Signal, Signals};
use thalweg_transport::BoundPath;

/// Between two looks at whether all threads are there.
const WATCHING_MS: u32 = 5_000;
/// Between two looks at threads that are ending.
const ENDING_MS: u32 = 10;

/// A server that serves.
pub(crate) struct RunningServer<'a> {
    pub(crate) engine: Engine,
    pub(crate) threads: Threads,
    pub(crate) control: Control<'a>,
    pub(crate) signals: Signals,
    pub(crate) supervisor: Supervisor,
    /// Unix paths that lead to its listeners, removed when dropped.
    pub(crate) paths: Vec<BoundPath>,
}

impl RunningServer<'_> {
    /// Serves until a signal asks it to end, then drains and closes the store.
    ///
    /// # Errors
    /// A thread ended by itself, or the store does not close in order.
    pub(crate) fn until_asked_to_end(self) -> Result<(), ServerError> {
        let Self { engine, threads, mut control, signals, supervisor, paths } = self;
        let first = FirstSignal::now(watch(&signals, &threads, &mut control)?);
        let grace_ms = control.configuration.options.drain_grace_ms;
        tracing::info!(grace_ms, "ending: a second signal ends at once");
        supervisor.stopping();
        drop(paths);
        // If signals cannot be read any more, the server ends at once.
        let asked_again = || match wait(&signals, ENDING_MS) {
            Ok(signal) => signal.is_some_and(|signal| first.is_followed_by_another(signal, Instant::now())),
            Err(_) => true,
        };
        threads.end(&engine, grace_ms, asked_again)
    }
}

/// Waits for the signal to end, and says which it was.
fn watch(signals: &Signals, threads: &Threads, control: &mut Control<'_>) -> Result<Signal, ServerError> {
    loop {
        match wait(signals, WATCHING_MS)? {
            Some(signal @ (Signal::Terminate | Signal::Interrupt)) => return Ok(signal),
            Some(Signal::HangUp) => control.reload(threads),
            None => {}
        }
        if threads.has_ended() {
            return Err(ServerError::ThreadEnded);
        }
    }
}

/// Waits at most so long for a signal.
fn wait(signals: &Signals, timeout_ms: u32) -> Result<Option<Signal>, ServerError> {
    let failed = |error| ServerError::System("wait for signals", error);
    if !wait_readable(signals.as_fd(), timeout_ms).map_err(failed)? {
        return Ok(None);
    }
    signals.next().map_err(failed)
}
