//! Plain queues of what waits, for crates that may not see each other and would each write their own.
//!
//! Owns: the order of what waits, and that each of it is given back once. [`ByTicket`] is for what waits
//! until something is durable, [`Deadlines`] for what waits until a time.
//!
//! Never knows: what waits, what a ticket or a time stands for, threads, a clock. Threads that share a queue
//! guard it with a lock of their own, and release it before they use the items that the queue returned.
#![forbid(unsafe_code)]

mod by_ticket;
mod deadlines;

pub use crate::by_ticket::{Admission, ByTicket};
pub use crate::deadlines::Deadlines;
