//! Why the service refuses a call, and the code that each refusal begins with.

use super::calls::MAIN;
use crate::error::Error;
use crate::refusal_code::RefusalCode;
use crate::state::ForkId;
use std::sync::Arc;
use thalweg_log::CommitError;
use thiserror::Error as ThisError;

/// A refusal. Unless its code is `unknown`, nothing was changed.
#[derive(Debug, ThisError)]
pub(super) enum Refusal {
    /// An error of the state.
    #[error("{0}")]
    State(#[from] Error),
    /// The state cannot be opened.
    #[error("{0}")]
    Closed(Arc<Error>),
    #[error(
        "{0:?} names neither a fork nor a session: give main, a fork's number, or the token that Open answered"
    )]
    Place(String),
    #[error("{0:?} is a session, and this is asked of a fork")]
    NoForkHere(String),
    #[error("{0:?} names no session: give the token that Open answered")]
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
    #[error("whether the commit lasts is not known: read before it is made again")]
    Unknown,
}

impl Refusal {
    /// The reason, for people. It names the main line as callers do.
    pub(super) fn reason(&self, main: Option<ForkId>) -> String {
        let reason = self.to_string();
        match (self, main) {
            (Self::State(error), Some(main)) if error.is_about(main) => {
                reason.replacen(&format!("fork {main}"), MAIN, 1)
            }
            _ => reason,
        }
    }

    /// By what a program tells refusals apart; part of the interface.
    pub(super) fn code(&self) -> RefusalCode {
        match self {
            Self::State(error) => error.code(),
            Self::Closed(error) => error.code(),
            Self::Place(_) | Self::NoForkHere(_) | Self::NoSessionHere(_) => RefusalCode::BadPlace,
            Self::SessionLost => RefusalCode::SessionLost,
            Self::SessionExpired => RefusalCode::SessionExpired,
            Self::SessionsFull { .. } => RefusalCode::SessionsFull,
            Self::Lease { .. } => RefusalCode::BadLease,
            Self::View => RefusalCode::BadView,
            Self::Root(_) => RefusalCode::RootMismatch,
            Self::Unknown => RefusalCode::Unknown,
        }
    }
}

impl Error {
    /// Whether its text has this fork's number.
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

    /// The code by which a client is told of this error.
    pub fn code(&self) -> RefusalCode {
        match self {
            Self::NoFork(_) => RefusalCode::NoFork,
            Self::MainLine => RefusalCode::MainLine,
            Self::TooManyForks { .. } => RefusalCode::TooManyForks,
            Self::NoSnapshot => RefusalCode::NoSnapshot,
            Self::Conflict { .. } => RefusalCode::Conflict,
            Self::Key { .. } => RefusalCode::BadKey,
            Self::NoState { .. } => RefusalCode::NoState,
            Self::TooMuch { .. } => RefusalCode::TooMuch,
            Self::NoRoom { .. } => RefusalCode::SessionsFull,
            Self::Foreign { .. } | Self::ForeignLog { .. } => RefusalCode::Foreign,
            Self::Root { .. } => RefusalCode::RootMismatch,
            Self::Commit(CommitError::Failed(_)) => RefusalCode::Unknown,
            Self::Commit(_) | Self::Crowded => RefusalCode::NotTaken,
            Self::Read(_) | Self::Unreadable { .. } => RefusalCode::Unreadable,
        }
    }
}
