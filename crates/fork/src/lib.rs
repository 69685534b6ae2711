//! Servers that are processes of their own: forked while they serve, moved, ended, let go.
//!
//! Owns both halves of `docs/forks.md`: the supervisor, which starts a program and looks after it and its
//! copies ([`Supervisor`]), and what a program has to do to be supervised ([`Program`], [`serve`]). Beside
//! them the session whose snapshot is a fork ([`Session`]).
//!
//! # Invariants
//!
//! 1. *What goes wrong with a fork stays in the parent*, which serves on as if nobody had asked.
//! 2. *A copy holds no descriptor of its parent's*: a client connected to one of them notices nothing of the
//!    other.
//! 3. *No process is left behind*: one whose supervisor is gone ends by itself, unless it was emancipated; a
//!    copy that no client can know of is ended; one that is ended by force is ended with its process group.
//!
//! *Checked by* `tests/forks/`, with processes.
//!
//! Never knows: what a program serves.
#![forbid(unsafe_code)]

mod control;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
#[rustfmt::skip]
#[allow(unreachable_pub, unused_imports, reason = "generated for any place and any schema")]
pub mod generated;
mod keeper;
mod line;
mod listener;
mod program;
mod server_set;
mod session;
mod supervisor;
mod table;

pub use control::Control;
pub use program::{Branch, Order, Program, serve};
pub use session::{Cleanup, Session, SessionError};
pub use supervisor::{First, Options, Supervisor};

/// The tag of the service's error.
pub const ERROR_TAG: &str = "ForksErrorResponse";
