//! Finding a stream. A verb that finds one whose time is over deletes it and treats it as missing.

use crate::ATTEMPTS_MAX;
use crate::Streams;
use crate::expiry::is_expired;
use crate::problem::Problem;
use crate::store::{Config, Lifetime, State, Store, StoreError};
use thalweg_wire::exchange::Now;
use thalweg_wire::token::Token;

/// A stream and the view of it that was asked for.
pub(crate) struct FoundStream<S: Store> {
    pub(crate) stream: S::Stream,
    pub(crate) state: State,
    pub(crate) config: Config,
    pub(crate) incarnation: u64,
}

impl<S: Store> FoundStream<S> {
    /// An offset as entity tags name it: by this stream, also where it was inherited.
    pub(crate) fn mark(&self, offset: u64) -> Token {
        Token { incarnation: self.incarnation, offset }
    }
}

/// There is no such stream.
pub(crate) struct Missing {
    /// The ticket after which that is durable (0 = now).
    pub(crate) settled: Result<u64, StoreError>,
    /// It was deleted and is kept for its forks.
    pub(crate) retained: bool,
    /// Its time is over and the store did not take the delete, so that its name is not free.
    pub(crate) undeleted: Option<StoreError>,
}

impl Missing {
    const NEVER_WAS: Self = Self { settled: Ok(0), retained: false, undeleted: None };

    /// What every verb but PUT answers.
    pub(crate) fn problem(&self) -> Problem {
        // PROTOCOL 4.2: a soft-deleted stream is 410.
        if self.retained { Problem::retained() } else { Problem::missing() }
    }
}

impl<S: Store> Streams<S> {
    /// The stream as the next writer has to judge it.
    pub(crate) fn find_staged(&self, name: &str, now: Now) -> Result<FoundStream<S>, Missing> {
        self.find_as(name, now, S::staged)
    }

    /// The stream as readers see it.
    pub(crate) fn find_visible(&self, name: &str, now: Now) -> Result<FoundStream<S>, Missing> {
        self.find_as(name, now, S::visible)
    }

    fn find_as(
        &self,
        name: &str,
        now: Now,
        look: impl Fn(&S, &S::Stream) -> Option<State>,
    ) -> Result<FoundStream<S>, Missing> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(stream) = self.store.find(name.as_bytes()) else { return Err(Missing::NEVER_WAS) };
            let Some(state) = look(&self.store, &stream) else { return Err(self.missing(&stream)) };
            let config = self.store.config(&stream);
            if !is_expired(config.lifetime, self.store.accessed(&stream), now.time_us) {
                return Ok(self.found(stream, state, config));
            }
            if let Some(missing) = self.expire(&stream, now) {
                return Err(missing);
            }
        }
        Err(Missing::NEVER_WAS)
    }

    /// What a stream is called that shows nothing.
    pub(crate) fn missing(&self, stream: &S::Stream) -> Missing {
        Missing { retained: self.store.retained(stream), settled: self.store.ticket(stream), undeleted: None }
    }

    /// The token of an offset in a stream. PROTOCOL 8: below its base a fork's are its source's.
    pub(crate) fn token(&self, found: &FoundStream<S>, offset: u64) -> Token {
        let own = offset > found.state.base;
        let incarnation = if own { found.incarnation } else { self.store.owner(&found.stream, offset) };
        Token { incarnation, offset }
    }

    /// The token of the stream's end in the view that was found.
    pub(crate) fn tail(&self, found: &FoundStream<S>) -> Token {
        self.token(found, found.state.tail)
    }

    /// Deletes a stream whose time is over; `None` if it moved meanwhile and has to be looked at again.
    pub(crate) fn expire(&self, stream: &S::Stream, now: Now) -> Option<Missing> {
        let Some(state) = self.store.staged(stream) else { return Some(self.missing(stream)) };
        // Judged behind its version: what was appended before that has renewed it, and what comes later is a
        // conflict.
        let lifetime = self.store.config(stream).lifetime;
        if !is_expired(lifetime, self.store.accessed(stream), now.time_us) {
            return None;
        }
        match self.store.delete(stream, state.version, now.time_us) {
            Ok(receipt) => {
                let missing = self.missing(stream);
                let settled = missing.settled.map(|ticket| ticket.max(receipt.ticket));
                Some(Missing { settled, ..missing })
            }
            Err(StoreError::Conflict | StoreError::Gone) => None,
            // A store that takes no writes still keeps the rule; the delete comes with a later access.
            Err(error) => Some(Missing { undeleted: Some(error), ..Missing::NEVER_WAS }),
        }
    }

    /// Counts a read or a write. PROTOCOL 5.1: each resets the countdown of a sliding lifetime.
    pub(crate) fn renew(&self, stream: &S::Stream, lifetime: Lifetime, now: Now) {
        if matches!(lifetime, Lifetime::Sliding { .. }) {
            self.store.touch(stream, now.time_us);
        }
    }

    pub(crate) fn found(&self, stream: S::Stream, state: State, config: Config) -> FoundStream<S> {
        let incarnation = self.store.incarnation(&stream);
        FoundStream { stream, state, config, incarnation }
    }
}
