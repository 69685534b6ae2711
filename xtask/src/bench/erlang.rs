//! `cargo xtask bench erlang`: calls from Erlang to Python workers beside what is asked of them, with the
//! virtual machine's own floors in turn. A work and its floor are measured one after the other in one virtual
//! machine (`bench/erlang/bench.erl`); the floors of its interface for machine code are `faces/erlang/bench`.
//! A tiny run shows that every work runs to its end, and asserts no time.

use super::log::package;
use super::report::{Report, rounded};
use super::results::About;
use super::row::Row;
use super::statistics::{Spread, median};
use crate::harness::options::Options;
use crate::harness::programs;
use crate::harness::server::{Scratch, cache, root};
use crate::{Outcome, erlang};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

const PREFACE: &str = "\
A work and its floor in turn, a virtual machine for each pair, default settings, one Python worker fewer than there are \
processors. Nobody else does this with workers in processes of their own, so the peer of a row is what is asked; its floor is what \
the virtual machine does without us: for calls a byte to another process and back, through `gen_tcp`. Async and gathered calls \
are coroutines. Times are those of single calls, and the least of them is the best.";

/// A work, the figure of it that counts, what is asked of it, and the work that is its floor.
struct Work {
    name: &'static str,
    figure: &'static str,
    asked: Option<f64>,
    floor: Option<&'static str>,
}

const fn rate(name: &'static str, asked: f64, floor: &'static str) -> Work {
    Work { name, figure: "per_second", asked: Some(asked), floor: Some(floor) }
}

/// Times: the less the better.
const fn time(name: &'static str, figure: &'static str, asked: f64) -> Work {
    Work { name, figure, asked: Some(asked), floor: None }
}

/// What is told for the record.
const fn told(name: &'static str, figure: &'static str) -> Work {
    Work { name, figure, asked: None, floor: None }
}

const TCP: &str = "floor: gen_tcp";

const WORKS: &[Work] = &[
    rate("sync call", 100e3, TCP),
    rate("async call", 100e3, TCP),
    told("async call", "p50_us"),
    told("async call", "p90_us"),
    told("async call", "p99_us"),
    told("async call", "p999_us"),
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
    rate("results batched into a mailbox", 3e6, "floor: enif_send, batched by 64"),
    time("killed under 100 callers", "told_ms", 100.0),
    time("killed under 100 callers", "whole_ms", 1000.0),
    time("killed under 100 callers", "stood_still_ms", 100.0),
];

/// Held to its floor, and not to a number.
const TIMERS: (&str, &str, f64) = ("timers to the event process", "floor: send_after", 0.9);
/// What the virtual machine does by itself, told for the record.
const FLOORS: &[&str] = &[
    "floor: call into machine code",
    "floor: the same on a dirty scheduler",
    "floor: enif_send",
    "floor: enif_send, batched by 64",
    "floor: enif_select",
    "floor: send and receive",
    "floor: port",
    TCP,
];

/// What measures.
struct Bench {
    scratch: Scratch,
    application: PathBuf,
    /// Their native half, without its ending.
    floors: PathBuf,
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
    let sources = ["bench/erlang/bench.erl", "faces/erlang/bench/floors.erl"].map(|name| root().join(name));
    programs::output(Command::new("erlc").args(["-W", "-o"]).arg(scratch.path()).args(sources))?;
    let milliseconds = options.text("milliseconds", if tiny { "0" } else { "1000" }).to_owned();
    let bench = Bench { scratch, application, floors: erlang::floors()?, milliseconds };
    let pairs = super::pairs(options)?;
    let only = options.text("only", "");
    let about = About { name: "erlang", title: "Python workers of Erlang", preface: PREFACE };
    let (mut report, mut rows) = (Report::new(about, options), Vec::new());
    println!("{:<52}{:>12}{:>12}{:>12}{:>8}", "work", "ours", "asked", "floor", "ratio");
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
    let floors: Vec<&str> = FLOORS.iter().copied().filter(|_| only.is_empty()).collect();
    rows.extend(bench.floors(&floors)?);
    for row in &rows {
        print(row);
        report.check(row);
    }
    if !tiny && only.is_empty() {
        report.keep(&rows)?;
    }
    Ok(report.tally)
}

/// What was said of a work, and of its floor.
struct Sample {
    work: Value,
    floor: Option<Value>,
}

impl Bench {
    fn samples(&self, work: &Work, pairs: usize) -> Result<Vec<Sample>, String> {
        let works: Vec<&str> = work.floor.into_iter().chain([work.name]).collect();
        let one = || {
            let mut figures = self.measure(&works)?;
            let work = figures.pop().ok_or("nothing was measured")?;
            Ok(Sample { work, floor: figures.pop() })
        };
        (0..pairs).map(|_| one()).collect()
    }

    fn timers(&self, pairs: usize) -> Result<Row, String> {
        let (work, floor, bar) = TIMERS;
        let (mut ours, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..pairs {
            let figures = self.measure(&[floor, work])?;
            let rates = figures.iter().map(|of| figure(of, "per_second")).collect::<Result<Vec<_>, _>>()?;
            floors.extend(rates.first());
            ours.extend(rates.get(1));
        }
        Ok(Row {
            unit: "timers/s",
            ours: median(&ours),
            peer: median(&floors),
            peer_name: "send_after".to_owned(),
            floor: median(&floors),
            ratio: Spread::of_ratios(&ours, &floors),
            bar: Some(bar),
            ..told_of(work)
        })
    }

    fn floors(&self, names: &[&str]) -> Result<Vec<Row>, String> {
        let figures = if names.is_empty() { Vec::new() } else { self.measure(names)? };
        let rows = names.iter().zip(&figures);
        rows.map(|(name, of)| Ok(Row { floor: Some(figure(of, "per_second")?), ..told_of(name) })).collect()
    }

    /// Works one after the other, in a virtual machine of their own.
    fn measure(&self, works: &[&str]) -> Result<Vec<Value>, String> {
        let output = Command::new("erl")
            .args(["-noshell", "-pa"])
            .arg(self.application.join("ebin"))
            .arg(self.scratch.path())
            .args(["-run", "bench", "main", &self.milliseconds])
            .arg(root().join("bench/erlang"))
            .arg(&self.floors)
            .args(works)
            .env("THALWEG_PYTHON", cache().join("bench-python/bin/python"))
            .env("PYTHONPATH", self.scratch.path())
            .output()
            .map_err(|error| format!("erl: {error}"))?;
        let figures: Vec<Value> =
            serde_json::Deserializer::from_slice(&output.stdout).into_iter().flatten().collect();
        if figures.len() == works.len() {
            return Ok(figures);
        }
        let said = [output.stdout, output.stderr].concat();
        Err(format!("{}: {}", works.join(", "), String::from_utf8_lossy(&said)))
    }
}

/// A row of which nothing is known yet.
fn told_of(work: &str) -> Row {
    Row {
        work: work.to_owned(),
        unit: "per second",
        ours: None,
        peer: None,
        peer_name: String::new(),
        floor: None,
        ratio: None,
        bar: None,
        costs_us: [None; 3],
        face: "erlang",
        note: "",
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
    let (what, unit) = match work.figure {
        "per_second" => ("", "per second"),
        "p50_us" => (": median", "µs"),
        "p90_us" => (": 90th percentile", "µs"),
        "p99_us" => (": 99th percentile", "µs"),
        "p999_us" => (": 99.9th percentile", "µs"),
        "worst_us" => (": the slowest", "µs"),
        "told_ms" => (": all told", "ms"),
        "whole_ms" => (": whole again", "ms"),
        _ => (": the virtual machine stood still", "ms"),
    };
    let ratio = work.asked.and_then(|asked| {
        let asked = vec![asked; ours.len()];
        if unit == "per second" { Spread::of_ratios(&ours, &asked) } else { Spread::of_ratios(&asked, &ours) }
    });
    Ok(Row {
        unit,
        ours: median(&ours),
        peer: work.asked,
        peer_name: "what is asked".to_owned(),
        floor: median(&floors),
        ratio,
        bar: work.asked.map(|_| 1.0),
        ..told_of(&format!("{}{what}", work.name))
    })
}

fn print(row: &Row) {
    let (ours, peer, floor) = (rounded(row.ours), rounded(row.peer), rounded(row.floor));
    print!("{:<52}{ours:>12}{peer:>12}{floor:>12}", row.work);
    match (row.ratio, row.bar) {
        (Some(ratio), Some(bar)) => println!("{:>8.2}  (bar {bar})", ratio.median),
        _ => println!(),
    }
}
