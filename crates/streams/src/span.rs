//! `since` and `until`: a read's bounds in time instead of offsets. An extension of ours.
//!
//! A time is a record's when it was appended, as the server's clock had it. `since` begins at the first record of that
//! time or a later one, so a clock that was set back hides nothing behind that place; `until` ends in front of the
//! first record of its time or a later one.

use crate::Streams;
use crate::access::Found;
use crate::problem::Problem;
use crate::store::{Read, Sought, Store};
use thalweg_wire::exchange::{Now, Work};
use thalweg_wire::{decimal, rfc3339};

/// The bounds that a query names, microseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) since_us: Option<u64>,
    pub(crate) until_us: Option<u64>,
}

/// Why it is not known where a bound lies, or not yet.
pub(crate) enum Halt {
    /// What decides it has to be brought into memory first.
    Cold(Work),
    Refused(Problem),
}

/// Where a read ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    offset: u64,
    /// Nothing before that place is still to come.
    is_final: bool,
}

impl Span {
    pub(crate) fn parse(since: Option<&str>, until: Option<&str>) -> Result<Self, Problem> {
        Ok(Self { since_us: time("since", since)?, until_us: time("until", until)? })
    }
}

fn time(key: &'static str, text: Option<&str>) -> Result<Option<u64>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let millis = || decimal::parse(text.as_bytes(), u64::MAX / 1_000).map(|millis| millis * 1_000);
    let time = millis().or_else(|| rfc3339::parse(text));
    let detail = "a time is RFC 3339 (2030-01-01T00:00:00Z), or milliseconds since 1970";
    time.map(Some).ok_or_else(|| Problem::new(400, "time-malformed", key, detail))
}

impl<S: Store> Streams<S> {
    /// Offset of the first record of a time or a later one.
    pub(crate) fn place(&self, found: &Found<S>, time_us: u64) -> Result<u64, Halt> {
        match self.store.since(&found.stream, time_us) {
            Ok(Sought::At(offset)) => Ok(offset.min(found.state.tail)),
            Ok(Sought::Cold(work)) => Err(Halt::Cold(work)),
            Err(error) => Err(Halt::Refused(Problem::from(&error))),
        }
    }
}

impl End {
    /// The end that a place makes for a read until a time. Behind the last record it is one only once nothing older
    /// can be appended.
    pub(crate) fn at<S: Store>(offset: u64, until_us: u64, found: &Found<S>, now: Now) -> Self {
        let is_final = offset < found.state.tail || found.state.closed || now.time_us >= until_us;
        Self { offset, is_final }
    }

    /// Takes away what lies behind the end; whether the read came to it.
    pub(crate) fn cut(self, from: u64, read: &mut Read) -> bool {
        let Some(mut excess) = read.next.checked_sub(self.offset.max(from)) else { return false };
        if excess > 0 {
            (read.next, read.at_tail) = (read.next - excess, false);
        }
        while let Some(last) = read.pieces.last_mut().filter(|_| excess > 0) {
            let taken = excess.min(last.len() as u64);
            // At most the piece's own length.
            last.truncate(last.len() - taken as usize);
            excess -= taken;
            if last.is_empty() {
                read.pieces.pop();
            }
        }
        self.is_final
    }
}
