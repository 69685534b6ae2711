//! MessagePack as generated code reads and writes it, in machine code.
//!
//! The twin of `crates/codegen/runtime/python/messagepack.py`: the same names, the same bytes, the same words
//! when it refuses. Generated code takes these where the package is installed and its own where it is not;
//! both are held to the golden frames, and to each other over ten thousand mutated ones
//! (`cargo xtask python`).
//!
//! Never knows a schema: a struct's fields come as a table, and what is no leaf is read and written by the
//! functions that generated code hands in. A leaf that is handed in is recognised and done here, without a
//! call through Python.

mod leaf;
mod reader;
mod write;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use reader::Reader;

/// Puts reader and functions into the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Reader>()?;
    write::add(module)
}

static DECODE_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static ENCODE_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();

#[cold]
fn decode_error(py: Python<'_>, place: String, reason: String, at: usize) -> PyErr {
    let class = DECODE_ERROR.import(py, "thalweg.messagepack", "DecodeError");
    class.map_or_else(|error| error, |class| PyErr::from_type(class.clone(), (place, reason, at)))
}

#[cold]
fn encode_error(py: Python<'_>, message: impl ToString) -> PyErr {
    let class = ENCODE_ERROR.import(py, "thalweg.messagepack", "EncodeError");
    class.map_or_else(|error| error, |class| PyErr::from_type(class.clone(), (message.to_string(),)))
}
