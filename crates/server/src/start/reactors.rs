//! The reactors that serve HTTP, each on a thread of its own. All of them are built before the first one
//! serves: they wait at a [`Gate`].

use super::error::ServerError;
use super::listeners::Listeners;
use super::step;
use crate::engine::Engine;
use crate::layers::front::{Front, ReactorParts, ReactorService};
use crate::layers::rpc::ReactorRole;
use crate::run::ReactorThread;
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use thalweg_http::{Config, Http, ListenerSettings};
use thalweg_reactor::{Pool, Reactor};
use thalweg_sync::places::Places;
use thalweg_sys::code;

/// What a reactor watches beside its connections: services that live elsewhere.
const ATTACHED_MAX: usize = 64;
/// A reactor's thread. Only the part that is used takes memory.
const STACK_BYTES: usize = 512 * 1024;

/// Keeps reactors that are built from serving until it is opened. Where it never is, the program ends.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<OnceLock<()>>);

impl Gate {
    /// From now on they serve.
    pub(super) fn open(&self) {
        let _ = self.0.set(());
    }

    fn wait(&self) {
        self.0.wait();
    }
}

/// What every reactor is started with.
pub(super) struct ReactorStart<'a> {
    engine: &'a Engine,
    front: &'a Front,
    pool: &'a Pool,
    /// Of connections, on whichever reactor.
    places: Arc<Places>,
    config: Config,
    spin: bool,
    gate: &'a Gate,
}

impl<'a> ReactorStart<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        front: &'a Front,
        pool: &'a Pool,
        config: Config,
        spin: bool,
        gate: &'a Gate,
    ) -> Self {
        let places = Arc::new(Places::new(config.connections_max));
        Self { engine, front, pool, places, config, spin, gate }
    }

    /// Starts a reactor for each share of the listeners.
    ///
    /// # Errors
    /// The system gives no thread, or refuses what a reactor is made of.
    pub(super) fn streams(&self, listeners: &mut Listeners) -> Result<Vec<ReactorThread>, ServerError> {
        let listening = std::mem::take(&mut listeners.per_reactor).into_iter().enumerate();
        listening
            .map(|(index, listening)| step(|| self.start(index, ReactorRole::Streams, listening)))
            .collect()
    }

    /// Starts the reactor that serves JSON-RPC alone, if that has listeners of its own.
    ///
    /// # Errors
    /// As [`ReactorStart::streams`].
    pub(super) fn rpc(
        &self,
        index: usize,
        listeners: &mut Listeners,
    ) -> Result<Option<ReactorThread>, ServerError> {
        let listening = listeners.per_reactor.pop().filter(|listening| !listening.is_empty());
        listening.map(|listening| self.start(index, ReactorRole::Rpc, listening)).transpose()
    }

    fn start(
        &self,
        index: usize,
        role: ReactorRole,
        listening: Vec<ListenerSettings>,
    ) -> Result<ReactorThread, ServerError> {
        let Self { config, spin, .. } = *self;
        let beside = Http::<ReactorService>::entries_beside(listening.len()) + ATTACHED_MAX;
        let entries = config.connections_max + beside;
        let reactor_config = thalweg_reactor::Config {
            entries_max: u32::try_from(entries).unwrap_or(u32::MAX),
            // A message per topic that connections here follow, and some for completions under way.
            mailbox_max: entries + 4_096,
            spin,
            ..thalweg_reactor::Config::default()
        };
        // A reactor lives and dies on its thread; only its handle comes back.
        let (sender, receiver) = channel();
        let (engine, front, pool) = (self.engine.clone(), self.front.clone(), self.pool.clone());
        let (places, gate) = (self.places.clone(), self.gate.clone());
        let run = move || {
            let built = Reactor::new(reactor_config, |core| {
                let ReactorParts { service, meters, attached } =
                    step(|| front.parts(&engine, &pool, core.handle(), role))?;
                let http = step(|| Http::new(core, service, config, listening))?;
                let http = http.with_pool(pool).with_places(places);
                let mut http = http.with_meters(meters).with_hosts(front.hosts());
                attached.into_iter().try_for_each(|descriptor| http.attach(core, descriptor))?;
                Ok::<_, io::Error>(http)
            });
            code::release();
            let outcome = built.and_then(|mut reactor: Reactor<Http<ReactorService>>| {
                // The thread that started this one waits for the handle.
                let _ = sender.send(Ok(reactor.handle()));
                gate.wait();
                reactor.run()
            });
            if let Err(error) = outcome {
                tracing::error!(%error, index, "a reactor failed");
                let _ = sender.send(Err(error));
            }
        };
        let builder = std::thread::Builder::new().name(format!("reactor-{index}")).stack_size(STACK_BYTES);
        let thread = builder.spawn(run).map_err(ServerError::no_thread)?;
        let handle = receiver.recv().map_err(|_| ServerError::ThreadEnded)?;
        let handle = handle.map_err(|error: io::Error| ServerError::System("start a reactor", error))?;
        Ok(ReactorThread { handle, thread })
    }
}
