//! How a thread of Python's sleeps and still hears signals.
//!
//! A signal ends a sleep, but only a sleep: one that comes while a thread still looks, without the
//! interpreter's lock, is noted by the interpreter, and its handler not called. So every wait has two halves.
//! The first may look for a moment and never sleeps; then the signals that came meanwhile are handled; the
//! second sleeps at once. What is left between them is as short as where Python itself waits: a few
//! instructions, in which a signal is heard with whatever ends the sleep.
//!
//! Work that takes its time asks between its pieces whether to go on, and signals are handled then.

use parking_lot::Mutex;
use pyo3::prelude::*;
use std::io;
use std::time::{Duration, Instant};
use thalweg_log::GoOn;

/// How often signals are handled meanwhile, at most: it takes the interpreter's lock, which others may hold.
const WORK_MAX: Duration = Duration::from_millis(10);

/// The thread in which Python handles signals. It is locked only under the interpreter's lock, which a thread
/// that forks holds too: no child finds it locked.
static MAIN_THREAD: Mutex<u64> = Mutex::new(0);

/// Looks, and sleeps if that found nothing; handles signals before the sleep and behind it. Each half gives
/// the interpreter's lock away for itself.
pub(crate) fn wait<R>(
    py: Python<'_>,
    look: impl FnOnce() -> PyResult<Option<R>>,
    sleep: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    if let Some(found) = look()? {
        py.check_signals()?;
        return Ok(found);
    }
    py.check_signals()?;
    let found = sleep()?;
    py.check_signals()?;
    Ok(found)
}

/// Does work that takes its time without the interpreter's lock; what a signal's handler raises ends it.
/// Python handles signals in its main thread, so in any other nothing is asked and no lock taken.
pub(crate) fn work<R: Send>(
    py: Python<'_>,
    work: impl FnOnce(GoOn<'_>) -> Result<R, PyErr> + Send,
) -> PyResult<R> {
    if !is_main_thread(py)? {
        return py.detach(|| work(&mut || Ok(())));
    }
    let mut raised = None;
    let done = py.detach(|| {
        let mut handled: Option<Instant> = None;
        work(&mut || {
            if handled.is_some_and(|handled| handled.elapsed() < WORK_MAX) {
                return Ok(());
            }
            let outcome = Python::attach(|py| py.check_signals());
            handled = Some(Instant::now());
            outcome.map_err(|error| {
                raised = Some(error);
                io::ErrorKind::Interrupted.into()
            })
        })
    });
    raised.map_or(done, Err)
}

/// When this module is loaded, by whichever thread.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let main = module.py().import("threading")?.call_method0("main_thread")?;
    *MAIN_THREAD.lock() = main.getattr("ident")?.extract()?;
    Ok(())
}

/// In a child, right after the fork: the thread that forked is all there is.
pub(crate) fn forked(py: Python<'_>) -> PyResult<()> {
    *MAIN_THREAD.lock() = this_thread(py)?;
    Ok(())
}

/// Runs nothing of Python's own, in which a signal would be heard before the work has begun.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    Ok(this_thread(py)? == *MAIN_THREAD.lock())
}

fn this_thread(py: Python<'_>) -> PyResult<u64> {
    py.import("_thread")?.call_method0("get_ident")?.extract()
}
