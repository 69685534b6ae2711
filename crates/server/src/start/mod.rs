//! The start of `thalweg serve`: named steps, each of which prepares one thing.
//!
//! | file | step |
//! |---|---|
//! | [`plan`] | what the configuration comes to, before anything is opened |
//! | [`preflight`] | whether a new store could be served where it is to be; its addresses are opened first |
//! | [`store`] | the store is opened; a signal ends the program meanwhile ([`signals`]) |
//! | [`listeners`] | listens at every address ([`address`], [`listen_conflicts`]) |
//! | [`reactors`] | a thread for each reactor, with all that it serves |
//! | [`greeting`], [`systemd`] | says that it serves, and it does |
//!
//! Why a step failed is in [`error`]. After the last one [`run`](crate::run) takes over. Between two steps
//! the code that the last one ran is released, so that the most memory a start ever takes is what one step
//! does ([`step`]).
//!
//! Configuration and addresses are judged before a new store is made: a start that is refused for them leaves
//! nothing behind. Until all is open that threads will serve, nothing was acknowledged, and a start that
//! fails closes the store in order; one that fails later, for want of a thread, leaves the store as a kill
//! does.

mod address;
mod error;
mod greeting;
mod listen_conflicts;
mod listeners;
mod plan;
mod preflight;
mod reactors;
mod signals;
mod store;
mod systemd;

pub(crate) use address::{ListenAddress, ListenSpec};
pub(crate) use error::ServerError;
pub(crate) use plan::Plan;
pub(crate) use preflight::check_services;
pub(crate) use systemd::{Supervisor, listeners as listeners_handed_over};

use self::greeting::Greeting;
use self::listeners::{ListenOptions, Listeners};
use self::reactors::{Gate, ReactorStart};
use self::store::open_store;
use crate::bounds::Limits;
use crate::bounds::PerReactor;
use crate::client::Output;
use crate::command_line::{ServeOptions, Switch};
use crate::config::Configuration;
use crate::engine::Engine;
use crate::logging::Logging;
use crate::run::{Control, Housekeeper, ReactorThread, RunningServer, Threads};
use crate::{config, services, webhooks};
use parking_lot::Mutex;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::Path;
use thalweg_reactor::Pool;
use thalweg_sys::code;
use thalweg_sys::signal::{Signals, ignore_broken_pipes, ignore_full_files};
use thalweg_transport::BoundPath;

/// Threads that wait for the disk in place of the reactors.
const COLD_THREADS: usize = 2;

/// Does one step of the start, then releases the code that it ran.
fn step<T>(work: impl FnOnce() -> T) -> T {
    let done = work();
    code::release();
    done
}

/// Whether a server would begin with this configuration, as far as that can be told without opening anything:
/// how many reactors it would have.
///
/// # Errors
/// What is wrong with the configuration, or with the sockets that were handed over.
pub(crate) fn check(configuration: &Configuration) -> Result<usize, ServerError> {
    Intent::of(configuration).map(|intent| intent.plan.reactors)
}

/// The bounds that a server with these options and this number of reactors has in all, if it can run.
pub(crate) fn limits(options: &ServeOptions, reactors: usize) -> Limits {
    let per_reactor = PerReactor::of(options, reactors, options.listen.len());
    per_reactor.unwrap_or_else(|_| PerReactor::with_room_for_one(options, reactors)).limits(options)
}

/// Runs the server until it is asked to end.
///
/// # Errors
/// What kept it from starting, or ended it.
pub(crate) fn serve(
    configuration: Configuration,
    line: &[OsString],
    output: Output,
) -> Result<(), ServerError> {
    // What read the command line is not needed any more.
    code::release();
    let Intent { inherited, plan } = step(|| Intent::of(&configuration))?;
    let options = &configuration.options;
    let process = step(|| Process::prepare(options))?;
    let per_reactor = PerReactor::of(options, plan.reactors, inherited.len() + plan.streams.len())
        .map_err(ServerError::Descriptors)?;
    let limits = per_reactor.limits(options);
    step(|| check_services(options))?;
    let mut addresses = step(|| Addresses::before_store(&plan, options))?;
    let paths = Mutex::new(addresses.take_paths());
    let engine = open_store(&process, options, &plan, limits.streams, &paths)?;
    addresses.streams.paths = paths.into_inner();
    step(|| {
        plan.warn();
        per_reactor.warn(options, &limits);
        config::warn_of_unread_variables();
    });
    let opened = step(|| OpenResources::at(addresses, inherited, options, &engine, per_reactor));
    // Nothing was acknowledged, and the next start has nothing to recover.
    let opened = opened.inspect_err(|_| drop(engine.close()))?;
    let gate = Gate::default();
    let (threads, addresses) = opened.start(&engine, &plan, options, per_reactor, &gate)?;
    step(|| tracing::info!(reactors = plan.reactors, durability = engine.durability(), "serving"));
    step(|| addresses.greet(&threads, &limits, plan.front.is_guarded(), output));
    // Behind the steps: the first request may be waiting, and its code would come on top of theirs.
    gate.open();
    let supervisor = step(|| {
        let supervisor = Supervisor::from_environment();
        supervisor.ready();
        supervisor
    });
    let Process { signals, logging } = process;
    let Plan { front, certificate, .. } = plan;
    let control = Control { configuration, line, logging, front, certificate, per_reactor };
    let Listeners { paths, .. } = addresses.streams;
    RunningServer { engine, threads, control, signals, supervisor, paths }.until_asked_to_end()
}

/// What a server is to begin with.
struct Intent {
    /// Listeners that were handed over, and where they are.
    inherited: Vec<(ListenAddress, OwnedFd)>,
    plan: Plan,
}

impl Intent {
    fn of(configuration: &Configuration) -> Result<Self, ServerError> {
        // First of all: what was handed over has the descriptors that would be opened next.
        let inherited = systemd::listeners().and_then(listeners::inherited);
        let inherited =
            inherited.map_err(|error| ServerError::System("use the sockets handed over", error))?;
        let options = &configuration.options;
        let wanted =
            if inherited.is_empty() || configuration.listens_as_asked() { &options.listen[..] } else { &[] };
        let plan = Plan::of(options, inherited.iter().map(|(address, _)| address), wanted)?;
        Ok(Self { inherited, plan })
    }
}

/// What the process does as a whole: which signals it takes, and where its log lines go.
struct Process {
    signals: Signals,
    logging: Logging,
}

impl Process {
    fn prepare(options: &ServeOptions) -> Result<Self, ServerError> {
        // First the signals, which the thread that writes log lines takes as its caller does.
        let signals = Signals::take().map_err(|error| ServerError::System("wait for signals", error))?;
        let logging =
            Logging::start(options.log_format, options.log_level).map_err(ServerError::no_thread)?;
        ignore_broken_pipes();
        ignore_full_files();
        Ok(Self { signals, logging })
    }
}

/// Everything that is opened before the first reactor serves.
struct OpenResources {
    addresses: Addresses,
    pool: Pool,
    neighbours: Option<services::ServiceThreads>,
}

/// Where the server is reached.
struct Addresses {
    streams: Listeners,
    /// Where JSON-RPC has listeners of its own.
    rpc: Listeners,
    /// What is opened behind the store, of each.
    left: [Vec<ListenAddress>; 2],
}

impl OpenResources {
    fn at(
        mut addresses: Addresses,
        inherited: Vec<(ListenAddress, OwnedFd)>,
        options: &ServeOptions,
        engine: &Engine,
        per_reactor: PerReactor,
    ) -> Result<Self, ServerError> {
        addresses.behind_store()?;
        inherited
            .into_iter()
            .try_for_each(|(address, descriptor)| addresses.streams.add_inherited(address, descriptor))?;
        let pool = step(|| Pool::start(COLD_THREADS)).map_err(ServerError::no_thread)?;
        // Before anything is answered: a client that has an answer finds every endpoint there.
        let neighbours = services::ServiceThreads::start(engine, &pool, options, per_reactor.connections())?;
        Ok(Self { addresses, pool, neighbours })
    }

    /// Starts every thread. The reactors answer once the gate is opened.
    fn start(
        mut self,
        engine: &Engine,
        plan: &Plan,
        options: &ServeOptions,
        per_reactor: PerReactor,
        gate: &Gate,
    ) -> Result<(Threads, Addresses), ServerError> {
        let (config, spin) = (per_reactor.config(options), options.spin == Switch::On);
        let webhooks = step(|| webhooks::WebhookThread::start(engine))?;
        let housekeeper = step(|| Housekeeper::start(engine))?;
        let start = ReactorStart::new(engine, &plan.front, &self.pool, config, spin, gate);
        let mut reactors: Vec<ReactorThread> = start.streams(&mut self.addresses.streams)?;
        reactors.extend(start.rpc(plan.reactors, &mut self.addresses.rpc)?);
        self.addresses.streams.paths = self.addresses.take_paths();
        Ok((Threads { reactors, neighbours: self.neighbours, webhooks, housekeeper }, self.addresses))
    }
}

impl Addresses {
    /// Opens what is to be opened before the store, if it is made by this start.
    fn before_store(plan: &Plan, options: &ServeOptions) -> Result<Self, ServerError> {
        let listen = ListenOptions {
            identity: plan.certificate.as_ref().map(|certificate| certificate.identity()),
            guarded: plan.front.is_guarded(),
        };
        let (mut streams, mut rpc) = (Listeners::new(plan.reactors, listen), Listeners::new(1, listen));
        let left = if preflight::makes_store(options) {
            let is_to_come = |path: &Path| preflight::is_made_with(path, &options.data);
            [streams.open(&plan.streams, is_to_come)?, rpc.open(&plan.rpc, is_to_come)?]
        } else {
            [plan.streams.clone(), plan.rpc.clone()]
        };
        Ok(Self { streams, rpc, left })
    }

    /// Unix paths that lead to listeners of either.
    fn take_paths(&mut self) -> Vec<BoundPath> {
        let mut paths = std::mem::take(&mut self.streams.paths);
        paths.append(&mut self.rpc.paths);
        paths
    }

    /// Opens what was left.
    fn behind_store(&mut self) -> Result<(), ServerError> {
        let [streams, rpc] = std::mem::take(&mut self.left);
        self.streams.open(&streams, |_| false)?;
        self.rpc.open(&rpc, |_| false)?;
        Ok(())
    }

    /// Says where the server is reached.
    fn greet(&self, threads: &Threads, limits: &Limits, is_guarded: bool, output: Output) {
        let (streams, rpc) = (&self.streams.addresses[..], &self.rpc.addresses[..]);
        Greeting { streams, rpc, neighbours: &threads.endpoints(), limits, is_guarded }.say(output);
    }
}

#[cfg(test)]
mod tests;
