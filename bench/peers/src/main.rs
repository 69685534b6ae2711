//! Other people's calls between processes, measured as ours are: the far end is this program started again, both ends
//! are pinned as asked, and what comes back is compared with what was sent. Prints a line of JSON.
//!
//! `thalweg-ipc-peers --peer iceoryx2|tonic|zeromq [--work NAME] [--pair N] [--bytes N] [--depth N]
//! [--pins one-core|two-cores|free] [--milliseconds N | --turns N]`

mod grpc;
mod iceoryx;
mod zeromq;

use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use thalweg_bench::option;
use thalweg_sys::{clock, process};

type Failure = Box<dyn std::error::Error + Send + Sync>;

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
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("thalweg-ipc-peers: {problem}");
            ExitCode::FAILURE
        }
    }
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
    let directory = option("--far", String::new())?;
    if !directory.is_empty() {
        far.map_or(Ok(()), process::run_on)?;
        serve(&peer, work, Path::new(&directory))?;
        println!("{}", clock::process_processor_ns());
        return Ok(());
    }
    let far = Far::start(&peer)?;
    near.map_or(Ok(()), process::run_on)?;
    let measured = match peer.as_str() {
        "iceoryx2" => iceoryx::measure(work, &far.directory)?,
        "tonic" => grpc::measure(work, &far.directory)?,
        "zeromq" => zeromq::measure(work, &far.directory)?,
        other => return Err(format!("--peer {other}: iceoryx2, tonic or zeromq").into()),
    };
    let far_ns = far.end()?;
    let line = json!({
        "work": option("--work", String::new())?,
        "side": peer,
        "pair": option("--pair", 0_u64)?,
        "operations": measured.operations,
        "per_second": measured.per_second,
        "processor_us": (measured.processor_ns + far_ns) as f64 / 1e3 / measured.operations.max(1) as f64,
        "entries": measured.operations,
        "digest": 0,
        "fixed": work.turns > 0,
    });
    println!("{line}");
    Ok(())
}

fn serve(peer: &str, work: Work, directory: &Path) -> Result<(), Failure> {
    match peer {
        "iceoryx2" => iceoryx::serve(work, directory),
        "tonic" => grpc::serve(directory),
        _ => zeromq::serve(directory),
    }
}

/// What was measured.
struct Measured {
    operations: u64,
    per_second: f64,
    processor_ns: u64,
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
        }
    }
}

/// The other process.
struct Far {
    child: Child,
    hear: BufReader<std::process::ChildStdout>,
    directory: PathBuf,
}

impl Far {
    fn start(peer: &str) -> Result<Far, Failure> {
        let directory = std::env::temp_dir().join(format!("thalweg-ipc-peers-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(std::env::args().skip(1))
            .arg("--far")
            .arg(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let hear = BufReader::new(child.stdout.take().ok_or("a child without pipes")?);
        let mut far = Far { child, hear, directory };
        let mut line = String::new();
        far.hear.read_line(&mut line)?;
        if line.trim() == "ready" { Ok(far) } else { Err(format!("{peer} said {line:?}").into()) }
    }

    /// Ends it; the processor time it used.
    fn end(mut self) -> Result<u64, Failure> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.hear.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        if status.success() { Ok(text.trim().parse()?) } else { Err(format!("the far end: {status}").into()) }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // Ended already, unless something went wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Says that calls may come, and calls `ended` once nobody needs this process any more.
fn ready(ended: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ended();
    });
    println!("ready");
    Ok(std::io::stdout().flush()?)
}

fn same(sent: &[u8], came: &[u8]) -> Result<(), Failure> {
    let alike = sent.len() == came.len() && sent.first() == came.first() && sent.last() == came.last();
    if alike { Ok(()) } else { Err("another answer".into()) }
}
