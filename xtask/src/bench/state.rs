//! `cargo xtask bench state`: the state between processes beside the state in one, and whether it is as fast
//! as it should be. A tiny run asserts that every row is there, and no time.

use super::line::{self, Bar, Line, hear};
use super::report::{Columns, Report};
use super::results::About;
use super::row::Row;
use super::samples::Samples;
use crate::Outcome;
use crate::harness::options::Options;
use crate::harness::server::build;
use std::process::Command;

const PREFACE: &str = "\
A state of 1,000,000 keys of 16 bytes, in `os` mode; `process` is the same work done in the process that \
holds the state, with as many threads as there are clients, `memory` and `socket` are clients of another \
process; the floor is the same read behind a bare socket with a thread for each connection. A cycle of a \
session is a snapshot, a write and a rollback, sixteen cycles under way at once unless each call is waited for. A read counts as many \
keys as take 100 µs in one process; clients of reads have one under way each unless a row says otherwise. \
A percentile is given as how many reads as slow as the slowest of a hundred there would be in a second. \
The writer beside reads writes a thousand times a second, whatever is answered. Nothing is pinned; processor time is both ends' together.";

/// The side that does nothing but the work and what the kernel needs.
const FLOOR: &str = "floor";

/// Every line has the same floor.
const fn line(work: &'static str, ours: &'static str, bar: Bar, text: &'static str) -> Line {
    line::line(work, ours, FLOOR, bar, text)
}

use Bar::{Beside, Part, Rate};

/// The report.
const LINES: &[Line] = &[
    line("session", "process", Rate(20e3), "snapshot, write, rollback, in process"),
    line("session", "memory", Rate(200e3), "snapshot, write, rollback, shared memory"),
    line("session", "socket", Beside("process"), "snapshot, write, rollback, socket"),
    line(
        "session-alone",
        "memory",
        Beside("process"),
        "snapshot, write, rollback, each waited for, shared memory",
    ),
    line("session-alone", "socket", Beside("process"), "snapshot, write, rollback, each waited for, socket"),
    line("reads-1", "memory", Part(0.95, "process"), "committed reads, 1 connection, shared memory"),
    line("reads-2", "memory", Beside("process"), "committed reads, 2 connections, shared memory"),
    line("reads-4", "memory", Beside("process"), "committed reads, 4 connections, shared memory"),
    line("reads-7", "memory", Part(0.95, "process"), "committed reads, 7 connections, shared memory"),
    line(
        "reads-7-forks",
        "memory",
        Beside("process"),
        "committed reads, 7 connections, a fork each, shared memory",
    ),
    line(
        "reads-7-deep",
        "memory",
        Part(0.95, "process"),
        "committed reads, 7 connections, 4 under way each, shared memory",
    ),
    line("reads-1", "socket", Beside("process"), "committed reads, 1 connection, socket"),
    line("reads-7", "socket", Beside("process"), "committed reads, 7 connections, socket"),
    line(
        "reads-written",
        "written",
        Part(1.0 / 1.5, "quiet"),
        "99th percentile of reads, 7 connections and a writer",
    ),
    line("fork", "process", Beside("memory"), "fork and drop, in process"),
    line("fork", "memory", Beside("process"), "fork and drop, shared memory"),
    line("diff", "process", Beside("memory"), "a difference of 10 keys, in process"),
    line("diff", "memory", Beside("process"), "a difference of 10 keys, shared memory"),
];

/// `cargo xtask bench state`.
///
/// # Errors
/// The program does not build, start or end well.
pub(crate) fn run(options: &Options) -> Outcome {
    let tiny = options.flag("tiny");
    let pairs = super::pairs(options)?;
    let mut command = Command::new(build("thalweg-bench", "thalweg-state-bench")?);
    command.args(["--pairs", &pairs.to_string()]);
    command.args(if tiny {
        ["--turns", "5", "--keys", "2000"]
    } else {
        ["--milliseconds", "400", "--keys", "1000000"]
    });
    let mut samples = Samples::default();
    hear(&mut command, &mut samples)?;
    let about = About { name: "state", title: "The state between processes", preface: PREFACE };
    let mut report = Report::new(about, options).columns(Columns { work: 56, floor: false });
    line::check(LINES, &samples, pairs, &mut report.tally);
    report.conclude(&LINES.iter().map(|line| row(line, &samples)).collect::<Vec<_>>())
}

/// The row of a line, whose peer is ours by another way.
fn row(line: &Line, samples: &Samples) -> Row {
    let row = line::row(line, samples);
    let [ours, _, floor] = row.costs_us;
    let peer = samples.cost_us(line.work, &row.peer_name);
    Row { unit: "operations/s", costs_us: [ours, peer, floor], ..row }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_may_be_half_as_slow_again_and_no_slower() {
        let met = |written: f64| {
            let samples = Samples::of_rates(&[
                ("reads-written", "quiet", 900.0),
                ("reads-written", "written", written),
            ]);
            let line = LINES.iter().find(|line| line.work == "reads-written").unwrap();
            row(line, &samples).met()
        };
        assert_eq!((met(601.0), met(590.0)), (Some(true), Some(false)));
    }
}
