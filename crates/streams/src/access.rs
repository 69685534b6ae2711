//! Finding a stream. Whoever finds one whose time is over deletes it and treats it as missing.

use crate::ATTEMPTS_MAX;
use crate::Streams;
use crate::expiry::is_expired;
use crate::store::{Config, Lifetime, State, Store, StoreError};
use thalweg_wire::exchange::Now;
use thalweg_wire::token::Token;

/// A stream and the view of it that was asked for.
pub(crate) struct Found<S: Store> {
    pub(crate) stream: S::Stream,
    pub(crate) state: State,
    pub(crate) config: Config,
    pub(crate) incarnation: u64,
}

impl<S: Store> Found<S> {
    /// The token of an offset in this stream.
    pub(crate) fn token(&self, offset: u64) -> Token {
        Token { incarnation: self.incarnation, offset }
    }

    /// The token of the stream's end in this view.
    pub(crate) fn tail(&self) -> Token {
        self.token(self.state.tail)
    }
}

/// There is no such stream; true once `ticket` is complete (0 = now).
pub(crate) struct Missing {
    pub(crate) ticket: u64,
}

impl<S: Store> Streams<S> {
    /// The stream as the next writer has to judge it.
    pub(crate) fn find_staged(&self, name: &str, now: Now) -> Result<Found<S>, Missing> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(stream) = self.store.find(name.as_bytes()) else { return Err(Missing { ticket: 0 }) };
            let Some(state) = self.store.staged(&stream) else {
                return Err(Missing { ticket: self.store.ticket(&stream) });
            };
            let config = self.store.config(&stream);
            if !is_expired(config.lifetime, self.store.accessed(&stream), now.time_us) {
                return Ok(self.found(stream, state, config));
            }
            if let Some(missing) = self.expire(&stream, now) {
                return Err(missing);
            }
        }
        Err(Missing { ticket: 0 })
    }

    /// The stream as readers see it.
    pub(crate) fn find_visible(&self, name: &str, now: Now) -> Result<Found<S>, Missing> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(stream) = self.store.find(name.as_bytes()) else { return Err(Missing { ticket: 0 }) };
            let Some(state) = self.store.visible(&stream) else {
                return Err(Missing { ticket: self.store.ticket(&stream) });
            };
            let config = self.store.config(&stream);
            if !is_expired(config.lifetime, self.store.accessed(&stream), now.time_us) {
                return Ok(self.found(stream, state, config));
            }
            if let Some(missing) = self.expire(&stream, now) {
                return Err(missing);
            }
        }
        Err(Missing { ticket: 0 })
    }

    /// Deletes a stream whose time is over; `None` if it moved meanwhile and has to be looked at again.
    pub(crate) fn expire(&self, stream: &S::Stream, now: Now) -> Option<Missing> {
        let Some(state) = self.store.staged(stream) else {
            return Some(Missing { ticket: self.store.ticket(stream) });
        };
        match self.store.delete(stream, state.version, now.time_us) {
            Ok(receipt) => Some(Missing { ticket: receipt.ticket.max(self.store.ticket(stream)) }),
            Err(StoreError::Conflict | StoreError::Gone) => None,
            // A store that takes no writes still keeps the rule; the delete comes with a later access.
            Err(_) => Some(Missing { ticket: 0 }),
        }
    }

    /// Counts a read or a write. PROTOCOL 5.1: each resets the countdown of a sliding lifetime.
    pub(crate) fn renew(&self, stream: &S::Stream, lifetime: Lifetime, now: Now) {
        if matches!(lifetime, Lifetime::Sliding { .. }) {
            self.store.touch(stream, now.time_us);
        }
    }

    pub(crate) fn found(&self, stream: S::Stream, state: State, config: Config) -> Found<S> {
        let incarnation = self.store.incarnation(&stream);
        Found { stream, state, config, incarnation }
    }
}
