//! A state that is served, and its clients.

use crate::Failure;
use std::path::Path;
use thalweg_service::{ClientOptions, Endpoint, SyncClient};
use thalweg_state::SCHEMA_HASH;
use thalweg_state::generated::client::StateClient;
use thalweg_wire::service::CallError;

pub(crate) type Client = StateClient<SyncClient>;

/// What every client here asks for.
pub(crate) fn options(spin: bool) -> ClientOptions {
    ClientOptions { schema: SCHEMA_HASH, spin, ..ClientOptions::default() }
}

/// The endpoint at a path, by its ending.
pub(crate) fn endpoint(path: &Path) -> Result<Endpoint, Failure> {
    Ok(path.to_str().ok_or("a path that is no text")?.parse()?)
}

/// A client that waits for each answer.
pub(crate) fn connect(path: &Path) -> Result<Client, Failure> {
    Ok(StateClient::new(SyncClient::connect(&endpoint(path)?, options(true))?))
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Acknowledged,
    /// Somebody else was faster.
    Conflict,
    /// The server is gone.
    Unknown,
}

/// What an error says of a write.
///
/// # Errors
/// It says something that nobody should hear.
pub(crate) fn fate<E>(error: CallError<E>) -> Result<Fate, Failure> {
    match error {
        CallError::Transport(_) => Ok(Fate::Unknown),
        CallError::Refused(message) if message.starts_with("conflict: ") => Ok(Fate::Conflict),
        CallError::Refused(message) => Err(message.into()),
        CallError::Decode(error) => Err(error.into()),
    }
}
