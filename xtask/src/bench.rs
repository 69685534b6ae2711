//! `cargo xtask bench streams`: ours, the Rust peer and the floor in turn, so that what drifts drifts for all.
//! Reports the median ratio with its spread and each side's processor time per operation, and writes
//! one row per work to `bench/results/`.

use crate::memory::processor_seconds;
use crate::options::Options;
use crate::server::{Launch, Program, Scratch, build, root};
use crate::{Outcome, Tally};
use serde_json::{Value, json};
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

/// `cargo xtask bench NAME`.
///
/// # Errors
/// An unknown name, or something does not build or start.
pub(crate) fn run(options: &Options) -> Outcome {
    match options.words.first().map(String::as_str) {
        Some("streams") => streams(options),
        _ => Err("which one? There is: streams".to_owned()),
    }
}

fn streams(options: &Options) -> Outcome {
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
    let row = row(options, &of_ours, &of_peer, &of_floor)?;
    write_row(&row, options)?;
    let mut tally = Tally::default();
    tally.check(of_ours.len() == pairs && pairs > 0, || "nothing was measured".to_owned());
    if let (true, Some(ratio)) = (options.flag("check"), row["ratio"].as_f64()) {
        tally.check(ratio >= BAR, || format!("{}: ratio {ratio:.2}, bar {BAR}", row["work"]));
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

fn row(options: &Options, ours: &[Sample], peer: &[Sample], floor: &[Sample]) -> Result<Value, String> {
    let rate = |s: &Sample| s.per_second;
    let cost = |s: &Sample| s.cost_us;
    let ratios: Vec<f64> = ours.iter().zip(peer).map(|(a, b)| a.per_second / b.per_second).collect();
    let costs: Vec<f64> = ours.iter().zip(peer).map(|(a, b)| a.cost_us / b.cost_us).collect();
    let ratio = median(&ratios);
    if let (Some(ratio), Some(cost)) = (ratio, median(&costs)) {
        println!(
            "ours / peer: {ratio:.2} operations a second ({:.2} to {:.2}), {cost:.2} server time per operation",
            least(&ratios).unwrap_or(ratio),
            most(&ratios).unwrap_or(ratio),
        );
    }
    let work = format!(
        "durable append, {} B, {} connections, {} streams, {}",
        options.text("bytes", "256"),
        options.text("connections", "256"),
        options.text("streams", "100"),
        options.text("durability", "sync"),
    );
    Ok(json!({
        "work": work,
        "unit": "1/s",
        "ours": median_of(ours, rate),
        "peer": median_of(peer, rate),
        "peer_name": "durable-streams 0.1.5",
        "floor": median_of(floor, rate),
        "ratio": ratio,
        "ratio_min": least(&ratios),
        "ratio_max": most(&ratios),
        "pairs": ratios.len(),
        "bar": BAR,
        "met": ratio.map(|r| r >= BAR),
        "pinning": "none",
        "ours_server_us": median_of(ours, cost),
        "peer_server_us": median_of(peer, cost),
        "floor_server_us": median_of(floor, cost),
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "commit": commit(),
        "note": "closed loop, one request under way per connection; client and server share the processors",
    }))
}

/// Writes the row, except for runs too small to mean anything.
fn write_row(row: &Value, options: &Options) -> Result<(), String> {
    if options.flag("without-peer") {
        return Ok(());
    }
    let path = root().join("bench/results/streams.json");
    let text = serde_json::to_string_pretty(&json!([row])).map_err(|e| e.to_string())?;
    std::fs::create_dir_all(root().join("bench/results")).map_err(|e| e.to_string())?;
    std::fs::write(&path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))?;
    println!("written to {}", path.display());
    Ok(())
}

fn commit() -> Option<String> {
    let output =
        Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(root()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn median_of(samples: &[Sample], of: fn(&Sample) -> f64) -> Option<f64> {
    median(&samples.iter().map(of).collect::<Vec<_>>())
}

fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], upper) } else { upper })
}

fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
}

fn most(values: &[f64]) -> Option<f64> {
    values.iter().copied().max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_its_spread() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!((least(&[3.0, 1.0]), most(&[3.0, 1.0])), (Some(1.0), Some(3.0)));
    }

    #[test]
    fn a_row_compares_pair_by_pair() {
        let of = |rates: &[f64]| -> Vec<Sample> {
            rates.iter().map(|r| Sample { per_second: *r, p50_us: 1.0, p99_us: 1.0, cost_us: 2.0 }).collect()
        };
        let options = Options::default();
        let row = row(&options, &of(&[20.0, 40.0, 90.0]), &of(&[10.0, 10.0, 30.0]), &of(&[100.0])).unwrap();
        assert_eq!((row["ratio"].as_f64(), row["ratio_max"].as_f64()), (Some(3.0), Some(4.0)));
        assert_eq!((row["met"].as_bool(), row["pairs"].as_u64()), (Some(true), Some(3)));
    }
}
