//! Forks of one large stream: what each costs on disk and in memory, and how fast they are created beside
//! appends of the same run.

use crate::harness::load::Load;
use crate::harness::memory::Memory;
use crate::harness::options::Options;
use crate::harness::server::{Launch, Program, Scratch, Server};
use crate::measures::slopes::{settled, slope};
use crate::{Outcome, Tally};
use serde_json::Value;

/// Bytes of server memory that a fork may cost.
const MEMORY_BAR_BYTES: f64 = 400.0;
/// Bytes of log that a fork may cost: its create's batch.
const BATCH_BAR_BYTES: u64 = 256;
/// Segments are allocated ahead: the one being written and its successor.
const ALLOCATED_AHEAD_BYTES: u64 = 2 * (64 << 20);
/// Forks per append.
const RATE_BAR: f64 = 0.8;
/// Bytes of one append that fills the source.
const CHUNK_BYTES: usize = 8 << 20;
/// Points at which memory is looked at.
const POINTS: u64 = 5;

/// What a run of the load program did.
struct Run {
    per_second: f64,
    /// The server's processor time per operation.
    cost_us: f64,
}

/// `cargo xtask forks`.
///
/// # Errors
/// The server cannot be started or refuses.
pub(crate) fn run(options: &Options) -> Outcome {
    let (forks, bytes) = (options.value("streams", 100_000_u64)?, options.value("bytes", 1_u64 << 30)?);
    let load = Load::new()?;
    let launch = Launch::new(Program::Ours, options.text("durability", "sync"))?;
    let scratch = Scratch::new("forks")?;
    let server = launch.start(&scratch.path().join("data"))?;
    fill(&server, bytes)?;
    // Appends before and after, so that what drifts drifts for both.
    let before = appends(&server, &load, options)?;
    let (stored, streams) = (count(&server, "storedBytes")?, count(&server, "streams")?);
    let mut points = vec![(0, settled(&server)?)];
    let (mut seconds, mut cost_us) = (0.0, 0.0);
    for point in 0..POINTS {
        let (first, last) = (forks * point / POINTS, forks * (point + 1) / POINTS);
        let run = fork(&server, &load, options, first, last - first)?;
        seconds += float(last - first) / run.per_second;
        cost_us += run.cost_us / float(POINTS);
        points.push((usize::try_from(last).map_err(|e| e.to_string())?, settled(&server)?));
    }
    let grown = count(&server, "storedBytes")?.saturating_sub(stored);
    let after = appends(&server, &load, options)?;
    let (rate, append_rate) = (float(forks) / seconds, f64::midpoint(before.per_second, after.per_second));
    let of = |word: fn(&Memory) -> u64| slope(points.iter().map(|(n, memory)| (*n, word(memory))));
    let (anonymous, private_dirty) = (of(|memory| memory.anonymous), of(|memory| memory.private_dirty));
    println!("{forks} forks of a stream of {} MiB, {}", bytes >> 20, options.text("durability", "sync"));
    println!(
        "  created   {rate:.0}/s, {cost_us:.1} us of processor; appends {append_rate:.0}/s, {:.1} us",
        before.cost_us
    );
    println!("  memory    {anonymous:.0} bytes each, {private_dirty:.0} with dirty pages of the log");
    println!("  segments  grew by {grown} bytes as allocated");
    let mut tally = Tally::default();
    check_content(&server, bytes, forks, &mut tally)?;
    let allowed = forks * BATCH_BAR_BYTES + ALLOCATED_AHEAD_BYTES;
    tally.check(grown <= allowed, || format!("{grown} bytes of segments more, {allowed} are allowed"));
    tally.check(anonymous <= MEMORY_BAR_BYTES, || {
        format!("{anonymous:.0} bytes of memory each, {MEMORY_BAR_BYTES} are allowed")
    });
    let kept = count(&server, "streams")?.saturating_sub(streams);
    tally.check(kept == forks, || format!("{kept} streams more, {forks} were created"));
    if options.flag("check") {
        let ratio = rate / append_rate;
        tally.check(ratio >= RATE_BAR, || format!("{ratio:.2} forks per append, the bar is {RATE_BAR}"));
    }
    Ok(tally)
}

fn fill(server: &Server, bytes: u64) -> Result<(), String> {
    let mut connection = server.connect()?;
    let fields = [("Content-Type", "application/octet-stream")];
    let reply = connection.request("PUT", "/v1/stream/source", &fields, b"")?;
    let mut status = reply.status;
    let chunk = vec![b'x'; CHUNK_BYTES.min(usize::try_from(bytes).unwrap_or(CHUNK_BYTES))];
    let mut filled = 0;
    while filled < bytes && (200..300).contains(&status) {
        status = connection.request("POST", "/v1/stream/source", &fields, &chunk)?.status;
        filled += chunk.len() as u64;
    }
    if (200..300).contains(&status) { Ok(()) } else { Err(format!("filling the source: status {status}")) }
}

fn appends(server: &Server, load: &Load, options: &Options) -> Result<Run, String> {
    let seconds: u64 = options.value("seconds", 3)?;
    measure(server, load, options, &["append", "--seconds", &seconds.to_string()])
}

fn fork(server: &Server, load: &Load, options: &Options, first: u64, count: u64) -> Result<Run, String> {
    let (first, count) = (first.to_string(), count.to_string());
    let what =
        ["create", "--prefix", "fork-", "--fork-of", "source", "--first", &first, "--operations", &count];
    measure(server, load, options, &[&what[..], &["--seconds", "600", "--warm-up-ms", "0"]].concat())
}

fn measure(server: &Server, load: &Load, options: &Options, words: &[&str]) -> Result<Run, String> {
    let connections = ["--connections", options.text("connections", "256")];
    let report = load.run(server, &[words, &connections[..]].concat())?;
    match (report["perSecond"].as_f64(), report["serverUsPerOperation"].as_f64()) {
        (Some(per_second), Some(cost_us)) => Ok(Run { per_second, cost_us }),
        _ => Err(format!("load: {report}")),
    }
}

/// A number out of what the server counts.
///
/// # Errors
/// It does not count that.
pub(crate) fn count(server: &Server, name: &str) -> Result<u64, String> {
    let reply = server.connect()?.request("GET", "/v1/stats", &[], b"")?;
    let stats: Value = serde_json::from_slice(&reply.body).map_err(|e| format!("/v1/stats: {e}"))?;
    stats[name].as_u64().ok_or_else(|| format!("/v1/stats: no {name}: {stats}"))
}

/// The first and the last fork read as the source does, from the beginning and at the end.
fn check_content(server: &Server, bytes: u64, forks: u64, tally: &mut Tally) -> Result<(), String> {
    let mut connection = server.connect()?;
    let mut look = |name: &str| {
        let path = format!("/v1/stream/{name}");
        let first = connection.request("GET", &format!("{path}?offset=-1"), &[], b"")?;
        let head = connection.request("HEAD", &path, &[], b"")?;
        let next = head.field("Stream-Next-Offset").unwrap_or_default().to_owned();
        let tail = connection.request("GET", &format!("{path}?offset={next}"), &[], b"")?;
        Ok::<_, String>((first.status, first.body, next, tail.status, tail.body))
    };
    let source = look("source")?;
    tally.check(source.0 == 200 && !source.1.is_empty() && bytes > 0, || format!("source: {}", source.0));
    for name in ["fork-0".to_owned(), format!("fork-{}", forks - 1)] {
        let fork = look(&name)?;
        tally.check(fork == source, || format!("{name} does not read as its source"));
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn float(number: u64) -> f64 {
    number as f64
}
