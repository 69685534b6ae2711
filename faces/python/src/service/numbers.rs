//! Numbers that options are given. Python's have no bounds: one out of range is a bad argument like any
//! other, refused with its name.

use super::error::fault;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use std::time::Duration;
use thalweg_wire::fault::Fault;

/// A number that its type may not hold: what takes it by [`whole`] or [`seconds`] says so.
pub(crate) enum Number<T> {
    Fits(T),
    /// As Python writes it.
    Outside(String),
}

impl<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>> FromPyObject<'a, 'py> for Number<T> {
    type Error = PyErr;

    #[inline]
    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match value.extract() {
            Ok(number) => Ok(Self::Fits(number)),
            Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
                // Python refuses to write thousands of digits.
                Ok(Self::Outside(
                    value.str().map_or_else(|_| "out of range".to_owned(), |text| text.to_string()),
                ))
            }
            Err(error) => Err(error),
        }
    }
}

/// A whole number.
pub(crate) fn whole<T>(py: Python<'_>, name: &str, value: Number<T>) -> PyResult<T> {
    match value {
        Number::Fits(number) => Ok(number),
        Number::Outside(text) => {
            let most = u64::MAX >> (64 - 8 * size_of::<T>());
            let detail = format!("{name} is {text}: give a whole number from 0 to {most}");
            Err(fault(py, Fault::BadArgument, detail))
        }
    }
}

/// A number of seconds.
pub(crate) fn seconds(py: Python<'_>, name: &str, value: Number<f64>) -> PyResult<Duration> {
    let (found, text) = match value {
        Number::Fits(number) => (Duration::try_from_secs_f64(number).ok(), number.to_string()),
        Number::Outside(text) => (None, text),
    };
    found.ok_or_else(|| {
        fault(py, Fault::BadArgument, format!("{name} is {text}: give seconds, 0 or more and finite"))
    })
}
