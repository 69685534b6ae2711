//! How a thread of Python's sleeps and still hears signals.
//!
//! A signal ends a sleep, but only a sleep: one that comes while a thread still looks, without the
//! interpreter's lock, is noted by the interpreter, and its handler not called. So every wait has two halves.
//! The first may look for a moment and never sleeps; then the signals that came meanwhile are handled; the
//! second sleeps at once. What is left between them is as short as where Python itself waits: a few
//! instructions, in which a signal is heard with whatever ends the sleep.

use pyo3::prelude::*;

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
