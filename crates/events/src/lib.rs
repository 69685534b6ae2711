//! What can happen to an event loop: one table of kinds, one shape of an event, callbacks by number.
//!
//! Owns: the table ([`Kind`], [`ROWS`]) from which the documentation's is made, what an event consists of
//! ([`Event`]), and which callback is told of it ([`Callbacks`]). Whatever carries events (a reactor's
//! mailbox, a loop's own queue) carries this shape, so that descriptors, timers, answers, processes and
//! sockets all arrive the same way.
//!
//! Never knows: a queue, a descriptor, a process, a language, what a payload is.
//!
//! # Invariants
//!
//! 1. A callback's number is given out once, by a lock-free counter, and numbers grow: an event for a
//!    callback that is gone never reaches another one.
//! 2. Of one callback and one side of one descriptor at most one event waits at a time: a second would say
//!    nothing new. Of another descriptor it does.
//!
//! Both are checked by the tests of [`Callbacks`], the table by those of [`Kind`].
#![forbid(unsafe_code)]

mod callbacks;
mod event;
mod kind;

pub use crate::callbacks::{Callbacks, Noted};
pub use crate::event::{CallbackId, Event, Subject};
pub use crate::kind::{Kind, ROWS, Row, table};
