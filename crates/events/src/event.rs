//! An event, and the number of its callback.

use crate::kind::Kind;
use std::fmt;
use thalweg_sync::counter::Counter;

static NUMBERS: Counter = Counter::new();

/// Names a callback, in this process and for good: no two ever have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallbackId(u64);

impl CallbackId {
    /// A number that was never given out before. Lock-free, from any thread.
    ///
    /// ```
    /// use thalweg_events::CallbackId;
    /// assert!(CallbackId::next() < CallbackId::next());
    /// ```
    #[inline]
    pub fn next() -> Self {
        Self(NUMBERS.next())
    }

    /// The callback of a number that was kept elsewhere, by another language say.
    #[inline]
    pub fn of(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for CallbackId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "callback {}", self.0)
    }
}

/// Something that happened, and the callback that is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<P> {
    /// The callback that is told.
    pub callback: CallbackId,
    /// What it is.
    pub kind: Kind,
    /// What comes with it: see the kind's row.
    pub payload: P,
}

/// What an event is of, for kinds that say the same twice: two that are of the same do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// What its callback is for: nothing was named.
    Unsaid,
    /// What has this number.
    Number(i64),
    /// Something else, which is never the same.
    Other,
}
