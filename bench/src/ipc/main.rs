//! Calls between processes: ours and what the machine allows, by the patterns of those who make them. Owns the works,
//! the processes at both ends and the clock; never knows what a rate should be: it prints a line of JSON for each
//! measurement, and the report is made elsewhere.
//!
//! `thalweg-ipc-bench [--pairs N] [--first-pair N] [--milliseconds N | --turns N] [--only WORK,WORK] [--sides SIDE,SIDE]`
//!
//! The far end is this program started again, so that what is measured crosses processes. Both ends are pinned as the
//! work says. What comes back is compared with what was sent, on every side and in every turn.
#![deny(unsafe_code)]

mod answering;
#[rustfmt::skip]
#[path = "../../../schemas/generated/rust/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "generated for every command and any place, of which one is measured")]
mod echo;
mod far;
mod floors;
mod ours;
mod rings;
mod run;
mod work;

use run::Until;
use std::process::ExitCode;
use std::time::Duration;
use thalweg_bench::option;
use work::{Side, WORKS};

/// What goes wrong here is only ever printed.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("thalweg-ipc-bench: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    if std::env::args().nth(1).as_deref() == Some(far::WORD) {
        return far::serve();
    }
    let turns: u64 = option("--turns", 0)?;
    let milliseconds = option("--milliseconds", 400)?;
    let until =
        if turns > 0 { Until::Turns(turns) } else { Until::Elapsed(Duration::from_millis(milliseconds)) };
    let (only, sides) = (list("--only")?, list("--sides")?);
    let wanted = |names: &[String], name: &str| names.is_empty() || names.iter().any(|n| n == name);
    let (pairs, first): (usize, usize) = (option("--pairs", 5)?, option("--first-pair", 0)?);
    for work in WORKS.iter().filter(|work| wanted(&only, work.name)) {
        for pair in first..first + pairs {
            for side in work.sides.iter().filter(|side| wanted(&sides, side.name())) {
                let measured = measure(*side, work, until)
                    .map_err(|problem| format!("{}, {}: {problem}", work.name, side.name()))?;
                measured.print(work.name, side.name(), pair, turns > 0);
            }
        }
    }
    Ok(())
}

fn measure(side: Side, work: &work::Work, until: Until) -> Result<run::Measured, Failure> {
    match side {
        Side::Socket | Side::Pipe | Side::Spin | Side::Futex | Side::Memcpy => {
            floors::measure(side, work, until)
        }
        Side::Rings => rings::measure(work, until),
        Side::Serial | Side::Reactor | Side::Pool | Side::Typed => ours::measure(side, work, until),
    }
}

/// The names behind an option, between commas.
fn list(name: &str) -> Result<Vec<String>, Failure> {
    let names = option(name, String::new())?;
    Ok(names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}
