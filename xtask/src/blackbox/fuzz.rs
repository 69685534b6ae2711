//! `cargo xtask fuzz [--target NAME,…] [--seconds N] [--at-once N] [--record]`: every parser and every
//! on-disk format against inputs that grow out of what they cover. libFuzzer on the stable compiler: the
//! flags below are what its coverage stands on. What a run finds is kept under `fuzz/found` and becomes a
//! file under `fuzz/regressions/NAME`, which every run begins with. As many targets run at once as there are
//! processors, unless it is said.

use crate::bench::endurance::{self, Asked, Found};
use crate::harness::at_once;
use crate::harness::options::Options;
use crate::harness::server::{cache, root, target};
use crate::{Outcome, Tally};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What makes the compiler count edges and comparisons as libFuzzer reads them.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// Lines that are shown of a failure.
const WORDS_MAX: usize = 30;

/// The longest input that is shown.
const SHOWN_MAX: usize = 4_096;

/// Seconds that every target is asked to run without a finding.
const SECONDS_BAR: f64 = 600.0;

/// `cargo xtask fuzz`.
///
/// # Errors
/// There is no such target, or it does not build.
pub(crate) fn run(options: &Options) -> Outcome {
    let targets = wanted(options.text("target", ""))?;
    let seconds = options.value("seconds", 5_u32)?;
    let at_once = options.value("at-once", at_once::processors())?;
    let program = build()?;
    let runs = at_once::each(targets, at_once, |name| fuzz(&program, &name, seconds))?;
    let (mut tally, mut found) = (Tally::default(), Vec::new());
    for run in runs {
        found.push(run.found(seconds));
        run.judge(&mut tally);
    }
    found.sort_by(|one, other| one.work.cmp(&other.work));
    endurance::record(options, "fuzz", &found)?;
    Ok(tally)
}

/// Those named, or all.
fn wanted(names: &str) -> Result<Vec<String>, String> {
    let targets = targets()?;
    let named: Vec<&str> = names.split(',').filter(|name| !name.is_empty()).collect();
    if let Some(unknown) = named.iter().find(|named| !targets.iter().any(|name| name == *named)) {
        return Err(format!("no target {unknown}: there are {}", targets.join(", ")));
    }
    Ok(targets.into_iter().filter(|name| named.is_empty() || named.contains(&name.as_str())).collect())
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

/// What came of a target.
struct Run {
    name: String,
    /// The input that failed, and what was said of it.
    failure: Option<String>,
    inputs: u64,
    edges: u64,
}

impl Run {
    /// For how long nothing was found.
    fn found(&self, seconds: u32) -> Found {
        let figure = if self.failure.is_none() { f64::from(seconds) } else { 0.0 };
        let (work, asked) = (self.name.clone(), Asked::AtLeast(SECONDS_BAR));
        Found { work, unit: "s without a finding", figure, asked }
    }

    fn judge(self, tally: &mut Tally) {
        let Self { name, failure, inputs, edges } = self;
        let words = failure.as_deref().unwrap_or_default();
        tally.check(failure.is_none(), || format!("{name} failed\n{words}"));
        tally.check(failure.is_some() || inputs > 0 && edges > 10, || {
            format!("{name} covers nothing: it is not instrumented")
        });
    }
}

/// The inputs of findings, each by itself and whole; then whatever grows out of them and of the seeds.
fn fuzz(program: &Path, name: &str, seconds: u32) -> Result<Run, String> {
    let fuzz = root().join("fuzz");
    let (seeds, regressions) = (fuzz.join("seeds").join(name), fuzz.join("regressions").join(name));
    let past = files(&regressions);
    if !past.is_empty() {
        let output = output(Command::new(program).env("THALWEG_FUZZ", name).args(past))?;
        if !output.status.success() {
            let failure = format!("an input under fuzz/regressions/{name}\n{}", words(&output));
            return Ok(Run { name: name.to_owned(), failure: Some(failure), inputs: 0, edges: 0 });
        }
    }
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
    let output = output(&mut command)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let inputs = stat(&said, "stat::number_of_executed_units:");
    let edges = said.lines().rev().find_map(|line| after(line, " cov: ")).unwrap_or(0);
    println!("fuzz {name}: {inputs} inputs, {edges} edges");
    let failure = format!("{}\n{}", input(&said), words(&output));
    Ok(Run { name: name.to_owned(), failure: (!output.status.success()).then_some(failure), inputs, edges })
}

fn output(command: &mut Command) -> Result<Output, String> {
    // Where it was is a matter of running the input again.
    command
        .env("RUST_BACKTRACE", "0")
        .output()
        .map_err(|error| format!("{}: {error}", command.get_program().display()))
}

/// What is said of a failure: from the panic or libFuzzer's own finding on, or the last lines.
fn words(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with("0x")).collect();
    let tells = |line: &&str| line.contains("panicked at") || line.contains("ERROR: libFuzzer");
    let from = lines.iter().position(tells).unwrap_or(lines.len().saturating_sub(WORDS_MAX));
    lines[from..].iter().take(WORDS_MAX).copied().collect::<Vec<_>>().join("\n")
}

/// Where the input that failed lies, and what it is: where a build is gone, its report is all that is left.
fn input(said: &str) -> String {
    // The last: one that was slow is written, too, and the run goes on.
    let mut lines = said.lines().rev();
    let Some(path) = lines.find_map(|line| Some(line.split_once("Test unit written to ")?.1)) else {
        return "no input was written to fuzz/found".to_owned();
    };
    let mut place = format!("the input lies in {path}").into_bytes();
    if let Ok(bytes) = std::fs::read(path)
        && bytes.len() <= SHOWN_MAX
    {
        place.extend_from_slice(b", in base64: ");
        thalweg_wire::json::write::base64(&mut place, &bytes);
    }
    String::from_utf8_lossy(&place).into_owned()
}

/// The files of a directory, if there is one.
fn files(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn stat(text: &str, name: &str) -> u64 {
    text.lines().find_map(|line| after(line, name)).unwrap_or(0)
}

/// The number behind a word.
fn after(line: &str, word: &str) -> Option<u64> {
    let (_, rest) = line.split_once(word)?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_failure_begins_with_the_panic_and_names_the_input() {
        let found = std::env::temp_dir().join(format!("thalweg-fuzz-words-{}", std::process::id()));
        std::fs::write(&found, b"\0in").unwrap();
        let mut said: String = (0..50).map(|n| format!("#{n}\tNEW    cov: {n}\n")).collect();
        said += "artifact_prefix='x'; Test unit written to /slow\n";
        said += "\nthread '<unnamed>' panicked at src/json.rs:7:5:\nleft is not right\n==7== ERROR: libFuzzer: deadly signal\n";
        said += &(0..50).map(|n| format!("    #{n} 0x55 in frame\n")).collect::<String>();
        said += &format!("artifact_prefix='x'; Test unit written to {}\n", found.display());
        let input = input(&said);
        std::fs::remove_file(&found).unwrap();
        assert_eq!(input, format!("the input lies in {}, in base64: \"AGlu\"", found.display()));
        let output =
            Output { status: std::process::ExitStatus::from_raw(1), stdout: vec![], stderr: said.into() };
        let words = words(&output);
        assert!(words.starts_with("thread '<unnamed>' panicked at src/json.rs:7:5:\nleft is not right\n"));
        assert_eq!(words.lines().count(), WORDS_MAX);
    }
}
