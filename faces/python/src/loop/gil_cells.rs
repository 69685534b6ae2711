//! What the interpreter's lock guards.
//!
//! Purpose: a loop's state is touched only under the interpreter's lock, so it needs no lock of its
//! own; the type system only has to be told. Invariant: nothing here is reached without a `Python` token, and
//! no reference into a cell outlives the call that was handed it. The garbage collector has no token, but
//! runs under the lock, and calls nothing of Python's while it looks. Checked by the compiler, given the two
//! `SAFETY` arguments.

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};

/// One value, taken and put whole: there never is a reference into it.
pub(crate) struct GilCell<T>(Cell<T>);

// SAFETY: every method takes a `Python` token, so only the thread that holds the interpreter's lock is in
// here, and none of them gives that lock away half-way: what a replaced value runs when it is dropped, runs
// after the store.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Cell::new(value))
    }

    #[inline]
    pub(crate) fn set(&self, _: Python<'_>, value: T) {
        self.0.set(value);
    }

    #[inline]
    pub(crate) fn replace(&self, _: Python<'_>, value: T) -> T {
        self.0.replace(value)
    }
}

impl<T: Copy> GilCell<T> {
    #[inline]
    pub(crate) fn get(&self, _: Python<'_>) -> T {
        self.0.get()
    }
}

impl<T: Default> GilCell<T> {
    #[inline]
    pub(crate) fn take(&self, _: Python<'_>) -> T {
        self.0.take()
    }
}

impl<T> GilCell<Option<Py<T>>> {
    /// Whether there is anything.
    #[inline]
    pub(crate) fn is_some(&self, _: Python<'_>) -> bool {
        let kept = self.0.take();
        let is_some = kept.is_some();
        self.0.set(kept);
        is_some
    }

    /// Another reference to what is kept.
    #[inline]
    pub(crate) fn share(&self, py: Python<'_>) -> Option<Py<T>> {
        let kept = self.0.take();
        let shared = kept.as_ref().map(|kept| kept.clone_ref(py));
        self.0.set(kept);
        shared
    }

    /// Shows the garbage collector what is kept.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let kept = self.0.take();
        let visited = visit.call(&kept);
        self.0.set(kept);
        visited
    }
}

/// Something larger, lent to one caller at a time.
#[derive(Default)]
pub(crate) struct GilRefCell<T>(RefCell<T>);

// SAFETY: it is lent and taken back only by `with`, under the interpreter's lock. A caller that gives that
// lock away meanwhile has it marked as lent, so another caller is refused then; the mark itself changes under
// the lock alone.
unsafe impl<T: Send> Sync for GilRefCell<T> {}

impl<T> GilRefCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    /// Lends the value to `work`, which must not drop Python objects in it: their finalizers may come back
    /// here.
    ///
    /// # Errors
    /// It is lent already: the loop waits in another thread.
    #[inline]
    pub(crate) fn with<R>(&self, _: Python<'_>, work: impl FnOnce(&mut T) -> R) -> PyResult<R> {
        match self.0.try_borrow_mut() {
            Ok(mut value) => Ok(work(&mut value)),
            Err(_) => Err(busy()),
        }
    }

    /// Whether it is lent: then [`with`](Self::with) refuses.
    #[inline]
    pub(crate) fn is_lent(&self, _: Python<'_>) -> bool {
        self.0.try_borrow_mut().is_err()
    }

    /// Shows the garbage collector the value. What is lent it does not see, and so takes for what is in use.
    pub(crate) fn traverse(
        &self,
        show: impl FnOnce(&T) -> Result<(), PyTraverseError>,
    ) -> Result<(), PyTraverseError> {
        self.0.try_borrow().map_or(Ok(()), |value| show(&value))
    }
}

#[cold]
fn busy() -> PyErr {
    PyRuntimeError::new_err("the event loop is busy in another thread: use call_soon_threadsafe()")
}
