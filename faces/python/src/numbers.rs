//! Numbers that arguments are given. Python's have no bounds: one out of range is a bad argument like any
//! other, and what refuses it says its name.

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use std::time::Duration;

/// A number that its type may not hold: what takes it by [`whole`](Number::whole) or
/// [`seconds`](Number::seconds) says so.
#[derive(Clone, Debug)]
pub(crate) enum Number<T> {
    Fits(T),
    /// As Python writes it, its sign in front. Behind a pointer, because arguments that are a word each are
    /// handed on in registers.
    #[allow(clippy::box_collection, reason = "a word")]
    Outside(Box<String>),
}

impl<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>> FromPyObject<'a, 'py> for Number<T> {
    type Error = PyErr;

    #[inline]
    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match value.extract() {
            Ok(number) => Ok(Self::Fits(number)),
            Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
                // Python refuses to write thousands of digits.
                let many =
                    || Ok(if value.lt(0)? { "-(very many digits)" } else { "(very many digits)" }.into());
                let text = value.str().map_or_else(|_| many(), |text| Ok(text.to_string()));
                text.map(|text| Self::Outside(Box::new(text)))
            }
            Err(error) => Err(error),
        }
    }
}

impl<T> Number<T> {
    /// A whole number, or what is wrong with it.
    #[inline]
    pub(crate) fn whole(self, name: &str) -> Result<T, String> {
        match self {
            Number::Fits(number) => Ok(number),
            Number::Outside(text) => {
                let most = u64::MAX >> (64 - 8 * size_of::<T>());
                Err(format!("{name} is {text}: give a whole number from 0 to {most}"))
            }
        }
    }
}

impl Number<f64> {
    /// A number of seconds, or what is wrong with it.
    pub(crate) fn seconds(self, name: &str) -> Result<Duration, String> {
        let (found, text) = match self {
            Number::Fits(number) => (Duration::try_from_secs_f64(number).ok(), number.to_string()),
            Number::Outside(text) => (None, *text),
        };
        found.ok_or_else(|| format!("{name} is {text}: give seconds, 0 or more and finite"))
    }
}
