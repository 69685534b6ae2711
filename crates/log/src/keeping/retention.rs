//! Retention: how old entries may be, and how many bytes of them there may be.
//!
//! ```text
//! store   of all logs together, by the store's options: whole segments, in every log
//! log     of one log, by bounds that are a note of it
//! ```
//!
//! Either trims logs as a purge would, by housekeeping ([`Store::maintain`](crate::Store::maintain)).

mod log;
mod store;

pub(crate) use log::LogRetention;
pub use log::RETAIN_NOTE;
pub(crate) use store::StoreRetention;
