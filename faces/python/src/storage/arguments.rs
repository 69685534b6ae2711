//! Arguments of kinds that Python has no type for, checked before anything is done.

use crate::numbers::Number;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;

/// A keyword argument that may be omitted. `None` is none of its values.
pub(crate) enum Keyword<T> {
    Omitted,
    Given(T),
}

impl<T> Keyword<T> {
    pub(crate) fn given(self) -> Option<T> {
        match self {
            Keyword::Omitted => None,
            Keyword::Given(value) => Some(value),
        }
    }
}

impl<'a, 'py, T: FromPyObject<'a, 'py>> FromPyObject<'a, 'py> for Keyword<T> {
    type Error = T::Error;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> Result<Self, T::Error> {
        value.extract().map(Keyword::Given)
    }
}

/// A whole number; one out of range is refused by name.
#[inline]
pub(crate) fn whole<T>(name: &str, value: Number<T>) -> PyResult<T> {
    value.whole(name).map_err(PyValueError::new_err)
}

/// The same of an argument that may be omitted.
#[inline]
pub(crate) fn optional<T>(name: &str, value: Option<Number<T>>) -> PyResult<Option<T>> {
    value.map(|value| whole(name, value)).transpose()
}

/// A path, which is not empty: of an empty one the operating system says only that there is no such file.
pub(crate) struct PathArgument(pub(crate) PathBuf);

impl<'a, 'py> FromPyObject<'a, 'py> for PathArgument {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if value.is_instance_of::<PyBytes>() {
            // Of these it would be said that they are no `str`, and of anything else that it is neither.
            return Err(PyTypeError::new_err(
                "a path is a str or os.PathLike, not bytes: os.fsdecode makes one",
            ));
        }
        let path: PathBuf = value.extract()?;
        if path.as_os_str().is_empty() {
            return Err(PyValueError::new_err("the path is empty"));
        }
        Ok(PathArgument(path))
    }
}
