//! What a loop uses again: handles that were called and that nothing else refers to, and an empty context.
//!
//! Purpose: most callbacks are scheduled by callers that throw the handle away, and are called in a context
//! that stays empty; making and ending both takes longer than all else that the loop does for such a
//! callback. Invariants: what is kept here holds nothing; there is no reference to it, weak or not, so
//! that it is used again cannot be seen. Checked by the tests of handles in `tests/test_loop.py`.

use super::foreign::{self, Weak};
use super::gil_cells::{GilCell, GilRefCell};
use super::handle::Handle;
use pyo3::prelude::*;

/// Handles that are kept at most: more wait at once only in a burst, and what a burst left would stay.
const HANDLES_MAX: usize = 16_384;

/// What may be used again.
pub(crate) struct Spare {
    handles: GilRefCell<Vec<Py<Handle>>>,
    context: GilCell<Option<Py<PyAny>>>,
    weak_handles: Weak,
    weak_contexts: Weak,
}

impl Spare {
    pub(crate) fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self {
            handles: GilRefCell::new(Vec::new()),
            context: GilCell::new(None),
            weak_handles: Weak::of(&py.get_type::<Handle>())?,
            weak_contexts: Weak::of(&foreign::empty_context(py)?.bind(py).get_type())?,
        })
    }

    /// A handle as an object.
    #[inline]
    pub(crate) fn object(&self, py: Python<'_>, handle: Handle) -> PyResult<Py<Handle>> {
        match self.handles.with(py, Vec::pop)? {
            Some(used) => {
                used.get().become_another(py, handle);
                Ok(used)
            }
            None => handle.into_object(py),
        }
    }

    /// A context with nothing in it.
    #[inline]
    pub(crate) fn context(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.context.take(py) {
            Some(context) => Ok(context),
            None => foreign::empty_context(py),
        }
    }

    /// Keeps a context if there is nothing in it; gives back any other.
    #[inline]
    fn keep_context(&self, py: Python<'_>, context: Py<PyAny>) -> PyResult<Option<Py<PyAny>>> {
        if !self.weak_contexts.is_alone(py, &context) || !foreign::is_empty(py, &context)? {
            return Ok(Some(context));
        }
        drop(self.context.replace(py, Some(context)));
        Ok(None)
    }

    /// A handle that was called for the only time, and is a timer's, or still referred to: its holder may
    /// read what it called, and in which context.
    #[inline(never)]
    fn end_known(&self, py: Python<'_>, handle: &Py<Handle>) -> PyResult<()> {
        let called = handle.get();
        if foreign::is_only(handle) {
            if let Some(context) = called.let_go(py) {
                drop(self.keep_context(py, context)?);
            }
            return Ok(());
        }
        if let Some(context) = called.take_context(py)
            && let Some(context) = self.keep_context(py, context)?
        {
            called.put_context(py, context);
        }
        foreign::track(py, handle);
        Ok(())
    }

    /// A handle that was called for the only time.
    #[inline]
    pub(crate) fn keep(&self, py: Python<'_>, handle: Py<Handle>) -> PyResult<()> {
        if !self.weak_handles.is_alone(py, &handle) {
            return self.end_known(py, &handle);
        }
        // Whatever that ends may schedule something.
        if let Some(context) = handle.get().let_go(py) {
            drop(self.keep_context(py, context)?);
        }
        let left = self.handles.with(py, |handles| {
            if handles.len() == HANDLES_MAX {
                return Some(handle);
            }
            handles.push(handle);
            None
        })?;
        drop(left);
        Ok(())
    }

    /// Keeps nothing any more.
    pub(crate) fn clear(&self, py: Python<'_>) -> PyResult<()> {
        drop((self.handles.with(py, std::mem::take)?, self.context.take(py)));
        Ok(())
    }
}
