//! `cargo xtask simulate [--seeds N] [--operations N] [--first N|now] [--profile NAME]`: the crash
//! simulations, each over as many seeds: of the log (with compaction, purges, retention, reordered writes and
//! a full disk; in `sync` mode and in `os` mode, beside each other), of the state, and of subscriptions; and
//! random operations of 16 clients on the state, held against a serial model. `cargo test` runs the first
//! hundred seeds of each, and fewer operations; `--first now` begins with seeds that were never run, and says
//! with which.

use crate::bench::endurance::{self, Asked, Found};
use crate::harness::options::Options;
use crate::harness::server::{root, target};
use crate::{Outcome, Tally};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Tests that do as much as they are told, each of them, at the same time.
struct Simulation {
    package: &'static str,
    /// Which of the package's tests.
    place: &'static [&'static str],
    tests: &'static [&'static str],
    work: &'static str,
    measure: Measure,
}

/// What a simulation is told, and what it is asked for.
struct Measure {
    option: &'static str,
    variable: &'static str,
    unit: &'static str,
    asked: u32,
}

const SEEDS: Measure =
    Measure { option: "seeds", variable: "THALWEG_SEEDS", unit: "seeds without a fault", asked: 20_000 };
const OPERATIONS: Measure = Measure {
    option: "operations",
    variable: "THALWEG_OPERATIONS",
    unit: "operations without an anomaly",
    asked: 1_000_000,
};

const SIMULATIONS: [Simulation; 4] = [
    Simulation {
        package: "thalweg-log",
        place: &["--lib"],
        tests: &[
            "tests::sim::acknowledged_commits_survive_and_others_are_whole_or_absent",
            "tests::sim::in_os_mode_a_power_cut_takes_whole_commits_from_the_end_and_none_that_was_flushed",
        ],
        work: "crash simulation of thalweg-log",
        measure: SEEDS,
    },
    Simulation {
        package: "thalweg-state",
        place: &["--lib"],
        tests: &["crash_tests::nothing_acknowledged_is_lost_with_any_image"],
        work: "crash simulation of thalweg-state",
        measure: SEEDS,
    },
    Simulation {
        package: "thalweg-streams",
        place: &["--lib"],
        tests: &["subscriptions::crash::what_was_told_survives_and_leases_fence_across_crashes"],
        work: "crash simulation of thalweg-streams",
        measure: SEEDS,
    },
    Simulation {
        package: "thalweg-state",
        place: &["--test", "history"],
        tests: &["every_fork_is_serial"],
        work: "16 clients of the state beside a serial model",
        measure: OPERATIONS,
    },
];

/// `cargo xtask simulate`.
///
/// # Errors
/// The tests cannot be started.
pub(crate) fn run(options: &Options) -> Outcome {
    let only = options.text("only", "");
    let profile = options.text("profile", "release");
    let first = first(options.text("first", "0"))?;
    let mut tally = Tally::default();
    let mut found = Vec::new();
    for simulation in SIMULATIONS.iter().filter(|simulation| simulation.work.contains(only)) {
        let Measure { option, unit, asked, .. } = simulation.measure;
        let amount: u32 = options.value(option, asked)?;
        let complaint = simulation.run(amount, first, profile)?;
        let clean = complaint.is_none();
        let from = if option == SEEDS.option { format!(", from {first}") } else { String::new() };
        let so = if clean { "" } else { ": not so" };
        println!("simulate {}: {amount} {unit}{from}{so}", simulation.work);
        tally.check(clean, || format!("{}:\n{}", simulation.work, complaint.unwrap_or_default()));
        found.push(Found {
            work: simulation.work.to_owned(),
            unit,
            figure: if clean { f64::from(amount) } else { 0.0 },
            asked: Asked::AtLeast(f64::from(asked)),
        });
    }
    endurance::record(options, "simulate", &found)?;
    Ok(tally)
}

/// The first seed: a number, or the seconds of the clock.
fn first(said: &str) -> Result<u64, String> {
    if said == "now" {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        return Ok(now.map_err(|error| error.to_string())?.as_secs());
    }
    said.parse().map_err(|error| format!("--first {said}: {error}"))
}

impl Simulation {
    /// Runs it, and answers what it said if it failed.
    fn run(&self, amount: u32, first: u64, profile: &str) -> Result<Option<String>, String> {
        // Of the tests' profile everything is built already, as one: a package alone would be built anew,
        // because what others ask of its dependencies is missing there.
        let built: &[&str] = if profile == "test" { &["--workspace"] } else { &["-p", self.package] };
        let output = Command::new("cargo")
            .args(["test", "--quiet", "--profile", profile, "--locked"])
            .args(built)
            .args(self.place)
            .args(["--", "--exact"])
            .args(self.tests)
            .env("CARGO_TARGET_DIR", target())
            .env(self.measure.variable, amount.to_string())
            .env("THALWEG_SEED_FIRST", first.to_string())
            .current_dir(root())
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        // A name that no test has would pass as well, and one that two packages have would be run twice.
        let passed = format!("test result: ok. {} passed", self.tests.len());
        let ran = said.matches(&passed).count() == 1;
        Ok((!output.status.success() || !ran).then(|| told(&said)))
    }
}

/// Lines of what a simulation said that are told.
const TOLD_LINES: usize = 40;

/// What it said from the first panic on: the one that came upon the fault, which the seed need not bring
/// back where threads had a part in it. Failing that, its last lines.
fn told(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    let last = lines.len().saturating_sub(TOLD_LINES);
    let from = lines.iter().position(|line| line.contains("panicked at")).unwrap_or(last);
    lines[from..lines.len().min(from + TOLD_LINES)].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_panic_is_told_however_much_comes_behind_it() {
        let lines = |name: &str| (0..100).map(|n| format!("{name} {n}\n")).collect::<String>();
        let said = lines("before") + "thread 'a' panicked at b.rs:1:1:\nthe cause\n" + &lines("behind");
        let told_lines: Vec<_> = told(&said).lines().map(str::to_owned).collect();
        assert_eq!(told_lines[1], "the cause");
        assert_eq!(
            (told_lines.len(), told(&lines("before")).lines().last()),
            (TOLD_LINES, Some("before 99"))
        );
    }
}
