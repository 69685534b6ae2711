//! Typed services beside the streams: over Unix sockets and shared memory, each on a reactor of its own.
//!
//! The log, `schemas/log.jsonc`, and the state, `schemas/state.jsonc`.

mod ask;
mod cold;
#[rustfmt::skip]
#[allow(unreachable_pub, dead_code, reason = "generated for any place, and for clients other than ours")]
pub(crate) mod generated;
mod log;
mod looks;
mod news;

use crate::command_line::{Durability, ServeOptions, Switch};
use crate::engine::Engine;
use crate::start::{ListenAddress, ServerError};
pub(crate) use log::LogService;
pub(crate) use news::News;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use thalweg_reactor::Pool;
use thalweg_service::{Endpoint, Handler, Server, ServerOptions, Stopper};
use thalweg_sys::code;

/// A thread that serves one. Only the part of its stack that is used takes memory.
const STACK_BYTES: usize = 512 * 1024;
/// A request's bytes beside its data.
const FRAME_BYTES_BESIDE: u32 = 64 << 10;

/// Whether they are served: the options ask for them, and the store has a directory.
pub(crate) fn are_wanted(wishes: &ServeOptions) -> bool {
    wishes.services == Switch::On && wishes.durability != Durability::Memory
}

/// What their paths begin with.
const LOG: &str = "thalweg";
const STATE: &str = "state";
/// Services there are: the log, and the state.
const SERVICES: u64 = 2;

/// Where a service listens: at a socket, and at one that hands shared memory over.
fn paths(name: &str, wishes: &ServeOptions) -> [PathBuf; 2] {
    ["sock", "shm"].map(|ending| wishes.data.join(format!("{name}.{ending}")))
}

/// Where all of them listen that are wanted.
pub(crate) fn addresses(wishes: &ServeOptions) -> Vec<ListenAddress> {
    let names = if are_wanted(wishes) { &[LOG, STATE][..] } else { &[] };
    names.iter().flat_map(|name| paths(name, wishes)).map(ListenAddress::Unix).collect()
}

/// Clients that all of them together have at once, where each may have `each`.
pub(crate) fn clients_max(wishes: &ServeOptions, each: usize) -> u64 {
    if are_wanted(wishes) { SERVICES.saturating_mul(each as u64) } else { 0 }
}

/// Bytes that each of them may leave unsent.
pub(crate) fn unsent_bytes_max() -> u64 {
    ServerOptions::default().unsent_bytes_max as u64
}

/// Services that run, each on a thread of its own: what one of them has to do delays no other.
pub(crate) struct ServiceThreads {
    served: Vec<ServiceThread>,
}

/// One of them.
struct ServiceThread {
    endpoints: [Endpoint; 2],
    stopper: Stopper,
    thread: JoinHandle<()>,
}

impl ServiceThreads {
    /// Listens in the store's directory, and serves log and state; `None` when that is not wanted, or there
    /// is no directory.
    ///
    /// # Errors
    /// An endpoint cannot be listened at, or the system gives no thread.
    pub(crate) fn start(
        engine: &Engine,
        pool: &Pool,
        wishes: &ServeOptions,
        clients_max: usize,
    ) -> Result<Option<Self>, ServerError> {
        if !are_wanted(wishes) {
            return Ok(None);
        }
        let failed = |error| ServerError::System("serve the log to its neighbours", error);
        let options = options(wishes, clients_max);
        let log = ServerOptions {
            schema: generated::types::SCHEMA_HASH,
            error_tag: ask::ERROR_TAG.into(),
            ..options.clone()
        };
        let state = ServerOptions {
            schema: thalweg_state::SCHEMA_HASH,
            error_tag: thalweg_state::ERROR_TAG.into(),
            ..options
        };
        // Both, before either answers: where one cannot be had the server ends, and has acknowledged nothing.
        let (log, state) = (BoundService::at(LOG, wishes, log)?, BoundService::at(STATE, wishes, state)?);
        // As between all steps of the start: see `start::step`.
        code::release();
        let log = log.serve(|server| {
            let news = Arc::new(News::new(server.notifier()));
            Ok(LogService::new(engine.service_for(news.clone()).map_err(failed)?, news, pool.clone()))
        })?;
        code::release();
        let state = state.serve(|_| Ok(engine.state().clone()))?;
        Ok(Some(Self { served: vec![log, state] }))
    }

    /// Where they are.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.served.iter().flat_map(|served| &served.endpoints)
    }

    /// Whether one of them ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.served.iter().any(|served| served.thread.is_finished())
    }

    /// Asks them to end: what was begun is answered, within the grace.
    pub(crate) fn stop(&self) {
        self.served.iter().for_each(|served| served.stopper.stop());
    }

    /// Waits until they have ended; whether that was in good order.
    pub(crate) fn end(self) -> bool {
        // Every one is waited for, whatever became of those before.
        let ended: Vec<bool> = self.served.into_iter().map(|served| served.thread.join().is_ok()).collect();
        ended.into_iter().all(|in_order| in_order)
    }
}

/// A service that listens, and does not answer yet.
struct BoundService {
    name: &'static str,
    endpoints: [Endpoint; 2],
    server: Server,
}

impl BoundService {
    /// Listens at two paths of that name.
    fn at(name: &'static str, wishes: &ServeOptions, options: ServerOptions) -> Result<Self, ServerError> {
        let [socket, shared] = paths(name, wishes);
        let endpoints = [Endpoint::Socket(socket), Endpoint::Shared(shared)];
        let server = Server::bind(&endpoints, options).map_err(ServerError::Service)?;
        Ok(Self { name, endpoints, server })
    }

    /// Serves on a thread of that name.
    fn serve<H: Handler + Send + 'static>(
        self,
        handler: impl FnOnce(&Server) -> Result<H, ServerError>,
    ) -> Result<ServiceThread, ServerError> {
        let Self { name, endpoints, mut server } = self;
        let (stopper, handler) = (server.stopper(), handler(&server)?);
        // A server lives on its thread.
        let run = move || {
            if let Err(error) = server.serve(handler) {
                tracing::error!(%error, "a service ended by itself");
            }
        };
        let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
        let thread = builder.spawn(run).map_err(ServerError::no_thread)?;
        Ok(ServiceThread { endpoints, stopper, thread })
    }
}

/// What all of them have in common.
fn options(wishes: &ServeOptions, clients_max: usize) -> ServerOptions {
    ServerOptions {
        frame_bytes_max: u32::try_from(wishes.body_max_bytes)
            .unwrap_or(u32::MAX)
            .saturating_add(FRAME_BYTES_BESIDE),
        clients_max: u32::try_from(clients_max).unwrap_or(u32::MAX),
        drain_grace: Duration::from_millis(wishes.drain_grace_ms.into()),
        spin: wishes.spin == Switch::On,
        ..ServerOptions::default()
    }
}
