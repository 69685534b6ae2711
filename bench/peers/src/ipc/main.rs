//! Other people's calls between processes, measured as ours are: the far end is this program started again,
//! both ends are pinned as asked, and what comes back is compared with what was sent. Prints a line of JSON.
//!
//! `thalweg-ipc-peers --peer iceoryx2|tonic|zeromq [--work NAME] [--pair N] [--bytes N] [--depth N]
//! [--pins one-core|two-cores|free] [--milliseconds N | --turns N]`

mod grpc;
mod iceoryx;
mod zeromq;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use thalweg_bench::far::{Directory, Far, is_far};
use thalweg_bench::measure::Measured;
use thalweg_bench::plan::ended;
use thalweg_bench::{Failure, option};
use thalweg_sys::{clock, process};

/// What is measured.
#[derive(Clone, Copy, Debug)]
struct Work {
    bytes: usize,
    depth: usize,
    /// Ends after so many turns, if any; otherwise with the time.
    turns: u64,
    time: Duration,
}

/// Turns between two looks at the clock.
const LOOK_EVERY: u64 = 64;
const WARM_TURNS: u64 = 200;

fn main() -> ExitCode {
    ended("thalweg-ipc-peers", run())
}

fn run() -> Result<(), Failure> {
    let peer = option("--peer", String::new())?;
    let work = Work {
        bytes: option("--bytes", 64)?,
        depth: option("--depth", 1)?,
        turns: option("--turns", 0)?,
        time: Duration::from_millis(option("--milliseconds", 400)?),
    };
    let pins = option("--pins", "two-cores".to_owned())?;
    let (far, near) = match pins.as_str() {
        "one-core" => (Some(0), Some(0)),
        "two-cores" => (Some(0), Some(1)),
        "free" => (None, None),
        other => return Err(format!("--pins {other}: one-core, two-cores or free").into()),
    };
    if is_far() {
        far.map_or(Ok(()), process::run_on)?;
        serve(&peer, work, Path::new(&option("--directory", String::new())?))?;
        println!("{}", clock::process_processor_ns());
        return Ok(());
    }
    let directory = Directory::new("ipc-peers")?;
    let words = std::env::args_os().skip(1).chain(["--directory".into(), directory.path().into()]);
    let mut far = Far::start(words)?;
    far.is_ready()?;
    near.map_or(Ok(()), process::run_on)?;
    let measured = match peer.as_str() {
        "iceoryx2" => iceoryx::measure(work, directory.path())?,
        "tonic" => grpc::measure(work, directory.path())?,
        "zeromq" => zeromq::measure(work, directory.path())?,
        other => return Err(format!("--peer {other}: iceoryx2, tonic or zeromq").into()),
    };
    let measured = measured.with_far(far.end()?.parse()?);
    measured.print(&option("--work", String::new())?, &peer, option("--pair", 0)?, work.turns > 0);
    Ok(())
}

fn serve(peer: &str, work: Work, directory: &Path) -> Result<(), Failure> {
    match peer {
        "iceoryx2" => iceoryx::serve(work, directory),
        "tonic" => grpc::serve(directory),
        _ => zeromq::serve(directory),
    }
}

impl Work {
    /// When the measurement is over: asked after each turn.
    fn is_over(&self, turns: u64, since: Instant) -> bool {
        if self.turns > 0 {
            turns >= self.turns
        } else {
            turns % LOOK_EVERY == 0 && since.elapsed() >= self.time
        }
    }

    /// Turns before the clock starts.
    fn warm_turns(&self) -> u64 {
        if self.turns > 0 { 1 } else { WARM_TURNS }
    }

    /// Repeats a turn, which answers how many calls it was.
    fn repeat(&self, mut turn: impl FnMut() -> Result<u64, Failure>) -> Result<Measured, Failure> {
        (0..self.warm_turns()).try_for_each(|_| turn().map(drop))?;
        let (since, before_ns) = (Instant::now(), clock::process_processor_ns());
        let (mut operations, mut turns) = (0, 0);
        loop {
            operations += turn()?;
            turns += 1;
            if self.is_over(turns, since) {
                break;
            }
        }
        Ok(self.measured(operations, since, before_ns))
    }

    fn measured(&self, operations: u64, since: Instant, before_ns: u64) -> Measured {
        Measured {
            operations,
            per_second: operations as f64 / since.elapsed().as_secs_f64(),
            processor_ns: clock::process_processor_ns() - before_ns,
            ..Measured::default()
        }
    }
}

/// Says that calls may come, and calls `ended` once nobody needs this process any more.
fn ready(ended: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    thalweg_bench::far::ready("ready", ended)
}

fn same(sent: &[u8], came: &[u8]) -> Result<(), Failure> {
    let alike = sent.len() == came.len() && sent.first() == came.first() && sent.last() == came.last();
    if alike { Ok(()) } else { Err("another answer".into()) }
}
