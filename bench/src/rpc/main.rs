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
mod work;

use far::Far;
use std::process::ExitCode;
use thalweg_bench::Failure;
use thalweg_bench::far::is_far;
use thalweg_bench::measure::{Measured, Pace, Until};
use thalweg_bench::plan::{self, Plan};
use thalweg_sys::process;
use work::{Near, WORKS};

/// How turns are taken here.
const PACE: Pace = Pace { warm_turns: 200, look_every: 16 };

fn main() -> ExitCode {
    plan::ended("thalweg-rpc-bench", if is_far() { far::serve() } else { run() })
}

fn run() -> Result<(), Failure> {
    let plan = Plan::asked()?;
    for work in WORKS.iter().filter(|work| plan.wants(work.name)) {
        for pair in plan.pairs.clone() {
            for side in work.sides.iter().filter(|side| plan.wants_side(side.name)) {
                let measured = measure(side, work, plan.until)
                    .map_err(|problem| format!("{}, {}: {problem}", work.name, side.name))?;
                measured.print(work.name, side.name, pair, plan.is_fixed());
            }
        }
    }
    Ok(())
}

/// One measurement, in a process whose threads the next one does not find pinned.
fn measure(side: &work::Side, work: &work::Work, until: Until) -> Result<Measured, Failure> {
    let far = Far::start(side.far, work.far, work.far == work.near)?;
    let address = far.address();
    let near = || -> Result<Measured, Failure> {
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
