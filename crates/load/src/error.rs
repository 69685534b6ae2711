//! The errors of a load: why nothing was measured.

use std::io;

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line asks for nothing that can be done.
    #[error("{0}")]
    Asked(String),
    /// No server is there.
    #[error("{url}: {error}")]
    Unreachable {
        /// Where it was looked for.
        url: String,
        /// What the system said.
        error: io::Error,
    },
    /// What is to be made is there already, and is something else.
    #[error("{0}; choose another --prefix, or delete it")]
    Conflict(String),
    /// The server did not do what has to be done before anything can be measured.
    #[error("while preparing: {0}")]
    Preparing(String),
    /// The server refuses what the load consists of, and would again.
    #[error("{what}: status {status}, which trying again does not change")]
    Refused {
        /// What was asked for, and of which stream.
        what: String,
        /// Of the answer.
        status: u16,
        /// It was the token, not the stream.
        by_token: bool,
    },
    /// The connections need more descriptors than may be open.
    #[error(
        "{connections} connections take more descriptors than the {limit} that may be open: ask for fewer, or raise the limit (ulimit -n)"
    )]
    Descriptors {
        /// How many were asked for.
        connections: u64,
        /// How many descriptors may be open.
        limit: u64,
    },
    /// The system refused something.
    #[error(transparent)]
    System(#[from] io::Error),
}
