//! `cargo xtask bench ipc`: calls between processes, ours beside what the machine allows and beside other
//! people's, and whether they are as fast as they should be. A tiny run asserts that every row is there and
//! that every side answered as often, and no time.

use super::callers::Callers;
use super::line::{self, Bar, Line, beside, hear, line, row};
use super::report::Report;
use super::results::About;
use super::row::Row;
use super::samples::Samples;
use crate::Outcome;
use crate::harness::options::Options;
use crate::harness::server::{build, build_peers};
use std::path::Path;
use std::process::Command;

const PREFACE: &str = "\
Calls between two processes on one machine, 64-byte messages unless a row says otherwise; what is under way at once is \
sent and taken as it comes, pinned as the row says. The floor is what kernel and processor offer with nothing on top: \
two words in shared memory that each end spins on, a blocking thread at each end of a Unix socket or a pipe, a copy. \
Processor time is both ends' together, but where a caller is in another language: there it is the caller's.";

use Bar::{Part, Rate};

/// The report. A round trip of 5 µs is 200,000 a second; at most twice as long is at least half the rate; a
/// place that is free within 100 ms is taken ten times a second.
const LINES: &[Line] = &[
    line("memory-one-core", "serial", "futex", Rate(200e3), "memory, one core"),
    line("memory-one-core", "rings", "futex", Bar::None, "memory, one core, rings alone"),
    line("memory-two-cores", "rings", "spin", Part(0.5, "spin"), "memory, two cores, rings alone"),
    line("memory-two-cores", "serial", "spin", Bar::None, "memory, two cores"),
    line("memory-two-cores", "typed", "spin", Bar::None, "memory, two cores, typed"),
    line("memory-free", "reactor", "", Bar::None, "memory, unpinned"),
    line("memory-1k", "serial", "memcpy", Bar::None, "memory, two cores, 1 KiB"),
    line("memory-64k", "serial", "memcpy", Bar::None, "memory, two cores, 64 KiB"),
    line("memory-deep", "rings", "", Rate(2e6), "memory, two cores, 16 under way, rings alone"),
    line("memory-deep", "typed", "", Rate(1e6), "memory, two cores, 16 under way, typed"),
    line("memory-deep-one-core", "serial", "", Rate(1e6), "memory, one core, 16 under way"),
    line("memory-crowd", "crowd", "", Bar::None, "memory, 1,000 clients with rings of 64 KiB"),
    line("memory-killed", "killed", "", Rate(10.0), "of these one is started, killed and replaced"),
    line("memory-pool", "pool", "", Rate(250e3), "memory, 16 under way, two threads answer"),
    line("socket-one-core", "serial", "socket", Part(1.0 / 1.3, "socket"), "socket, one core"),
    line("socket-two-cores", "serial", "socket", Bar::None, "socket, two cores"),
    line("socket-deep", "reactor", "socket", Rate(300e3), "socket, two cores, 16 under way"),
    line("socket-deep", "typed", "socket", Bar::None, "socket, two cores, 16 under way, typed"),
    line("socket-64k", "serial", "socket", Bar::None, "socket, two cores, 64 KiB"),
    line("socket-clients", "reactor", "socket", Rate(90e3), "socket, four clients"),
    line("socket-pool", "pool", "", Bar::None, "socket, 16 under way, two threads answer"),
    line("node-deep", "asynchronous", "", Rate(150e3), "memory, unpinned, 16 under way from Node"),
    line("node-one", "synchronous", "", Bar::None, "memory, unpinned, Node waits for each"),
    line("python-one", "synchronous", "", Rate(100e3), "memory, unpinned, Python waits for each"),
    line("python-deep", "asynchronous", "", Bar::None, "memory, unpinned, 16 under way from Python"),
    line("reads-1", "pool", "", Part(0.97, "serial"), "reads of 10 us, 1 under way"),
    line("reads-2", "pool", "", Bar::None, "reads of 10 us, 2 under way"),
    line("reads-4", "pool", "", Bar::None, "reads of 10 us, 4 under way"),
    line("reads-8", "pool", "", Bar::None, "reads of 10 us, 8 under way"),
    line("reads-16", "pool", "", Part(1.5, "serial"), "reads of 10 us, 16 under way"),
    line("reads-clients-2", "pool", "", Bar::None, "reads of 10 us, 2 clients"),
    line("reads-clients-4", "pool", "", Bar::None, "reads of 10 us, 4 clients"),
    line("reads-clients-7", "pool", "", Bar::None, "reads of 10 us, 7 clients"),
];

/// Other people's, and the work of ours that each stands beside: how it is pinned and how much is under way.
const PEERS: &[(&str, &str, &str, &str)] = &[
    ("memory-two-cores", "iceoryx2", "two-cores", "1"),
    ("memory-deep", "iceoryx2", "two-cores", "16"),
    ("socket-two-cores", "tonic", "two-cores", "1"),
    ("socket-deep", "tonic", "two-cores", "16"),
    ("socket-two-cores", "zeromq", "two-cores", "1"),
    ("socket-deep", "zeromq", "two-cores", "16"),
];

/// `cargo xtask bench ipc`.
///
/// # Errors
/// The program does not build, start or end well.
pub(crate) fn run(options: &Options) -> Outcome {
    let tiny = options.flag("tiny");
    let pairs = super::pairs(options)?;
    let until = if tiny { ["--turns", "20"] } else { ["--milliseconds", "400"] };
    let program = build("thalweg-bench", "thalweg-ipc-bench")?;
    // Other people's take minutes to build, so a tiny run does without, and so may others.
    let peers =
        if tiny || options.flag("without-peer") { None } else { Some(build_peers("thalweg-ipc-peers")?) };
    let callers = Callers::start()?;
    let mut samples = Samples::default();
    for pair in 0..pairs {
        let pair = pair.to_string();
        hear(Command::new(&program).args(["--pairs", "1", "--first-pair", &pair]).args(until), &mut samples)?;
        callers.measure(&pair, until, &mut samples)?;
        for (work, peer, pins, depth) in PEERS.iter().filter(|_| peers.is_some()) {
            let mut command = Command::new(peers.as_deref().unwrap_or(Path::new("")));
            command.args(["--peer", peer, "--work", work, "--pair", &pair, "--pins", pins, "--depth", depth]);
            hear(command.args(until), &mut samples)?;
        }
    }
    callers.end()?;
    let about = About { name: "ipc", title: "Calls between processes", preface: PREFACE };
    let mut report = Report::new(about, options);
    line::check(LINES, &samples, pairs, &mut report.tally);
    let mut rows: Vec<Row> = LINES.iter().map(|line| row(line, &samples)).collect();
    if peers.is_some() {
        rows.extend(PEERS.iter().map(|(work, peer, ..)| beside(LINES, work, ["serial", peer], &samples)));
    }
    report.conclude(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Samples {
        Samples::of_rates(&[("memory-deep", "rings", 3e6), ("memory-deep", "typed", 5e5)])
    }

    #[test]
    fn a_rate_is_a_bar() {
        let row_of = |side: &str| {
            let line = LINES.iter().find(|line| line.work == "memory-deep" && line.ours == side).unwrap();
            row(line, &samples())
        };
        assert_eq!((row_of("rings").met(), row_of("typed").met()), (Some(true), Some(false)));
        assert_eq!(row_of("rings").ratio.unwrap().median, 1.5);
    }

    #[test]
    fn what_was_not_measured_reaches_nothing() {
        assert!(
            LINES
                .iter()
                .filter(|line| line.work != "memory-deep")
                .all(|line| row(line, &samples()).met().is_none())
        );
    }
}
