//! The word of each error: one table of what goes wrong, for every language that tells errors by a code.
//!
//! Purpose: that the same failure is told by the same word everywhere. A face has of its own what only its
//! language knows, such as which class goes with a word, and the fields of damage. A new variant has to get a
//! word here, and the tests see to it that each word is in the tables that the faces document.

use crate::backup::BackupError;
use crate::error::{CommitError, OpenError, ReadError};

impl OpenError {
    /// The word by which the faces tell it: a row of their tables.
    pub fn word(&self) -> &'static str {
        match self {
            OpenError::BadOption { .. } => "BAD_ARGUMENT",
            OpenError::Held { .. } => "HELD",
            OpenError::Newer { .. } => "NEWER",
            OpenError::NotAStore { .. } | OpenError::ControlLost { .. } => "NOT_A_STORE",
            OpenError::Io { .. } => "IO",
        }
    }
}

impl CommitError {
    /// The word by which the faces tell it: a row of their tables.
    pub fn word(&self) -> &'static str {
        match self {
            CommitError::NoTicket { .. } | CommitError::OtherStore | CommitError::BadPurge => "BAD_ARGUMENT",
            CommitError::BadName { .. } => "BAD_NAME",
            CommitError::EmptyEntry => "EMPTY_ENTRY",
            CommitError::TooLarge { .. } | CommitError::TooManyLogs { .. } => "TOO_LARGE",
            CommitError::NoLog { .. } => "NO_LOG",
            CommitError::Deleted | CommitError::ParentDeleted => "DELETED",
            CommitError::LogClosed => "LOG_CLOSED",
            CommitError::Closed => "CLOSED",
            CommitError::Pending { .. } => "PENDING",
            // Another commit came first: the caller looks at the log again and decides anew.
            CommitError::Conflict { .. }
            | CommitError::Exists
            | CommitError::PastEnd { .. }
            | CommitError::Purged { .. } => "CONFLICT",
            CommitError::Full(_) => "FULL",
            CommitError::Io(_) => "IO",
            CommitError::Failed(_) => "FAILED",
            CommitError::Damaged(_) => "DAMAGED",
        }
    }
}

impl ReadError {
    /// The word by which the faces tell it: a row of their tables.
    pub fn word(&self) -> &'static str {
        match self {
            ReadError::OtherStore => "BAD_ARGUMENT",
            ReadError::Deleted => "DELETED",
            // As of commits: the system refused nothing, and a caller that asks for what there is by now is
            // answered.
            ReadError::Purged { .. } | ReadError::PastEnd { .. } => "CONFLICT",
            ReadError::Io { .. } => "IO",
            ReadError::Damaged(_) => "DAMAGED",
        }
    }
}

impl BackupError {
    /// The word by which the faces tell it: a row of their tables.
    pub fn word(&self) -> &'static str {
        match self {
            BackupError::Occupied { .. } => "OCCUPIED",
            BackupError::NotClosed { .. } => "NOT_CLOSED",
            BackupError::Memory => "IN_MEMORY",
            BackupError::Source(error) => error.word(),
            BackupError::Gone { .. } | BackupError::Io { .. } => "IO",
            BackupError::Damaged(_) => "DAMAGED",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Every word of the table: the texts in capitals in front of these tests.
    fn words() -> BTreeSet<&'static str> {
        let table = include_str!("words.rs").split("#[cfg(test)]").next().unwrap();
        let is_word =
            |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        table.split('"').filter(is_word).collect()
    }

    #[test]
    fn every_word_is_in_the_tables_of_the_faces() {
        let faces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../faces");
        let read = |name: &str| std::fs::read_to_string(faces.join(name)).unwrap();
        let (table, manual) = (read("node/lib/error.js"), read("node/README.md"));
        let classes = read("python/python/thalweg/errors.py");
        assert!(words().len() > 15);
        for word in words() {
            assert!(table.contains(&format!("  {word}: \"")), "{word} is not in faces/node/lib/error.js");
            assert!(manual.contains(&format!("`{word}`")), "{word} is not in faces/node/README.md");
            // There it is a `ValueError`.
            let has_class = word == "BAD_ARGUMENT" || classes.contains(&format!("    code = \"{word}\"\n"));
            assert!(has_class, "{word} is not in faces/python/python/thalweg/errors.py");
        }
    }

    #[test]
    fn what_came_first_is_told_alike_by_who_reads_and_who_commits() {
        let (from, tail, at, first) = (3, 2, 3, 4);
        let read = [ReadError::PastEnd { from, tail }.word(), ReadError::Purged { from, first }.word()];
        let commit = [CommitError::PastEnd { at, tail }.word(), CommitError::Purged { at, first }.word()];
        assert_eq!((read, commit), (["CONFLICT"; 2], ["CONFLICT"; 2]));
    }
}
