//! Plain queues of what waits, for crates that may not see each other and would each write their own.
//!
//! Owns: the order of what waits, and that each of it is given back once. [`ByTicket`] is for what waits until something is
//! durable.
//!
//! Never knows: who waits, what a ticket stands for, threads, a clock. Whoever shares a queue brings a lock, and lets go
//! of it before doing anything to what was given back.
#![forbid(unsafe_code)]

mod by_ticket;

pub use crate::by_ticket::{ByTicket, Stands};
