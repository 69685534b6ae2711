//! `cargo xtask bench NAME`: ours, its peers and the floor in turn, so that what drifts drifts for all. Each
//! benchmark makes rows; what becomes of rows is the same for all: medians with their spread, a line per row
//! on the way, JSON, a table and a plot under `bench/results/`, and, with `--check`, a verdict on those with
//! a bar.

mod callers;
pub(crate) mod endurance;
mod erlang;
mod event_loop;
mod ipc;
mod line;
mod log;
mod plot;
mod quantity;
mod report;
mod results;
mod row;
mod rpc;
mod samples;
mod state;
mod statistics;
mod streams;

use crate::Outcome;
use crate::harness::options::Options;

/// `cargo xtask bench NAME`.
///
/// # Errors
/// An unknown name, or something does not build or start.
pub(crate) fn run(options: &Options) -> Outcome {
    match options.words.first().map(String::as_str) {
        Some("streams") => streams::run(options),
        Some("log") => log::run(options),
        Some("loop") => event_loop::run(options),
        Some("erlang") => erlang::run(options),
        Some("ipc") => ipc::run(options),
        Some("rpc") => rpc::run(options),
        Some("state") => state::run(options),
        _ => Err("which one? There are: streams, log, loop, ipc, rpc, state, erlang".to_owned()),
    }
}

/// How often ours and the others are measured in turn.
fn pairs(options: &Options) -> Result<usize, String> {
    options.value("pairs", if options.flag("tiny") { 1 } else { 5 })
}
