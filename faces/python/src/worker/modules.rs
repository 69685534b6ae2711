//! Functions by name: the one place that finds them, for calls, streams and applications alike.
//!
//! A module that was found before costs one look at `sys.modules`: another in its place, as after a reload,
//! is what counts.

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Modules {
    /// Names as Python looks for them.
    names: Mutex<HashMap<String, Py<PyString>>>,
    /// `sys.modules`.
    loaded: Mutex<Option<Py<PyDict>>>,
}

impl Modules {
    /// A function by its module and its name, which may lead through objects.
    pub(super) fn function<'py>(
        &self,
        py: Python<'py>,
        module: &str,
        name: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        attribute(self.module(py, module)?, name)
    }

    fn module<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let known = self.names.lock().get(name).map(|known| known.clone_ref(py));
        let loaded = self.loaded.lock().as_ref().map(|loaded| loaded.clone_ref(py));
        if let (Some(known), Some(loaded)) = (known, loaded)
            && let Some(found) = loaded.bind(py).get_item(known)?
            && !found.is_none()
        {
            return Ok(found);
        }
        let found = py.import(name)?.into_any();
        self.names.lock().insert(name.to_owned(), PyString::new(py, name).unbind());
        let loaded = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
        *self.loaded.lock() = Some(loaded.unbind());
        Ok(found)
    }
}

/// What a name leads to from an object on.
fn attribute<'py>(object: Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    if name.contains('.') {
        return name.split('.').try_fold(object, |object, part| object.getattr(part));
    }
    object.getattr(PyString::intern(object.py(), name))
}

/// The same for callers that ask seldom.
#[pyfunction]
pub(super) fn named<'py>(py: Python<'py>, module: &str, name: &str) -> PyResult<Bound<'py, PyAny>> {
    attribute(py.import(module)?.into_any(), name)
}
