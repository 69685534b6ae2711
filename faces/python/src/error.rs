//! What goes wrong, on its way to Python: a code of the table in `python/thalweg/errors.py`, a message, details.

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

pub(crate) fn open(error: &OpenError) -> PyErr {
    let code = match error {
        OpenError::BadOption { .. } => return PyValueError::new_err(error.to_string()),
        OpenError::Held { .. } => "HELD",
        OpenError::Newer { .. } => "NEWER",
        OpenError::NotAStore { .. } => "NOT_A_STORE",
        OpenError::Io { .. } => "IO",
    };
    failure(code, error)
}

pub(crate) fn commit(error: &CommitError, log: Option<&str>) -> PyErr {
    let code = match error {
        CommitError::Damaged(damage) => return damaged(damage, log),
        CommitError::NoLog { .. } => "NO_LOG",
        CommitError::Deleted | CommitError::ParentDeleted => "DELETED",
        CommitError::Pending { .. } => "PENDING",
        CommitError::TooLarge { .. } | CommitError::TooManyLogs { .. } => "TOO_LARGE",
        CommitError::Full(_) => "FULL",
        CommitError::Io(_) => "IO",
        CommitError::Failed(_) => "FAILED",
        CommitError::Closed => "CLOSED",
        CommitError::LogClosed => "LOG_CLOSED",
        CommitError::EmptyEntry => "EMPTY_ENTRY",
        CommitError::BadName { .. } => "BAD_NAME",
        CommitError::NoTicket { .. } | CommitError::OtherStore | CommitError::BadPurge => {
            return PyValueError::new_err(error.to_string());
        }
        // Of versions, and of forks and the offsets they are made at: Python asks for none of these.
        CommitError::Conflict { .. }
        | CommitError::Exists
        | CommitError::PastEnd { .. }
        | CommitError::Purged { .. } => "CONFLICT",
    };
    failure(code, error)
}

pub(crate) fn read(error: &ReadError, log: Option<&str>) -> PyErr {
    match error {
        ReadError::Damaged(damage) => damaged(damage, log),
        ReadError::Deleted => failure("DELETED", error),
        ReadError::Io { .. } => failure("IO", error),
        // Of who wants what is at one offset. A query goes on with what is left, or waits at the end.
        ReadError::Purged { .. } | ReadError::PastEnd { .. } => failure("CONFLICT", error),
        ReadError::OtherStore => PyValueError::new_err(error.to_string()),
    }
}

pub(crate) fn io(action: &str, error: &std::io::Error) -> PyErr {
    failure("IO", format!("cannot {action}: {error}"))
}

/// Why there is no backup, or nothing was put back. Where more than one span is damaged, the message names them all.
pub(crate) fn backup(error: &BackupError) -> PyErr {
    let code = match error {
        BackupError::Damaged(spans) if !spans.is_empty() => {
            return damaged_as(&spans[0], None, &error.to_string());
        }
        BackupError::Damaged(_) => "DAMAGED",
        BackupError::Source(error) => return open(error),
        BackupError::Occupied { .. } => "OCCUPIED",
        BackupError::NotClosed { .. } => "NOT_CLOSED",
        BackupError::Memory => "IN_MEMORY",
        BackupError::Gone { .. } | BackupError::Io { .. } => "IO",
    };
    failure(code, error)
}

/// Damage: in whose way it was, where it begins and where one may go on.
fn damaged(damage: &Damage, log: Option<&str>) -> PyErr {
    damaged_as(damage, log, &damage.to_string())
}

fn damaged_as(damage: &Damage, log: Option<&str>, message: &str) -> PyErr {
    detailed("DAMAGED", message, |fields| {
        fields.set_item("log", log)?;
        fields.set_item("file", &damage.file)?;
        fields.set_item("position", damage.from)?;
        fields.set_item("resync", (damage.to > damage.from).then_some(damage.to))
    })
}

pub(crate) fn read_only() -> PyErr {
    failure("READ_ONLY", "the store was opened for reading only")
}
