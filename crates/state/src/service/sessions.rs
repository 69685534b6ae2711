//! The sessions that are open, by their tokens.
//!
//! A token is 32 hexadecimal digits: the server's incarnation, then a name that cannot be guessed. A client
//! that has the token may use the session on any connection. A session ends when it is closed, or when no
//! call used it for the length of its lease. So a client that dies leaves its session behind for one lease at
//! most, and a client whose connection breaks goes on where it was. A session of a former server is told
//! apart from one that ended.
//!
//! A call uses its session from when it comes until it is answered, in line for its turn and while its answer
//! waits for the disk: no lease ends meanwhile, and it begins anew then. Only `Close` ends a session before
//! calls that are in line for it, and they find that out in their turn.
//!
//! *Bound*: `sessions_max` sessions, each with at most two states.

use super::refusal::Refusal;
use crate::session::Session;
use crate::state::ForkId;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_wire::hex;

/// The default length of a lease.
const LEASE_MS: u32 = 30_000;
/// The longest lease.
const LEASE_MS_MAX: u32 = 3_600_000;
/// The interval at which ended leases are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// Names a session of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Token {
    incarnation: u64,
    pub(super) name: u64,
}

impl Token {
    /// Parses a token; `None` for a text that is not one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let token = u128::from_be_bytes(hex::parse(text)?);
        Some(Self { incarnation: (token >> 64) as u64, name: token as u64 })
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:016x}{:016x}", self.incarnation, self.name)
    }
}

/// A session in use by a call. Its lease does not end until this is dropped.
#[derive(Clone, Debug)]
pub(super) struct LiveSession {
    leased: Arc<Leased>,
}

#[derive(Debug)]
struct Leased {
    /// `None` once it was closed. Only the holder of the session's turn locks it, so the lock is never
    /// contended.
    session: Mutex<Option<Session>>,
    fork: ForkId,
    lease: Duration,
    until: Mutex<Instant>,
}

impl LiveSession {
    /// The session, if it was not closed. The caller holds its turn.
    pub(super) fn lock(&self) -> Result<MappedMutexGuard<'_, Session>, Refusal> {
        MutexGuard::try_map(self.leased.session.lock(), Option::as_mut).map_err(|_| Refusal::SessionExpired)
    }

    /// Its fork, which stays the same.
    pub(super) fn fork(&self) -> ForkId {
        self.leased.fork
    }

    /// How long its lease lasts.
    pub(super) fn lease(&self) -> Duration {
        self.leased.lease
    }
}

impl Drop for LiveSession {
    fn drop(&mut self) {
        *self.leased.until.lock() = Instant::now() + self.leased.lease;
    }
}

impl Leased {
    /// Whether no call uses it, and none did for the length of its lease. The caller holds the lock of the
    /// table, so no call can begin to.
    fn is_over(self: &Arc<Self>, now: Instant) -> bool {
        Arc::strong_count(self) == 1 && *self.until.lock() < now
    }
}

pub(super) struct Sessions {
    incarnation: u64,
    names: RandomState,
    limit: usize,
    table: Mutex<Table>,
}

struct Table {
    leased: HashMap<u64, Arc<Leased>>,
    begun: u64,
    swept: Instant,
}

impl Sessions {
    pub(super) fn new(limit: usize) -> Self {
        let table = Table { leased: HashMap::new(), begun: 0, swept: Instant::now() };
        // The library draws a random key from the system once a thread, and increments it for each hasher
        // made there: so the two have different keys, and to guess a token from known tokens is to predict
        // SipHash for an input that was not seen.
        let incarnation = RandomState::new().hash_one(std::process::id());
        Self { incarnation, names: RandomState::new(), limit, table: Mutex::new(table) }
    }

    /// Adds a session. Returns its token, and the length of its lease in milliseconds.
    pub(super) fn open(&self, session: Session, lease_ms: Option<u32>) -> Result<(Token, u32), Refusal> {
        let lease_ms = lease_ms.unwrap_or(LEASE_MS);
        if lease_ms == 0 || lease_ms > LEASE_MS_MAX {
            return Err(Refusal::Lease { asked: lease_ms, limit: LEASE_MS_MAX });
        }
        let (now, lease) = (Instant::now(), Duration::from_millis(lease_ms.into()));
        let mut table = self.table.lock();
        let ended = if table.leased.len() >= self.limit { table.sweep(now) } else { Vec::new() };
        if table.leased.len() >= self.limit {
            return Err(Refusal::SessionsFull { limit: self.limit });
        }
        let name = loop {
            table.begun += 1;
            let name = self.names.hash_one(table.begun);
            if !table.leased.contains_key(&name) {
                break name;
            }
        };
        let fork = session.fork();
        let (session, until) = (Mutex::new(Some(session)), Mutex::new(now + lease));
        table.leased.insert(name, Arc::new(Leased { session, fork, lease, until }));
        drop(table);
        drop(ended);
        Ok((Token { incarnation: self.incarnation, name }, lease_ms))
    }

    /// Finds a session, for a call.
    pub(super) fn find(&self, token: Token) -> Result<LiveSession, Refusal> {
        if token.incarnation != self.incarnation {
            return Err(Refusal::SessionLost);
        }
        let now = Instant::now();
        let mut table = self.table.lock();
        let leased = table.leased.get(&token.name).ok_or(Refusal::SessionExpired)?;
        if leased.is_over(now) {
            let ended = table.leased.remove(&token.name);
            drop(table);
            drop(ended);
            return Err(Refusal::SessionExpired);
        }
        let found = LiveSession { leased: leased.clone() };
        let ended = if now > table.swept + SWEEP { table.sweep(now) } else { Vec::new() };
        drop(table);
        drop(ended);
        Ok(found)
    }

    /// Ends a session. The caller holds its turn.
    pub(super) fn close(&self, token: Token, live: &LiveSession) -> Result<(), Refusal> {
        // If it was closed already, another session may have its name.
        drop(live.lock()?);
        let leased = self.table.lock().leased.remove(&token.name);
        let session = live.leased.session.lock().take();
        drop((leased, session));
        Ok(())
    }

    /// Ends every session whose lease is over.
    pub(super) fn sweep(&self) {
        let ended = self.table.lock().sweep(Instant::now());
        drop(ended);
    }

    /// How many are open.
    pub(super) fn count(&self) -> usize {
        self.table.lock().leased.len()
    }
}

impl Table {
    /// Removes sessions whose lease is over, for the caller to drop without the lock.
    fn sweep(&mut self, now: Instant) -> Vec<Arc<Leased>> {
        self.swept = now;
        self.leased.extract_if(|_, leased| leased.is_over(now)).map(|(_, leased)| leased).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_token_is_read_as_it_is_written(incarnation: u64, name: u64) {
            let token = Token { incarnation, name };
            prop_assert_eq!(Token::parse(&token.to_string()), Some(token));
        }

        #[test]
        fn any_text_is_a_token_or_none(text in "\\PC{0,40}") {
            if let Some(token) = Token::parse(&text) {
                prop_assert_eq!(token.to_string(), text);
            }
        }
    }
}
