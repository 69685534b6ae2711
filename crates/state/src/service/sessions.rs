//! The sessions that are open, by their tokens.
//!
//! A token is 32 hexadecimal digits: the server's incarnation, then a name that nobody guesses. A session belongs to
//! whoever has its token, on any connection, and ends when it is closed or when nobody used it for as long as its lease
//! says: so a client that dies leaves something behind for that long, and nothing afterwards, and one whose connection
//! breaks goes on where it was. One that a former server began is told apart from one that ended.
//!
//! *Bound*: as many sessions as are allowed, each with two states at most.

use super::refusal::Refusal;
use crate::session::Session;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a lease lasts unless something else is asked for.
const LEASE_MS: u32 = 30_000;
/// The longest lease.
const LEASE_MS_MAX: u32 = 3_600_000;
/// Between two looks for leases that ended.
const SWEEP: Duration = Duration::from_secs(1);
const DIGITS: usize = 32;

/// Names a session of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Token {
    incarnation: u64,
    pub(super) name: u64,
}

impl Token {
    /// Reads one; `None` for what can be none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() != DIGITS || !text.is_ascii() {
            return None;
        }
        let (incarnation, name) = text.split_at(DIGITS / 2);
        Some(Self { incarnation: digits(incarnation)?, name: digits(name)? })
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:016x}{:016x}", self.incarnation, self.name)
    }
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(value))
    })
}

/// A session that is open. Whoever has its turn locks it, so nobody ever waits for the lock.
pub(super) type Live = Arc<Mutex<Session>>;

struct Leased {
    live: Live,
    lease: Duration,
    until: Instant,
}

pub(super) struct Sessions {
    incarnation: u64,
    names: RandomState,
    limit: usize,
    table: Mutex<Table>,
}

struct Table {
    leased: HashMap<u64, Leased>,
    begun: u64,
    swept: Instant,
}

impl Sessions {
    pub(super) fn new(limit: usize) -> Self {
        let table = Table { leased: HashMap::new(), begun: 0, swept: Instant::now() };
        // Keyed by the system's randomness, anew for each.
        let incarnation = RandomState::new().hash_one(std::process::id());
        Self { incarnation, names: RandomState::new(), limit, table: Mutex::new(table) }
    }

    /// Takes a session in; its token, and how many milliseconds its lease lasts.
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
        let live = Arc::new(Mutex::new(session));
        table.leased.insert(name, Leased { live, lease, until: now + lease });
        drop(table);
        drop(ended);
        Ok((Token { incarnation: self.incarnation, name }, lease_ms))
    }

    /// A session, and how long its lease lasts, which begins anew.
    pub(super) fn find(&self, token: Token) -> Result<(Live, Duration), Refusal> {
        if token.incarnation != self.incarnation {
            return Err(Refusal::SessionLost);
        }
        let now = Instant::now();
        let mut table = self.table.lock();
        let leased = table.leased.get_mut(&token.name).ok_or(Refusal::SessionExpired)?;
        if leased.until < now {
            let ended = table.leased.remove(&token.name);
            drop(table);
            drop(ended);
            return Err(Refusal::SessionExpired);
        }
        leased.until = now + leased.lease;
        let found = (leased.live.clone(), leased.lease);
        let ended = if now > table.swept + SWEEP { table.sweep(now) } else { Vec::new() };
        drop(table);
        drop(ended);
        Ok(found)
    }

    /// Ends a session.
    pub(super) fn close(&self, token: Token) {
        let ended = self.table.lock().leased.remove(&token.name);
        drop(ended);
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
    /// Takes out what is over, to be let go of without the lock.
    fn sweep(&mut self, now: Instant) -> Vec<Leased> {
        self.swept = now;
        self.leased.extract_if(|_, leased| leased.until < now).map(|(_, leased)| leased).collect()
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
