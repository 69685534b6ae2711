//! Typed services beside the streams: over Unix sockets and shared memory, on a reactor of their own.
//!
//! One for now: the log itself, `schemas/log.jsonc`.

mod ask;
#[rustfmt::skip]
#[allow(unreachable_pub, dead_code, reason = "generated for any place, and for clients other than ours")]
pub(crate) mod generated;
mod log;
mod news;

use crate::arguments::{Durability, ServeOptions, Switch};
use crate::engine::Engine;
use crate::serve::Failure;
use log::LogService;
use news::News;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use thalweg_reactor::Pool;
use thalweg_service::{Endpoint, Server, ServerOptions, Stopper};

/// The thread that serves them. Only the part of its stack that is used takes memory.
const STACK_BYTES: usize = 512 * 1024;
/// A request's bytes beside its data.
const FRAME_BYTES_BESIDE: u32 = 64 << 10;

/// Services that run.
pub(crate) struct Running {
    /// Where.
    pub(crate) endpoints: Vec<Endpoint>,
    stopper: Stopper,
    thread: JoinHandle<()>,
}

impl Running {
    /// Listens in the store's directory, and serves the log on a thread; `None` when that is not wanted, or there is
    /// no directory.
    ///
    /// # Errors
    /// An endpoint cannot be listened at, or the system gives no thread.
    pub(crate) fn start(
        engine: &Engine,
        pool: &Pool,
        wishes: &ServeOptions,
        clients_max: usize,
    ) -> Result<Option<Self>, Failure> {
        if wishes.services == Switch::Off || wishes.durability == Durability::Memory {
            return Ok(None);
        }
        let endpoints = vec![
            Endpoint::Socket(wishes.data.join("thalweg.sock")),
            Endpoint::Shared(wishes.data.join("thalweg.shm")),
        ];
        let options = ServerOptions {
            schema: generated::types::SCHEMA_HASH,
            error_tag: ask::ERROR_TAG.into(),
            frame_bytes_max: u32::try_from(wishes.body_max_bytes)
                .unwrap_or(u32::MAX)
                .saturating_add(FRAME_BYTES_BESIDE),
            clients_max: u32::try_from(clients_max).unwrap_or(u32::MAX),
            drain_grace: Duration::from_millis(wishes.drain_grace_ms.into()),
            spin: wishes.spin == Switch::On,
            ..ServerOptions::default()
        };
        let mut server = Server::bind(&endpoints, options).map_err(Failure::Service)?;
        let stopper = server.stopper();
        let news = Arc::new(News::new(server.bell()));
        let failed = |error| Failure::System("serve the log to its neighbours", error);
        let handler = LogService::new(engine.service_for(news.clone()).map_err(failed)?, news, pool.clone());
        // A server lives on its thread.
        let run = move || {
            if let Err(error) = server.run_reactor(handler) {
                tracing::error!(%error, "services ended by themselves");
            }
        };
        let builder = std::thread::Builder::new().name("services".to_owned()).stack_size(STACK_BYTES);
        let thread = builder.spawn(run).map_err(|error| Failure::System("start a thread", error))?;
        Ok(Some(Self { endpoints, stopper, thread }))
    }

    /// Whether they ended by themselves.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Asks them to end: what was begun is answered, within the grace.
    pub(crate) fn stop(&self) {
        self.stopper.stop();
    }

    /// Waits until they have ended; whether that was in good order.
    pub(crate) fn end(self) -> bool {
        self.thread.join().is_ok()
    }
}
