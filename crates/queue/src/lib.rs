//! Plain queues of what waits, for crates that may not see each other and would each write their own.
//!
//! Owns: the order of what waits, and that each of it is given back once. [`ByTicket`] is for what waits
//! until something is durable, [`Deadlines`] for what waits until a time.
//!
//! Never knows: who waits, what a ticket or a time stands for, threads, a clock. Whoever shares a queue
//! brings a lock, and lets go of it before doing anything to what was given back.
#![forbid(unsafe_code)]

mod by_ticket;
mod deadlines;

pub use crate::by_ticket::{ByTicket, Stands};
pub use crate::deadlines::Deadlines;
