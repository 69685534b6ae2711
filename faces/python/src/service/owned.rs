//! A client or a server as Python's objects hold it: by one thread at a time, until it is closed.
//!
//! Another thread that wants it meanwhile waits without the interpreter's lock, which the first may need to go on. The same
//! thread can come back too: to make an object for Python may run the garbage collector, and that any finalizer. It is
//! refused, because what it wants is being changed.

use super::error::fault;
use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::cell::RefCell;
use thalweg_wire::fault::Fault;

/// Something that is there until it is closed.
pub(crate) struct Owned<T>(ReentrantMutex<RefCell<Option<T>>>);

/// Why something is not to be had.
pub(crate) enum Away {
    Closed,
    Busy,
}

impl Away {
    #[cold]
    pub(crate) fn raise(&self, py: Python<'_>) -> PyErr {
        match self {
            Self::Closed => fault(py, Fault::Closed, "it was closed here"),
            Self::Busy => PyRuntimeError::new_err("called from a finalizer, in the middle of another call"),
        }
    }
}

impl<T: Send> Owned<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self(ReentrantMutex::new(RefCell::new(Some(inner))))
    }

    fn lock(&self, py: Python<'_>) -> ReentrantMutexGuard<'_, RefCell<Option<T>>> {
        loop {
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
            py.detach(|| drop(self.0.lock()));
        }
    }

    /// Does something with it.
    #[inline]
    pub(crate) fn try_with<R>(&self, py: Python<'_>, task: impl FnOnce(&mut T) -> R) -> Result<R, Away> {
        let guard = self.lock(py);
        let Ok(mut inner) = guard.try_borrow_mut() else { return Err(Away::Busy) };
        inner.as_mut().map(task).ok_or(Away::Closed)
    }

    /// Does something with it, or says why not.
    #[inline]
    pub(crate) fn with<R>(&self, py: Python<'_>, task: impl FnOnce(&mut T) -> PyResult<R>) -> PyResult<R> {
        self.try_with(py, task).map_err(|away| away.raise(py))?
    }

    /// Does something that may wait, while other threads run. `None` once closed.
    pub(crate) fn detached<R: Send>(
        &self,
        py: Python<'_>,
        task: impl FnOnce(&mut T) -> R + Send,
    ) -> Option<R> {
        py.detach(|| {
            let guard = self.0.lock();
            let mut inner = guard.try_borrow_mut().ok()?;
            inner.as_mut().map(task)
        })
    }

    /// Ends it.
    pub(crate) fn close(&self, py: Python<'_>) {
        let guard = self.lock(py);
        let inner = guard.try_borrow_mut().ok().and_then(|mut inner| inner.take());
        drop(guard);
        drop(inner);
    }
}
