//! The store is opened, with what the options say of it. It may take long (a slow disk, much to replay), and
//! can be ended all the same.

use super::plan::Plan;
use super::signals::interruptible;
use super::{Process, ServerError, step};
use crate::command_line::{ServeOptions, StateHistory, WebhooksLoopback};
use crate::engine::{Engine, Retain};
use crate::logging::Logging;
use parking_lot::Mutex;
use thalweg_streams::Loopback;
use thalweg_sys::signal::Signal;
use thalweg_transport::BoundPath;

/// Opens the store that the options name. A signal that ends the program meanwhile takes away the paths that
/// were bound before.
///
/// # Errors
/// Why it cannot be served.
pub(super) fn open_store(
    process: &Process,
    options: &ServeOptions,
    plan: &Plan,
    streams_max: u64,
    paths: &Mutex<Vec<BoundPath>>,
) -> Result<Engine, ServerError> {
    let retain = Retain { seconds: options.retain_seconds, bytes: options.retain_bytes };
    let state = state_options(options, streams_max);
    let open = || Engine::open(&options.data, options.durability, retain, state);
    let Process { signals, logging } = process;
    let engine = step(|| interruptible(signals, |signal| end_at_once(signal, paths, logging), open));
    let engine = engine.map_err(|error| ServerError::System("hear of signals", error))?;
    let engine = engine.map_err(ServerError::Store)?.with_sharing(plan.front.sharing());
    Ok(engine.with_webhooks_loopback(webhooks_loopback(options, plan)).with_streams_max(streams_max))
}

/// Whose webhooks may go to this very machine.
fn webhooks_loopback(options: &ServeOptions, plan: &Plan) -> Loopback {
    let is_allowed = match options.webhooks_loopback {
        WebhooksLoopback::On => true,
        WebhooksLoopback::Off => false,
        WebhooksLoopback::Auto => plan.is_apart() && !plan.front.is_guarded(),
    };
    if is_allowed { plan.front.loopback() } else { Loopback::Never }
}

/// Of a server that has served nothing yet.
fn end_at_once(signal: Signal, paths: &Mutex<Vec<BoundPath>>, logging: &Logging) {
    paths.lock().clear();
    tracing::info!(?signal, "ending: nothing was served yet");
    logging.flush();
    std::process::exit(0)
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
