//! What goes wrong, on its way to JavaScript: a code of the one table in `lib/error.js`, a message, and details.
//!
//! A native error carries them as JSON in its message, because that is all that survives every way an error can
//! take through Node-API.

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

pub(crate) fn deleted() -> Error {
    failure("DELETED", "the log is deleted")
}

pub(crate) fn open(error: &OpenError) -> Error {
    let code = match error {
        OpenError::BadOption { .. } => return failure("BAD_ARGUMENT", in_javascript(&error.to_string())),
        OpenError::Held { .. } => "HELD",
        OpenError::Newer { .. } => "NEWER",
        OpenError::NotAStore { .. } => "NOT_A_STORE",
        OpenError::Io { .. } => "IO",
    };
    failure(code, error)
}

/// Options by the names that they have there.
fn in_javascript(message: &str) -> String {
    message.replace("segment_bytes_min", "segmentBytesMin").replace("segment_bytes_max", "segmentBytesMax")
}

pub(crate) fn commit(error: &CommitError) -> Error {
    let code = match error {
        CommitError::Damaged(damage) => return damaged(damage),
        CommitError::NoLog { .. } => "NO_LOG",
        CommitError::Deleted | CommitError::ParentDeleted => "DELETED",
        CommitError::TooLarge { .. } | CommitError::TooManyLogs { .. } => "TOO_LARGE",
        CommitError::Full(_) => "FULL",
        CommitError::Io(_) => "IO",
        CommitError::Failed(_) => "FAILED",
        CommitError::Closed => "CLOSED",
        CommitError::LogClosed => "LOG_CLOSED",
        CommitError::EmptyEntry => "EMPTY_ENTRY",
        CommitError::BadName { .. } => "BAD_NAME",
        CommitError::NoTicket { .. } | CommitError::OtherStore | CommitError::BadPurge => "BAD_ARGUMENT",
        CommitError::Pending { .. } => "PENDING",
        // Of versions, and of forks and the offsets they are made at: JavaScript asks for none of these.
        CommitError::Conflict { .. }
        | CommitError::Exists
        | CommitError::PastEnd { .. }
        | CommitError::Purged { .. } => "CONFLICT",
    };
    failure(code, error)
}

/// Why a neighbour's store cannot be looked into.
pub(crate) fn read(error: &ReadError) -> Error {
    match error {
        ReadError::Damaged(damage) => damaged(damage),
        ReadError::Deleted => deleted(),
        // No offset is asked for here.
        ReadError::Io { .. } | ReadError::Purged { .. } | ReadError::PastEnd { .. } => failure("IO", error),
        ReadError::OtherStore => failure("BAD_ARGUMENT", error),
    }
}

/// Why there is no backup, or nothing was put back. Where more than one span is damaged, the message names them all.
pub(crate) fn backup(error: &BackupError) -> Error {
    let code = match error {
        BackupError::Damaged(spans) if !spans.is_empty() => {
            return damaged_as(&spans[0], &error.to_string());
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
        "to": damage.to,
        "logs": damage.logs,
    }))
}
