//! The state between processes and in one: what a session, a read, a fork and a difference cost, and what is
//! left of it after `kill -9`. Owns the works, the process that serves, and the clock; never knows what a
//! rate should be: it prints a line of JSON for each measurement, and the report is made elsewhere.
//!
//! `thalweg-state-bench [--pairs N] [--first-pair N] [--milliseconds N | --turns N] [--keys N] [--only WORK,WORK] [--sides SIDE,SIDE]`
//! `thalweg-state-bench crash --program PATH [--rounds N] [--seed N]`
//!
//! The far end is this program started again. Both hold the same keys.
#![forbid(unsafe_code)]

mod crash;
mod far;
mod floor;
mod near;
mod served;
mod works;

use std::process::ExitCode;
use thalweg_bench::far::is_far;
use thalweg_bench::measure::Pace;
use thalweg_bench::plan::{self, Plan};
use thalweg_bench::{Failure, option};

/// What each turn took is kept, for percentiles.
const PACE: Pace = Pace { warm_turns: 20, look_every: 1 };

fn main() -> ExitCode {
    let outcome = match std::env::args().nth(1).as_deref() {
        _ if is_far() => far::serve(),
        Some("crash") => crash::run(),
        _ => run(),
    };
    plan::ended("thalweg-state-bench", outcome)
}

fn run() -> Result<(), Failure> {
    let plan = Plan::asked()?;
    let keys = option("--keys", 1_000_000)?;
    let (mut far, near) = (far::Far::start(keys)?, near::Near::new(keys)?);
    for pair in plan.pairs.clone() {
        for work in works::WORKS.iter().filter(|work| plan.wants(work.name)) {
            for side in work.sides.iter().filter(|side| plan.wants_side(side)) {
                let measured = works::measure(work, side, plan.until, &near, &mut far)
                    .map_err(|problem| format!("{}, {side}: {problem}", work.name))?;
                measured.print(work.name, side, pair, plan.is_fixed());
            }
        }
    }
    far.end()
}
