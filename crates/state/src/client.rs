//! A session from a client's side: the same over a Unix socket, shared memory or JSON-RPC, whatever carries
//! its calls.
//!
//! *Ownership*: a [`Session`] owns what carries its calls, and its token, by which it is found again over
//! another connection. Dropping it does not close it: the session ends with its lease then.

use crate::generated::client::StateClient;
use crate::generated::types::{
    Change, Entry, StateBatch, StateBatchResponse, StateClose, StateCommit, StateGet, StateOpen, StatePut,
    StateRejoin, StateRemove, StateRollback, StateRoot, StateScan, StateSnapshot,
};
use crate::refusal_code::RefusalCode;
use std::borrow::Cow;
use std::time::Duration;
use thalweg_wire::service::{Call, CallError};
use thiserror::Error as ThisError;

/// Why a session did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Error<E> {
    /// The state refused; but for [`RefusalCode::Unknown`] nothing was changed.
    #[error("{message}")]
    Refused {
        /// Why.
        code: RefusalCode,
        /// The code and the reason, for people.
        message: String,
    },
    /// There was no answer, or none of the state's.
    #[error("{0}")]
    Failed(CallError<E>),
}

impl<E> Error<E> {
    /// Why the state refused, if it is that.
    pub fn code(&self) -> Option<RefusalCode> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Failed(_) => None,
        }
    }
}

impl<E> From<CallError<E>> for Error<E> {
    fn from(error: CallError<E>) -> Self {
        match error {
            CallError::Refused(message) => match RefusalCode::of(&message) {
                Some(code) => Self::Refused { code, message },
                None => Self::Failed(CallError::Refused(message)),
            },
            other => Self::Failed(other),
        }
    }
}

/// What a session's methods answer.
pub type SessionResult<T, C> = Result<T, Error<<C as Call>::Error>>;

/// Writes that nobody else sees until they are committed, and that can be taken back, in a state that is
/// served.
///
/// ```no_run
/// use thalweg_service::{ClientOptions, SyncClient};
/// use thalweg_state::client::Session;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let call = SyncClient::connect(&"data/state.shm".parse()?, ClientOptions::default())?;
/// let mut session = Session::open(call, "main", None)?;
/// session.snapshot()?;
/// session.put("ann", b"10")?;
/// session.rollback()?;
/// assert_eq!(session.get("ann")?, None);
/// session.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Session<C> {
    state: StateClient<C>,
    token: String,
    fork: String,
    lease: Duration,
}

impl<C: Call> Session<C> {
    /// Begins a session on a fork, with a lease of `lease`, or of 30 seconds.
    ///
    /// # Errors
    /// [`RefusalCode::NoFork`], [`RefusalCode::SessionsFull`], [`RefusalCode::BadLease`]; there was no
    /// answer.
    pub fn open(call: C, fork: &str, lease: Option<Duration>) -> SessionResult<Self, C> {
        let mut state = StateClient::new(call);
        let lease_ms = lease.map(|lease| u32::try_from(lease.as_millis()).unwrap_or(u32::MAX));
        let opened = state.open(&StateOpen { fork: fork.into(), lease_ms })?;
        let (token, lease) = (opened.session.into_owned(), lease_of(opened.lease_ms));
        Ok(Self { state, token, fork: fork.to_owned(), lease })
    }

    /// Comes back to a session over another connection, and says whether a snapshot is pending. Its lease
    /// begins anew.
    ///
    /// # Errors
    /// [`RefusalCode::SessionLost`], [`RefusalCode::SessionExpired`]: what was not committed is gone. There
    /// was no answer.
    pub fn rejoin(call: C, token: &str) -> SessionResult<(Self, bool), C> {
        let mut state = StateClient::new(call);
        let joined = state.rejoin(&StateRejoin { session: token.into() })?;
        let (pending, lease) = (joined.pending, lease_of(joined.lease_ms));
        let fork = joined.fork.into_owned();
        Ok((Self { state, token: token.to_owned(), fork, lease }, pending))
    }

    /// Names the session on any connection. A client that has the token can use the session.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The fork it is on.
    pub fn fork(&self) -> &str {
        &self.fork
    }

    /// How long it stays when nobody uses it.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Holds the fork as it is: what is written from here on lies beside it. A snapshot that is pending is
    /// committed first, unless nothing was written since. Where the fork ends.
    ///
    /// # Errors
    /// Those of [`Session::commit`].
    pub fn snapshot(&mut self) -> SessionResult<u64, C> {
        Ok(self.state.snapshot(&StateSnapshot { session: (&*self.token).into() })?.offset)
    }

    /// Commits what was written since the snapshot, all or nothing. Where the fork ends with it; without a
    /// snapshot it does nothing, and says where the fork ended when this session last committed, wrote, took
    /// a snapshot or began.
    ///
    /// # Errors
    /// [`RefusalCode::Conflict`]: others committed meanwhile, roll back and do it again.
    /// [`RefusalCode::SessionLost`], [`RefusalCode::SessionExpired`]; what the log says; there was no answer:
    /// then ask again, it commits once.
    pub fn commit(&mut self) -> SessionResult<u64, C> {
        Ok(self.state.commit(&StateCommit { session: (&*self.token).into() })?.offset)
    }

    /// Forgets what was written since the snapshot, and the snapshot.
    ///
    /// # Errors
    /// [`RefusalCode::NoSnapshot`], [`RefusalCode::SessionLost`], [`RefusalCode::SessionExpired`]; there was
    /// no answer.
    pub fn rollback(&mut self) -> SessionResult<(), C> {
        self.state.rollback(&StateRollback { session: (&*self.token).into() })?;
        Ok(())
    }

    /// What a key holds, as this session sees it.
    ///
    /// # Errors
    /// The session has ended; there was no answer.
    pub fn get(&mut self, key: &str) -> SessionResult<Option<Cow<'_, [u8]>>, C> {
        let request = StateGet { place: (&*self.token).into(), key: key.into(), view: None };
        Ok(self.state.get(&request)?.value)
    }

    /// A key holds a value from here on.
    ///
    /// # Errors
    /// [`RefusalCode::BadKey`], [`RefusalCode::TooMuch`], [`RefusalCode::SessionsFull`]; the session has
    /// ended; there was no answer.
    pub fn put(&mut self, key: &str, value: &[u8]) -> SessionResult<(), C> {
        let request = StatePut { place: (&*self.token).into(), key: key.into(), value: value.into() };
        self.state.put(&request)?;
        Ok(())
    }

    /// A key holds nothing from here on.
    ///
    /// # Errors
    /// Those of [`Session::put`].
    pub fn remove(&mut self, key: &str) -> SessionResult<(), C> {
        self.state.remove(&StateRemove { place: (&*self.token).into(), key: key.into() })?;
        Ok(())
    }

    /// Makes many changes, all or none of them: a key holds a value from here on, or nothing.
    ///
    /// # Errors
    /// Those of [`Session::put`].
    pub fn write<'a>(
        &mut self,
        changes: impl IntoIterator<Item = (&'a str, Option<&'a [u8]>)>,
    ) -> SessionResult<(), C> {
        let change = |(key, value): (&'a str, Option<&'a [u8]>)| Change {
            key: key.into(),
            value: value.map(Cow::from),
        };
        let changes = changes.into_iter().map(change).collect();
        let request = StateBatch { place: (&*self.token).into(), changes, if_offset: None, if_root: None };
        let StateBatchResponse { .. } = self.state.batch(&request)?;
        Ok(())
    }

    /// Entries in the order of their keys, from one on, and where to go on if there is more.
    ///
    /// # Errors
    /// The session has ended; there was no answer.
    pub fn scan(
        &mut self,
        start: Option<&str>,
        limit: Option<u32>,
    ) -> SessionResult<(Vec<Entry<'_>>, Option<Cow<'_, str>>), C> {
        let place = (&*self.token).into();
        let request = StateScan { place, start: start.map(Cow::from), limit, view: None };
        let page = self.state.scan(&request)?;
        Ok((page.entries, page.next))
    }

    /// A digest of all that this session sees.
    ///
    /// # Errors
    /// The session has ended; there was no answer.
    pub fn root(&mut self) -> SessionResult<[u8; 32], C> {
        let request = StateRoot { place: (&*self.token).into(), view: None };
        Ok(self.state.root(&request)?.root)
    }

    /// Ends it, and forgets what it did not commit.
    ///
    /// # Errors
    /// The session has ended already; there was no answer.
    pub fn close(mut self) -> SessionResult<(), C> {
        self.state.close(&StateClose { session: (&*self.token).into() })?;
        Ok(())
    }
}

fn lease_of(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}
