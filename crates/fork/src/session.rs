//! A session whose snapshot is a fork: what a server did since can be kept or taken back, whatever it is.

use crate::generated::client::ForksClient;
use crate::generated::types::{ForksFork, ForksShutdown};
use thalweg_wire::service::{Call, CallError};
use thiserror::Error;

/// Why a session did not do what was asked.
#[derive(Debug, Error)]
pub enum SessionError<E> {
    /// There is no snapshot to go back to.
    #[error("there is no snapshot to go back to")]
    NoSnapshot,
    /// The supervisor refused, or did not answer.
    #[error("{0}")]
    Failed(#[from] CallError<E>),
}

/// A server, and the one it was forked from while a snapshot is pending: two processes at most.
///
/// A snapshot forks the server and goes on with the copy; [`Session::address`] says where. It is for one caller: others of the
/// same server see whichever process they are connected to.
#[derive(Debug)]
pub struct Session<C> {
    forks: ForksClient<C>,
    now: (String, String),
    before: Option<(String, String)>,
}

impl<C: Call> Session<C> {
    /// On a server of a supervisor, which listens there.
    pub fn new(call: C, server: &str, address: &str) -> Self {
        Self { forks: ForksClient::new(call), now: (server.to_owned(), address.to_owned()), before: None }
    }

    /// The server that is called now.
    pub fn server(&self) -> &str {
        &self.now.0
    }

    /// Where it is called.
    pub fn address(&self) -> &str {
        &self.now.1
    }

    /// Forks the server and goes on with the copy. A snapshot that is pending is committed first.
    ///
    /// # Errors
    /// The supervisor refused or did not answer; then the server is as it was, and a pending snapshot is committed.
    pub fn snapshot(&mut self) -> Result<(), SessionError<C::Error>> {
        self.commit()?;
        let forked = self.forks.fork(&ForksFork { server: (&*self.now.0).into(), address: None })?;
        let copy = (forked.server.into_owned(), forked.address.into_owned());
        self.before = Some(std::mem::replace(&mut self.now, copy));
        Ok(())
    }

    /// Keeps what was done since the snapshot: ends the server it was taken of. Without one, nothing.
    ///
    /// # Errors
    /// The supervisor did not answer.
    pub fn commit(&mut self) -> Result<(), SessionError<C::Error>> {
        match &self.before {
            Some((server, _)) => end(&mut self.forks, server)?,
            None => return Ok(()),
        }
        self.before = None;
        Ok(())
    }

    /// Takes back what was done since the snapshot: ends the copy, and goes back.
    ///
    /// # Errors
    /// [`SessionError::NoSnapshot`]; the supervisor did not answer.
    pub fn rollback(&mut self) -> Result<(), SessionError<C::Error>> {
        if self.before.is_none() {
            return Err(SessionError::NoSnapshot);
        }
        end(&mut self.forks, &self.now.0)?;
        if let Some(before) = self.before.take() {
            self.now = before;
        }
        Ok(())
    }
}

/// Ends a server; one that has ended already is no error.
fn end<C: Call>(forks: &mut ForksClient<C>, server: &str) -> Result<(), CallError<C::Error>> {
    match forks.shutdown(&ForksShutdown { server: server.into() }) {
        Err(CallError::Refused(words)) if words.starts_with("no_server: ") => Ok(()),
        outcome => outcome.map(drop),
    }
}
