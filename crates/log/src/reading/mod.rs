//! The way out: how entries and payload get from segments to a reader, in this process or another.
//!
//! ```text
//! query, since       what is asked for; the first offset at or after a time
//! search             how much of the time index a search would have to make first
//! reader, cursor     the entries of a log, once or for as long as more come; back: the newest first
//! gather             entries in columns; place: one entry again, by where it lies
//! source             where a reader's entries come from: words, the list of segments, what a log inherits
//! walk, progress     which entries a query takes, and how far a reader has come
//! entry_frame        one entry in mapped bytes, and where the next one is
//! records            the records of an extent
//! read, route, warm  payload by offset: borrowed or copied, settled or not; what a read would have to wait for
//! new_logs           which logs are new
//! maps               the segments' maps, for readers in languages of their own
//! ```
//!
//! Changes nothing in the store. Only damage that a read finds is noted
//! ([`known_damage`](crate::known_damage)).

pub(crate) mod back;
pub(crate) mod cursor;
pub(crate) mod entry_frame;
pub(crate) mod gather;
pub(crate) mod maps;
pub(crate) mod new_logs;
pub(crate) mod place;
pub(crate) mod progress;
pub(crate) mod query;
pub(crate) mod read;
pub(crate) mod reader;
pub(crate) mod records;
pub(crate) mod route;
pub(crate) mod search;
pub(crate) mod since;
pub(crate) mod source;
pub(crate) mod walk;
pub(crate) mod warm;
