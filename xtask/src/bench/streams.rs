//! `cargo xtask bench streams`: durable appends over HTTP, ours, the Rust peer and the floor in turn.

use super::results::{self, Report};
use super::row::Row;
use super::statistics::{Spread, median};
use crate::memory::processor_seconds;
use crate::options::Options;
use crate::server::{Launch, Program, Scratch, build, root};
use crate::{Outcome, Tally};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What the median ratio to the peer must reach.
const BAR: f64 = 1.0;

/// One run against one server.
#[derive(Clone, Copy, Debug)]
struct Sample {
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
    /// The server's processor time per operation.
    cost_us: f64,
}

/// `cargo xtask bench streams`.
///
/// # Errors
/// Something does not build or start.
pub(crate) fn run(options: &Options) -> Outcome {
    let pairs: usize = options.value("pairs", 5)?;
    let durability = options.text("durability", "sync");
    let load = build("thalweg-bench", "thalweg-load")?;
    let ours = Launch::new(Program::Ours, durability)?;
    let floor = Launch::new(Program::Floor, durability)?;
    let peer =
        if options.flag("without-peer") { None } else { Some(Launch::new(Program::Peer, durability)?) };
    println!("{:<24}{:>12}{:>10}{:>10}{:>12}", "durable append", "1/s", "p50 us", "p99 us", "server us");
    let (mut of_ours, mut of_peer, mut of_floor) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..pairs {
        of_ours.push(sample(&ours, &load, options)?);
        if let Some(peer) = &peer {
            of_peer.push(sample(peer, &load, options)?);
        }
        of_floor.push(sample(&floor, &load, options)?);
    }
    let row = row(options, &of_ours, &of_peer, &of_floor);
    let mut tally = Tally::default();
    tally.check(of_ours.len() == pairs && pairs > 0, || "nothing was measured".to_owned());
    if let Some(ratio) = row.ratio {
        let Spread { median, least, most, .. } = ratio;
        println!("ours / peer: {median:.2} operations a second ({least:.2} to {most:.2})");
        let report = Report {
            name: "streams",
            title: "The stream server beside its peer",
            preface: "A closed loop over HTTP, one request under way per connection; client and server share the \
                      processors, and processor time is the server's.",
        };
        results::write(&root().join("bench/results"), &report, std::slice::from_ref(&row))?;
        if options.flag("check") {
            tally.check(median >= BAR, || format!("{}: ratio {median:.2}, bar {BAR}", row.work));
        }
    }
    Ok(tally)
}

/// Starts a server, loads it, and ends it.
fn sample(launch: &Launch, load: &Path, options: &Options) -> Result<Sample, String> {
    let scratch = Scratch::new("bench")?;
    let server = launch.start(&scratch.path().join("data"))?;
    let seconds: u64 = options.value("seconds", 5)?;
    let before = processor_seconds(server.process())?;
    let output = Command::new(load)
        .args(["--port", &server.address.port().to_string(), "--seconds", &seconds.to_string()])
        .args(["--connections", options.text("connections", "256")])
        .args(["--streams", options.text("streams", "100")])
        .args(["--bytes", options.text("bytes", "256")])
        .output()
        .map_err(|e| format!("{}: {e}", load.display()))?;
    if !output.status.success() {
        return Err(format!("load: {}: {}", String::from_utf8_lossy(&output.stderr), server.last_words()));
    }
    let used_us = (processor_seconds(server.process())? - before) * 1e6;
    let report: Value = serde_json::from_slice(&output.stdout).map_err(|e| format!("load: {e}"))?;
    let number = |name: &str| report[name].as_f64().ok_or_else(|| format!("load: no {name}"));
    if number("failed")? > 0.0 {
        return Err(format!("{}: {} operations failed", launch.name(), report["failed"]));
    }
    let sample = Sample {
        per_second: number("operations")? / number("microseconds")? * 1e6,
        p50_us: number("p50_us")?,
        p99_us: number("p99_us")?,
        cost_us: used_us / number("all_operations")?.max(1.0),
    };
    let Sample { per_second, p50_us, p99_us, cost_us } = sample;
    println!("{:<24}{per_second:>12.0}{p50_us:>10.0}{p99_us:>10.0}{cost_us:>12.2}", launch.name());
    Ok(sample)
}

fn row(options: &Options, ours: &[Sample], peer: &[Sample], floor: &[Sample]) -> Row {
    let rates = |samples: &[Sample]| samples.iter().map(|s| s.per_second).collect::<Vec<_>>();
    let costs = |samples: &[Sample]| samples.iter().map(|s| s.cost_us).collect::<Vec<_>>();
    let work = format!(
        "durable append, {} B, {} connections, {} streams, {}",
        options.text("bytes", "256"),
        options.text("connections", "256"),
        options.text("streams", "100"),
        options.text("durability", "sync"),
    );
    Row {
        work,
        unit: "1/s",
        ours: median(&rates(ours)),
        peer: median(&rates(peer)),
        peer_name: "durable-streams 0.1.5".to_owned(),
        floor: median(&rates(floor)),
        ratio: Spread::of_ratios(&rates(ours), &rates(peer)),
        bar: Some(BAR),
        costs_us: [ours, peer, floor].map(|samples| median(&costs(samples))),
        face: "",
        note: "closed loop, one request under way per connection; client and server share the processors",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_compares_pair_by_pair() {
        let of = |rates: &[f64]| -> Vec<Sample> {
            rates.iter().map(|r| Sample { per_second: *r, p50_us: 1.0, p99_us: 1.0, cost_us: 2.0 }).collect()
        };
        let options = Options::default();
        let row = row(&options, &of(&[20.0, 40.0, 90.0]), &of(&[10.0, 10.0, 30.0]), &of(&[100.0]));
        let ratio = row.ratio.unwrap();
        assert_eq!((ratio.median, ratio.most, ratio.count), (3.0, 4.0, 3));
        assert_eq!((row.met(), row.floor), (Some(true), Some(100.0)));
    }
}
