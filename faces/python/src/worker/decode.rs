//! Bytes as Python values: `encode` the other way round, and the table of `docs/erlang.md`. The walk over the
//! bytes is [`thalweg_wire::term`]'s.

use super::terms::{Atom, Pid, Reference};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use thalweg_wire::term::{self, Build, TermError};

/// Reads a value that takes all of the bytes.
pub(crate) fn value<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    Ok(term::read(&mut Values(py), bytes)?)
}

/// Reads a list's items, which take all of the bytes, as arguments.
pub(crate) fn arguments<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, term::read_items(&mut Values(py), bytes)?)
}

/// Reads a map as what is passed by name.
pub(crate) fn named<'py>(py: Python<'py>, bytes: Option<&[u8]>) -> PyResult<Bound<'py, PyDict>> {
    bytes.map_or_else(|| Ok(PyDict::new(py)), |bytes| Ok(value(py, bytes)?.cast_into()?))
}

struct Values<'py>(Python<'py>);

/// Why there is no value.
struct NoValue(PyErr);

impl From<TermError> for NoValue {
    fn from(wrong: TermError) -> Self {
        Self(PyValueError::new_err(wrong.0))
    }
}

impl From<PyErr> for NoValue {
    fn from(raised: PyErr) -> Self {
        Self(raised)
    }
}

impl From<NoValue> for PyErr {
    fn from(why: NoValue) -> Self {
        why.0
    }
}

type Made<'py> = Result<Bound<'py, PyAny>, NoValue>;

impl<'py> Build for Values<'py> {
    type Value = Bound<'py, PyAny>;
    type Error = NoValue;

    fn none(&mut self) -> Bound<'py, PyAny> {
        self.0.None().into_bound(self.0)
    }

    fn boolean(&mut self, value: bool) -> Bound<'py, PyAny> {
        PyBool::new(self.0, value).to_owned().into_any()
    }

    fn integer(&mut self, value: i64) -> Bound<'py, PyAny> {
        PyInt::new(self.0, value).into_any()
    }

    fn natural(&mut self, value: u64) -> Bound<'py, PyAny> {
        PyInt::new(self.0, value).into_any()
    }

    fn large(&mut self, is_negative: bool, magnitude: &[u8]) -> Made<'py> {
        let digits = PyBytes::new(self.0, magnitude);
        let value = self.0.get_type::<PyInt>().call_method1("from_bytes", (digits, "little"))?;
        Ok(if is_negative { value.neg()? } else { value })
    }

    fn float(&mut self, value: f64) -> Bound<'py, PyAny> {
        PyFloat::new(self.0, value).into_any()
    }

    fn text(&mut self, text: &[u8]) -> Made<'py> {
        let text = std::str::from_utf8(text).map_err(|_| TermError("text that is not UTF-8"))?;
        Ok(PyString::new(self.0, text).into_any())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Bound<'py, PyAny> {
        PyBytes::new(self.0, bytes).into_any()
    }

    fn list(&mut self, items: Vec<Bound<'py, PyAny>>) -> Made<'py> {
        Ok(PyList::new(self.0, items)?.into_any())
    }

    fn tuple(&mut self, items: Vec<Bound<'py, PyAny>>) -> Made<'py> {
        Ok(PyTuple::new(self.0, items)?.into_any())
    }

    fn map(&mut self, pairs: Vec<Bound<'py, PyAny>>) -> Made<'py> {
        let map = PyDict::new(self.0);
        for pair in pairs.chunks_exact(2) {
            map.set_item(&pair[0], &pair[1])?;
        }
        // 1 and 1.0 and True are one key here.
        if 2 * map.len() == pairs.len() {
            Ok(map.into_any())
        } else {
            Err(TermError("two keys that are one in Python").into())
        }
    }

    fn atom(&mut self, name: &[u8]) -> Made<'py> {
        let name = std::str::from_utf8(name).map_err(|_| TermError("an atom that is not UTF-8"))?;
        Ok(Bound::new(self.0, Atom { name: name.to_owned() })?.into_any())
    }

    fn pid(&mut self, form: &[u8]) -> Made<'py> {
        Ok(Bound::new(self.0, Pid { form: form.to_vec() })?.into_any())
    }

    fn reference(&mut self, form: &[u8]) -> Made<'py> {
        Ok(Bound::new(self.0, Reference { form: form.to_vec() })?.into_any())
    }
}
