//! What goes wrong, on its way to Python: a code of the table in `python/thalweg/errors.py`, a message,
//! details. What the log's errors are called is the log's to say (`words.rs` there).

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use thalweg_log::{BackupError, CommitError, Damage, OpenError, ReadError};

/// An error by its code.
pub(crate) fn failure(code: &str, message: impl ToString) -> PyErr {
    detailed(code, &message.to_string(), |_| Ok(()))
}

pub(crate) fn closed() -> PyErr {
    failure("CLOSED", "the store is closed")
}

fn detailed(code: &str, message: &str, details: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>) -> PyErr {
    Python::attach(|py| {
        let make = || {
            let class = py.import("thalweg.errors")?.getattr("BY_CODE")?.get_item(code)?;
            let fields = PyDict::new(py);
            details(&fields)?;
            class.call((message,), Some(&fields))
        };
        make().map_or_else(|error| error, PyErr::from_value)
    })
}

/// An error of the log by its word. An argument that is wrong is what Python has a class of its own for.
fn worded(word: &'static str, message: &impl ToString) -> PyErr {
    match word {
        "BAD_ARGUMENT" => PyValueError::new_err(message.to_string()),
        _ => failure(word, message.to_string()),
    }
}

pub(crate) fn open(error: &OpenError) -> PyErr {
    worded(error.word(), error)
}

pub(crate) fn commit(error: &CommitError, log: Option<&str>) -> PyErr {
    match error {
        CommitError::Damaged(damage) => damaged(damage, log),
        _ => worded(error.word(), error),
    }
}

pub(crate) fn read(error: &ReadError, log: Option<&str>) -> PyErr {
    match error {
        ReadError::Damaged(damage) => damaged(damage, log),
        _ => worded(error.word(), error),
    }
}

pub(crate) fn io(action: &str, error: &std::io::Error) -> PyErr {
    failure("IO", format!("cannot {action}: {error}"))
}

/// Why there is no backup, or nothing was put back. Where more than one span is damaged, the message names
/// them all.
pub(crate) fn backup(error: &BackupError) -> PyErr {
    match error {
        BackupError::Damaged(spans) if !spans.is_empty() => damaged_as(&spans[0], None, &error.to_string()),
        _ => worded(error.word(), error),
    }
}

/// Damage: in whose way it was, where it begins and where one may go on.
fn damaged(damage: &Damage, log: Option<&str>) -> PyErr {
    damaged_as(damage, log, &damage.to_string())
}

fn damaged_as(damage: &Damage, log: Option<&str>, message: &str) -> PyErr {
    detailed("DAMAGED", message, |fields| {
        fields.set_item("log", log)?;
        fields.set_item("file", &damage.file)?;
        fields.set_item("begin", damage.from)?;
        fields.set_item("resumes", damage.resumes)
    })
}

pub(crate) fn read_only() -> PyErr {
    failure("READ_ONLY", "the store was opened for reading only")
}
