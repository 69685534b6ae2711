//! What can go wrong, said so that the caller knows what was and was not applied.

use crate::segment::file_name;
use crate::{LogId, Position, place_of, position, segment_of};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// A span of a store that does not read back as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// File name within the store's directory.
    pub file: String,
    /// First damaged byte, as a position.
    pub from: Position,
    /// Where the chain resumes, behind `from`; `None` where it does not.
    pub resumes: Option<Position>,
    /// The logs that lost something in the span.
    pub logs: Touched,
}

/// Which logs a damaged span touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touched {
    /// No log: nothing that a log needs is lost.
    Nobody,
    /// These, as intact headers or the logs' own extents say.
    These(Vec<LogId>),
    /// Unknown: the headers in the span are lost, too.
    Unknown,
}

impl Touched {
    /// These logs, or nobody.
    pub(crate) fn these(logs: Vec<LogId>) -> Touched {
        if logs.is_empty() { Touched::Nobody } else { Touched::These(logs) }
    }

    /// The logs, none of them for [`Touched::Nobody`]; `None` where they are unknown.
    pub fn known(&self) -> Option<&[LogId]> {
        match self {
            Touched::Nobody => Some(&[]),
            Touched::These(logs) => Some(logs),
            Touched::Unknown => None,
        }
    }
}

impl Damage {
    /// From a position of a file on; nothing resumes, and whom it touches is unknown.
    pub(crate) fn at(file: impl Into<String>, from: Position) -> Damage {
        Damage { file: file.into(), from, resumes: None, logs: Touched::Unknown }
    }

    /// Segments side by side that are missing.
    pub(crate) fn segments(numbers: &Range<u32>) -> Damage {
        let (from, to) = (position(numbers.start, 0), position(numbers.end, 0));
        Damage::at(file_name(numbers.start), from).up_to(to)
    }

    /// What logs lost in a segment that can no longer be named; `from` is the position by which the loss was
    /// known.
    pub(crate) fn of_logs(from: Position, logs: Vec<LogId>) -> Damage {
        Damage::at("an earlier segment", from).touching(Touched::these(logs))
    }

    /// The same span, resuming at a position. One that does not lie behind its beginning is none.
    pub(crate) fn up_to(self, resumes: Position) -> Damage {
        Damage { resumes: Some(resumes).filter(|to| *to > self.from), ..self }
    }

    /// The same span, of which it is known whom it touches.
    pub(crate) fn touching(self, logs: Touched) -> Damage {
        Damage { logs, ..self }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = segment_of(self.from);
        if place_of(self.from) == 0 && self.file == file_name(first) {
            // Of a segment of which not even the header is there no more is known.
            write!(out, "{} is missing, or has lost its header", self.file)?;
            let behind = self.resumes.map_or(first, segment_of);
            let others = behind.saturating_sub(first).saturating_sub(1);
            if others > 0 {
                write!(out, ", as have the {others} behind it")?;
            }
        } else if let Some(resumes) = self.resumes {
            let (from, to, behind) = (place_of(self.from), place_of(resumes), segment_of(resumes));
            write!(out, "{} is damaged from byte {from} to byte {to} of segment {behind}", self.file)?;
        } else {
            write!(out, "{} is damaged from byte {} to its end", self.file, place_of(self.from))?;
        }
        match self.logs.known() {
            Some([]) => write!(out, ", touching no log"),
            Some([_]) => write!(out, ", touching 1 log"),
            Some(logs) => write!(out, ", touching {} logs", logs.len()),
            None => write!(out, ", touching logs that can no longer be named"),
        }
    }
}

/// Why a store does not open. Nothing was changed unless the variant says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// An option has a value that it cannot have.
    #[error("{option} is {value}; it must be {must}")]
    BadOption {
        /// Its name.
        option: &'static str,
        /// What was given.
        value: u64,
        /// What it may be.
        must: String,
    },
    /// Somebody has it open: another process, or this one, where the store itself, a clone, or any of its
    /// readers and cursors is still there, closed or not.
    #[error(
        "{directory} is held by {holder}; stop that process, or drop what it has of the store, or choose another directory"
    )]
    Held {
        /// The store's directory.
        directory: PathBuf,
        /// What the holder wrote about itself.
        holder: String,
    },
    /// A newer program wrote it.
    #[error("{file} has format version {found}, this program reads up to {known}; use a newer program")]
    Newer {
        /// The file that says so.
        file: PathBuf,
        /// Its version.
        found: u64,
        /// The newest version known here.
        known: u64,
    },
    /// The directory holds something else, or a control file that is beyond reading.
    #[error("{file} is not part of a store: {why}")]
    NotAStore {
        /// The file at fault.
        file: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There are segments, and no control file.
    #[error(
        "{directory} is a damaged store: there are segments, and no control file; put `control` back, or restore a backup"
    )]
    ControlLost {
        /// The store's directory.
        directory: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot {action} {file}: {source}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On which file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a commit was not taken. In every case nothing of it was applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The log's version is not the expected one: read its state and decide again.
    #[error("the log is at version {found}, not {expected}")]
    Conflict {
        /// The version the caller had read.
        expected: u32,
        /// The version now.
        found: u32,
    },
    /// The name is taken.
    #[error("a log of that name exists")]
    Exists,
    /// There is no log of that name.
    #[error("there is no log {name:?}")]
    NoLog {
        /// The name.
        name: String,
    },
    /// The log is another store's, or of an earlier opening of this one, or of an attachment to it.
    #[error("the log is not of this opening of this store: look it up there")]
    OtherStore,
    /// The log is deleted.
    #[error("the log is deleted")]
    Deleted,
    /// The log lies in a damaged span and takes nothing more.
    #[error("{0}")]
    Damaged(Box<Damage>),
    /// The log to be forked is deleted.
    #[error("the log to be forked is deleted")]
    ParentDeleted,
    /// The log to be forked ends before the place to fork it at.
    #[error("offset {at} lies past the end at {tail} of the log to be forked")]
    PastEnd {
        /// Offset asked for.
        at: u64,
        /// Staged end.
        tail: u64,
    },
    /// What was asked for was purged.
    #[error("offset {at} was purged: the log begins at {first}")]
    Purged {
        /// Offset asked for.
        at: u64,
        /// The first one there is.
        first: u64,
    },
    /// A purge that is to destroy logs and to keep what is younger than a time.
    #[error("a purge destroys logs, or lets go of what is before a time: not both")]
    BadPurge,
    /// Transactions are under way that are going to append to the log.
    #[error("{}", under_way(*.count))]
    Pending {
        /// How many.
        count: u32,
    },
    /// More than one commit may hold, or a media type, or the key of a note.
    #[error("the commit needs {size} bytes where at most {limit} are possible")]
    TooLarge {
        /// Bytes it needs with headers, or a part of it does.
        size: u64,
        /// Bytes that may have.
        limit: u64,
    },
    /// A commit to more logs than one may have.
    #[error("the commit is to {logs} logs, one commit holds at most {limit}")]
    TooManyLogs {
        /// Logs it is to.
        logs: usize,
        /// Logs one commit may be to.
        limit: usize,
    },
    /// No room for another segment. Reads go on, and so do commits once there is room.
    #[error("the disk is full: {0}")]
    Full(String),
    /// The operating system refused another segment for another reason (out of descriptors, the directory is
    /// gone, …), or to read what the commit depends on. Reads go on, and so do commits once it refuses no
    /// more.
    #[error("the system refused what the commit takes: {0}")]
    Io(String),
    /// A sync failed, or a write that one was to cover: what was not acknowledged by then may or may not
    /// last, and nothing more is.
    #[error("the store stopped after a failed write or sync: {0}; reopen it to go on")]
    Failed(String),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The log was closed: it takes no more entries.
    #[error("the log is closed and takes no more entries")]
    LogClosed,
    /// An entry without a byte has no offset of its own.
    #[error("an entry holds at least one byte")]
    EmptyEntry,
    /// No commit of this store has that ticket.
    #[error("no commit has the ticket {ticket}: the last one's is {last}")]
    NoTicket {
        /// What was to be waited for.
        ticket: Position,
        /// End of the last commit.
        last: Position,
    },
    /// No log can have that name.
    #[error("{name:?} cannot be the name of a log: {why}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

fn under_way(count: u32) -> String {
    match count {
        1 => "1 transaction on the log is under way; commit or abort it first".to_owned(),
        _ => format!("{count} transactions on the log are under way; commit or abort them first"),
    }
}

/// Of a name no more than says which one it is.
const LISTING_BYTES_MAX: usize = 80;

/// A name as a message says it, by its beginning where it is long.
pub(crate) fn said(name: &[u8]) -> String {
    match name.get(..LISTING_BYTES_MAX) {
        Some(beginning) if name.len() > LISTING_BYTES_MAX => {
            format!("{}…", String::from_utf8_lossy(beginning))
        }
        _ => String::from_utf8_lossy(name).into_owned(),
    }
}

/// Whether the disk, or what of it is ours, has no room left.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Of a commit that depends on what was to be read.
impl From<ReadError> for CommitError {
    fn from(error: ReadError) -> CommitError {
        match error {
            ReadError::Damaged(damage) => CommitError::Damaged(damage),
            ReadError::Deleted => CommitError::Deleted,
            ReadError::OtherStore => CommitError::OtherStore,
            ReadError::PastEnd { from: at, tail } => CommitError::PastEnd { at, tail },
            ReadError::Purged { from: at, first } => CommitError::Purged { at, first },
            error @ ReadError::Io { .. } => CommitError::Io(error.to_string()),
        }
    }
}

/// More bytes than their length can say: what is read back would not be what was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    pub(crate) size: u64,
    pub(crate) limit: u64,
}

impl From<TooLong> for CommitError {
    fn from(TooLong { size, limit }: TooLong) -> CommitError {
        CommitError::TooLarge { size, limit }
    }
}

impl From<TooLong> for io::Error {
    fn from(TooLong { size, limit }: TooLong) -> io::Error {
        io::Error::other(format!("{size} bytes of a name, a media type or a note: at most {limit}"))
    }
}

impl CommitError {
    /// No segment could be made.
    pub(crate) fn no_segment(error: &io::Error) -> CommitError {
        match error.kind() {
            _ if is_full(error) => CommitError::Full(error.to_string()),
            io::ErrorKind::FileTooLarge | io::ErrorKind::OutOfMemory => CommitError::Full(error.to_string()),
            _ => CommitError::Io(error.to_string()),
        }
    }

    pub(crate) fn damaged(damage: &Damage) -> CommitError {
        CommitError::Damaged(Box::new(damage.clone()))
    }

    pub(crate) fn no_log(name: &[u8]) -> CommitError {
        CommitError::NoLog { name: said(name) }
    }
}

/// Why bytes cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The log is another store's, or of an earlier opening of this one, or of another attachment to it.
    #[error("the log is not of this opening of this store: look it up there")]
    OtherStore,
    /// The log is deleted, or its creation is not durable yet.
    #[error("the log is deleted")]
    Deleted,
    /// The offset lies past the visible end.
    #[error("offset {from} lies past the end at {tail}")]
    PastEnd {
        /// Offset asked for.
        from: u64,
        /// Visible end.
        tail: u64,
    },
    /// The offset was purged.
    #[error("offset {from} was purged: the log begins at {first}")]
    Purged {
        /// Offset asked for.
        from: u64,
        /// The first one there is.
        first: u64,
    },
    /// The bytes do not match their checksum.
    #[error("{0}")]
    Damaged(Box<Damage>),
    /// The operating system refused.
    #[error("cannot read {file}: {why}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        why: String,
    },
}

impl ReadError {
    pub(crate) fn damaged(damage: &Damage) -> ReadError {
        ReadError::Damaged(Box::new(damage.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_as_what_is_known_of_it() {
        let told = |file: String, from, to, logs: Option<Vec<LogId>>| {
            let logs = logs.map_or(Touched::Unknown, Touched::these);
            Damage::at(file, from).up_to(to).touching(logs).to_string()
        };
        let (at, nobody) = (crate::position, "touching logs that can no longer be named");
        let third = file_name(3);
        assert_eq!(
            told(third.clone(), at(3, 64), at(4, 128), Some(vec![7])),
            "segment-0000000003 is damaged from byte 64 to byte 128 of segment 4, touching 1 log"
        );
        for (logs, touched) in [(vec![], "no log"), (vec![7, 9], "2 logs")] {
            let damage = told(third.clone(), at(3, 64), at(4, 128), Some(logs));
            assert!(damage.ends_with(&format!(", touching {touched}")), "{damage}");
        }
        assert_eq!(
            told(third.clone(), at(3, 64), at(3, 64), None),
            format!("segment-0000000003 is damaged from byte 64 to its end, {nobody}")
        );
        for (to, others) in [(at(3, 0), ""), (at(4, 0), ""), (at(9, 0), ", as have the 5 behind it")] {
            let words = format!("segment-0000000003 is missing, or has lost its header{others}, {nobody}");
            assert_eq!(told(third.clone(), at(3, 0), to, None), words);
        }
        let control = format!("control is damaged from byte 0 to its end, {nobody}");
        assert_eq!(told("control".to_owned(), 0, 0, None), control);
    }

    #[test]
    fn as_many_transactions_are_told_of_as_are_under_way() {
        let told = |count| CommitError::Pending { count }.to_string();
        assert_eq!(told(1), "1 transaction on the log is under way; commit or abort it first");
        assert_eq!(told(2), "2 transactions on the log are under way; commit or abort them first");
    }

    #[test]
    fn what_cannot_be_read_does_not_pass_for_a_store_that_stopped() {
        let error = ReadError::Io { file: "segment-0000000001".into(), why: "no descriptor is left".into() };
        assert_eq!(CommitError::from(error.clone()), CommitError::Io(error.to_string()));
        let purged = ReadError::Purged { from: 1, first: 2 };
        assert_eq!(CommitError::from(purged), CommitError::Purged { at: 1, first: 2 });
    }
}
