//! `cargo xtask fuzz [--target NAME] [--seconds N]`: every parser and every on-disk format against inputs that grow out of
//! what they cover. libFuzzer on the stable compiler: the flags below are what its coverage stands on. What a run
//! finds is kept under `fuzz/found` and becomes a file under `fuzz/regressions/NAME`, which every run begins with.

use crate::options::Options;
use crate::server::{cache, root, target};
use crate::{Outcome, Tally};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What makes the compiler count edges and comparisons as libFuzzer reads them.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// `cargo xtask fuzz`.
///
/// # Errors
/// There is no such target, or it does not build.
pub(crate) fn run(options: &Options) -> Outcome {
    let (wanted, targets) = (options.text("target", ""), targets()?);
    if !wanted.is_empty() && !targets.iter().any(|name| name == wanted) {
        return Err(format!("no target {wanted}: there are {}", targets.join(", ")));
    }
    let seconds = options.value("seconds", 5_u32)?;
    let program = build()?;
    let mut tally = Tally::default();
    for name in targets.iter().filter(|name| wanted.is_empty() || *name == wanted) {
        fuzz(&program, name, seconds, &mut tally)?;
    }
    Ok(tally)
}

/// A target is what has seeds; the program refuses a name that is none of its own.
fn targets() -> Result<Vec<String>, String> {
    let seeds = root().join("fuzz/seeds");
    let listed = std::fs::read_dir(&seeds).map_err(|error| format!("{}: {error}", seeds.display()))?;
    let mut names: Vec<String> =
        listed.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn build() -> Result<PathBuf, String> {
    let host = host()?;
    let home = target().join("fuzz");
    // With a target named, the flags leave build scripts and procedural macros alone.
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--release", "--locked", "--target", &host])
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", &home)
        .current_dir(root().join("fuzz"))
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err("the fuzz targets do not build".to_owned());
    }
    Ok(home.join(host).join("release/thalweg-fuzz"))
}

/// The triple that this machine builds for.
fn host() -> Result<String, String> {
    let output = Command::new("rustc").arg("-vV").output().map_err(|error| format!("rustc: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).ok_or_else(|| "rustc does not say what it builds for".to_owned())
}

fn fuzz(program: &Path, name: &str, seconds: u32, tally: &mut Tally) -> Result<(), String> {
    let fuzz = root().join("fuzz");
    let (seeds, regressions) = (fuzz.join("seeds").join(name), fuzz.join("regressions").join(name));
    // What earlier runs learned is reused where it is there.
    let corpus = cache().join("fuzz").join(name);
    let found = fuzz.join("found");
    for directory in [&corpus, &found] {
        std::fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    let mut command = Command::new(program);
    command.env("THALWEG_FUZZ", name).arg(&corpus).arg(&seeds);
    if regressions.exists() {
        command.arg(&regressions);
    }
    command
        .arg(format!("-max_total_time={seconds}"))
        .args(["-max_len=4096", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=1"])
        .arg(format!("-artifact_prefix={}/{name}-", found.display()));
    let output = command.output().map_err(|error| format!("{}: {error}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let runs = stat(&said, "stat::number_of_executed_units:");
    let edges = said.lines().rev().find_map(|line| after(line, " cov: "));
    println!("fuzz {name}: {runs} inputs, {} edges", edges.unwrap_or(0));
    tally.check(output.status.success(), || {
        let tail: Vec<&str> = said.lines().rev().take(30).collect();
        format!(
            "{name} failed; the input lies in fuzz/found\n{}",
            tail.into_iter().rev().collect::<Vec<_>>().join("\n")
        )
    });
    tally.check(runs > 0 && edges > Some(10), || format!("{name} covers nothing: it is not instrumented"));
    Ok(())
}

fn stat(text: &str, name: &str) -> u64 {
    text.lines().find_map(|line| after(line, name)).unwrap_or(0)
}

/// The number behind a word.
fn after(line: &str, word: &str) -> Option<u64> {
    let (_, rest) = line.split_once(word)?;
    rest.split_whitespace().next()?.parse().ok()
}
