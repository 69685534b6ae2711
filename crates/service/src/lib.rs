//! Typed calls over Unix sockets, shared memory and pipes: servers, clients, and the scheduler that orders
//! calls per fork.
//!
//! Owns: connections that speak the frames of `thalweg-wire`, from the first byte to the last: which kind
//! each is, how its answers are ordered, what it may have in flight, how it ends. A server is a reactor, a
//! client a connection that can be waited for; neither owns a thread, and each can be driven by a foreign
//! loop: it shows a descriptor and takes turns. Beside them the order of calls per fork ([`Scheduler`]), and
//! programs that serve ([`Spawned`]).
//!
//! Never knows: a schema, what a payload says, where a handler runs.
#![forbid(unsafe_code)]

mod async_client;
mod call;
mod client;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod local;
mod pool;
mod schedule;
mod schedule_service;
mod server;
mod spawn;
mod sync_client;

pub use async_client::{AsyncClient, Frames};
pub use call::{CallId, CallOptions, Event, EventKind};
pub use client::{BACKLOG_BYTES, Client, ClientOptions, PeerProcess, Reconnect};
pub use error::Error;
pub use local::{Local, LocalCallOptions, LocalEvent};
pub use pool::Pool;
pub use schedule::{Executor, Scheduler, Turn};
pub use schedule_service::Scheduled;
pub use server::{
    ClientId, Handler, Incoming, Notifier, Reply, Request, Server, ServerOptions, Statistics, Stopper,
};
pub use spawn::{Exit, ProgramEvent, Respawn, SpawnOptions, Spawned, is_taken};
pub use sync_client::SyncClient;
pub use thalweg_reactor::Wait;
pub use thalweg_transport::Endpoint;
pub use thalweg_wire::service::Access;
