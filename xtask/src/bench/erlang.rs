//! `cargo xtask bench erlang`: calls from Erlang to Python workers beside what is asked of them, with the virtual machine's own
//! floors in turn. Every figure comes from a virtual machine of its own (`bench/erlang/bench.erl`). A tiny run shows that every
//! work runs to its end, and asserts no time.

use super::log::package;
use super::results::{self, Report, today};
use super::row::Row;
use super::statistics::{Spread, median};
use crate::options::Options;
use crate::server::{Scratch, cache, root};
use crate::{Outcome, Tally, erlang, programs};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

const PREFACE: &str = "\
One virtual machine per figure, default settings, one Python worker fewer than there are processors. Nobody else does this with \
workers in processes of their own, so the peer of a row is what is asked; its floor is what the virtual machine does without us: \
for calls a byte to another process and back, through `gen_tcp`. Async and gathered calls are coroutines. Times are those of the \
slowest thousandth, and of the slowest of all.";

/// A work, the figure of it that counts, what is asked, and the work that is its floor.
struct Work {
    name: &'static str,
    figure: &'static str,
    asked: f64,
    floor: Option<&'static str>,
}

const fn rate(name: &'static str, asked: f64, floor: Option<&'static str>) -> Work {
    Work { name, figure: "per_second", asked, floor }
}

/// Times: the less the better.
const fn time(name: &'static str, figure: &'static str, asked: f64) -> Work {
    Work { name, figure, asked, floor: None }
}

const TCP: Option<&str> = Some("floor: gen_tcp");

const WORKS: &[Work] = &[
    rate("sync call", 100e3, TCP),
    rate("async call", 100e3, TCP),
    rate("gather of 10", 60e3, TCP),
    rate("gather of 50", 60e3, TCP),
    rate("10 callers", 100e3, TCP),
    time("10 callers", "p999_us", 10e3),
    time("10 callers", "worst_us", 50e3),
    rate("50 callers", 100e3, TCP),
    time("50 callers", "p999_us", 10e3),
    time("50 callers", "worst_us", 50e3),
    rate("100 callers", 100e3, TCP),
    time("100 callers", "p999_us", 10e3),
    time("100 callers", "worst_us", 50e3),
    rate("results batched into a mailbox", 3e6, Some("floor: send, batched by 64")),
    time("killed under 100 callers", "told_ms", 100.0),
    time("killed under 100 callers", "whole_ms", 1000.0),
];

/// Held to its floor, and not to a number.
const TIMERS: (&str, &str, f64) = ("timers to the event process", "floor: send_after", 0.9);
/// Printed beside the rest.
const FLOORS: [&str; 3] = ["floor: call into machine code", "floor: send and receive", "floor: port"];

/// What measures.
struct Bench {
    scratch: Scratch,
    application: PathBuf,
    milliseconds: String,
}

/// `cargo xtask bench erlang`.
///
/// # Errors
/// A tool is missing, something does not build, or a work does not run to its end.
pub(crate) fn run(options: &Options) -> Outcome {
    let tiny = options.flag("tiny");
    let scratch = Scratch::new("bench-erlang")?;
    package(scratch.path())?;
    let application = erlang::application()?;
    let source = root().join("bench/erlang/bench.erl");
    programs::output(Command::new("erlc").args(["-W", "-o"]).arg(scratch.path()).arg(source))?;
    let milliseconds = options.text("milliseconds", if tiny { "0" } else { "1000" }).to_owned();
    let bench = Bench { scratch, application, milliseconds };
    let pairs: usize = options.value("pairs", if tiny { 1 } else { 5 })?;
    let only = options.text("only", "");
    let (mut tally, mut rows) = (Tally::default(), Vec::new());
    println!("{:<44}{:>12}{:>12}{:>12}{:>8}", "work", "ours", "asked", "floor", "ratio");
    let mut name = "";
    let mut samples = Vec::new();
    for work in WORKS.iter().filter(|work| work.name.contains(only)) {
        // Several figures of one work come from the same runs.
        if work.name != name {
            (name, samples) = (work.name, bench.samples(work, pairs)?);
        }
        rows.push(row(work, &samples)?);
    }
    if TIMERS.0.contains(only) {
        rows.push(bench.timers(pairs)?);
    }
    for row in &rows {
        check(row, options.flag("check"), &mut tally);
    }
    for floor in FLOORS.iter().filter(|_| only.is_empty()) {
        println!("{floor:<44}{:>12.0}", figure(&bench.measure(floor)?, "per_second")?);
    }
    if !tiny && !options.flag("check") && only.is_empty() {
        let name = format!("erlang-{}", today());
        let report = Report { name: &name, title: "Python workers of Erlang", preface: PREFACE };
        results::write(&root().join("bench/results"), &report, &rows)?;
    }
    Ok(tally)
}

/// What was said of a work, and of its floor.
struct Sample {
    work: Value,
    floor: Option<Value>,
}

impl Bench {
    fn samples(&self, work: &Work, pairs: usize) -> Result<Vec<Sample>, String> {
        let one = || {
            let floor = work.floor.map(|floor| self.measure(floor)).transpose()?;
            Ok(Sample { work: self.measure(work.name)?, floor })
        };
        (0..pairs).map(|_| one()).collect()
    }

    fn timers(&self, pairs: usize) -> Result<Row, String> {
        let (work, floor, bar) = TIMERS;
        let (mut ours, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..pairs {
            ours.push(figure(&self.measure(work)?, "per_second")?);
            floors.push(figure(&self.measure(floor)?, "per_second")?);
        }
        Ok(Row {
            work: work.to_owned(),
            unit: "timers/s",
            ours: median(&ours),
            peer: median(&floors),
            peer_name: "send_after".to_owned(),
            floor: median(&floors),
            ratio: Spread::of_ratios(&ours, &floors),
            bar: Some(bar),
            costs_us: [None; 3],
            face: "erlang",
            note: "",
        })
    }

    fn measure(&self, work: &str) -> Result<Value, String> {
        let output = Command::new("erl")
            .args(["-noshell", "-pa"])
            .arg(self.application.join("ebin"))
            .arg(self.scratch.path())
            .args(["-run", "bench", "main", work, &self.milliseconds])
            .arg(root().join("bench/erlang"))
            .env("THALWEG_PYTHON", cache().join("bench-python/bin/python"))
            .env("PYTHONPATH", self.scratch.path())
            .output()
            .map_err(|error| format!("erl: {error}"))?;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            let said = [output.stdout, output.stderr].concat();
            format!("{work}: {}", String::from_utf8_lossy(&said))
        })
    }
}

fn figure(of: &Value, name: &str) -> Result<f64, String> {
    of[name].as_f64().ok_or_else(|| format!("{name} is missing of {of}"))
}

fn row(work: &Work, samples: &[Sample]) -> Result<Row, String> {
    let ours =
        samples.iter().map(|sample| figure(&sample.work, work.figure)).collect::<Result<Vec<_>, _>>()?;
    let floors = samples.iter().filter_map(|sample| sample.floor.as_ref()?["per_second"].as_f64());
    let floors: Vec<f64> = floors.collect();
    let is_rate = work.figure == "per_second";
    let asked = vec![work.asked; ours.len()];
    let (name, unit) = match work.figure {
        "per_second" => (work.name.to_owned(), "per second"),
        "p999_us" => (format!("{}: 99.9th percentile", work.name), "µs"),
        "worst_us" => (format!("{}: the slowest", work.name), "µs"),
        "told_ms" => (format!("{}: all told", work.name), "ms"),
        _ => (format!("{}: whole again", work.name), "ms"),
    };
    Ok(Row {
        work: name,
        unit,
        ours: median(&ours),
        peer: Some(work.asked),
        peer_name: "what is asked".to_owned(),
        floor: median(&floors),
        ratio: if is_rate { Spread::of_ratios(&ours, &asked) } else { Spread::of_ratios(&asked, &ours) },
        bar: Some(1.0),
        costs_us: [None; 3],
        face: "erlang",
        note: "",
    })
}

/// Prints a row and says whether it holds: its bar if that is asked, else that it was measured at all.
fn check(row: &Row, bars: bool, tally: &mut Tally) {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
    let (ours, peer, floor) = (number(row.ours), number(row.peer), number(row.floor));
    let (ratio, bar) = (row.ratio.map_or(0.0, |ratio| ratio.median), row.bar.unwrap_or(0.0));
    println!("{:<44}{ours:>12}{peer:>12}{floor:>12}{ratio:>8.2}  (bar {bar})", row.work);
    let holds = if bars { row.met() == Some(true) } else { row.ratio.is_some() };
    tally.check(holds, || format!("{}: {ratio:.2} of {}, {bar} are asked", row.work, row.peer_name));
}
