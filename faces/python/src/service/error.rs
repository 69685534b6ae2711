//! Faults, on their way to Python: the exception that `thalweg/faults.py` has for each.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use std::fmt::Write as _;
use thalweg_service::Error;
use thalweg_wire::fault::Fault;

static BY_FAULT: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// The exception that says the same.
#[cold]
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let mut detail = error.detail.clone();
    if let Some(source) = &error.source {
        let _ = write!(detail, "{}{source}", if detail.is_empty() { "" } else { ": " });
    }
    let make = || {
        let classes = BY_FAULT.import(py, "thalweg.faults", "BY_FAULT")?;
        classes.as_any().get_item(error.fault as u16)?.call1((detail,))
    };
    make().map_or_else(|error| error, PyErr::from_value)
}

/// An exception for a fault that was noticed here.
#[cold]
pub(crate) fn fault(py: Python<'_>, fault: Fault, detail: impl Into<String>) -> PyErr {
    exception(py, &Error::new(fault, detail))
}

/// What Rust returned, as Python raises it.
pub(crate) trait Raise<T> {
    fn raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> Raise<T> for Result<T, Error> {
    #[inline]
    fn raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}
