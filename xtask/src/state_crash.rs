//! `cargo xtask state-crash`: `kill -9` of a server in the middle of commits, sessions, forks and images of the state, again
//! and again. What is acknowledged is held against what is there by a client of its own, which knows the state's digest.

use crate::options::Options;
use crate::server::build;
use crate::{Outcome, Tally};
use std::process::Command;

/// `cargo xtask state-crash [--rounds N] [--seed N]`.
///
/// # Errors
/// The programs do not build or start.
pub(crate) fn run(options: &Options) -> Outcome {
    let rounds: usize = options.value("rounds", 5)?;
    let seed: u64 = options.value("seed", 1)?;
    let server = build("thalweg-server", "thalweg")?;
    let client = build("thalweg-bench", "thalweg-state-bench")?;
    let status = Command::new(client)
        .args(["crash", "--rounds", &rounds.to_string(), "--seed", &seed.to_string(), "--program"])
        .arg(server)
        .status()
        .map_err(|e| format!("the client: {e}"))?;
    let mut tally = Tally::default();
    tally.check(status.success(), || format!("seed {seed}: what is there is not what was acknowledged"));
    Ok(tally)
}
