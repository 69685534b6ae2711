//! Why the service does not do what it is asked, and the word that each refusal begins with.

use crate::error::Error;
use crate::state::ForkId;
use crate::word::Word;
use std::sync::Arc;
use thalweg_log::CommitError;
use thiserror::Error as ThisError;

/// A refusal. Unless its word is `unknown`, nothing was changed.
#[derive(Debug, ThisError)]
pub(super) enum Refusal {
    /// What the state says.
    #[error("{0}")]
    State(#[from] Error),
    /// The state cannot be opened.
    #[error("{0}")]
    Closed(Arc<Error>),
    #[error("{0:?} names neither a fork nor a session: main, a fork's number, or what Open answered")]
    Place(String),
    #[error("{0:?} is a session, and this is asked of a fork")]
    NoForkHere(String),
    #[error("{0:?} names no session: give what Open answered")]
    NoSessionHere(String),
    #[error("the session ended with the server that began it; what it had not committed is gone")]
    SessionLost,
    #[error("the session's lease ended, or it was closed; what it had not committed is gone")]
    SessionExpired,
    #[error("{limit} sessions are open, and there may be no more: close one, or let a lease end")]
    SessionsFull { limit: usize },
    #[error("a lease lasts from 1 to {limit} ms; this one would last {asked}")]
    Lease { asked: u32, limit: u32 },
    #[error("a session sees one state: a view is for forks")]
    View,
    #[error("the root is not {0}: something else is there than was expected")]
    Root(String),
    #[error("what became of the commit is not known: read before it is made again")]
    Unknown,
}

impl Refusal {
    /// Why, in words; the main line by the name that callers know it by.
    pub(super) fn words(&self, main: Option<ForkId>) -> String {
        let words = self.to_string();
        match (self, main) {
            (Self::State(error), Some(main)) if error.is_about(main) => {
                words.replacen(&format!("fork {main}"), "main", 1)
            }
            _ => words,
        }
    }

    /// What a program may go by; part of the interface.
    pub(super) fn word(&self) -> Word {
        match self {
            Self::State(error) => error.word(),
            Self::Closed(error) => error.word(),
            Self::Place(_) | Self::NoForkHere(_) | Self::NoSessionHere(_) => Word::BadPlace,
            Self::SessionLost => Word::SessionLost,
            Self::SessionExpired => Word::SessionExpired,
            Self::SessionsFull { .. } => Word::SessionsFull,
            Self::Lease { .. } => Word::BadLease,
            Self::View => Word::BadView,
            Self::Root(_) => Word::RootMismatch,
            Self::Unknown => Word::Unknown,
        }
    }
}

impl Error {
    /// Whether it says something of this fork, by its number.
    fn is_about(&self, wanted: ForkId) -> bool {
        match self {
            Self::Conflict { fork, .. }
            | Self::NoState { fork, .. }
            | Self::Foreign { fork, .. }
            | Self::Root { fork, .. }
            | Self::Unreadable { fork, .. } => *fork == wanted,
            _ => false,
        }
    }

    /// The word that stands for this error where only words travel.
    pub fn word(&self) -> Word {
        match self {
            Self::NoFork(_) => Word::NoFork,
            Self::MainLine => Word::MainLine,
            Self::TooManyForks { .. } => Word::TooManyForks,
            Self::NoSnapshot => Word::NoSnapshot,
            Self::Conflict { .. } => Word::Conflict,
            Self::Key { .. } => Word::BadKey,
            Self::NoState { .. } => Word::NoState,
            Self::TooMuch { .. } => Word::TooMuch,
            Self::NoRoom { .. } => Word::SessionsFull,
            Self::Foreign { .. } => Word::Foreign,
            Self::Root { .. } => Word::RootMismatch,
            Self::Commit(CommitError::Failed(_)) => Word::Unknown,
            Self::Commit(_) | Self::Crowded => Word::NotTaken,
            Self::Read(_) | Self::Unreadable { .. } => Word::Unreadable,
        }
    }
}
