//! The errors of a state.

use crate::state::ForkId;
use thalweg_log::{CommitError, Offset, ReadError};
use thiserror::Error as ThisError;

/// Why a call failed. Unless a variant says otherwise, nothing was changed.
#[derive(Debug, ThisError)]
pub enum Error {
    /// There is no such fork: it was dropped, or never made.
    #[error("there is no fork {0}: it was dropped, or never made")]
    NoFork(ForkId),
    /// The main line cannot be dropped.
    #[error("the main line cannot be dropped: destroy the store instead")]
    MainLine,
    /// The store has as many logs as it may have.
    #[error(
        "the store has {limit} streams, forks among them, and there may be no more: drop a fork, or delete a stream"
    )]
    TooManyForks {
        /// The most logs that the store may have.
        limit: u64,
    },
    /// A rollback without a snapshot.
    #[error("there is no snapshot to go back to")]
    NoSnapshot,
    /// Another writer committed since the snapshot.
    #[error(
        "fork {fork} ends at offset {tail}, and {base} was expected: roll back, or read it anew, and do it again"
    )]
    Conflict {
        /// The fork.
        fork: ForkId,
        /// Where its log ended at the snapshot, or should have ended.
        base: Offset,
        /// Where its log ends.
        tail: Offset,
    },
    /// A key that is empty or too long.
    #[error("a key is text of 1 to {limit} bytes; this one has {length}")]
    Key {
        /// Its length in bytes.
        length: usize,
        /// The longest that a key may be, in bytes.
        limit: usize,
    },
    /// An offset at which no commit of the fork ended.
    #[error("fork {fork} has no state at offset {offset}: no commit ended there, or its history was trimmed")]
    NoState {
        /// The fork.
        fork: ForkId,
        /// The offset asked for.
        offset: Offset,
    },
    /// The log has an entry that is not a change of a state.
    #[error("the entry at offset {offset} of fork {fork} is not a change of a state: {why}")]
    Foreign {
        /// The fork.
        fork: ForkId,
        /// Where the entry begins.
        offset: Offset,
        /// What is wrong with it.
        why: String,
    },
    /// A log of the state's names was created by somebody else.
    #[error(
        "the log {log} is not the state's: it holds {content_type}, or has a lifetime; delete it, or give the state another name"
    )]
    ForeignLog {
        /// The log's name.
        log: String,
        /// Its media type.
        content_type: String,
    },
    /// More than a session may hold beside its snapshot.
    #[error(
        "a session may hold {limit} bytes beside its snapshot, and these would make it {bytes}: commit earlier"
    )]
    TooMuch {
        /// Bytes that it would hold.
        bytes: usize,
        /// Bytes that it may hold.
        limit: usize,
    },
    /// More than all sessions together may hold beside their snapshots.
    #[error(
        "all sessions together may hold {limit} bytes beside their snapshots, and there is no room for {bytes} more: \
         commit or roll back, or let leases end"
    )]
    NoRoom {
        /// Bytes that were asked for.
        bytes: usize,
        /// Bytes that all sessions may hold.
        limit: usize,
    },
    /// An image does not have its recorded root.
    #[error("the image of fork {fork} at offset {offset} does not have the root it was written with")]
    Root {
        /// The fork.
        fork: ForkId,
        /// Where its log ended then.
        offset: Offset,
    },
    /// A fork's log is damaged, and no image replaces the damaged part.
    #[error("fork {fork} cannot be read, and can only be dropped: {why}")]
    Unreadable {
        /// The fork.
        fork: ForkId,
        /// What is wrong with it.
        why: String,
    },
    /// The store has as many watchers as it allows.
    #[error(
        "the store has as many watchers as it allows: close another state, or open this one over a store of its own"
    )]
    Crowded,
    /// The log did not take the commit; see there whether it may have been applied.
    #[error("the commit was not taken: {0}")]
    Commit(#[from] CommitError),
    /// The log cannot be read.
    #[error("the log cannot be read: {0}")]
    Read(#[from] ReadError),
}
