//! The embedded log beside LMDB and the floor, in this process, by the patterns of those who use one. Owns
//! the workload, the sides and the order of measurements; never knows what a ratio should be: it prints a
//! line of JSON for each measurement, and the report is made elsewhere.
//!
//! `thalweg-log-bench --directory PATH [--entries N] [--pairs N] [--milliseconds N | --turns N] [--only GROUP,GROUP] [--sides SIDE,SIDE]`
//!
//! Everything is read warm and, ours, verified before the clock starts, but in the group `cold`. What was
//! read is summed and compared with what the workload says it must add up to, on every side and in every
//! turn. With `--turns` each measurement does a fixed amount, so that the counts of the sides agree.
#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "mapping a file is: it trusts all who could write it")]
mod floor;
#[allow(unsafe_code, reason = "opening LMDB's environment is unsafe")]
mod lmdb;
mod neighbour;
mod ours;
mod patterns;
mod runs;
mod sample;
mod side;
mod workload;

use runs::Plan;
use sample::Until;
use side::Failure;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use thalweg_bench::option;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("thalweg-log-bench: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let directory = PathBuf::from(option("--directory", String::new())?);
    if directory.as_os_str().is_empty() {
        return Err("--directory says where the stores are made".into());
    }
    let turns: u64 = option("--turns", 0)?;
    let milliseconds = option("--milliseconds", 250)?;
    let until =
        if turns > 0 { Until::Turns(turns) } else { Until::Elapsed(Duration::from_millis(milliseconds)) };
    if std::env::args().nth(1).as_deref() == Some(neighbour::WORD) {
        return neighbour::serve(&directory, until);
    }
    let (only, sides) = (list("--only")?, list("--sides")?);
    let (entries, pairs) = (option("--entries", 1_000_000)?, option("--pairs", 5)?);
    runs::run(&Plan { directory, entries, pairs, until, only, sides })
}

/// The names behind an option, between commas.
fn list(name: &str) -> Result<Vec<String>, Failure> {
    let names = option(name, String::new())?;
    Ok(names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}
