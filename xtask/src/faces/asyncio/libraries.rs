//! Libraries as their users have them, on our loop: aiohttp, uvicorn, websockets, redis with a real server,
//! all of them run by anyio's own test runner. They are pinned with hashes in
//! `faces/python/tests/loop_libraries` and installed by `.ci/tools`; the wheel stands beside them on the
//! path, so what is tested is what a user gets.

use crate::faces::python;
use crate::harness::server::{Scratch, cache, root};
use crate::{Outcome, Tally};
use std::path::Path;
use std::process::Command;

/// Fewer tests than this means that some were not found.
const TESTS_MIN: u64 = 74;

/// `cargo xtask asyncio --libraries`.
///
/// # Errors
/// A tool is missing, or the wheel is not built.
pub(super) fn run() -> Outcome {
    let libraries = cache().join("loop-python/bin/python");
    if !libraries.exists() {
        return Err(format!("{} is missing: run `make tools`", libraries.display()));
    }
    let scratch = Scratch::new("libraries")?;
    let python = python::installed(&cache().join("face-python"), scratch.path())?;
    let mut tally = Tally::default();
    let output = Command::new(libraries)
        .args([
            "-X",
            "dev",
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            "error::ResourceWarning",
            ".",
        ])
        .current_dir(root().join("faces/python/tests/loop_libraries"))
        .env("PYTHONPATH", packages(&python)?)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .map_err(|error| format!("python: {error}"))?;
    let report = String::from_utf8_lossy(&output.stdout);
    let last = report.lines().last().unwrap_or_default();
    tally.passed += count(last, "passed");
    tally.failed += count(last, "failed") + count(last, "error") + count(last, "errors");
    if !output.status.success() {
        eprintln!("{report}{}", String::from_utf8_lossy(&output.stderr));
    }
    tally.check(output.status.success(), || format!("the libraries' tests ended with {}", output.status));
    tally.check(count(last, "passed") >= TESTS_MIN, || format!("{last}; {TESTS_MIN} tests are there"));
    Ok(tally)
}

/// Where an environment's packages are.
fn packages(python: &Path) -> Result<String, String> {
    let asked = Command::new(python)
        .args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
        .output()
        .map_err(|error| format!("python: {error}"))?;
    Ok(String::from_utf8_lossy(&asked.stdout).trim().to_owned())
}

/// How many tests a summary such as `3 failed, 69 passed in 18.89s` says of a word.
fn count(summary: &str, word: &str) -> u64 {
    let words: Vec<&str> = summary.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let pair = words.windows(2).find(|pair| pair[1] == word);
    pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn a_summary_is_read_word_by_word() {
        let summary = "3 failed, 69 passed, 1 error in 18.89s";
        assert_eq!(["failed", "passed", "error", "errors"].map(|word| count(summary, word)), [3, 69, 1, 0]);
        assert_eq!(count("no tests ran in 0.01s", "passed"), 0);
    }
}
