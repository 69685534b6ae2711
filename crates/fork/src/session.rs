//! A session whose snapshot is a fork: what a server did since can be kept or taken back, whatever it is.

use crate::generated::client::ForksClient;
use crate::generated::types::{ForksFork, ForksServers, ForksShutdown};
use thalweg_wire::service::{Call, CallError};
use thiserror::Error;

/// Why a session did not do what was asked.
#[derive(Debug, Error)]
pub enum SessionError<E> {
    /// There is no snapshot to go back to.
    #[error("there is no snapshot to go back to")]
    NoSnapshot,
    /// The server that would be left is not there any more; neither is ended then.
    #[error("server {0} is gone: the other of the two is all that is left, and was not ended")]
    Gone(String),
    /// The server that would be left was told to end, and it is not known what became of that; the other is
    /// not ended then.
    #[error(
        "server {0} was told to end and may do so yet, so the other of the two was not ended: repeat what was asked before"
    )]
    Ending(String),
    /// The supervisor refused, or did not answer.
    #[error("{0}")]
    Failed(#[from] CallError<E>),
}

/// What becomes of a session's processes when it is let go of, by a panic too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cleanup {
    /// They stay, and are the supervisor's: what was forked ends with it, or when it is shut down.
    Nothing,
    /// A snapshot that is pending is rolled back: what nobody committed is taken back, and one process is
    /// left.
    #[default]
    Rollback,
    /// They end.
    Shutdown,
}

/// A server, and the one it was forked from while a snapshot is pending: two processes at most.
///
/// A snapshot forks the server and goes on with the copy; [`Session::address`] says where. It is for one
/// caller: others of the same server see whichever process they are connected to. Dropping it does what its
/// [`Cleanup`] says, and blocks until the supervisor answers; [`Session::close`] does so too and returns the
/// error. The processes of an owner that is killed stay.
///
/// But for [`Cleanup::Shutdown`] neither process is ended unless the other is there and was not told to end:
/// a [`Session::commit`] or [`Session::rollback`] that was not answered can be repeated, and the one not be
/// followed by the other.
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
    /// Which of the two was told to end, and it is not known what became of that.
    ending: Option<String>,
    cleanup: Cleanup,
}

impl<C: Call> Session<C> {
    /// On a server of a supervisor, which listens there.
    pub fn new(call: C, server: &str, address: &str) -> Self {
        let now = (server.to_owned(), address.to_owned());
        Self { forks: ForksClient::new(call), now, before: None, ending: None, cleanup: Cleanup::default() }
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
    /// The supervisor refused or did not answer; then the server is as it was, and a pending snapshot is
    /// committed. A copy that nobody waits for any more ends, and so does one whose answer lies unread when
    /// this end is gone; one whose answer was read and is lost all the same stays among the supervisor's
    /// servers. What [`Session::commit`] says of that one.
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
    /// [`SessionError::Gone`], [`SessionError::Ending`] of the copy; the supervisor did not answer, and it is
    /// not known whether it is committed.
    pub fn commit(&mut self) -> Result<(), SessionError<C::Error>> {
        let Some((before, _)) = self.before.clone() else { return Ok(()) };
        self.leave_one(&before, &self.now.0.clone())?;
        self.before = None;
        Ok(())
    }

    /// Takes back what was done since the snapshot: ends the copy, and goes back.
    ///
    /// # Errors
    /// [`SessionError::NoSnapshot`]; [`SessionError::Gone`], [`SessionError::Ending`] of the server that the
    /// snapshot was taken of; the supervisor did not answer, and it is not known whether it is taken back.
    pub fn rollback(&mut self) -> Result<(), SessionError<C::Error>> {
        let Some(before) = self.before.clone() else { return Err(SessionError::NoSnapshot) };
        self.leave_one(&self.now.0.clone(), &before.0)?;
        (self.before, self.now) = (None, before);
        Ok(())
    }

    /// Ends one of the two, unless nothing might be left then.
    fn leave_one(&mut self, ended: &str, kept: &str) -> Result<(), SessionError<C::Error>> {
        if self.ending.as_deref() == Some(kept) {
            return Err(SessionError::Ending(kept.to_owned()));
        }
        let servers = self.forks.servers(&ForksServers {})?.servers;
        if servers.iter().all(|process| process.server != kept) {
            return Err(SessionError::Gone(kept.to_owned()));
        }
        let before = self.ending.replace(ended.to_owned());
        let outcome = end(&mut self.forks, ended);
        match &outcome {
            Ok(()) => self.ending = None,
            // It was not told to end now. What became of an earlier order may not be known yet.
            Err(error) if is_untold(error) => self.ending = before,
            Err(_) => {}
        }
        Ok(outcome?)
    }

    /// Does what its [`Cleanup`] says, and is let go of.
    ///
    /// # Errors
    /// What [`Session::rollback`] says but for [`SessionError::NoSnapshot`]; the supervisor refused or did
    /// not answer: a process may be left.
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
        // A caller that wants the error calls `close`.
        let _ = self.clean_up();
    }
}

/// Whether the supervisor refused an order without a word to the server.
fn is_untold<E>(error: &CallError<E>) -> bool {
    matches!(error, CallError::Refused(words) if words.starts_with("orders_full: "))
}

/// Ends a server; one that has ended already is no error.
fn end<C: Call>(forks: &mut ForksClient<C>, server: &str) -> Result<(), CallError<C::Error>> {
    match forks.shutdown(&ForksShutdown { server: server.into() }) {
        Err(CallError::Refused(words)) if words.starts_with("no_server: ") => Ok(()),
        outcome => outcome.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ERROR_TAG;
    use crate::generated::types::{ForksForkResponse, ForksServersResponse, ForksShutdownResponse, Process};
    use std::cell::RefCell;
    use std::convert::Infallible;
    use thalweg_wire::messagepack::response_frame;
    use thalweg_wire::service::error_frame;

    const FULL: &str = "orders_full: 64 orders wait";
    const LATE: &str = "not_gone: the process does not end";

    /// A supervisor of servers 1 and 2, which refuses an order to end if it has words for that.
    struct Scripted<'a>(&'a RefCell<Option<&'static str>>, Vec<u8>);

    impl Call for Scripted<'_> {
        type Error = Infallible;

        fn send(&mut self, request: &[u8]) -> Result<(), Infallible> {
            let asks = |tag: &str| request.windows(tag.len()).any(|part| part == tag.as_bytes());
            self.1.clear();
            let process = |server: &'static str| Process {
                server: server.into(),
                address: "".into(),
                process: 1,
                parent: None,
                emancipated: false,
            };
            if asks("ForksServers") {
                let servers = ["1", "2"].map(process).into();
                response_frame(&ForksServersResponse { servers }, &mut self.1);
            } else if asks("ForksFork") {
                let copy = ForksForkResponse { server: "2".into(), address: "".into(), process: 2 };
                response_frame(&copy, &mut self.1);
            } else if let Some(words) = *self.0.borrow() {
                self.1 = error_frame(ERROR_TAG, words);
            } else {
                response_frame(&ForksShutdownResponse {}, &mut self.1);
            }
            Ok(())
        }

        fn receive(&mut self) -> Result<&[u8], Infallible> {
            Ok(&self.1)
        }
    }

    #[test]
    fn a_commit_that_the_supervisor_never_passed_on_can_be_rolled_back() {
        let refusal = RefCell::new(None);
        let mut session = Session::new(Scripted(&refusal, Vec::new()), "1", "");
        session.snapshot().unwrap();
        refusal.replace(Some(FULL));
        session.commit().unwrap_err();
        refusal.take();
        session.rollback().unwrap();
        assert_eq!(session.server(), "1");
        // What was told once may still end, whatever is refused since.
        session.snapshot().unwrap();
        for words in [LATE, FULL] {
            refusal.replace(Some(words));
            session.commit().unwrap_err();
        }
        refusal.take();
        assert!(matches!(session.rollback(), Err(SessionError::Ending(server)) if server == "1"));
        session.commit().unwrap();
    }
}
