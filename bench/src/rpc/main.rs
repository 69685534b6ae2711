//! Calls by JSON-RPC over TCP on one machine: ours, and what the machine allows. Owns the works, the processes at both
//! ends and the clock; never knows what a rate should be: it prints a line of JSON for each measurement, and the report
//! is made elsewhere.
//!
//! `thalweg-rpc-bench [--pairs N] [--first-pair N] [--milliseconds N | --turns N] [--only WORK,WORK] [--sides SIDE,SIDE]`
//!
//! The far end is this program started again, so that what is measured crosses processes. Every answer is held against
//! what was asked.
#![forbid(unsafe_code)]

mod far;
mod floor;
mod many;
mod ours;
mod run;
mod work;

use far::Far;
use run::Until;
use std::process::ExitCode;
use std::time::Duration;
use thalweg_bench::option;
use thalweg_sys::process;
use work::{Near, WORKS};

/// What goes wrong here is only ever printed.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("thalweg-rpc-bench: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    if std::env::args().nth(1).as_deref() == Some(far::WORD) {
        return far::serve();
    }
    let turns: u64 = option("--turns", 0)?;
    let time = Duration::from_millis(option("--milliseconds", 400)?);
    let until = if turns > 0 { Until::Turns(turns) } else { Until::Elapsed(time) };
    let (only, sides) = (list("--only")?, list("--sides")?);
    let wanted = |names: &[String], name: &str| names.is_empty() || names.iter().any(|n| n == name);
    let (pairs, first): (usize, usize) = (option("--pairs", 5)?, option("--first-pair", 0)?);
    for work in WORKS.iter().filter(|work| wanted(&only, work.name)) {
        for pair in first..first + pairs {
            for side in work.sides.iter().filter(|side| wanted(&sides, side.name)) {
                let measured = measure(side, work, until)
                    .map_err(|problem| format!("{}, {}: {problem}", work.name, side.name))?;
                measured.print(work.name, side.name, pair, turns > 0);
            }
        }
    }
    Ok(())
}

/// One measurement, in a process whose threads the next one does not find pinned.
fn measure(side: &work::Side, work: &work::Work, until: Until) -> Result<run::Measured, Failure> {
    let far = Far::start(side.far, work.far, work.far == work.near)?;
    let address = far.address();
    let near = || -> Result<run::Measured, Failure> {
        process::run_on(work.near)?;
        match side.near {
            Near::Ours => ours::call(address, work, until),
            Near::Raw => floor::call(address, work, until, false),
            Near::Spinning => floor::call(address, work, until, true),
            Near::Many => many::call(address, work, until),
        }
    };
    let measured = std::thread::scope(|scope| {
        scope.spawn(near).join().unwrap_or_else(|_| Err("the near end died".into()))
    })?;
    Ok(measured.with_far(far.end()?))
}

/// The names behind an option, between commas.
fn list(name: &str) -> Result<Vec<String>, Failure> {
    let names = option(name, String::new())?;
    Ok(names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}
