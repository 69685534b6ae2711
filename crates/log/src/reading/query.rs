//! What to read of a log, and what one entry is.

use crate::{Offset, Position, Time};

/// One entry of a log, borrowed from its map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Offset of its first byte within the log: with the log, its identity.
    pub offset: Offset,
    /// Time of its transaction, microseconds since the Unix epoch.
    pub time: Time,
    /// The last entry of its transaction in this log.
    pub last: bool,
    /// Where it lies in the store's commit order.
    pub position: Position,
    /// Its payload.
    pub data: &'a [u8],
}

/// Where a query begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// At the oldest entry there is.
    #[default]
    First,
    /// Entries of this time or a later one, wherever they lie.
    Time(Time),
    /// Entries of a later time than this one, wherever they lie.
    After(Time),
    /// At the first entry of exactly this time; whatever follows it in the log, of any time.
    Exact(Time),
    /// At the entry that holds this offset. One inside an entry begins inside it.
    Offset(Offset),
    /// Behind the newest entry that the query may see: what comes from now on.
    Tail,
    /// At the entries that the newest checkpoint does not cover.
    Checkpoint,
}

/// Which entries of a log to read, in the order of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Where to begin.
    pub start: Start,
    /// Only entries before this time.
    pub end: Option<Time>,
    /// See what is written and not durable yet. In `sync` mode a power cut may take it back; in the other
    /// modes there is no difference.
    pub uncommitted: bool,
}

impl Query {
    /// Everything from a place on.
    pub fn from(start: Start) -> Query {
        Query { start, ..Query::default() }
    }

    /// Entries with `start <= time < end`.
    pub fn between(start: Time, end: Time) -> Query {
        Query { start: Start::Time(start), end: Some(end), uncommitted: false }
    }
}
