//! `cargo xtask state-crash`: `kill -9` of a server in the middle of commits, sessions, forks and images of
//! the state, again and again; `--record` puts down what that came to. What is acknowledged is held against
//! what is there by a client of its own, which knows the state's digest.

use crate::bench::endurance::{self, Asked, Found};
use crate::harness::options::Options;
use crate::harness::server::build;
use crate::{Outcome, Tally};
use std::process::Command;

/// Kills that are asked to take nothing along.
const ROUNDS_BAR: u32 = 50;

/// `cargo xtask state-crash [--rounds N] [--seed N] [--record]`.
///
/// # Errors
/// The programs do not build or start.
pub(crate) fn run(options: &Options) -> Outcome {
    let rounds: u32 = options.value("rounds", 5)?;
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
    let found = Found {
        work: "the state, killed in the middle of commits, sessions, forks and images".to_owned(),
        unit: "kills that took nothing along",
        figure: if status.success() { f64::from(rounds) } else { 0.0 },
        asked: Asked::AtLeast(f64::from(ROUNDS_BAR)),
    };
    endurance::record(options, "state-crash", &[found])?;
    Ok(tally)
}
