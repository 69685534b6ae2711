//! CPython's own tests of asyncio, with our loop in place of asyncio's: the wheel is built and installed into
//! an empty environment, and `faces/python/tests/loop_cpython` runs each module in a process, as many of them
//! at once as there are processors. Printed are how many tests ran, in how many of them our loop did, and why
//! each of the others was skipped. Tests that make loops of their own which only pretend run too: they show
//! that substituting ours disturbs nothing. With `--libraries`, popular libraries on our loop instead; with
//! `--newest`, the tests of the newest CPython, which the tools bring; with `--interpreter`, those of any
//! other.

mod libraries;

use crate::faces::python;
use crate::harness::at_once;
use crate::harness::options::Options;
use crate::harness::server::{Scratch, cache, root};
use crate::{Outcome, Tally};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// The modules, how many tests of each run at least, and in how many of them our loop does: fewer of the one
/// mean that tests were not found, fewer of the other that our loop was not put in place. Where loops only
/// pretend, it is zero.
const MODULES: &[(&str, u64, u64)] = &[
    ("test_streams", 67, 67),
    ("test_tasks", 910, 215),
    ("test_sock_lowlevel", 39, 39),
    ("test_taskgroups", 35, 35),
    ("test_timeouts", 32, 32),
    ("test_waitfor", 15, 15),
    ("test_queues", 44, 44),
    ("test_locks", 70, 70),
    ("test_runners", 26, 0),
    ("test_futures", 155, 0),
    ("test_server", 2, 2),
    ("test_unix_events", 120, 28),
    ("test_subprocess", 110, 108),
    ("test_ssl", 22, 22),
    ("test_sslproto", 20, 13),
    ("test_events", 250, 220),
    ("test_base_events", 100, 50),
    ("test_buffered_proto", 1, 1),
    ("test_sendfile", 60, 60),
    ("test_threads", 6, 6),
];

/// What is otherwise in the newest CPython: modules that are new, and some that have fewer tests, because
/// child watchers are gone.
const MODULES_NEWEST: &[(&str, u64, u64)] = &[
    ("test_unix_events", 89, 28),
    ("test_subprocess", 76, 72),
    ("test_ssl", 20, 20),
    ("test_eager_task_factory", 48, 47),
    ("test_free_threading", 20, 20),
    ("test_graph", 16, 16),
    ("test_staggered", 7, 7),
    ("test_context", 1, 1),
];

/// The modules of the CPython that is asked for.
fn modules(options: &Options) -> Vec<(&'static str, u64, u64)> {
    let otherwise = if options.flag("newest") { MODULES_NEWEST } else { &[] };
    let is_otherwise = |name: &str| otherwise.iter().any(|(other, ..)| *other == name);
    MODULES.iter().filter(|(name, ..)| !is_otherwise(name)).chain(otherwise).copied().collect()
}

/// `cargo xtask asyncio`.
///
/// # Errors
/// A tool is missing, the wheel is not built, or a module does not run to its end.
pub(crate) fn run(options: &Options) -> Outcome {
    if options.flag("libraries") {
        return libraries::run();
    }
    let tools = cache().join("face-python");
    let scratch = Scratch::new("asyncio")?;
    let python = python::installed_as_asked(&tools, scratch.path(), options)?;
    let only: Vec<&str> = options.text("only", "").split(',').filter(|word| !word.is_empty()).collect();
    let mut tally = Tally::default();
    println!("{:<24}{:>8}{:>10}{:>10}{:>10}", "module", "ran", "our loop", "failed", "skipped");
    let asked: Vec<_> =
        modules(options).into_iter().filter(|(name, ..)| only.is_empty() || only.contains(name)).collect();
    // Most of a module's time is spent waiting.
    let judged = at_once::each(asked, at_once::processors(), |asked| Ok((asked, judge(&python, asked.0)?)))?;
    for ((module, ran_min, ours_min), Judged { status, summary }) in judged {
        tally.check(status.success(), || format!("{module}: the interpreter ended with {status}"));
        let count = |name: &str| summary[name].as_u64().unwrap_or(0);
        let failed: Vec<&str> =
            summary["failed"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let skipped = reasons(&summary["skipped"]);
        let (ran, ours) = (count("ran"), count("ours"));
        let skips: u64 = skipped.values().sum();
        println!("{module:<24}{ran:>8}{ours:>10}{:>10}{skips:>10}", failed.len());
        for (reason, count) in &skipped {
            println!("{:>24} {count} skipped: {reason}", "");
        }
        failed.iter().for_each(|test| eprintln!("  FAILED: {test}"));
        tally.passed += ran.saturating_sub(failed.len() as u64);
        tally.failed += failed.len() as u64;
        tally.check(ran >= ran_min, || format!("{module}: {ran} tests ran, {ran_min} are there"));
        tally.check(ours >= ours_min, || {
            format!("{module}: our loop ran in {ours} tests, {ours_min} need it")
        });
    }
    Ok(tally)
}

/// What came of a module: how its interpreter ended, and the summary that it ended with.
struct Judged {
    status: ExitStatus,
    summary: Value,
}

fn judge(python: &Path, module: &str) -> Result<Judged, String> {
    let runner = root().join("faces/python/tests/loop_cpython/run.py");
    let output =
        Command::new(python).arg(runner).arg(module).output().map_err(|error| format!("python: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let summary: Value = said
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok())
        .ok_or_else(|| format!("{module}: {}", String::from_utf8_lossy(&output.stderr)))?;
    if summary["failed"].as_array().is_none_or(|failed| !failed.is_empty()) {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(Judged { status: output.status, summary })
}

/// Why tests were skipped, and how many for each reason.
fn reasons(skipped: &Value) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for reason in skipped.as_object().into_iter().flat_map(|tests| tests.values()) {
        let words: Vec<&str> = reason.as_str().unwrap_or("no reason").split_whitespace().collect();
        *counts.entry(words.join(" ")).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn skips_are_counted_by_reason() {
        let skipped = json!({"a": "Windows  only", "b": "Windows\nonly", "c": "slow"});
        let counts: Vec<(String, u64)> = reasons(&skipped).into_iter().collect();
        assert_eq!(counts, [("Windows only".to_owned(), 2), ("slow".to_owned(), 1)]);
    }
}
