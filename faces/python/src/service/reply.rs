//! The right, and the duty, to answer one call.
//!
//! A watcher of a reply is told by its number in the next turn, because a waker runs where no Python may:
//! within a turn.

use super::error::fault;
use super::owned::Unavailable;
use crate::forks::Process;
use crate::payload::Payload;
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};
use thalweg_service::Reply as Inner;
use thalweg_wire::fault::Fault;
use thalweg_wire::service::Flow;

/// What tells the replies of one server apart, and which of them changed.
pub(super) struct Replies {
    process: Process,
    taken: Mutex<u64>,
    changed: Arc<Mutex<Vec<u64>>>,
}

impl Replies {
    pub(super) fn new() -> Self {
        Self { process: Process::this(), taken: Mutex::default(), changed: Arc::default() }
    }

    pub(super) fn take_in(&self, inner: Inner) -> Reply {
        let mut taken = self.taken.lock();
        *taken += 1;
        let (process, changed) = (self.process, self.changed.clone());
        Reply { number: *taken, process, inner: Mutex::new(Some(inner)), changed }
    }

    pub(super) fn changed(&self) -> Vec<u64> {
        std::mem::take(&mut *self.changed.lock())
    }
}

/// Answers one call, once, from any thread. Let go of unanswered, it answers that it was abandoned. In a
/// child after a fork it is refused, and nothing is answered: the call is the parent's.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Reply {
    number: u64,
    process: Process,
    /// `None` once answered.
    inner: Mutex<Option<Inner>>,
    changed: Arc<Mutex<Vec<u64>>>,
}

/// Notes that a reply changed.
struct Watcher {
    number: u64,
    fired: OnceLock<()>,
    changed: Arc<Mutex<Vec<u64>>>,
}

impl Wake for Watcher {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.fired.set(()).is_ok() {
            self.changed.lock().push(self.number);
        }
    }
}

#[pymethods]
impl Reply {
    /// Tells the replies of a server apart.
    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    /// Ends the call with a response, or with the service's own error. Nothing happens when it has ended.
    fn end(&self, frame: &Bound<'_, PyAny>) -> PyResult<()> {
        let payload = Payload::of(frame)?;
        if let Some(inner) = self.ours(frame.py())?.lock().take() {
            inner.end(payload.bytes());
        }
        Ok(())
    }

    /// Ends the call with a fault, in words for people.
    fn fail(&self, py: Python<'_>, code: u16, message: &str) -> PyResult<()> {
        let Some(found) = Fault::of(code) else {
            return Err(fault(py, Fault::BadArgument, format!("there is no fault {code}")));
        };
        if let Some(inner) = self.ours(py)?.lock().take() {
            inner.fail(found, message);
        }
        Ok(())
    }

    /// Sends one item of a stream: 0 says to go on, 1 to wait for a change first, 2 that no more is
    /// wanted.
    fn item(&self, frame: &Bound<'_, PyAny>) -> PyResult<u8> {
        let payload = Payload::of(frame)?;
        let ours = self.ours(frame.py())?;
        let flow = ours.lock().as_mut().map_or(Flow::Gone, |inner| inner.item(payload.bytes()));
        Ok(match flow {
            Flow::Go => 0,
            Flow::Wait => 1,
            Flow::Gone => 2,
        })
    }

    /// Whether the answer is not awaited any more.
    #[getter]
    fn is_cancelled(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.ours(py)?.lock().as_ref().is_none_or(Inner::is_cancelled))
    }

    /// Whether it was answered here, or failed.
    #[getter]
    fn has_ended(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.ours(py)?.lock().is_none())
    }

    /// Has the server say once, in a later turn, that there is credit again or that the call is cancelled.
    /// `False`: it is so already.
    fn watch(&self, py: Python<'_>) -> PyResult<bool> {
        self.watched(py, Inner::changed)
    }

    /// Has the server say once, in a later turn, that the call is cancelled. `False`: it is already.
    fn watch_cancel(&self, py: Python<'_>) -> PyResult<bool> {
        self.watched(py, Inner::when_cancelled)
    }
}

impl Reply {
    /// What is to be locked; an error in another process, where a thread that did not follow may have locked
    /// it.
    fn ours(&self, py: Python<'_>) -> PyResult<&Mutex<Option<Inner>>> {
        if self.process.is_this() { Ok(&self.inner) } else { Err(Unavailable::Elsewhere.raise(py)) }
    }

    fn watched(&self, py: Python<'_>, watch: fn(&mut Inner, &Waker)) -> PyResult<bool> {
        let (number, changed) = (self.number, self.changed.clone());
        let watcher = Arc::new(Watcher { number, fired: OnceLock::new(), changed });
        if let Some(inner) = self.ours(py)?.lock().as_mut() {
            watch(inner, &Waker::from(watcher.clone()));
        }
        Ok(watcher.fired.get().is_none())
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let unanswered = self.inner.get_mut().take();
        if unanswered.is_some() && !self.process.is_surely_this() {
            std::mem::forget(unanswered);
        }
    }
}
