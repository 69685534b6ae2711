//! Typed calls over Unix sockets, shared memory and pipes: servers, clients, and the scheduler that orders calls
//! per fork.
//!
//! Owns: connections that speak the frames of `thalweg-wire`, from the first byte to the last: which kind each is, how
//! its answers are ordered, what it may have in flight, how it ends. A server and a client each *are* a reactor, own no
//! thread, and can be driven by a foreign loop: each shows a descriptor and takes turns.
//!
//! Never knows: a schema, what a payload says, where a handler runs.
#![forbid(unsafe_code)]

mod async_client;
mod call;
mod client;
mod error;
mod pool;
mod schedule;
mod schedule_service;
mod server;
mod sync_client;

pub use async_client::{AsyncClient, Frames};
pub use call::{CallId, CallOptions, Event, EventKind};
pub use client::{Client, ClientOptions, Reconnect};
pub use error::Error;
pub use pool::Pool;
pub use schedule::{Executor, Scheduler, Turn};
pub use schedule_service::Scheduled;
pub use server::{ClientId, Handler, Incoming, Reply, Request, Server, ServerOptions, Statistics, Stopper};
pub use sync_client::SyncClient;
pub use thalweg_reactor::Wait;
pub use thalweg_transport::Endpoint;
