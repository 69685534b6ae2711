//! Memory per idle connection: the slope of the server's memory over the number of connections it holds, for
//! kept-alive, long-poll and SSE connections, on one stream and on as many streams as connections, and for clients of a
//! typed service.

use crate::hold::{self, Kind};
use crate::memory::{self, Memory};
use crate::options::Options;
use crate::server::{Launch, Program, Scratch, Server};
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
const HOUR_MS: u64 = 3_600_000;

/// `cargo xtask slopes`.
///
/// # Errors
/// The server cannot be started or refuses a connection.
pub(crate) fn run(options: &Options) -> Outcome {
    let sizes: Result<Vec<usize>, _> =
        options.text("sizes", "0,1000,5000,10000").split(',').map(str::parse).collect();
    let sizes = sizes.map_err(|e| format!("--sizes: {e}"))?;
    let largest = sizes.last().copied().unwrap_or(0);
    let launch = Launch::new(Program::of(options), options.text("durability", "memory"))?
        .long_poll_ms(HOUR_MS)
        .sse_lifetime_ms(HOUR_MS)
        .with("--connections-max", largest + 1_000);
    println!("{}: bytes per idle connection, bar {BAR_BYTES}", launch.name());
    println!("{:<12}{:<12}{:>8}{:>11}   resident KiB at {sizes:?}", "kind", "streams", "rss", "anonymous");
    let mut tally = Tally::default();
    for (kind, many) in [
        (Kind::KeptAlive, false),
        (Kind::LongPoll, false),
        (Kind::LongPoll, true),
        (Kind::Sse, false),
        (Kind::Sse, true),
    ] {
        let points = measure(&launch, kind, many, &sizes)?;
        // Resident is all there is. `Private_Dirty` would also move when another process that maps the same
        // program comes or goes.
        let resident = slope(points.iter().map(|(n, m)| (*n, m.resident)));
        let anonymous = slope(points.iter().map(|(n, m)| (*n, m.anonymous)));
        let streams = if many { "one each" } else { "one" };
        let kib: Vec<u64> = points.iter().map(|(_, m)| m.resident / 1024).collect();
        println!("{:<12}{streams:<12}{resident:>8.1}{anonymous:>11.1}   {kib:?}", kind.name());
        tally.check(resident <= BAR_BYTES, || {
            format!("{}, streams: {streams}: {resident:.1} bytes each, {BAR_BYTES} are allowed", kind.name())
        });
    }
    if Program::of(options) == Program::Ours {
        neighbours(&sizes, &mut tally)?;
    }
    Ok(tally)
}

/// The same for clients of a typed service on a Unix socket, each of which was welcomed.
fn neighbours(sizes: &[usize], tally: &mut Tally) -> Result<(), String> {
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
    println!("{:<12}{:<12}{resident:>8.1}{anonymous:>11.1}   {kib:?}", "service", "none");
    tally.check(resident <= BAR_BYTES, || {
        format!("clients of a service: {resident:.1} bytes each, {BAR_BYTES} are allowed")
    });
    Ok(())
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

fn measure(launch: &Launch, kind: Kind, many: bool, sizes: &[usize]) -> Result<Vec<(usize, Memory)>, String> {
    let scratch = Scratch::new("slopes")?;
    let server = launch.start(&scratch.path().join("data"))?;
    let streams = if many { sizes.last().copied().unwrap_or(1).max(WARM_UP) } else { 1 };
    hold::create(&server, (0..streams).map(|n| format!("idle-{n}")))?;
    let name = |n: usize| format!("idle-{}", if many { n } else { 0 });

    let warm: Result<Vec<_>, _> = (0..WARM_UP).map(|n| hold::open(&server, kind, &name(n))).collect();
    drop(warm?);
    let mut held = Vec::new();
    let mut points = Vec::new();
    for &size in sizes {
        while held.len() < size {
            held.push(hold::open(&server, kind, &name(held.len()))?);
        }
        points.push((size, settled(&server)?));
    }
    // All of them must still be there: a server that hung up has no slope to show.
    let gone = held.iter().filter(|socket| hung_up(socket)).count();
    if gone > 0 {
        return Err(format!("the server hung up on {gone} of {} idle connections", held.len()));
    }
    Ok(points)
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

fn hung_up(socket: &std::net::TcpStream) -> bool {
    let mut byte = [0_u8; 1];
    // Bytes may be waiting (an event); an end of stream may not.
    socket.set_nonblocking(true).is_err() || matches!(socket.peek(&mut byte), Ok(0))
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
