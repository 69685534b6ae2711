//! A great many streams, each with a name of 32 bytes and one record: what each costs in memory, how many
//! descriptors the server holds, how long it takes to open them again after an end and after a kill.

use crate::bench::endurance::{self, Asked, Found};
use crate::harness::load::Load;
use crate::harness::memory::{self, Memory};
use crate::harness::options::Options;
use crate::harness::server::{Launch, Program, Scratch, Server};
use crate::measures::forks::count;
use crate::measures::slopes::{settled, slope};
use crate::{Outcome, Tally};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of server memory that a stream may cost.
const MEMORY_BAR_BYTES: f64 = 400.0;
/// Tables double as they grow: what fewer streams cost says how long ago they last did.
const MEMORY_JUDGED_FROM: u64 = 1_000_000;
/// Descriptors that the server may hold.
const DESCRIPTORS_BAR: usize = 200;
/// Seconds that opening may take.
const OPEN_BAR_SECONDS: f64 = 5.0;
/// Points at which memory is looked at.
const POINTS: u64 = 5;
/// What every run of the load has in common.
const NAMES: [&str; 4] = ["--prefix", "idle-", "--name-bytes", "32"];
/// Longer than any of it takes: runs end by their counts.
const LONG: [&str; 4] = ["--seconds", "3600", "--warm-up-ms", "0"];

/// What growing came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grown {
    pub(crate) anonymous_bytes_each: f64,
    pub(crate) resident_bytes_each: f64,
    created_per_second: f64,
    appended_per_second: f64,
}

/// `cargo xtask streams-million`.
///
/// # Errors
/// The server cannot be started or refuses.
pub(crate) fn run(options: &Options) -> Outcome {
    let streams: u64 = options.value("streams", 1_000_000)?;
    let launch = Launch::new(Program::of(options), options.text("durability", "sync"))?;
    let load = Load::new()?;
    let scratch = Scratch::new("streams")?;
    let data = scratch.path().join("data");
    let server = launch.start(&data)?;
    let grown = grow(&server, &load, streams)?;
    let descriptors = memory::descriptors(server.process())?;
    println!("{}: {streams} streams with names of 32 bytes and one record each", launch.name());
    println!(
        "  created      {:.0}/s, appended to {:.0}/s",
        grown.created_per_second, grown.appended_per_second
    );
    println!(
        "  memory       {:.0} bytes each, {:.0} with resident pages of the log, bar {MEMORY_BAR_BYTES}",
        grown.anonymous_bytes_each, grown.resident_bytes_each
    );
    println!("  descriptors  {descriptors}, bar {DESCRIPTORS_BAR}");
    let mut tally = Tally::default();
    if streams >= MEMORY_JUDGED_FROM {
        tally.check(grown.anonymous_bytes_each <= MEMORY_BAR_BYTES, || {
            format!("{:.0} bytes of memory each, {MEMORY_BAR_BYTES} are allowed", grown.anonymous_bytes_each)
        });
    }
    tally.check(descriptors <= DESCRIPTORS_BAR, || {
        format!("{descriptors} descriptors, {DESCRIPTORS_BAR} are allowed")
    });
    all_there(&server, streams, &mut tally)?;
    server.end(Duration::from_secs(60))?;
    let (server, ended) = open(&launch, &data)?;
    all_there(&server, streams, &mut tally)?;
    server.kill()?;
    let (server, killed) = open(&launch, &data)?;
    all_there(&server, streams, &mut tally)?;
    let descriptors = memory::descriptors(server.process())?;
    tally.check(descriptors <= DESCRIPTORS_BAR, || format!("{descriptors} descriptors when opened again"));
    println!(
        "  opened       {ended:.2} s after an end, {killed:.2} s after a kill, bar {OPEN_BAR_SECONDS} s"
    );
    #[expect(clippy::cast_precision_loss, reason = "a few hundred at most")]
    let held = descriptors as f64;
    let found = |what: &str, unit, figure, bar| Found {
        work: format!("{streams} streams, {what}"),
        unit,
        figure,
        asked: Asked::AtMost(bar),
    };
    #[expect(clippy::cast_precision_loss, reason = "a few hundred at most")]
    let descriptors_bar = DESCRIPTORS_BAR as f64;
    endurance::record(
        options,
        "streams-million",
        &[
            found("memory", "bytes each", grown.anonymous_bytes_each, MEMORY_BAR_BYTES),
            found("opened again after an end", "s", ended, OPEN_BAR_SECONDS),
            found("opened again after a kill", "s", killed, OPEN_BAR_SECONDS),
            found("opened again", "descriptors", held, descriptors_bar),
        ],
    )?;
    if options.flag("check") {
        let longest = ended.max(killed);
        tally.check(longest <= OPEN_BAR_SECONDS, || {
            format!("{longest:.2} s to open, {OPEN_BAR_SECONDS} are allowed")
        });
    }
    Ok(tally)
}

/// Creates streams and appends one record to each, looking at memory on the way.
///
/// # Errors
/// The server refuses.
pub(crate) fn grow(server: &Server, load: &Load, streams: u64) -> Result<Grown, String> {
    let mut points = vec![(0, settled(server)?)];
    let (mut creating, mut appending) = (0.0, 0.0);
    for point in 0..POINTS {
        let (first, last) = (streams * point / POINTS, streams * (point + 1) / POINTS);
        let (start, many) = (first.to_string(), (last - first).to_string());
        let what = [&NAMES[..], &LONG, &["--first", &start, "--operations", &many]].concat();
        creating += took(load, server, &[&["create"], &what[..]].concat(), last - first, "created")?;
        let append = ["append", "--created", "--streams", &many];
        appending += took(load, server, &[&append[..], &what].concat(), last - first, "appended")?;
        points.push((usize::try_from(last).map_err(|e| e.to_string())?, settled(server)?));
    }
    let of = |word: fn(&Memory) -> u64| slope(points.iter().map(|(n, memory)| (*n, word(memory))));
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let rate = |seconds: f64| streams as f64 / seconds;
    Ok(Grown {
        anonymous_bytes_each: of(|memory| memory.anonymous),
        resident_bytes_each: of(|memory| memory.resident),
        created_per_second: rate(creating),
        appended_per_second: rate(appending),
    })
}

/// Seconds that so many operations took, if all of them were done.
fn took(load: &Load, server: &Server, words: &[&str], wanted: u64, done: &str) -> Result<f64, String> {
    let report = load.run(server, words)?;
    match (report[done].as_u64(), report["spanUs"].as_f64()) {
        (Some(count), Some(us)) if count == wanted => Ok(us / 1e6),
        _ => Err(format!("{wanted} were to be {done}: {report}")),
    }
}

fn open(launch: &Launch, data: &Path) -> Result<(Server, f64), String> {
    let began = Instant::now();
    let server = launch.start(data)?;
    Ok((server, began.elapsed().as_secs_f64()))
}

/// Every stream is there, and the first and the last hold their record.
fn all_there(server: &Server, streams: u64, tally: &mut Tally) -> Result<(), String> {
    let found = count(server, "streams")?;
    tally.check(found == streams, || format!("{found} streams, {streams} were created"));
    for number in [0, streams - 1] {
        let path = format!("/v1/stream/idle-{number:027}?offset=-1");
        let reply = server.connect()?.request("GET", &path, &[], b"")?;
        let (status, length) = (reply.status, reply.body.len());
        tally.check(status == 200 && length == 256, || format!("{path}: status {status}, {length} bytes"));
    }
    Ok(())
}
