//! What goes wrong, on its way to JavaScript: a code of the one table in `lib/error.js`, a message, and
//! details. What the log's errors are called is the log's to say (`words.rs` there).
//!
//! A native error carries them as JSON in its message, because that is all that survives every way an error
//! can take through Node-API.

use napi::{Error, Status};
use serde_json::{Value, json};
use thalweg_log::{BackupError, CommitError, Damage, OpenError, ReadError};

pub(crate) type Result<T> = std::result::Result<T, Error>;

pub(crate) fn failure(code: &str, message: impl ToString) -> Error {
    detailed(json!({ "code": code, "message": message.to_string() }))
}

fn detailed(details: Value) -> Error {
    Error::new(Status::GenericFailure, details.to_string())
}

pub(crate) fn closed() -> Error {
    failure("CLOSED", "the store is closed")
}

pub(crate) fn read_only() -> Error {
    failure("READ_ONLY", "the store was opened to be read only")
}

pub(crate) fn deleted() -> Error {
    failure("DELETED", "the log is deleted")
}

pub(crate) fn open(error: &OpenError) -> Error {
    match error {
        OpenError::BadOption { .. } => failure(error.word(), in_javascript(&error.to_string())),
        _ => failure(error.word(), error),
    }
}

/// Options by the names that they have there.
fn in_javascript(message: &str) -> String {
    message.replace("segment_bytes_min", "segmentBytesMin").replace("segment_bytes_max", "segmentBytesMax")
}

pub(crate) fn commit(error: &CommitError) -> Error {
    match error {
        CommitError::Damaged(damage) => damaged(damage),
        _ => failure(error.word(), error),
    }
}

/// Why a neighbour's store cannot be looked into.
pub(crate) fn read(error: &ReadError) -> Error {
    match error {
        ReadError::Damaged(damage) => damaged(damage),
        _ => failure(error.word(), error),
    }
}

/// Why there is no backup, or nothing was put back. Where more than one span is damaged, the message names
/// them all.
pub(crate) fn backup(error: &BackupError) -> Error {
    match error {
        BackupError::Damaged(spans) if !spans.is_empty() => damaged_as(&spans[0], &error.to_string()),
        BackupError::Source(error) => open(error),
        _ => failure(error.word(), error),
    }
}

/// Damage, with the place where one may go on.
pub(crate) fn damaged(damage: &Damage) -> Error {
    damaged_as(damage, &damage.to_string())
}

fn damaged_as(damage: &Damage, message: &str) -> Error {
    detailed(json!({
        "code": "DAMAGED",
        "message": message,
        "file": damage.file,
        "from": damage.from,
        "resumes": damage.resumes,
        "logs": damage.logs.known(),
    }))
}
