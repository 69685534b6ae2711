//! Everything `make test` runs once its tools are there, step by step, with a table at the end. A step's own
//! summary lines are counted: `test result: ok. N passed; N failed` (cargo) and `name: N passed, N failed`
//! (ours). A step that counts nothing counts as one check.

use crate::options::Options;
use crate::server::{root, target};
use crate::{Outcome, Tally};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A step: its name, the cargo command, and what is set in its environment.
struct Step {
    name: &'static str,
    command: &'static str,
    environment: &'static [(&'static str, &'static str)],
    /// Builds into a target directory of its own, so that flags do not undo each other's caches.
    apart: Option<&'static str>,
}

const fn step(name: &'static str, command: &'static str) -> Step {
    Step { name, command, environment: &[], apart: None }
}

const STEPS: &[Step] = &[
    step("format", "fmt --all --check"),
    step("clippy", "clippy --quiet --workspace --all-targets -- -D warnings"),
    step("tidy", "xtask tidy"),
    step("tests", "test --workspace --no-fail-fast"),
    Step {
        name: "loom",
        command: "test -p thalweg-sync --lib --release",
        environment: &[("RUSTFLAGS", "--cfg loom")],
        apart: Some("loom"),
    },
    Step {
        name: "simulation",
        command: "test -p thalweg-log --lib tests::sim -- --nocapture",
        environment: &[("THALWEG_SEEDS", "100")],
        apart: None,
    },
    step("conformance-sync", "xtask conformance --durability sync --restart"),
    step("conformance-os", "xtask conformance --durability os --restart"),
    step("conformance-memory", "xtask conformance --durability memory"),
    step("debian", "xtask debian"),
    step("refusals", "xtask refusals"),
    step("judges", "xtask judges"),
    step("node", "xtask node"),
    step("python", "xtask python"),
    step("asyncio", "xtask asyncio"),
    step("asyncio-libraries", "xtask asyncio --libraries"),
    step("codegen", "xtask codegen --check"),
    step("faults", "xtask faults --check"),
    step("header", "xtask header --check"),
    step("cpp", "xtask cpp"),
    step("zig", "xtask zig"),
    step("erlang", "xtask erlang"),
    step("golden", "xtask golden"),
    step("guide", "xtask guide"),
    step("matrix", "xtask matrix"),
    step("full", "xtask full"),
    step("fuzz", "xtask fuzz --seconds 5"),
    step("damage", "xtask damage"),
    step("crash", "xtask crash --rounds 20"),
    step("state-crash", "xtask state-crash --rounds 5"),
    step("drain", "xtask drain --subscribers 10000"),
    step("empty", "xtask empty"),
    step("forks", "xtask forks --streams 4000 --bytes 33554432 --seconds 1"),
    step("streams-million", "xtask streams-million --streams 20000"),
    step("slopes", "xtask slopes --sizes 0,1000,2000,4000"),
    step("bench", "xtask bench streams --tiny"),
    step("bench-log", "xtask bench log --tiny"),
    step("bench-ipc", "xtask bench ipc --tiny"),
    step("bench-rpc", "xtask bench rpc --tiny"),
    step("bench-loop", "xtask bench loop --tiny"),
    step("bench-state", "xtask bench state --tiny"),
    step("bench-erlang", "xtask bench erlang --tiny"),
    Step {
        name: "documents",
        command: "doc --quiet --workspace --no-deps --document-private-items",
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
        apart: None,
    },
    step("serve", "build --quiet --release --bin thalweg"),
];

/// What became of a step.
struct Done {
    name: &'static str,
    tally: Tally,
    took: Duration,
}

/// `cargo xtask ci`.
///
/// # Errors
/// An unknown step, or cargo cannot be started.
pub(crate) fn run(options: &Options) -> Outcome {
    if options.flag("list") {
        STEPS.iter().for_each(|s| println!("{:<20} cargo {}", s.name, s.command));
        return Ok(Tally::default());
    }
    let only: Vec<&str> = options.text("only", "").split(',').filter(|w| !w.is_empty()).collect();
    if let Some(unknown) = only.iter().find(|name| STEPS.iter().all(|s| s.name != **name)) {
        return Err(format!("no step {unknown}: see --list"));
    }
    let mut done = Vec::new();
    for step in STEPS.iter().filter(|s| only.is_empty() || only.contains(&s.name)) {
        println!("\n== {}: cargo {}", step.name, step.command);
        let started = Instant::now();
        let tally = perform(step)?;
        done.push(Done { name: step.name, tally, took: started.elapsed() });
    }
    println!("\n{:<20}{:>8}{:>8}{:>10}", "suite", "passed", "failed", "seconds");
    let mut total = Tally::default();
    for Done { name, tally, took } in &done {
        println!("{name:<20}{:>8}{:>8}{:>10.1}", tally.passed, tally.failed, took.as_secs_f64());
        total.passed += tally.passed;
        total.failed += tally.failed;
    }
    Ok(total)
}

fn perform(step: &Step) -> Outcome {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(step.command.split(' ')).current_dir(root()).stdout(Stdio::piped());
    command.envs(step.environment.iter().copied());
    if let Some(apart) = step.apart {
        command.env("CARGO_TARGET_DIR", beside(apart));
    }
    let mut child = command.spawn().map_err(|e| format!("cargo: {e}"))?;
    let mut tally = Tally::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map_err(|e| e.to_string())?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            if let Some(counted) = count(&line, step.name) {
                tally.passed += counted.passed;
                tally.failed += counted.failed;
            }
        }
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    if tally == Tally::default() {
        tally.check(status.success(), || format!("{}: {status}", step.name));
        // A filter that selects no test is a step that checked nothing.
        if step.command.starts_with("test ") && status.success() {
            return Ok(Tally { passed: 0, failed: 1 });
        }
    } else if !status.success() && tally.failed == 0 {
        tally.failed += 1;
    }
    Ok(tally)
}

/// A target directory next to the usual one.
fn beside(apart: &str) -> std::path::PathBuf {
    let mut name = target().into_os_string();
    name.push("-");
    name.push(apart);
    name.into()
}

/// The summary in a line, if it is one: cargo's per-binary lines, or the closing line of one of our tasks.
fn count(line: &str, step: &str) -> Option<Tally> {
    let (name, rest) = line.split_once(": ")?;
    let rest = if name == "test result" {
        rest.split_once(". ")?.1
    } else if step.starts_with(name) && !name.contains(' ') {
        rest
    } else {
        return None;
    };
    let mut parts = rest.split([',', ';']).map(str::trim);
    let number = |part: Option<&str>, word: &str| part?.strip_suffix(word)?.trim().parse().ok();
    Some(Tally { passed: number(parts.next(), "passed")?, failed: number(parts.next(), "failed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_counted_once() {
        let cargo = "test result: FAILED. 12 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out";
        assert_eq!(count(cargo, "tests"), Some(Tally { passed: 12, failed: 1 }));
        let ours = "conformance: 500 passed, 0 failed";
        assert_eq!(count(ours, "conformance-sync"), Some(Tally { passed: 500, failed: 0 }));
        // A judge's lines on the way to its closing line are not counted again.
        assert_eq!(count("conformance 0.3.6, sync: 250 passed, 0 failed", "conformance-sync"), None);
        assert_eq!(count("running: 3 things", "tests"), None);
    }

    #[test]
    fn steps_have_names_of_their_own() {
        for (n, step) in STEPS.iter().enumerate() {
            assert!(STEPS[n + 1..].iter().all(|other| other.name != step.name), "{}", step.name);
        }
    }
}
