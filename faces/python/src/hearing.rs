//! How a thread of Python's sleeps and still hears signals.
//!
//! A signal ends a sleep, but only a sleep: one that comes while a thread still looks, without the
//! interpreter's lock, is noted by the interpreter, and its handler not called. So every wait has two halves.
//! The first may look for a moment and never sleeps; then the signals that came meanwhile are handled; the
//! second sleeps at once. What is left between them is as short as where Python itself waits: a few
//! instructions, in which a signal is heard with whatever ends the sleep.
//!
//! Work that takes its time is asked between its pieces whether to go on, and signals are handled then.

use pyo3::prelude::*;
use std::io;
use std::time::{Duration, Instant};
use thalweg_log::GoOn;

/// How often signals are handled meanwhile, at most: it takes the interpreter's lock, which others may hold.
const WORK_MAX: Duration = Duration::from_millis(10);

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
pub(crate) fn work<R: Send>(
    py: Python<'_>,
    work: impl FnOnce(GoOn<'_>) -> Result<R, PyErr> + Send,
) -> PyResult<R> {
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
