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

/// What becomes of a session's processes when it is let go of, by a panic too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cleanup {
    /// They stay, and are the supervisor's: what was forked ends with it, or when it is shut down.
    Nothing,
    /// A snapshot that is pending is rolled back: what nobody committed is taken back, and one process is left.
    #[default]
    Rollback,
    /// They end.
    Shutdown,
}

/// A server, and the one it was forked from while a snapshot is pending: two processes at most.
///
/// A snapshot forks the server and goes on with the copy; [`Session::address`] says where. It is for one caller: others of the
/// same server see whichever process they are connected to. Let go of, it does what its [`Cleanup`] says, for as long as the
/// supervisor takes to answer; [`Session::close`] does so too and tells what went wrong. Of an owner that is killed nobody
/// hears: its processes stay.
///
/// ```no_run
/// use thalweg_fork::{Cleanup, Session};
/// use thalweg_service::{ClientOptions, SyncClient};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let call = SyncClient::connect(&"run/forks.sock".parse()?, ClientOptions::default())?;
/// let mut session = Session::new(call, "1", "127.0.0.1:40123").with_cleanup(Cleanup::Rollback);
/// session.snapshot()?;
/// println!("try it at {}", session.address());
/// session.close()?; // Nothing was committed: server 1 is as it was.
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Session<C: Call> {
    forks: ForksClient<C>,
    now: (String, String),
    before: Option<(String, String)>,
    cleanup: Cleanup,
}

impl<C: Call> Session<C> {
    /// On a server of a supervisor, which listens there.
    pub fn new(call: C, server: &str, address: &str) -> Self {
        let now = (server.to_owned(), address.to_owned());
        Self { forks: ForksClient::new(call), now, before: None, cleanup: Cleanup::default() }
    }

    /// With another fate for its processes than [`Cleanup::Rollback`].
    #[must_use]
    pub fn with_cleanup(mut self, cleanup: Cleanup) -> Self {
        self.cleanup = cleanup;
        self
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

    /// Does what its [`Cleanup`] says, and is let go of.
    ///
    /// # Errors
    /// The supervisor refused or did not answer: a process may be left.
    pub fn close(mut self) -> Result<(), SessionError<C::Error>> {
        self.clean_up()
    }

    fn clean_up(&mut self) -> Result<(), SessionError<C::Error>> {
        match std::mem::replace(&mut self.cleanup, Cleanup::Nothing) {
            Cleanup::Nothing => Ok(()),
            Cleanup::Rollback if self.before.is_none() => Ok(()),
            Cleanup::Rollback => self.rollback(),
            Cleanup::Shutdown => {
                let before = self.before.take().map(|(server, _)| end(&mut self.forks, &server));
                // The one that cannot be ended keeps nobody from ending the other.
                end(&mut self.forks, &self.now.0)?;
                Ok(before.unwrap_or(Ok(()))?)
            }
        }
    }
}

impl<C: Call> Drop for Session<C> {
    fn drop(&mut self) {
        // Whoever wants to know asks `close`.
        let _ = self.clean_up();
    }
}

/// Ends a server; one that has ended already is no error.
fn end<C: Call>(forks: &mut ForksClient<C>, server: &str) -> Result<(), CallError<C::Error>> {
    match forks.shutdown(&ForksShutdown { server: server.into() }) {
        Err(CallError::Refused(words)) if words.starts_with("no_server: ") => Ok(()),
        outcome => outcome.map(drop),
    }
}
