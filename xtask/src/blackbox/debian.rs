//! Starts a server and runs the example that sends Debian's package index through it and back.

use crate::harness::options::Options;
use crate::harness::server::{Launch, Program, Scratch, root};
use crate::{Outcome, Tally};
use std::process::Command;

/// `cargo xtask debian`.
///
/// # Errors
/// The server or node cannot be started, or the example's packages are missing.
pub(crate) fn run(options: &Options) -> Outcome {
    let example = root().join("examples/debian-packages");
    if !example.join("node_modules/@durable-streams/client").exists() {
        return Err("the client is not installed: `make tools`, or `npm ci` in the example".to_owned());
    }
    let launch = Launch::new(Program::of(options), options.text("durability", "sync"))?;
    let scratch = Scratch::new("debian")?;
    let server = launch.start(&scratch.path().join("data"))?;
    let mut command = Command::new("node");
    command.arg("main.js").arg(server.url()).current_dir(example);
    let records: u64 = options.value("records", 0)?;
    if records > 0 {
        command.arg(records.to_string());
    }
    let status = command.status().map_err(|e| format!("node: {e}"))?;
    let mut tally = Tally::default();
    tally.check(status.success(), || format!("{status}; the server said: {}", server.last_words()));
    Ok(tally)
}
