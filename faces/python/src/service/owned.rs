//! A client or a server as Python's objects hold it: by one thread at a time, until it is closed.
//!
//! Another thread that wants it meanwhile waits without the interpreter's lock, which the first may need to
//! go on. The same thread can come back too: to make an object for Python may run the garbage collector, and
//! that any finalizer; and while a program is waited for, signals are handled. It is refused, because what it
//! wants is being changed.
//!
//! In a child after a fork it is neither used nor dropped: what is taken off the kernel's list there the
//! parent misses too, and the paths lead to the parent's sockets.

use super::error::fault;
use crate::forks::Process;
use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::cell::RefCell;
use thalweg_wire::fault::Fault;

/// Something that is there until it is closed, for the process that made it.
pub(crate) struct Owned<T> {
    /// There until this is dropped.
    inner: Option<Lock<T>>,
    process: Process,
}

type Lock<T> = ReentrantMutex<RefCell<Option<T>>>;

/// Why something is not to be had.
pub(crate) enum Unavailable {
    Closed,
    Busy,
    Elsewhere,
}

impl Unavailable {
    #[cold]
    pub(crate) fn raise(&self, py: Python<'_>) -> PyErr {
        match self {
            Self::Closed => fault(py, Fault::Closed, "it was closed here"),
            Self::Busy => PyRuntimeError::new_err(
                "called by a finalizer or the handler of a signal, in the middle of another call",
            ),
            Self::Elsewhere => PyRuntimeError::new_err(
                "it belongs to the process that made it: after a fork, make a new one",
            ),
        }
    }
}

impl<T: Send> Owned<T> {
    pub(crate) fn new(inner: T) -> Self {
        let inner = ReentrantMutex::new(RefCell::new(Some(inner)));
        Self { inner: Some(inner), process: Process::this() }
    }

    /// Whether it is to be had in this process.
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.process.is_this() { Ok(()) } else { Err(Unavailable::Elsewhere.raise(py)) }
    }

    /// What is to be locked; nothing in another process, where a thread that did not follow may have locked
    /// it.
    fn ours(&self) -> Option<&Lock<T>> {
        self.inner.as_ref().filter(|_| self.process.is_this())
    }

    fn lock(&self, py: Python<'_>) -> Option<ReentrantMutexGuard<'_, RefCell<Option<T>>>> {
        let inner = self.ours()?;
        loop {
            if let Some(guard) = inner.try_lock() {
                return Some(guard);
            }
            py.detach(|| drop(inner.lock()));
        }
    }

    /// Does something with it.
    #[inline]
    pub(crate) fn try_with<R>(
        &self,
        py: Python<'_>,
        task: impl FnOnce(&mut T) -> R,
    ) -> Result<R, Unavailable> {
        let guard = self.lock(py).ok_or(Unavailable::Elsewhere)?;
        let Ok(mut inner) = guard.try_borrow_mut() else { return Err(Unavailable::Busy) };
        inner.as_mut().map(task).ok_or(Unavailable::Closed)
    }

    /// Does something with it, unless another caller does at this moment.
    pub(crate) fn try_now<R>(&self, task: impl FnOnce(&mut T) -> R) -> Result<R, Unavailable> {
        let guard = self.ours().ok_or(Unavailable::Elsewhere)?.try_lock().ok_or(Unavailable::Busy)?;
        let Ok(mut inner) = guard.try_borrow_mut() else { return Err(Unavailable::Busy) };
        inner.as_mut().map(task).ok_or(Unavailable::Closed)
    }

    /// Does something with it, or says why not.
    #[inline]
    pub(crate) fn with<R>(&self, py: Python<'_>, task: impl FnOnce(&mut T) -> PyResult<R>) -> PyResult<R> {
        self.try_with(py, task).map_err(|away| away.raise(py))?
    }

    /// Does something that may wait, while other threads run.
    pub(crate) fn detached<R: Send>(
        &self,
        py: Python<'_>,
        task: impl FnOnce(&mut T) -> R + Send,
    ) -> Result<R, Unavailable> {
        let lent = self.lend()?;
        py.detach(|| lent.with(task))
    }

    /// The same for a caller that gives the interpreter's lock away itself.
    pub(crate) fn lend(&self) -> Result<Lent<'_, T>, Unavailable> {
        self.ours().map(Lent).ok_or(Unavailable::Elsewhere)
    }

    /// Whether it is there: of this process, and not closed.
    pub(crate) fn is_open(&self) -> bool {
        // What is in use is there.
        matches!(self.try_now(|_| ()), Ok(()) | Err(Unavailable::Busy))
    }

    /// Ends it; nothing that is another process's.
    pub(crate) fn close(&self, py: Python<'_>) {
        let Some(guard) = self.lock(py) else { return };
        let inner = guard.try_borrow_mut().ok().and_then(|mut inner| inner.take());
        drop(guard);
        drop(inner);
    }
}

/// What is this process's, to be waited for without the interpreter's lock.
pub(crate) struct Lent<'a, T>(&'a Lock<T>);

impl<T> Lent<'_, T> {
    /// Does something with it, once nobody else does.
    pub(crate) fn with<R>(&self, task: impl FnOnce(&mut T) -> R) -> Result<R, Unavailable> {
        let guard = self.0.lock();
        let Ok(mut inner) = guard.try_borrow_mut() else { return Err(Unavailable::Busy) };
        inner.as_mut().map(task).ok_or(Unavailable::Closed)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.process.is_surely_this() {
            std::mem::forget(self.inner.take());
        }
    }
}
