//! `thalweg serve`: reactors, listeners, engine and signals, wired together.
//!
//! One thread per reactor; the first thread waits for signals and does the store's housekeeping, so that
//! nothing that may wait for a disk runs on a reactor.

use crate::arguments::{ServeOptions, Switch};
use crate::engine::{Engine, Service};
use crate::listen::{self, Listen};
use crate::logging;
use crate::webhooks;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use thalweg_http::{Config, Http, Listening, Message};
use thalweg_reactor::{Handle, Pool, Reactor};
use thalweg_sys::epoll::wait_readable;
use thalweg_sys::process::{parallelism, raise_descriptors_max};
use thalweg_sys::signal::{Signal, Signals, ignore_broken_pipes};

/// Descriptors beside connections: listeners, epolls, wakers, segments.
const DESCRIPTORS_BESIDE: u64 = 512;
/// Connections at once, unless something else is asked for.
const CONNECTIONS_DEFAULT: u32 = 65_536;
/// The store announces to 32 watchers, and what drives subscriptions is one of them.
const REACTORS_MAX: usize = 31;
/// Between two looks at the store's housekeeping.
const HOUSEKEEPING_MS: u32 = 5_000;
/// Between two looks at reactors that are ending.
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
    /// An address cannot be listened at.
    Listen(Listen, io::Error),
    /// The store cannot be served.
    Store(String),
    /// The system refused something else.
    System(&'static str, io::Error),
    /// A reactor ended by itself.
    Reactor,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reachable(place) => write!(
                out,
                "other machines could reach {place}, and there is no authentication: listen on 127.0.0.1, or add \
                 --insecure-listen-anywhere if something in front protects it"
            ),
            Self::Listen(place, error) => {
                write!(out, "cannot listen at {place}: {error}")?;
                if error.kind() == io::ErrorKind::AddrInUse {
                    write!(out, "; is another server running? choose another place with --listen")?;
                }
                Ok(())
            }
            Self::Store(why) => write!(out, "{why}"),
            Self::System(action, error) => write!(out, "cannot {action}: {error}"),
            Self::Reactor => write!(out, "a reactor ended unasked; see the log above"),
        }
    }
}

/// A reactor on its thread.
struct Running {
    handle: Handle<Message>,
    thread: JoinHandle<()>,
}

/// Runs the server until it is asked to end.
///
/// # Errors
/// What kept it from starting, or ended it.
pub(crate) fn serve(options: &ServeOptions) -> Result<(), Failure> {
    logging::start(options.log_format, options.log_level);
    if let Some(place) = options.listen.iter().find(|place| !place.is_local())
        && !options.insecure_listen_anywhere
    {
        return Err(Failure::Reachable(place.clone()));
    }
    let signals = Signals::take().map_err(|error| Failure::System("wait for signals", error))?;
    ignore_broken_pipes();
    let reactors = options.reactors.map_or_else(|| parallelism().min(REACTORS_MAX), |count| count as usize);
    let connections_max = connections_max(options);
    let engine = Engine::open(&options.data, options.durability).map_err(Failure::Store)?;
    let mut doors =
        listen::open(&options.listen, reactors).map_err(|(place, error)| Failure::Listen(place, error))?;
    let config = http_config(options, connections_max.div_ceil(reactors));
    let pool = Pool::start(COLD_THREADS).map_err(|error| Failure::System("start a thread", error))?;
    let mut running = Vec::with_capacity(reactors);
    for (index, listening) in std::mem::take(&mut doors.per_reactor).into_iter().enumerate() {
        running.push(start(index, &engine, &pool, config, options.spin == Switch::On, listening)?);
    }
    let webhooks = webhooks::Running::start(&engine)?;
    tracing::info!(
        reactors,
        connections_max,
        body_bytes_max = config.body_bytes_max,
        pipeline_max = config.pipeline_max,
        durability = ?options.durability,
        "serving"
    );
    greet(&doors.places);
    watch(&signals, &engine, &running)?;
    tracing::info!(grace_ms = options.drain_grace_ms, "ending: a second signal ends at once");
    drop(doors.paths);
    let in_order = drain(&signals, running, options.drain_grace_ms);
    webhooks.end();
    if in_order {
        engine.close().map_err(Failure::Store)?;
    }
    Ok(())
}

/// As many connections as were asked for, or as descriptors allow.
fn connections_max(options: &ServeOptions) -> usize {
    let wanted = u64::from(options.connections_max.unwrap_or(CONNECTIONS_DEFAULT));
    let descriptors = raise_descriptors_max(wanted + DESCRIPTORS_BESIDE).unwrap_or(1_024);
    let possible = descriptors.saturating_sub(DESCRIPTORS_BESIDE).max(64);
    if possible < wanted && options.connections_max.is_some() {
        tracing::warn!(
            wanted,
            possible,
            "fewer connections than asked for: raise the descriptor limit (ulimit -n)"
        );
    }
    usize::try_from(wanted.min(possible)).unwrap_or(usize::MAX)
}

fn http_config(options: &ServeOptions, connections_max: usize) -> Config {
    Config {
        body_bytes_max: options.body_max_bytes,
        connections_max,
        long_poll_timeout_ms: options.long_poll_timeout_ms,
        sse_lifetime_ms: options.sse_lifetime_ms,
        ..Config::default()
    }
}

fn start(
    index: usize,
    engine: &Engine,
    pool: &Pool,
    config: Config,
    spin: bool,
    listening: Vec<Listening>,
) -> Result<Running, Failure> {
    let entries = config.connections_max + Http::<Service>::entries_beside(listening.len());
    let reactor_config = thalweg_reactor::Config {
        entries_max: u32::try_from(entries).unwrap_or(u32::MAX),
        // A message per topic that connections here follow, and some for completions under way.
        mailbox_max: entries + 4_096,
        spin,
        ..thalweg_reactor::Config::default()
    };
    // A reactor lives and dies on its thread; only its handle comes back.
    let (sender, receiver) = channel();
    let (engine, pool) = (engine.clone(), pool.clone());
    let run = move || {
        let built = Reactor::new(reactor_config, |core| {
            let service = engine.service(core.handle())?;
            Http::new(core, service, config, listening).map(|http| http.with_pool(pool))
        });
        let outcome = built.and_then(|mut reactor: Reactor<Http<Service>>| {
            // Whoever started this thread waits for the handle.
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
    Ok(Running { handle, thread })
}

/// Says where the server is and what to try. Standard output may be closed: then nobody wanted to know.
fn greet(places: &[Listen]) {
    let mut text = String::new();
    for place in places {
        text += &format!("thalweg is listening on {place}\n");
    }
    let url = places.iter().find(|place| matches!(place, Listen::Tcp(_))).map(Listen::to_string);
    if let Some(url) = url {
        text += &format!(
            "try:\n  curl -X PUT {url}/v1/stream/hello -H 'Content-Type: text/plain'\n  \
             curl -X POST {url}/v1/stream/hello -H 'Content-Type: text/plain' -d 'hello, stream'\n  \
             curl -N '{url}/v1/stream/hello?offset=-1&live=sse'\n"
        );
    }
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Waits for the signal to end, and keeps the store's house meanwhile.
fn watch(signals: &Signals, engine: &Engine, running: &[Running]) -> Result<(), Failure> {
    loop {
        if wait(signals, HOUSEKEEPING_MS)? {
            return Ok(());
        }
        if running.iter().any(|reactor| reactor.thread.is_finished()) {
            return Err(Failure::Reactor);
        }
        engine.keep_house();
    }
}

/// Waits at most so long; whether a signal to end arrived.
fn wait(signals: &Signals, timeout_ms: u32) -> Result<bool, Failure> {
    let failed = |error| Failure::System("wait for signals", error);
    if !wait_readable(signals.as_fd(), timeout_ms).map_err(failed)? {
        return Ok(false);
    }
    match signals.next().map_err(failed)? {
        Some(Signal::Terminate | Signal::Interrupt) => Ok(true),
        Some(Signal::HangUp) => {
            tracing::info!("SIGHUP: there is nothing to reload");
            Ok(false)
        }
        None => Ok(false),
    }
}

/// Lets every reactor end in good order, or at once on another signal. Whether it was in good order.
fn drain(signals: &Signals, running: Vec<Running>, grace_ms: u32) -> bool {
    for reactor in &running {
        if reactor.handle.post(Message::Drain { grace_ms }).is_err() {
            reactor.handle.stop();
        }
    }
    let mut in_order = true;
    while running.iter().any(|reactor| !reactor.thread.is_finished()) {
        if in_order && matches!(wait(signals, ENDING_MS), Ok(true) | Err(_)) {
            tracing::warn!("ending at once");
            in_order = false;
            running.iter().for_each(|reactor| reactor.handle.stop());
        } else if !in_order {
            std::thread::sleep(std::time::Duration::from_millis(u64::from(ENDING_MS)));
        }
    }
    for reactor in running {
        in_order &= reactor.thread.join().is_ok();
    }
    in_order
}
