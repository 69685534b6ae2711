//! `cargo xtask bench loop`: our event loop beside uvloop and rloop, in turn, work by work. Every figure
//! comes from a process of its own (`bench/python/loop/bench.py`); the other end of an echo is
//! `thalweg-echo`, which is also the floor. A tiny run shows that every work runs to its end on every loop
//! that can do it, and asserts no time.

use super::log::package;
use super::report::{Report, rounded};
use super::results::About;
use super::row::Row;
use super::statistics::{Spread, median};
use crate::Outcome;
use crate::harness::options::Options;
use crate::harness::server::{Scratch, build, cache, root};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PREFACE: &str = "\
One process per figure, loops in turn; the loop whose figure is the bar comes first, the others are told for the record, from \
the first two pairs. In an echo, messages of 1 KiB go \
back and forth, one at a time on each connection, driven by a program apart on the same processors; the floor is the same \
work without Python. Processor costs are of the loop's process alone.";

/// A work, the loop whose figure is its bar, and the bar.
struct Work {
    name: &'static str,
    peer: &'static str,
    bar: f64,
    floor: Option<Floor>,
}

/// A work without Python.
#[derive(Clone, Copy)]
enum Floor {
    /// An echo: over a Unix socket or not, and on so many connections.
    Echo(bool, u32),
    /// Programs started, waited for and collected.
    Spawn,
}

const fn work(name: &'static str, bar: f64) -> Work {
    Work { name, peer: "rloop", bar, floor: None }
}

const WORKS: &[Work] = &[
    work("call_soon, batched", 1.0),
    work("call_soon, chained", 1.0),
    work("call_later(0)", 1.2),
    work("200k timers over 50 ms", 1.2),
    work("call_later and cancel", 1.2),
    work("thread ping-pong", 1.5),
    Work { floor: Some(Floor::Echo(false, 1)), ..work("TCP echo, 1 connection", 1.0) },
    Work { floor: Some(Floor::Echo(false, 50)), ..work("TCP echo, 50 connections", 1.15) },
    Work { peer: "uvloop", floor: Some(Floor::Echo(true, 1)), ..work("Unix echo, 1 connection", 1.0) },
    Work { peer: "uvloop", floor: Some(Floor::Echo(true, 50)), ..work("Unix echo, 50 connections", 1.0) },
    Work { floor: Some(Floor::Spawn), ..work("spawn", 1.3) },
];

/// Every loop but ours.
const PEERS: &[&str] = &["rloop", "uvloop", "asyncio"];
/// In so many pairs those are measured that no bar names.
const TOLD_PAIRS: usize = 2;

/// Works that have no peer: what each second is asked of them, and who posts. They are measured beside
/// the bar itself.
const ALONE: &[(&str, f64, &str)] = &[
    ("events, to a Python callback", 2e6, "the loop's own thread posts"),
    (
        "events of another thread, to a Python callback",
        2e6,
        "another thread posts, and both need the interpreter's lock",
    ),
    (TO_RUST, 10e6, "another thread posts"),
];
const TO_RUST: &str = "events, to a Rust consumer";

/// What measures.
struct Bench {
    python: PathBuf,
    /// Where the package lies as it stands.
    packages: PathBuf,
    echo: PathBuf,
    events: PathBuf,
    spawn: PathBuf,
    seconds: String,
}

/// A figure and what it cost.
#[derive(Clone, Copy)]
struct Sample {
    per_second: f64,
    cost_us: f64,
}

/// `cargo xtask bench loop`.
///
/// # Errors
/// A tool is missing, something does not build, or a work does not run to its end.
pub(crate) fn run(options: &Options) -> Outcome {
    let python = cache().join("bench-python/bin/python");
    if !python.exists() {
        return Err(format!("{} is missing: `make tools`", python.display()));
    }
    let tiny = options.flag("tiny");
    let scratch = Scratch::new("bench-loop")?;
    package(scratch.path())?;
    let bench = Bench {
        python,
        packages: scratch.path().to_owned(),
        echo: build("thalweg-bench", "thalweg-echo")?,
        events: build("thalweg-bench", "thalweg-events")?,
        spawn: build("thalweg-bench", "thalweg-spawn")?,
        seconds: options.text("seconds", if tiny { "0" } else { "1" }).to_owned(),
    };
    let pairs = super::pairs(options)?;
    let only = options.text("only", "");
    let about = About { name: "loop", title: "The event loop beside uvloop and rloop", preface: PREFACE };
    let (mut report, mut rows) = (Report::new(about, options), Vec::new());
    println!("{:<28}{:>12}{:>12}{:>12}{:>8}", "work", "ours", "peer", "floor", "ratio");
    let mut keep = |row: Row| {
        print(&row);
        report.check(&row);
        rows.push(row);
    };
    for work in WORKS.iter().filter(|work| work.name.contains(only)) {
        bench.rows(work, pairs)?.into_iter().for_each(&mut keep);
    }
    for (work, asked, note) in ALONE.iter().filter(|(work, ..)| work.contains(only)) {
        keep(bench.alone(work, *asked, note, pairs)?);
    }
    if !tiny && only.is_empty() {
        report.keep(&rows)?;
    }
    Ok(report.tally)
}

fn print(row: &Row) {
    let (ours, peer, floor) = (rounded(row.ours), rounded(row.peer), rounded(row.floor));
    let ratio = row.ratio.map_or(0.0, |ratio| ratio.median);
    let bar = row.bar.map_or("-".to_owned(), |bar| bar.to_string());
    println!("{:<28}{ours:>12}{peer:>12}{floor:>12}{ratio:>8.2}  (bar {bar}, {})", row.work, row.peer_name);
}

impl Bench {
    /// A work beside the loop that its bar names, then beside the others that can do it.
    fn rows(&self, work: &Work, pairs: usize) -> Result<Vec<Row>, String> {
        let others = PEERS.iter().filter(|other| **other != work.peer && can(other, work.name));
        let mut others: Vec<(&str, Vec<Sample>)> = others.map(|other| (*other, Vec::new())).collect();
        let (mut ours, mut theirs, mut floors) = (Vec::new(), Vec::new(), Vec::new());
        for pair in 0..pairs {
            ours.push(self.measure("ours", work.name)?);
            theirs.push(self.measure(work.peer, work.name)?);
            match work.floor {
                Some(Floor::Echo(unix, connections)) => floors.push(self.echo(unix, connections)?),
                Some(Floor::Spawn) => floors.push(self.alone_in_rust(&self.spawn)?),
                None => {}
            }
            for (other, samples) in others.iter_mut().filter(|_| pair < TOLD_PAIRS) {
                samples.push(self.measure(other, work.name)?);
            }
        }
        let bar =
            Row { bar: Some(work.bar), floor: median(&floors), ..compared(work, &ours, work.peer, &theirs) };
        let told = others.iter().map(|(other, samples)| {
            let of = ours.get(..samples.len()).unwrap_or_default();
            Row { note: "for the record", ..compared(work, of, other, samples) }
        });
        Ok(std::iter::once(bar).chain(told).collect())
    }

    fn measure(&self, event_loop: &str, work: &str) -> Result<Sample, String> {
        let output = Command::new(&self.python)
            .arg(root().join("bench/python/loop/bench.py"))
            .args([event_loop, work, &self.seconds])
            .env("PYTHONPATH", &self.packages)
            .env("THALWEG_ECHO", &self.echo)
            .output()
            .map_err(|error| format!("python: {error}"))?;
        let said: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        let number = |name: &str| said.as_ref().and_then(|said| said[name].as_f64());
        match (number("per_second"), number("cost_us")) {
            (Some(per_second), Some(cost_us)) => Ok(Sample { per_second, cost_us }),
            _ => Err(format!("{work} on {event_loop}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// A work that has no peer, beside what is asked of it.
    fn alone(&self, work: &str, asked: f64, note: &'static str, times: usize) -> Result<Row, String> {
        let one = || {
            if work == TO_RUST {
                self.alone_in_rust(&self.events)
            } else {
                self.measure("ours", work).map(|s| s.per_second)
            }
        };
        let ours = (0..times).map(|_| one()).collect::<Result<Vec<f64>, String>>()?;
        Ok(Row {
            work: work.to_owned(),
            unit: "events/s",
            ours: median(&ours),
            peer: Some(asked),
            peer_name: "what is asked".to_owned(),
            floor: None,
            ratio: Spread::of_ratios(&ours, &vec![asked; ours.len()]),
            bar: Some(1.0),
            costs_us: [None; 3],
            face: if work == TO_RUST { "native" } else { "python" },
            note,
        })
    }

    /// What a program of its own measures without Python: events from one thread to another, programs
    /// started.
    fn alone_in_rust(&self, program: &Path) -> Result<f64, String> {
        let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", program.display());
        let measured = Command::new(program).args(["--seconds", &self.seconds]).output();
        let measured = measured.map_err(|error| failed(&error))?;
        let rate = String::from_utf8_lossy(&measured.stdout).trim().parse();
        rate.map_err(|_| failed(&String::from_utf8_lossy(&measured.stderr)))
    }

    /// The echo without Python.
    fn echo(&self, unix: bool, connections: u32) -> Result<f64, String> {
        let failed = |error: std::io::Error| format!("thalweg-echo: {error}");
        let place = if unix { self.packages.join("floor").display().to_string() } else { "0".to_owned() };
        let mut serve = Command::new(&self.echo);
        serve.args(["serve", &place]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = serve.spawn().map_err(failed)?;
        let mut address = String::new();
        if let Some(output) = server.stdout.take() {
            BufReader::new(output).read_line(&mut address).map_err(failed)?;
        }
        let mut client = Command::new(&self.echo);
        let measured =
            client.args(["client", address.trim(), &connections.to_string(), "1024", "1"]).output();
        // The end of its input ends it.
        drop(server.stdin.take());
        server.wait().map_err(failed)?;
        if unix {
            std::fs::remove_file(Path::new(&place)).map_err(failed)?;
        }
        let measured = measured.map_err(failed)?;
        let rate = String::from_utf8_lossy(&measured.stdout).trim().parse();
        rate.map_err(|_| format!("thalweg-echo: {}", String::from_utf8_lossy(&measured.stderr)))
    }
}

/// rloop knows no Unix sockets.
fn can(event_loop: &str, work: &str) -> bool {
    event_loop != "rloop" || !work.starts_with("Unix")
}

/// What two loops made of a work, pair by pair.
fn compared(work: &Work, ours: &[Sample], peer: &str, theirs: &[Sample]) -> Row {
    let rates = |samples: &[Sample]| samples.iter().map(|s| s.per_second).collect::<Vec<f64>>();
    let costs = |samples: &[Sample]| median(&samples.iter().map(|s| s.cost_us).collect::<Vec<f64>>());
    Row {
        work: work.name.to_owned(),
        unit: "operations/s",
        ours: median(&rates(ours)),
        peer: median(&rates(theirs)),
        peer_name: peer.to_owned(),
        floor: None,
        ratio: Spread::of_ratios(&rates(ours), &rates(theirs)),
        bar: None,
        costs_us: [costs(ours), costs(theirs), None],
        face: "python",
        note: "",
    }
}
