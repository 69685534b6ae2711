//! The state between processes and in one: what a session, a read, a fork and a difference cost, and what is left of it after
//! `kill -9`. Owns the works, the process that serves, and the clock; never knows what a rate should be: it prints a line of
//! JSON for each measurement, and the report is made elsewhere.
//!
//! `thalweg-state-bench [--pairs N] [--first-pair N] [--milliseconds N | --turns N] [--keys N] [--only WORK,WORK]`
//! `thalweg-state-bench crash --program PATH [--rounds N] [--seed N]`
//!
//! The far end is this program started again. Both hold the same keys.
#![forbid(unsafe_code)]

mod crash;
mod far;
mod floor;
mod near;
mod run;
mod served;
mod works;

use run::Until;
use std::process::ExitCode;
use std::time::Duration;
use thalweg_bench::option;

/// What goes wrong here is only ever printed.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("thalweg-state-bench: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    match std::env::args().nth(1).as_deref() {
        Some(far::WORD) => return far::serve(),
        Some("crash") => return crash::run(),
        _ => {}
    }
    let turns: u64 = option("--turns", 0)?;
    let milliseconds = option("--milliseconds", 400)?;
    let until =
        if turns > 0 { Until::Turns(turns) } else { Until::Elapsed(Duration::from_millis(milliseconds)) };
    let only = option("--only", String::new())?;
    let (pairs, first): (usize, usize) = (option("--pairs", 5)?, option("--first-pair", 0)?);
    let keys = option("--keys", 1_000_000)?;
    let (mut far, near) = (far::Far::start(keys)?, near::Near::new(keys)?);
    for pair in first..first + pairs {
        for work in
            works::WORKS.iter().filter(|work| only.is_empty() || only.split(',').any(|o| o == work.name))
        {
            for side in work.sides {
                let measured = works::measure(work, side, until, &near, &mut far)
                    .map_err(|problem| format!("{}, {side}: {problem}", work.name))?;
                measured.print(work.name, side, pair, turns > 0);
            }
        }
    }
    far.end()
}
