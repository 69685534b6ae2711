//! The way out: how entries and payload get from segments to whoever reads, here or in another process.
//!
//! ```text
//! query, since       what is asked for, and from where on when it is a time
//! reader, cursor     the entries of a log, once or for as long as more come; back: the newest first
//! gather             entries in columns; place: one entry again, where it was
//! source, view       where a reader's entries come from: words, the list of segments, what a log inherits
//! walk, progress     which entries are taken, how far a reader has come
//! found, records     one entry in mapped bytes; the records of an extent
//! read, route, warm  whole payload: borrowed or copied, by what is settled or not, and what it would have to wait for
//! births             which logs are new
//! attach, follower   a store that another process writes, and the thread that sleeps for its tasks
//! maps               the segments' maps, for readers in languages of their own
//! ```
//!
//! Changes nothing but what is known: a read that comes upon damage says so ([`harm`](crate::harm)).

pub(crate) mod attach;
pub(crate) mod back;
pub(crate) mod births;
pub(crate) mod cursor;
pub(crate) mod follower;
pub(crate) mod found;
pub(crate) mod gather;
pub(crate) mod maps;
pub(crate) mod place;
pub(crate) mod presence;
pub(crate) mod progress;
pub(crate) mod query;
pub(crate) mod read;
pub(crate) mod reader;
pub(crate) mod records;
pub(crate) mod route;
pub(crate) mod since;
pub(crate) mod source;
pub(crate) mod view;
pub(crate) mod walk;
pub(crate) mod warm;
