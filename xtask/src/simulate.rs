//! `cargo xtask simulate [--seeds N]`: the crash simulations, each over as many seeds: of the log (with settling, retention,
//! reordered writes and a full disk), of the state, and of subscriptions. `cargo test` runs a hundred seeds of each.

use crate::bench::endurance::{self, Asked, Found};
use crate::options::Options;
use crate::server::{root, target};
use crate::{Outcome, Tally};
use std::process::Command;

/// Package and test of each.
const SIMULATIONS: [(&str, &str); 3] = [
    ("thalweg-log", "tests::sim::acknowledged_commits_survive_and_others_are_whole_or_absent"),
    ("thalweg-state", "crash_tests::nothing_acknowledged_is_lost_with_any_image"),
    ("thalweg-streams", "subscriptions::crash::what_was_told_survives_and_leases_fence_across_crashes"),
];
/// Seeds that are asked to be clean.
const SEEDS_BAR: u32 = 20_000;

/// `cargo xtask simulate`.
///
/// # Errors
/// The tests cannot be started.
pub(crate) fn run(options: &Options) -> Outcome {
    let seeds: u32 = options.value("seeds", SEEDS_BAR)?;
    let only = options.text("only", "");
    let mut tally = Tally::default();
    let mut found = Vec::new();
    for (package, test) in SIMULATIONS.into_iter().filter(|(package, _)| package.contains(only)) {
        let output = Command::new("cargo")
            .args(["test", "--quiet", "--release", "--locked", "--lib", "-p", package, "--", "--exact", test])
            .env("CARGO_TARGET_DIR", target())
            .env("THALWEG_SEEDS", seeds.to_string())
            .current_dir(root())
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        // A name that no test has would pass as well.
        let ran = said.contains("test result: ok. 1 passed");
        let clean = output.status.success() && ran;
        println!("simulate {package}: {seeds} seeds, {}", if clean { "clean" } else { "not clean" });
        tally.check(clean, || format!("{package}:\n{}", last_lines(&said)));
        let clean_seeds = if clean { f64::from(seeds) } else { 0.0 };
        found.push(Found {
            work: format!("crash simulation of {package}"),
            unit: "seeds without a fault",
            figure: clean_seeds,
            asked: Asked::AtLeast(f64::from(SEEDS_BAR)),
        });
    }
    endurance::record(options, "simulate", &found)?;
    Ok(tally)
}

fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
