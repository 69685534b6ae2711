//! Memory per idle connection: the slope of the server's memory over the number of connections it holds, for
//! kept-alive, long-poll and SSE connections, on one stream and on as many streams as connections, and for
//! clients of a typed service.

use crate::harness::load::Load;
use crate::harness::memory::{self, Memory};
use crate::harness::options::Options;
use crate::harness::server::{Launch, Program, Scratch, Server};
use crate::{Outcome, Tally};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use thalweg_wire::frame::{HELLO_BYTES, Hello, VERSION, Welcome};

/// Bytes of server memory that an idle connection may cost.
const BAR_BYTES: f64 = 128.0;
/// Held and dropped before the first measurement, so that one-time costs are not taken for a slope.
const WARM_UP: usize = 100;
const SIZES: &str = "0,1000,5000,10000";
/// With fewer than these, pages that come and go as code is run are some bytes of each.
const RESIDENT_FROM: usize = 10_000;
/// Starts that are measured: code that the server let go of comes back as it is run, some hundred kibibytes
/// at a time.
const STARTS: usize = 3;
const HOUR_MS: u64 = 3_600_000;

/// `cargo xtask slopes`.
///
/// # Errors
/// The server cannot be started or refuses a connection.
pub(crate) fn run(options: &Options) -> Outcome {
    let sizes: Result<Vec<usize>, _> = options.text("sizes", SIZES).split(',').map(str::parse).collect();
    let sizes = sizes.map_err(|e| format!("--sizes: {e}"))?;
    let largest = sizes.last().copied().unwrap_or(0);
    let launch = Launch::new(Program::of(options), options.text("durability", "memory"))?
        .long_poll_ms(HOUR_MS)
        .sse_lifetime_ms(HOUR_MS)
        .with("--connections-max", largest + 1_000);
    let judged = if largest < RESIDENT_FROM { "anonymous" } else { "resident" };
    println!("{}: bytes per idle connection, bar {BAR_BYTES} for those that are {judged}", launch.name());
    println!("{:<12}{:<12}{:>8}{:>11}   resident KiB at {sizes:?}", "kind", "streams", "rss", "anonymous");
    let mut tally = Tally::default();
    let load = Load::new()?;
    for (kind, apart) in
        [("kept-alive", false), ("long-poll", false), ("long-poll", true), ("sse", false), ("sse", true)]
    {
        let starts: Result<Vec<_>, _> =
            (0..STARTS).map(|_| measure(&launch, &load, kind, apart, options)).collect();
        let (resident, anonymous, kib) = middle(starts?);
        let streams = if apart { "one each" } else { "one" };
        println!("{kind:<12}{streams:<12}{resident:>8.1}{anonymous:>11.1}   {kib:?}");
        let each = bytes_each(largest, resident, anonymous);
        tally.check(each <= BAR_BYTES, || {
            format!("{kind}, streams: {streams}: {each:.1} {judged} bytes each, {BAR_BYTES} are allowed")
        });
    }
    if Program::of(options) == Program::Ours {
        let starts: Result<Vec<_>, _> = (0..STARTS).map(|_| neighbours(&sizes)).collect();
        let (resident, anonymous, kib) = middle(starts?);
        println!("{:<12}{:<12}{resident:>8.1}{anonymous:>11.1}   {kib:?}", "service", "none");
        let each = bytes_each(largest, resident, anonymous);
        tally.check(each <= BAR_BYTES, || {
            format!("clients of a service: {each:.1} {judged} bytes each, {BAR_BYTES} are allowed")
        });
    }
    Ok(tally)
}

/// What is held against the bar: all that is resident, where there are enough connections that it is theirs.
fn bytes_each(largest: usize, resident: f64, anonymous: f64) -> f64 {
    if largest < RESIDENT_FROM { anonymous } else { resident }
}

/// The same for clients of a typed service on a Unix socket, each of which was welcomed.
fn neighbours(sizes: &[usize]) -> Result<Slope, String> {
    // A store in memory offers no services.
    let launch = Launch::new(Program::Ours, "os")?
        .with("--connections-max", sizes.last().copied().unwrap_or(0) + 1_000);
    let scratch = Scratch::new("slopes")?;
    let data = scratch.path().join("data");
    let server = launch.start(&data)?;
    let path = data.join("thalweg.sock");
    let warm: Result<Vec<_>, _> = (0..WARM_UP).map(|_| welcomed(&path)).collect();
    drop(warm?);
    let (mut held, mut points) = (Vec::new(), Vec::new());
    for &size in sizes {
        while held.len() < size {
            held.push(welcomed(&path)?);
        }
        points.push((size, settled(&server)?));
    }
    let resident = slope(points.iter().map(|(n, m)| (*n, m.resident)));
    let anonymous = slope(points.iter().map(|(n, m)| (*n, m.anonymous)));
    let kib: Vec<u64> = points.iter().map(|(_, m)| m.resident / 1024).collect();
    Ok((resident, anonymous, kib))
}

fn welcomed(path: &Path) -> Result<UnixStream, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut socket = UnixStream::connect(path).map_err(failed)?;
    let hello = Hello { version: VERSION, shared: false, ring_bytes: 0, schema: [0; 32] };
    socket.write_all(&hello.encode()).map_err(failed)?;
    let mut bytes = [0; HELLO_BYTES];
    socket.read_exact(&mut bytes).map_err(failed)?;
    match Welcome::decode(&bytes) {
        Ok(Some(Welcome { fault: 0, .. })) => Ok(socket),
        other => Err(format!("{}: {other:?}", path.display())),
    }
}

/// Bytes of each, resident and anonymous, and the kibibytes that were resident at each size. Resident is all
/// there is: `Private_Dirty` would also move when another process that maps the same program comes or goes.
type Slope = (f64, f64, Vec<u64>);

/// Of several starts the one in the middle, by what was resident.
fn middle(mut starts: Vec<Slope>) -> Slope {
    starts.sort_by(|one, other| one.0.total_cmp(&other.0));
    starts.swap_remove(starts.len() / 2)
}

/// One start. A server that hung up on one of its connections has no slope to show.
fn measure(
    launch: &Launch,
    load: &Load,
    kind: &str,
    apart: bool,
    options: &Options,
) -> Result<Slope, String> {
    let scratch = Scratch::new("slopes")?;
    let server = launch.start(&scratch.path().join("data"))?;
    let mut words = vec!["idle", "--kind", kind, "--sizes", options.text("sizes", SIZES)];
    words.extend(apart.then_some("--apart"));
    let report = load.run(&server, &words)?;
    let number = |name: &str| report[name].as_f64().ok_or_else(|| format!("no {name}: {report}"));
    let points = report["points"].as_array().into_iter().flatten();
    let kib = points.filter_map(|point| Some(point["residentBytes"].as_u64()? / 1024)).collect();
    Ok((number("residentBytesEach")?, number("anonymousBytesEach")?, kib))
}

/// Memory once it has stopped moving.
///
/// # Errors
/// The server is gone.
pub(crate) fn settled(server: &Server) -> Result<Memory, String> {
    let deadline = Instant::now() + Duration::from_secs(4);
    let mut last = memory::now(server.process())?;
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = memory::now(server.process())?;
        if now == last || Instant::now() > deadline {
            return Ok(now);
        }
        last = now;
    }
}

/// Least squares: bytes per connection, or whatever is counted.
pub(crate) fn slope(points: impl Iterator<Item = (usize, u64)>) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "sizes and memory are far below 2^52")]
    let points: Vec<(f64, f64)> = points.map(|(n, bytes)| (n as f64, bytes as f64)).collect();
    #[expect(clippy::cast_precision_loss, reason = "a handful of points")]
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|p| p.0), mean(|p| p.1));
    let above: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let below: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    above / below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_a_line_is_its_slope() {
        let line = [(0, 5_000), (1_000, 105_000), (5_000, 505_000)];
        assert!((slope(line.into_iter()) - 100.0).abs() < 1e-9);
        assert!(slope([(0, 10), (10, 10)].into_iter()).abs() < 1e-9);
    }
}
