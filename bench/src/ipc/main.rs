//! Calls between processes: ours and what the machine allows, by the patterns of those who make them. Owns
//! the works, the processes at both ends and the clock; never knows what a rate should be: it prints a line
//! of JSON for each measurement, and the report is made elsewhere.
//!
//! `thalweg-ipc-bench [--pairs N] [--first-pair N] [--milliseconds N | --turns N] [--only WORK,WORK] [--sides SIDE,SIDE]`
//!
//! The far end is this program started again, so that what is measured crosses processes. Both ends are
//! pinned as the work says. What comes back is compared with what was sent, on every side and in every turn.
#![deny(unsafe_code)]

mod answering;
mod crowd;
#[rustfmt::skip]
#[path = "../../../schemas/generated/rust/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "generated for every command and any place, of which one is measured")]
mod echo;
mod far;
mod floors;
mod ours;
mod rings;
mod work;

use std::process::ExitCode;
use thalweg_bench::Failure;
use thalweg_bench::far::is_far;
use thalweg_bench::measure::{self, Measured, Pace, Until};
use thalweg_bench::plan::{self, Plan};
use thalweg_sys::process;
use work::{Side, WORKS, Work};

/// A spinning round trip is not much longer than a look at the clock.
const PACE: Pace = Pace { warm_turns: 200, look_every: 64 };

fn main() -> ExitCode {
    plan::ended("thalweg-ipc-bench", if is_far() { far::serve() } else { run() })
}

fn run() -> Result<(), Failure> {
    let plan = Plan::asked()?;
    for work in WORKS.iter().filter(|work| plan.wants(work.name)) {
        for pair in plan.pairs.clone() {
            for side in work.sides.iter().filter(|side| plan.wants_side(side.name())) {
                let measured = measure(*side, work, plan.until)
                    .map_err(|problem| format!("{}, {}: {problem}", work.name, side.name()))?;
                measured.print(work.name, side.name(), pair, plan.is_fixed());
            }
        }
    }
    Ok(())
}

fn measure(side: Side, work: &Work, until: Until) -> Result<Measured, Failure> {
    match side {
        Side::Socket | Side::Pipe | Side::Spin | Side::Futex | Side::Memcpy => {
            floors::measure(side, work, until)
        }
        Side::Rings => rings::measure(work, until),
        Side::Crowd | Side::Killed => crowd::measure(side, work, until),
        Side::Visitor => Err("a visitor measures nothing".into()),
        Side::Serial | Side::Reactor | Side::Pool | Side::Typed => ours::measure(side, work, until),
    }
}

/// Runs the clients of a work, each pinned as the work says.
///
/// # Errors
/// The first that anybody meets.
fn clients<C>(
    work: &Work,
    until: Until,
    connect: impl Fn() -> Result<C, Failure> + Sync,
    turn: impl Fn(&mut C) -> Result<u64, Failure> + Sync,
) -> Result<Measured, Failure> {
    let pinned = || {
        if let (_, Some(processor)) = work.pins.processors() {
            process::run_on(processor)?;
        }
        connect()
    };
    measure::clients(work.clients, PACE, until, pinned, turn)
}
