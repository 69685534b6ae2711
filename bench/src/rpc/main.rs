//! Calls by JSON-RPC over TCP on one machine: ours, and what the machine allows. Owns the works, the
//! processes at both ends and the clock; never knows what a rate should be: it prints a line of JSON for each
//! measurement, and the report is made elsewhere.
//!
//! `thalweg-rpc-bench [--pairs N] [--first-pair N] [--milliseconds N | --turns N] [--only WORK,WORK] [--sides SIDE,SIDE] [--peers PROGRAM]`
//!
//! The far end is this program started again, so that what is measured crosses processes. Every answer is
//! held against what was asked. Other people's servers are in a program of their own, and left out where it
//! is not named.
#![forbid(unsafe_code)]

mod far;
mod floor;
mod many;
mod ours;
mod work;

use far::Far;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thalweg_bench::far::is_far;
use thalweg_bench::measure::{Measured, Pace, Until};
use thalweg_bench::plan::{self, Plan};
use thalweg_bench::{Failure, option};
use thalweg_sys::process;
use work::{Near, WORKS};

/// How turns are taken here.
const PACE: Pace = Pace { warm_turns: 200, look_every: 16 };

fn main() -> ExitCode {
    plan::ended("thalweg-rpc-bench", if is_far() { far::serve() } else { run() })
}

fn run() -> Result<(), Failure> {
    let plan = Plan::asked()?;
    let peers = PathBuf::from(option("--peers", String::new())?);
    let is_there = |side: &work::Side| !side.far.is_peer() || !peers.as_os_str().is_empty();
    for work in WORKS.iter().filter(|work| plan.wants(work.name)) {
        for pair in plan.pairs.clone() {
            for side in work.sides.iter().filter(|side| plan.wants_side(side.name) && is_there(side)) {
                let measured = measure(side, work, plan.until, &peers)
                    .map_err(|problem| format!("{}, {}: {problem}", work.name, side.name))?;
                measured.print(work.name, side.name, pair, plan.is_fixed());
            }
        }
    }
    Ok(())
}

/// One measurement, in a process whose threads the next one does not find pinned.
fn measure(side: &work::Side, work: &work::Work, until: Until, peers: &Path) -> Result<Measured, Failure> {
    let far = Far::start(side.far, peers, work.far, work.far == work.near)?;
    let address = far.address();
    let near = || -> Result<Measured, Failure> {
        process::run_on(work.near)?;
        match side.near {
            Near::Ours => ours::call(address, work, until),
            Near::Raw => floor::call(address, work, until, false),
            Near::Spinning => floor::call(address, work, until, true),
            Near::Many => many::call(address, work, until),
            Near::OursMany => ours::call_many(address, work, until),
        }
    };
    let measured = std::thread::scope(|scope| {
        scope.spawn(near).join().unwrap_or_else(|_| Err("the near end died".into()))
    })?;
    Ok(measured.with_far(far.end()?))
}
