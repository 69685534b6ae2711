//! What callers hand over, looked at before anything is done.

use pyo3::prelude::*;

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
