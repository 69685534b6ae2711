//! Load for servers of durable streams: clients that append, create, read, follow and idle, and the floor
//! they are measured against.
//!
//! Owns one reactor full of connections, each with one role and at most one request under way, the clock of a
//! measurement, and what is counted. It costs as little as it can: one thread, a request that is sent in one
//! call, an answer that is read where it was received. Never knows which server it speaks to, nor the inside
//! of any.
//!
//! # What a figure means
//!
//! - Latency runs from the moment a request is sent to the moment its answer is whole; where a rate is
//!   offered, from the moment it was due if the connection was still busy then, so that a server that stalls
//!   is not asked less.
//! - What is delivered carries the time at which it was sent and a number that rises by one: every follower
//!   knows what it missed.
//! - The server's processor time is read at both ends of the measured span, warm-up and preparation aside.
#![forbid(unsafe_code)]

mod arguments;
mod counts;
mod driver;
mod error;
mod floor;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod line;
pub mod message;
mod record;
mod roles;
mod session;
mod sse;
mod target;
mod verbs;

pub use arguments::{BenchVerb, Common};
pub use error::Error;

/// Does what the verb says; what was measured, as an object of JSON.
///
/// # Errors
/// [`Error`]: nothing was measured.
pub fn run(verb: &BenchVerb) -> Result<serde_json::Value, Error> {
    verbs::run(verb)
}
