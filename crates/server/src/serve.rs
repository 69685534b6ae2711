//! `thalweg serve`: reactors, listeners, engine and signals, wired together.
//!
//! One thread per reactor; the first thread waits for signals, and another does the store's housekeeping, so
//! that nothing that may wait for a disk runs on a reactor.

use crate::access::{Certificate, CertificateError, TokensError};
use crate::arguments::{ServeOptions, StateHistory, Switch, WebhooksLoopback};
use crate::client::Output;
use crate::config::Configuration;
use crate::descriptors::TooFew;
use crate::engine::{Engine, Retain};
use crate::front::{Front, Fronted, Served};
use crate::greeting::Greeting;
use crate::housekeeping::Housekeeper;
use crate::limits::Limits;
use crate::listen::{self, Doors, Keeping, Listen, Place};
use crate::listen_conflicts::ListenConflict;
use crate::logging::Logging;
use crate::per_reactor::PerReactor;
use crate::plan::Plan;
use crate::rpc::Doing;
use crate::second_signal::FirstSignal;
use crate::startup_signals::interruptible;
use crate::systemd::{self, Supervisor};
use crate::threads::{ReactorThread, Threads};
use crate::{EXIT_CONFIGURATION, EXIT_FAILED, services, webhooks};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;
use thalweg_http::{Config, Http, Listening, Message};
use thalweg_reactor::{Pool, Reactor};
use thalweg_streams::Loopback;
use thalweg_sync::places::Places;
use thalweg_sys::code;
use thalweg_sys::epoll::wait_readable;
use thalweg_sys::signal::{Signal, Signals, ignore_broken_pipes, ignore_full_files};

/// What a reactor watches beside its connections: services that live elsewhere.
const ATTACHED_MAX: usize = 64;
/// Between two looks at whether all threads are there.
const WATCHING_MS: u32 = 5_000;
/// Between two looks at threads that are ending.
const ENDING_MS: u32 = 10;
/// Threads that wait for the disk in place of the reactors.
const COLD_THREADS: usize = 2;
/// A reactor's thread. Only the part that is used takes memory.
const STACK_BYTES: usize = 512 * 1024;

/// Why the server does not run, or ended.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Somebody else could reach an address, and nothing would stop them.
    Reachable(Listen),
    /// There is no place where anybody could.
    Nowhere,
    /// Two of its places are one.
    ListenConflict(ListenConflict),
    /// The origins make no policy.
    Origins(String),
    /// The token file is not taken.
    Tokens(TokensError),
    /// The certificate or its key is not taken.
    Certificate(CertificateError),
    /// A place to listen at has a name, and no address is found for it.
    Unresolved(Place, io::Error),
    /// An address cannot be listened at.
    Listen(Listen, io::Error),
    /// The store cannot be served.
    Store(String),
    /// The log cannot be served to neighbours.
    Service(thalweg_service::Error),
    /// Services cannot be called.
    Rpc(String),
    /// More reactors than the store announces to.
    Reactors {
        /// How many were asked for.
        asked: usize,
        /// How many there may be, with what each of them serves.
        most: usize,
    },
    /// Too few descriptors to serve anybody.
    Descriptors(TooFew),
    /// The system refused something else.
    System(&'static str, io::Error),
    /// A thread ended by itself.
    Reactor,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reachable(place) => write!(
                out,
                "other machines could reach {place}, and everybody may do everything: name a token file with --tokens, \
                 listen on 127.0.0.1, or add --insecure-listen-anywhere if something in front protects it"
            ),
            Self::Nowhere => out.write_str(
                "listen is empty, and nothing else is listened at: name an address with --listen, or leave it to the default",
            ),
            Self::ListenConflict(conflict) => write!(out, "{conflict}"),
            Self::Origins(why) => write!(out, "--cors-origins: {why}"),
            Self::Tokens(error) => write!(out, "{error}"),
            Self::Certificate(error) => write!(out, "{error}"),
            Self::Unresolved(place, error) => {
                write!(out, "cannot find the address of {place}: {error}; give an address instead of the name")
            }
            Self::Listen(place, error) => {
                write!(out, "cannot listen at {place}: {error}")?;
                out.write_str(match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        "; is another server running? choose another place with --listen"
                    }
                    io::ErrorKind::AddrNotAvailable => {
                        "; this machine has no such address: choose another with --listen"
                    }
                    io::ErrorKind::PermissionDenied => {
                        "; ports below 1024 take privileges: choose another place with --listen"
                    }
                    _ => "",
                })
            }
            Self::Store(why) => write!(out, "{why}"),
            Self::Service(error) => write!(out, "{error}; with --services off the server starts without them"),
            Self::Rpc(why) => write!(out, "--rpc: {why}"),
            Self::Reactors { asked, most } => write!(
                out,
                "--reactors {asked}: there may be {most}, for the store tells 32 of each commit, and a reactor that serves the \
                 log by JSON-RPC counts twice: --rpc-listen has one do that for all"
            ),
            Self::Descriptors(TooFew { limit, needed }) => write!(
                out,
                "only {limit} descriptors may be open, and this server takes {needed} to serve one connection: \
                 raise the limit (ulimit -n, LimitNOFILE=), or have fewer --reactors"
            ),
            Self::System(action, error) => write!(out, "cannot {action}: {error}"),
            Self::Reactor => write!(out, "a thread ended unexpectedly; see the log above"),
        }
    }
}

impl Failure {
    /// What the program ends with: a wrong configuration is told from what the machine or the store refuses.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Reachable(_)
            | Self::Nowhere
            | Self::ListenConflict(_)
            | Self::Origins(_)
            | Self::Tokens(_)
            | Self::Certificate(_)
            | Self::Rpc(_)
            | Self::Reactors { .. } => EXIT_CONFIGURATION,
            Self::Unresolved(..)
            | Self::Listen(..)
            | Self::Store(_)
            | Self::Service(_)
            | Self::Descriptors(_)
            | Self::System(..)
            | Self::Reactor => EXIT_FAILED,
        }
    }
}

/// What can change while the server runs.
struct Control<'a> {
    configuration: Configuration,
    /// The command line, to read the configuration again.
    line: &'a [OsString],
    logging: Logging,
    front: Front,
    certificate: Option<Certificate>,
    per_reactor: PerReactor,
}

/// What every reactor is started with.
struct Common<'a> {
    engine: &'a Engine,
    front: &'a Front,
    pool: &'a Pool,
    /// Of connections, on whichever reactor.
    places: Arc<Places>,
    config: Config,
    spin: bool,
}

/// What a server is to begin with.
struct Intent {
    /// Listeners that were handed over, and where they are.
    inherited: Vec<(Listen, OwnedFd)>,
    plan: Plan,
}

impl Intent {
    fn of(configuration: &Configuration) -> Result<Self, Failure> {
        // First of all: what was handed over has the descriptors that would be opened next.
        let inherited = systemd::listeners().and_then(listen::inherited);
        let inherited = inherited.map_err(|error| Failure::System("use the sockets handed over", error))?;
        let options = &configuration.options;
        let wanted =
            if inherited.is_empty() || configuration.listens_as_asked() { &options.listen[..] } else { &[] };
        let plan = Plan::of(options, inherited.iter().map(|(place, _)| place), wanted)?;
        Ok(Self { inherited, plan })
    }
}

/// Whether a server would begin with this configuration, as far as that can be told without opening anything.
///
/// # Errors
/// What is wrong with the configuration, or with what was handed over.
pub(crate) fn check(configuration: &Configuration) -> Result<usize, Failure> {
    Intent::of(configuration).map(|intent| intent.plan.reactors)
}

/// Runs the server until it is asked to end.
///
/// # Errors
/// What kept it from starting, or ended it.
pub(crate) fn serve(configuration: Configuration, line: &[OsString], output: Output) -> Result<(), Failure> {
    // The command line is read: what read it is not needed any more, and an idle server is to be small.
    code::release();
    let Intent { inherited, plan } = Intent::of(&configuration)?;
    code::release();
    let options = &configuration.options;
    let signals = Signals::take().map_err(|error| Failure::System("wait for signals", error))?;
    let logging = Logging::start(options.log_format, options.log_level)
        .map_err(|error| Failure::System("start a thread", error))?;
    ignore_broken_pipes();
    ignore_full_files();
    let per_reactor = PerReactor::of(options, plan.reactors, inherited.len() + plan.streams.len())
        .map_err(Failure::Descriptors)?;
    let limits = per_reactor.limits(options);
    let engine = open_engine(&signals, &logging, options, &plan, limits.streams)?;
    plan.warn();
    let Plan { front, streams, rpc, reactors, certificate, .. } = plan;
    let keeping =
        Keeping { identity: certificate.as_ref().map(Certificate::identity), guarded: front.is_guarded() };
    let doors = open_doors(&streams, inherited, reactors, keeping)
        .and_then(|doors| Ok((doors, open_doors(&rpc, Vec::new(), 1, keeping)?)));
    // A place that is taken is no reason for the next start to recover anything.
    let (mut doors, mut rpc_doors) = doors.inspect_err(|_| drop(engine.close()))?;
    let pool = Pool::start(COLD_THREADS).map_err(|error| Failure::System("start a thread", error))?;
    code::release();
    // Before anything is answered: a client that has an answer finds every endpoint there.
    let neighbours = services::Running::start(&engine, &pool, options, per_reactor.connections())?;
    code::release();
    let common = Common {
        engine: &engine,
        front: &front,
        pool: &pool,
        places: Arc::new(Places::new(per_reactor.connections())),
        config: per_reactor.config(options),
        spin: options.spin == Switch::On,
    };
    let mut reactor_threads = common.start_all(&mut doors)?;
    if let Some(listening) = rpc_doors.per_reactor.pop().filter(|listening| !listening.is_empty()) {
        reactor_threads.push(common.start(reactors, Doing::Rpc, listening)?);
        doors.paths.append(&mut rpc_doors.paths);
    }
    let threads = Threads {
        reactors: reactor_threads,
        neighbours,
        webhooks: webhooks::Running::start(&engine)?,
        housekeeper: Housekeeper::start(&engine)?,
    };
    code::release();
    per_reactor.warn(options, &limits);
    tracing::info!(reactors, durability = ?options.durability, %limits, "serving");
    let neighbours = threads.endpoints();
    let (places, rpc, is_guarded) = (&doors.places, &rpc_doors.places, front.is_guarded());
    Greeting { places, rpc, neighbours: &neighbours, limits: &limits, is_guarded }.say(output);
    let supervisor = Supervisor::from_environment();
    supervisor.ready();
    code::release();
    let mut control = Control { configuration, line, logging, front, certificate, per_reactor };
    let first = FirstSignal::now(watch(&signals, &threads, &mut control)?);
    let grace_ms = control.configuration.options.drain_grace_ms;
    tracing::info!(grace_ms, "ending: a second signal ends at once");
    supervisor.stopping();
    drop(doors.paths);
    // If signals cannot be read any more, the server ends at once.
    let asked_again = || match wait(&signals, ENDING_MS) {
        Ok(signal) => signal.is_some_and(|signal| first.is_followed_by_another(signal, Instant::now())),
        Err(_) => true,
    };
    threads.end(&engine, grace_ms, asked_again)
}

/// Opens the store. Between any two steps of the start what the last one ran is let go, so that the most a
/// start ever takes is what one step does.
fn open_engine(
    signals: &Signals,
    logging: &Logging,
    options: &ServeOptions,
    plan: &Plan,
    streams_max: u64,
) -> Result<Engine, Failure> {
    code::release();
    let retain = Retain { seconds: options.retain_seconds, bytes: options.retain_bytes };
    let state = state_options(options, streams_max);
    let open = || Engine::open(&options.data, options.durability, retain, state);
    let engine = interruptible(signals, |signal| end_at_once(signal, logging), open);
    let engine = engine.map_err(|error| Failure::System("hear of signals", error))?;
    code::release();
    let is_allowed = match options.webhooks_loopback {
        WebhooksLoopback::On => true,
        WebhooksLoopback::Off => false,
        WebhooksLoopback::Auto => plan.is_apart() && !plan.front.is_guarded(),
    };
    let webhooks_loopback = if is_allowed { plan.front.loopback() } else { Loopback::Never };
    let engine = engine.map_err(Failure::Store)?.with_sharing(plan.front.sharing());
    Ok(engine.with_webhooks_loopback(webhooks_loopback).with_streams_max(streams_max))
}

/// Of a server that has served nothing yet.
fn end_at_once(signal: Signal, logging: &Logging) {
    tracing::info!(?signal, "ending: nothing was served yet");
    logging.flush();
    std::process::exit(0)
}

/// Listens at every place, and at what was handed over.
fn open_doors(
    wanted: &[Listen],
    inherited: Vec<(Listen, OwnedFd)>,
    reactors: usize,
    keeping: Keeping<'_>,
) -> Result<Doors, Failure> {
    let mut doors =
        listen::open(wanted, reactors, keeping).map_err(|(place, error)| Failure::Listen(place, error))?;
    for (place, descriptor) in inherited {
        let added = doors.add_inherited(place.clone(), descriptor);
        added.map_err(|error| Failure::Listen(doors.spoken(place), error))?;
    }
    Ok(doors)
}

impl Control<'_> {
    /// Reads certificate and key again. Ones that are wrong change nothing.
    fn reload_certificate(&self) {
        match self.certificate.as_ref().map(Certificate::reload) {
            None => {}
            Some(Ok(())) => tracing::info!("certificate and key read again"),
            Some(Err(error)) => {
                tracing::error!(%error, "the certificate is not reloaded; the one in force stays")
            }
        }
    }

    /// Reads again what the configuration in force names, and then the configuration, and brings into force
    /// what can be. One that is wrong changes nothing.
    fn reload(&mut self, threads: &Threads) {
        // Neither waits for the other to be right: a token is withdrawn whatever else somebody is writing.
        self.front.reload(&self.configuration.options);
        self.reload_certificate();
        threads.webhooks.reload();
        let read = match Configuration::load(self.line) {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(
                    %error,
                    "the configuration is not reloaded; the one in force stays. Its tokens and its certificate, if it has any, were read again"
                );
                return;
            }
        };
        let changed = read.changed_from(&self.configuration);
        for key in &changed {
            if key.reloads {
                tracing::info!(key = key.name, "reloaded");
            } else {
                tracing::warn!(key = key.name, "changed in the configuration, and waits for a restart");
            }
        }
        self.configuration.take_over(read);
        let options = &self.configuration.options;
        self.logging.set_level(options.log_level);
        let config = Arc::new(self.per_reactor.config(options));
        for reactor in &threads.reactors {
            if reactor.handle.post(Message::Configure(config.clone())).is_err() {
                tracing::error!("a reactor is too far behind to be told its new limits: send SIGHUP again");
            }
        }
        tracing::info!(changed = changed.len(), "configuration read again");
    }
}

/// The bounds that a server with these options and this number of reactors has in all, if it can run.
pub(crate) fn limits(options: &ServeOptions, reactors: usize) -> Limits {
    let per_reactor = PerReactor::of(options, reactors, options.listen.len());
    per_reactor.unwrap_or_else(|_| PerReactor::with_room_for_one(options, reactors)).limits(options)
}

fn state_options(options: &ServeOptions, streams_max: u64) -> thalweg_state::Options {
    thalweg_state::Options {
        image_bytes: options.state_image_bytes,
        history: match options.state_history {
            StateHistory::Kept => thalweg_state::History::Kept,
            StateHistory::Trimmed => thalweg_state::History::Trimmed,
        },
        sessions_bytes_max: usize::try_from(options.state_sessions_max_bytes).unwrap_or(usize::MAX),
        logs_max: streams_max,
        ..thalweg_state::Options::default()
    }
}

impl Common<'_> {
    fn start_all(&self, doors: &mut Doors) -> Result<Vec<ReactorThread>, Failure> {
        let listening = std::mem::take(&mut doors.per_reactor).into_iter().enumerate();
        listening
            .map(|(index, listening)| {
                let running = self.start(index, Doing::Streams, listening);
                code::release();
                running
            })
            .collect()
    }

    fn start(&self, index: usize, doing: Doing, listening: Vec<Listening>) -> Result<ReactorThread, Failure> {
        let Self { config, spin, .. } = *self;
        let entries = config.connections_max + Http::<Served>::entries_beside(listening.len()) + ATTACHED_MAX;
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
        let places = self.places.clone();
        let run = move || {
            let built = Reactor::new(reactor_config, |core| {
                let Fronted { served, meters, attached } =
                    front.before(&engine, &pool, core.handle(), doing)?;
                let http = Http::new(core, served, config, listening)?;
                let http = http.with_pool(pool).with_places(places);
                let mut http = http.with_meters(meters).with_hosts(front.hosts());
                attached.into_iter().try_for_each(|descriptor| http.attach(core, descriptor))?;
                Ok::<_, io::Error>(http)
            });
            let outcome = built.and_then(|mut reactor: Reactor<Http<Served>>| {
                // The thread that started this one waits for the handle.
                let _ = sender.send(Ok(reactor.handle()));
                reactor.run()
            });
            if let Err(error) = outcome {
                tracing::error!(%error, index, "a reactor failed");
                let _ = sender.send(Err(error));
            }
        };
        let builder = std::thread::Builder::new().name(format!("reactor-{index}")).stack_size(STACK_BYTES);
        let thread = builder.spawn(run).map_err(|error| Failure::System("start a thread", error))?;
        let handle = receiver.recv().map_err(|_| Failure::Reactor)?;
        let handle = handle.map_err(|error: io::Error| Failure::System("start a reactor", error))?;
        Ok(ReactorThread { handle, thread })
    }
}

/// Waits for the signal to end, and says which it was.
fn watch(signals: &Signals, threads: &Threads, control: &mut Control<'_>) -> Result<Signal, Failure> {
    loop {
        match wait(signals, WATCHING_MS)? {
            Some(signal @ (Signal::Terminate | Signal::Interrupt)) => return Ok(signal),
            Some(Signal::HangUp) => control.reload(threads),
            None => {}
        }
        if threads.has_ended() {
            return Err(Failure::Reactor);
        }
    }
}

/// Waits at most so long for a signal.
fn wait(signals: &Signals, timeout_ms: u32) -> Result<Option<Signal>, Failure> {
    let failed = |error| Failure::System("wait for signals", error);
    if !wait_readable(signals.as_fd(), timeout_ms).map_err(failed)? {
        return Ok(None);
    }
    signals.next().map_err(failed)
}
