//! `cargo xtask bench state`: the state between processes beside the state in one, and whether it is as fast as it should
//! be. A tiny run asserts that every row is there, and no time.

use super::results::{self, Report};
use super::row::Row;
use super::samples::Samples;
use super::statistics::{Spread, median};
use crate::options::Options;
use crate::server::{Scratch, build, root};
use crate::{Outcome, Tally};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

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

/// What a row is held to.
#[derive(Clone, Copy, Debug)]
enum Bar {
    /// Operations a second.
    Rate(f64),
    /// Part of another side's rate.
    Part(f64, &'static str),
    /// Nothing: for the record, beside a side.
    Beside(&'static str),
}

use Bar::{Beside, Part, Rate};

/// A line of the report: the work, whose figure it is, what it is held to, and what it says.
type Line = (&'static str, &'static str, Bar, &'static str);

const LINES: &[Line] = &[
    ("session", "process", Rate(20e3), "snapshot, write, rollback, in process"),
    ("session", "memory", Rate(200e3), "snapshot, write, rollback, shared memory"),
    ("session", "socket", Beside("process"), "snapshot, write, rollback, socket"),
    (
        "session-alone",
        "memory",
        Beside("process"),
        "snapshot, write, rollback, each waited for, shared memory",
    ),
    ("session-alone", "socket", Beside("process"), "snapshot, write, rollback, each waited for, socket"),
    ("reads-1", "memory", Part(0.95, "process"), "committed reads, 1 connection, shared memory"),
    ("reads-2", "memory", Beside("process"), "committed reads, 2 connections, shared memory"),
    ("reads-4", "memory", Beside("process"), "committed reads, 4 connections, shared memory"),
    ("reads-7", "memory", Part(0.95, "process"), "committed reads, 7 connections, shared memory"),
    (
        "reads-7-forks",
        "memory",
        Beside("process"),
        "committed reads, 7 connections, a fork each, shared memory",
    ),
    (
        "reads-7-deep",
        "memory",
        Part(0.95, "process"),
        "committed reads, 7 connections, 4 under way each, shared memory",
    ),
    ("reads-1", "socket", Beside("process"), "committed reads, 1 connection, socket"),
    ("reads-7", "socket", Beside("process"), "committed reads, 7 connections, socket"),
    (
        "reads-written",
        "written",
        Part(1.0 / 1.5, "quiet"),
        "99th percentile of reads, 7 connections and a writer",
    ),
    ("fork", "process", Beside("memory"), "fork and drop, in process"),
    ("fork", "memory", Beside("process"), "fork and drop, shared memory"),
    ("diff", "process", Beside("memory"), "a difference of 10 keys, in process"),
    ("diff", "memory", Beside("process"), "a difference of 10 keys, shared memory"),
];

/// `cargo xtask bench state`.
///
/// # Errors
/// The program does not build, start or end well.
pub(crate) fn run(options: &Options) -> Outcome {
    let tiny = options.flag("tiny");
    let pairs: usize = options.value("pairs", if tiny { 1 } else { 5 })?;
    let mut command = Command::new(build("thalweg-bench", "thalweg-state-bench")?);
    command.args(["--pairs", &pairs.to_string()]);
    command.args(if tiny {
        ["--turns", "5", "--keys", "2000"]
    } else {
        ["--milliseconds", "400", "--keys", "1000000"]
    });
    let mut samples = Samples::default();
    hear(&mut command, &mut samples)?;
    let mut tally = Tally::default();
    let rows: Vec<Row> = LINES.iter().map(|line| row(line, &samples)).collect();
    for ((work, side, ..), row) in LINES.iter().zip(&rows) {
        let count = samples.of(work, side).len();
        tally.check(count == pairs, || format!("{work}, {side}: {count} samples of {pairs}"));
        print(row);
        if options.flag("check") && row.bar.is_some() {
            tally.check(row.met() == Some(true), || format!("{}: {:?}", row.work, row.ratio));
        }
    }
    let report = Report { name: "state", title: "The state between processes", preface: PREFACE };
    if tiny {
        let scratch = Scratch::new("bench-state-results")?;
        results::write(scratch.path(), &report, &rows)?;
    } else if !options.flag("check") {
        results::write(&root().join("bench/results"), &report, &rows)?;
    }
    Ok(tally)
}

fn hear(command: &mut Command, samples: &mut Samples) -> Result<(), String> {
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| format!("the benchmark: {e}"))?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            samples.take(&line.map_err(|e| e.to_string())?)?;
        }
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("the benchmark: {status}")) }
}

fn row((work, side, bar, text): &Line, samples: &Samples) -> Row {
    let ours = samples.rates(work, side);
    let (peer, peer_name, bar, note) = match *bar {
        Rate(rate) => (vec![rate; ours.len()], "the bar", Some(1.0), "the bar is a rate"),
        Part(part, other) => (samples.rates(work, other), other, Some(part), ""),
        Beside(other) => (samples.rates(work, other), other, None, ""),
    };
    Row {
        work: (*text).to_owned(),
        unit: "operations/s",
        ours: median(&ours),
        peer: median(&peer),
        peer_name: peer_name.to_owned(),
        floor: median(&samples.rates(work, FLOOR)),
        ratio: Spread::of_ratios(&ours, &peer),
        bar,
        costs_us: [
            samples.cost_us(work, side),
            samples.cost_us(work, peer_name),
            samples.cost_us(work, FLOOR),
        ],
        face: "",
        note,
    }
}

fn print(row: &Row) {
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.0}"));
    let ratio = row.ratio.map_or("-".to_owned(), |ratio| format!("{:.2}", ratio.median));
    let verdict = match (row.bar, row.met()) {
        (Some(_), Some(true)) => "reached",
        (Some(_), _) => "short",
        (None, _) => "",
    };
    println!("{:<56}{:>11}{:>11}{ratio:>8}  {verdict}", row.work, rate(row.ours), rate(row.peer));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_may_be_half_as_slow_again_and_no_slower() {
        let met = |written: f64| {
            let mut samples = Samples::default();
            for (side, rate) in [("quiet", 900.0), ("written", written)] {
                let line = serde_json::json!({
                    "work": "reads-written", "side": side, "pair": 0, "per_second": rate, "processor_us": 0.5,
                    "operations": 9, "entries": 9, "digest": 0, "fixed": false,
                });
                samples.take(&line.to_string()).unwrap();
            }
            let line = LINES.iter().find(|line| line.0 == "reads-written").unwrap();
            row(line, &samples).met()
        };
        assert_eq!((met(601.0), met(590.0)), (Some(true), Some(false)));
    }
}
