//! `cargo xtask bench rpc`: calls by JSON-RPC, ours beside what the machine allows, and whether they are as
//! fast as they should be. A tiny run asserts that every row is there and that every side was asked as often,
//! and no time.

use super::line::Bar::{self, Part, Rate};
use super::line::{self, Line, beside, hear, line, row};
use super::report::Report;
use super::results::About;
use super::row::Row;
use super::samples::Samples;
use super::statistics::{Spread, median};
use crate::Outcome;
use crate::harness::options::Options;
use crate::harness::server::{build, build_peers};
use std::process::Command;

const PREFACE: &str = "\
Calls by JSON-RPC 2.0 over TCP on one machine, one number added to another, pinned as the row says. The floor is a request \
and an answer that were put together before, between a blocking thread and an epoll; `spin` is the same with both ends looking \
instead of waiting. `jsonrpsee` is its client and its server, `jsonrpsee-server` and `hyper` are servers that are called as \
ours is where a row says \"the server alone\": with the floor's client. hyper answers what was put together before. Each end is one \
thread. Processor time is both ends' together.";

/// The report.
const LINES: &[Line] = &[
    line("one-core", "ours", "floor", Rate(45e3), "one after the other, one core"),
    line("one-core", "server", "floor", Bar::None, "one after the other, one core, the server alone"),
    line("two-cores", "ours", "floor", Part(0.8, "spin"), "one after the other, two cores"),
    line("two-cores", "server", "floor", Bar::None, "one after the other, two cores, the server alone"),
    line("anew", "ours", "floor", Part(0.8, "floor"), "a connection for each call, one core"),
    line("anew", "server", "floor", Bar::None, "a connection for each call, one core, the server alone"),
    line("anew-two-cores", "ours", "floor", Bar::None, "a connection for each call, two cores"),
    line("connections-16", "ours", "floor", Bar::None, "16 connections, two cores"),
    line("connections-16", "server", "floor", Bar::None, "16 connections, two cores, the server alone"),
    line("connections-64", "ours", "floor", Bar::None, "64 connections, two cores"),
    line("connections-64", "server", "floor", Rate(100e3), "64 connections, two cores, the server alone"),
    line("connections-16-one-core", "ours", "floor", Bar::None, "16 connections, one core"),
    line(
        "connections-16-one-core",
        "server",
        "floor",
        Bar::None,
        "16 connections, one core, the server alone",
    ),
    line("connections-64-one-core", "ours", "floor", Bar::None, "64 connections, one core"),
    line(
        "connections-64-one-core",
        "server",
        "floor",
        Bar::None,
        "64 connections, one core, the server alone",
    ),
    line("anew-16", "ours", "floor", Bar::None, "16 at once, a connection for each call, two cores"),
    line(
        "anew-16",
        "server",
        "floor",
        Bar::None,
        "16 at once, a connection for each call, two cores, the server alone",
    ),
    line("anew-64", "ours", "floor", Bar::None, "64 at once, a connection for each call, two cores"),
    line(
        "anew-64",
        "server",
        "floor",
        Bar::None,
        "64 at once, a connection for each call, two cores, the server alone",
    ),
    line("anew-16-one-core", "ours", "floor", Bar::None, "16 at once, a connection for each call, one core"),
    line(
        "anew-16-one-core",
        "server",
        "floor",
        Bar::None,
        "16 at once, a connection for each call, one core, the server alone",
    ),
    line("anew-64-one-core", "ours", "floor", Bar::None, "64 at once, a connection for each call, one core"),
    line(
        "anew-64-one-core",
        "server",
        "floor",
        Bar::None,
        "64 at once, a connection for each call, one core, the server alone",
    ),
    line("batch-64", "ours", "", Rate(500e3), "batches of 64, two cores"),
    line("batch-64-one-core", "ours", "", Bar::None, "batches of 64, one core"),
];

/// Other people's servers, in the rows of ours alone.
const SERVERS: &[&str] = &["hyper", "jsonrpsee-server"];
const SERVED: &[&str] = &[
    "one-core",
    "two-cores",
    "anew",
    "connections-16",
    "connections-64",
    "connections-16-one-core",
    "connections-64-one-core",
];

/// Another project's client and server: the work, and the argument that names it to their program.
const PEERS: &[(&str, &[&str])] = &[
    ("one-core", &[]),
    ("two-cores", &["--near", "1"]),
    ("anew", &["--anew", "true"]),
    ("anew-two-cores", &["--near", "1", "--anew", "true"]),
    ("connections-16", &["--near", "1", "--connections", "16"]),
    ("connections-64", &["--near", "1", "--connections", "64"]),
    ("connections-16-one-core", &["--connections", "16"]),
    ("connections-64-one-core", &["--connections", "64"]),
    ("batch-64", &["--near", "1", "--batch", "64"]),
    ("batch-64-one-core", &["--batch", "64"]),
];

/// How many times as fast a kept connection has to be as a new one for each call.
const KEPT: f64 = 4.0;

/// `cargo xtask bench rpc`.
///
/// # Errors
/// The program does not build, start or end well.
pub(crate) fn run(options: &Options) -> Outcome {
    let tiny = options.flag("tiny");
    let pairs = super::pairs(options)?;
    let until = if tiny { ["--turns", "20"] } else { ["--milliseconds", "400"] };
    let program = build("thalweg-bench", "thalweg-rpc-bench")?;
    // Other people's take minutes to build, so a tiny run does without, and so may others.
    let without = tiny || options.flag("without-peer");
    let peers = if without { None } else { Some(build_peers("thalweg-rpc-peers")?) };
    let mut samples = Samples::default();
    for pair in 0..pairs {
        let pair = pair.to_string();
        let mut command = Command::new(&program);
        command.args(["--pairs", "1", "--first-pair", &pair]).args(until);
        let Some(peers) = &peers else {
            hear(&mut command, &mut samples)?;
            continue;
        };
        hear(command.arg("--peers").arg(peers), &mut samples)?;
        for (work, words) in PEERS {
            let mut command = Command::new(peers);
            hear(command.args(["--work", work, "--pair", &pair]).args(*words).args(until), &mut samples)?;
        }
    }
    let about = About { name: "rpc", title: "Calls by JSON-RPC", preface: PREFACE };
    let mut report = Report::new(about, options);
    line::check(LINES, &samples, pairs, &mut report.tally);
    let mut rows: Vec<Row> = LINES.iter().map(|line| row(line, &samples)).collect();
    rows.push(kept(&samples));
    if peers.is_some() {
        rows.extend(PEERS.iter().map(|(work, _)| beside(LINES, work, ["ours", "jsonrpsee"], &samples)));
        let served = SERVED.iter().flat_map(|work| SERVERS.iter().map(move |peer| (work, peer)));
        rows.extend(served.map(|(work, peer)| beside(LINES, work, ["server", peer], &samples)));
    }
    report.conclude(&rows)
}

/// A connection that is kept beside one for each call.
fn kept(samples: &Samples) -> Row {
    let (kept, anew) = (samples.rates("one-core", "ours"), samples.rates("anew", "ours"));
    Row {
        work: "a connection that is kept, one core".to_owned(),
        unit: "calls/s",
        ours: median(&kept),
        peer: median(&anew),
        peer_name: "anew".to_owned(),
        floor: None,
        ratio: Spread::of_ratios(&kept, &anew),
        bar: Some(KEPT),
        costs_us: [samples.cost_us("one-core", "ours"), samples.cost_us("anew", "ours"), None],
        face: "",
        note: "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_connection_is_held_against_new_ones() {
        let samples = Samples::of_rates(&[("one-core", "ours", 50e3), ("anew", "ours", 10e3)]);
        assert_eq!((kept(&samples).ratio.unwrap().median, kept(&samples).met()), (5.0, Some(true)));
    }
}
