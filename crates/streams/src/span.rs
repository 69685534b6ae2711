//! `since` and `until`: a read's bounds in time instead of offsets. An extension of ours.
//!
//! A time is a record's when it was appended, as the server's clock had it. `since` begins at the first
//! record of that time or a later one, so a clock that was set back hides nothing behind that place; `until`
//! ends in front of the first record of its time or a later one.

use crate::Streams;
use crate::access::FoundStream;
use crate::problem::Problem;
use crate::store::{Read, Store, TimeSearch};
use thalweg_wire::exchange::{Now, Work};
use thalweg_wire::{decimal, rfc3339};

/// The latest time in milliseconds that microseconds can tell.
const MILLIS_MAX: u64 = u64::MAX / 1_000;

/// A record's time is that of the turn that appended it, which began no longer ago than this.
const TURN_US_MAX: u64 = 1_000_000;

/// The bounds that a query names, microseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) since_us: Option<u64>,
    pub(crate) until_us: Option<u64>,
}

/// Why something of a stream cannot be read, or not yet: where a bound lies, or the next event.
pub(crate) enum ReadHalt {
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
    if !is_integer(text) {
        let detail = match text.contains(' ') {
            false => "a time is RFC 3339 (2030-01-01T00:00:00Z), or milliseconds since 1970",
            true => {
                "a time is RFC 3339 without spaces, or milliseconds since 1970; in a query a + stands for a space: write it %2B"
            }
        };
        let time = rfc3339::parse(text).map(Some);
        return time.ok_or_else(|| Problem::new(400, "time-malformed", key, detail));
    }
    // No record is older than 1970: a time before it counts as its beginning, however it is written.
    if text.starts_with('-') {
        return Ok(Some(0));
    }
    let detail = "there are too many milliseconds since 1970: at most 18446744073709551";
    let millis = decimal::parse(text.as_bytes(), MILLIS_MAX);
    millis
        .map(|millis| Some(millis * 1_000))
        .ok_or_else(|| Problem::new(400, "time-out-of-range", key, detail))
}

/// Whether it is a decimal integer, negative or not, of whatever size.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    let is_plain = digits.len() == 1 || digits.first().is_some_and(|first| *first != b'0');
    is_plain && digits.iter().all(u8::is_ascii_digit)
}

impl<S: Store> Streams<S> {
    /// Offset of the first record of a time or a later one.
    pub(crate) fn place(&self, found: &FoundStream<S>, time_us: u64) -> Result<u64, ReadHalt> {
        match self.store.since(&found.stream, time_us) {
            // Perhaps behind the tail that was found: records may have come since.
            Ok(TimeSearch::At(offset)) => Ok(offset),
            Ok(TimeSearch::Cold(work)) => Err(ReadHalt::Cold(work)),
            Err(error) => Err(ReadHalt::Refused(Problem::from(&error))),
        }
    }

    /// The end that a place makes for a read until a time. Behind the last record it is one only once nothing
    /// older can follow.
    pub(crate) fn end(&self, offset: u64, until_us: u64, found: &FoundStream<S>, now: Now) -> End {
        let is_past = now.time_us >= until_us.saturating_add(TURN_US_MAX);
        // What is staged was appended earlier, and is still to be seen.
        let is_all = || self.store.staged(&found.stream).is_some_and(|state| state.tail == found.state.tail);
        let is_final = offset < found.state.tail || found.state.closed || is_past && is_all();
        End { offset, is_final }
    }
}

impl End {
    /// Whether a read from the tail is at its end.
    pub(crate) fn is_final(self) -> bool {
        self.is_final
    }

    /// Takes away what lies behind the end; whether the read came to it.
    pub(crate) fn cut(self, from: u64, read: &mut Read) -> bool {
        let Some(excess) = read.next.checked_sub(self.offset.max(from)) else { return false };
        if excess > 0 {
            read.shorten(excess);
        }
        self.is_final
    }
}
