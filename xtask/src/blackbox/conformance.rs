//! Runs the official conformance suite against a server it starts, and counts: a run in which fewer tests ran
//! than there are in the groups we claim is a failure, however green.

use crate::harness::options::Options;
use crate::harness::server::{Launch, Program, Scratch, Server, root};
use crate::{Outcome, Tally};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Tests of suite 0.3.6, all groups.
const EXPECTED_MIN: u64 = 338;
const LONG_POLL_MS: u64 = 500;
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// `cargo xtask conformance`.
///
/// # Errors
/// The server or the suite cannot be started.
pub(crate) fn run(options: &Options) -> Outcome {
    if !root().join("conformance/node_modules/vitest").exists() {
        return Err("the suite is not installed: `make tools`, or `npm ci` in conformance/".to_owned());
    }
    let durability = options.text("durability", "sync");
    let launch = Launch::new(Program::of(options), durability)?.long_poll_ms(LONG_POLL_MS);
    let scratch = Scratch::new("conformance")?;
    let data = scratch.path().join("data");
    let server = launch.start(&data)?;
    let mut tally = judge(&server, &scratch, durability)?;
    let ended = server.end(ENDS_WITHIN);
    tally.check(ended.is_ok(), || format!("asked to end: {ended:?}"));
    if options.flag("restart") {
        let again = judge(&launch.start(&data)?, &scratch, "after a restart")?;
        tally = Tally { passed: tally.passed + again.passed, failed: tally.failed + again.failed };
    }
    Ok(tally)
}

fn judge(server: &Server, scratch: &Scratch, what: &str) -> Outcome {
    let report = scratch.path().join("report.json");
    let status = Command::new("node")
        .args(["node_modules/vitest/vitest.mjs", "run"])
        .current_dir(root().join("conformance"))
        .env("THALWEG_URL", server.url())
        .env("THALWEG_LONG_POLL_MS", LONG_POLL_MS.to_string())
        .env("THALWEG_REPORT", &report)
        .status()
        .map_err(|e| format!("node: {e}"))?;
    let text = fs::read(&report).map_err(|e| format!("vitest left no report ({status}): {e}"))?;
    let mut tally = judged(count(&text)?, status.success());
    println!("conformance 0.3.6, {what}: {} passed, {} failed", tally.passed, tally.failed);
    if tally.failed > 0 {
        println!("  vitest: {status}");
        for name in failures(&text)? {
            println!("  failed: {name}");
        }
        println!("{}", server.last_words());
    }
    if tally.passed + tally.failed < EXPECTED_MIN {
        println!("  only {} tests ran, {EXPECTED_MIN} are expected", tally.passed + tally.failed);
        tally.failed += 1;
    }
    // A server that fell over after its last answer did not pass.
    let alive = server.connect().and_then(|mut c| c.request("GET", "/healthz", &[], b""));
    tally.check(alive.is_ok(), || format!("the server is gone: {}", server.last_words()));
    Ok(tally)
}

/// A run that ends badly has failed, even if no test of it did: a file that does not load, an error outside
/// of every test.
fn judged(tally: Tally, success: bool) -> Tally {
    Tally { failed: tally.failed.max(u64::from(!success)), ..tally }
}

fn count(report: &[u8]) -> Outcome {
    let report: serde_json::Value = serde_json::from_slice(report).map_err(|e| format!("report: {e}"))?;
    let number = |name: &str| report[name].as_u64().ok_or_else(|| format!("report: no {name}"));
    Ok(Tally { passed: number("numPassedTests")?, failed: number("numFailedTests")? })
}

fn failures(report: &[u8]) -> Result<Vec<String>, String> {
    let report: serde_json::Value = serde_json::from_slice(report).map_err(|e| format!("report: {e}"))?;
    let files = report["testResults"].as_array().ok_or("report: no testResults")?;
    let tests = files.iter().filter_map(|f| f["assertionResults"].as_array()).flatten();
    let failed = tests.filter(|t| t["status"] == "failed");
    Ok(failed
        .map(|t| {
            let why = t["failureMessages"][0].as_str().unwrap_or("").lines().next().unwrap_or("");
            format!("{}: {why}", t["fullName"].as_str().unwrap_or("?"))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &[u8] = br#"{"numPassedTests":1,"numFailedTests":1,"testResults":[{"assertionResults":[
        {"status":"passed","fullName":"a b","failureMessages":[]},
        {"status":"failed","fullName":"a c","failureMessages":["expected 1\nat line"]}]}]}"#;

    #[test]
    fn a_report_is_counted_and_its_failures_named() {
        assert_eq!(count(REPORT), Ok(Tally { passed: 1, failed: 1 }));
        assert_eq!(failures(REPORT).unwrap(), ["a c: expected 1"]);
    }

    #[test]
    fn a_run_that_ends_badly_has_failed_though_no_test_did() {
        assert_eq!(judged(Tally { passed: 338, failed: 0 }, false), Tally { passed: 338, failed: 1 });
        assert_eq!(judged(Tally { passed: 337, failed: 2 }, false), Tally { passed: 337, failed: 2 });
        assert_eq!(judged(Tally { passed: 338, failed: 0 }, true), Tally { passed: 338, failed: 0 });
    }

    #[test]
    fn a_report_without_numbers_is_an_error() {
        assert!(count(b"{}").is_err());
        assert!(failures(b"{}").is_err());
    }
}
