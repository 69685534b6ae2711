//! A keyed state that can be forked, snapshotted, committed and rolled back, and whose every committed write
//! is an entry of a log.
//!
//! Owns: what the keys of a fork hold, as committed and as pending; how a commit becomes one entry of the
//! fork's log; how a state is rebuilt from its logs; a digest by which two replicas compare. Never knows: a
//! language, a transport, the order of calls (the fork scheduler has it).
//!
//! # Forks and views
//!
//! A fork is a line of history: a log of the store, and beside it the state that its entries come to, in
//! memory. A new fork begins as its parent is, shares all structure with it, and is a fork of its log:
//! neither costs more when the state is large, and a parent that is dropped is kept by the log for as long as
//! it has forks.
//!
//! | view | what it is |
//! |---|---|
//! | committed | every commit that is durable |
//! | pending | that, with commits on their way to the disk and the writes since a snapshot on top |
//!
//! Without a snapshot each write is a commit of its own. After [`Session::snapshot`] writes stay in memory,
//! beside the state that they would change; [`Session::commit`] makes one entry of them,
//! [`Session::rollback`] forgets them.
//!
//! # Invariants
//!
//! 1. *A commit is one entry*: it is seen whole or not at all, by readers and after a crash.
//! 2. *Committed implies durable* in a store that promises durability: what is read as committed, a fork that
//!    is there or is gone included, is so after any crash. From a drop on nothing pending is seen of a fork,
//!    and nothing more is written or forked.
//! 3. *Replay comes to the same state*: what is in memory is a function of the log's entries, checked against
//!    the digest that each checkpoint holds.
//! 4. Nothing that one fork does changes what another holds.
//!
//! The entries are change messages of the open state protocol for Durable Streams, as a stream of JSON holds
//! them, so a fork's log can be tailed by a browser as it is.
#![forbid(unsafe_code)]

mod background_drop;
mod branching;
mod changes;
mod checkpoint;
pub mod client;
mod digest;
mod due;
mod durable;
mod error;
mod fork;
mod fork_info;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
#[rustfmt::skip]
#[allow(unreachable_pub, unused_imports, reason = "generated for any place and any schema")]
pub mod generated;
mod image;
mod images;
mod journal;
mod lineages;
mod log_observer;
mod map;
mod memory_budget;
mod overlay;
mod past;
mod read_view;
mod refusal_code;
mod replay;
mod service;
mod session;
mod state;
mod strict_read;

pub use changes::{Change, Changes};
pub use digest::{Digest, Root};
pub use durable::DurabilityListener;
pub use error::Error;
pub use fork::View;
pub use fork_info::ForkInfo;
pub use generated::types::SCHEMA_HASH;
pub use log_observer::LogObserver;
pub use map::{Key, Map, Value};
pub use read_view::ReadView;
pub use refusal_code::RefusalCode;
pub use service::{ERROR_TAG, ImageNews, Service, ServiceOptions};
pub use session::{SESSION_BYTES_MAX, Session};
pub use state::{ForkId, History, KEY_BYTES_MAX, Options, State};

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;
