//! What callers hand over, looked at before anything is done.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;

/// A word that may be left out, and says something where it is there: `None` is none of its values.
pub(crate) enum Word<T> {
    Left,
    Said(T),
}

impl<T> Word<T> {
    pub(crate) fn said(self) -> Option<T> {
        match self {
            Word::Left => None,
            Word::Said(value) => Some(value),
        }
    }
}

impl<'a, 'py, T: FromPyObject<'a, 'py>> FromPyObject<'a, 'py> for Word<T> {
    type Error = T::Error;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> Result<Self, T::Error> {
        value.extract().map(Word::Said)
    }
}

/// Where files are, or are to be: not nowhere, of which the operating system says only that it is not there.
pub(crate) struct Place(pub(crate) PathBuf);

impl<'a, 'py> FromPyObject<'a, 'py> for Place {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let path: PathBuf = value.extract()?;
        if path.as_os_str().is_empty() {
            return Err(PyValueError::new_err("the path is empty"));
        }
        Ok(Place(path))
    }
}
