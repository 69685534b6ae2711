//! What shared memory costs: round trips of 64 bytes, frames in a pipeline, and bulk, beside their floors.
//!
//! ```text
//! cargo run --release -p thalweg-transport --example rings [ROUNDS]
//! ```
//!
//! Two threads, pinned to two processors or to one. Figures drift with whatever else the machine does:
//! compare within one run.

use std::error::Error;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;
use thalweg_sync::words::Words;
use thalweg_sys::disk::Map;
use thalweg_sys::{process, socket};
use thalweg_transport::{
    PeerWait, RING_BYTES_DEFAULT, ReadOutcome, SharedEnd, WaitOutcome, Wanted, WriteOutcome, ring_bell,
};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// An end, and the socket on which its bells are rung.
struct Side {
    end: SharedEnd,
    socket: OwnedFd,
    spin: bool,
}

impl Side {
    fn pair(spins: [bool; 2]) -> Outcome<[Side; 2]> {
        let (ours, memory) = SharedEnd::create(RING_BYTES_DEFAULT)?;
        let theirs = SharedEnd::adopt(memory)?;
        let (here, there) = socket::pair()?;
        Ok([
            Side { end: ours, socket: here, spin: spins[0] },
            Side { end: theirs, socket: there, spin: spins[1] },
        ])
    }

    /// Whether the peer is still there.
    fn wait(&mut self, wanted: Wanted) -> Outcome<bool> {
        let (end, socket, spin) = (&mut self.end, self.socket.as_fd(), self.spin);
        Ok(PeerWait { end, socket, wanted, deadline: None, spin }.wait()? != WaitOutcome::Ended)
    }

    fn write_all(&mut self, bytes: &[u8]) -> Outcome {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.end.write_gathered(&[IoSlice::new(rest)])? {
                WriteOutcome::Bytes(count) => rest = &rest[count..],
                WriteOutcome::WouldBlock if self.wait(Wanted::BytesOrSpace)? => {}
                WriteOutcome::WouldBlock => return Err("the peer is gone".into()),
            }
        }
        if self.end.bell_wanted() {
            ring_bell(self.socket.as_fd())?;
        }
        Ok(())
    }

    /// At least one byte behind what is there, or `false` when the peer is gone.
    fn read_some(&mut self, into: &mut Vec<u8>) -> Outcome<bool> {
        while self.end.read(into)? == ReadOutcome::WouldBlock {
            if !self.wait(Wanted::Bytes)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends back what comes until the peer is gone.
    fn echo(mut self) -> Outcome {
        let mut buffer = Vec::with_capacity(64 << 10);
        while self.read_some(&mut buffer)? {
            self.write_all(&buffer)?;
            buffer.clear();
        }
        Ok(())
    }
}

/// Runs one side on each of two processors, which may be one; the client's nanoseconds.
fn both(cpus: [usize; 2], spins: [bool; 2], client: impl FnOnce(&mut Side) -> Outcome) -> Outcome<u128> {
    let [mut ours, theirs] = Side::pair(spins)?;
    let echo =
        std::thread::spawn(move || process::run_on(cpus[1]).map_err(Into::into).and_then(|()| theirs.echo()));
    process::run_on(cpus[0])?;
    let began = Instant::now();
    client(&mut ours)?;
    let took = began.elapsed().as_nanos();
    drop(ours);
    echo.join().map_err(|_| "the other side panicked")??;
    Ok(took)
}

fn round_trips(side: &mut Side, rounds: usize) -> Outcome {
    let (message, mut answer) = ([7; 64], Vec::with_capacity(64));
    for _ in 0..rounds {
        side.write_all(&message)?;
        answer.clear();
        while answer.len() < message.len() {
            side.read_some(&mut answer)?;
        }
    }
    Ok(())
}

/// Frames of a length and 64 bytes, `depth` of them under way at a time.
fn pipeline(side: &mut Side, frames: usize, depth: usize) -> Outcome {
    let mut frame = vec![7; 68];
    frame[..4].copy_from_slice(&64_u32.to_le_bytes());
    let (mut sent, mut answered, mut buffer) = (0, 0, Vec::with_capacity(64 << 10));
    while answered < frames {
        while sent < frames && sent - answered < depth {
            let WriteOutcome::Bytes(68) = side.end.write_gathered(&[IoSlice::new(&frame)])? else {
                return Err("a ring with room for all of them was full".into());
            };
            sent += 1;
        }
        side.read_some(&mut buffer)?;
        let whole = buffer.len() / frame.len();
        answered += whole;
        buffer.drain(..whole * frame.len());
    }
    Ok(())
}

fn bulk(side: &mut Side, megabytes: usize) -> Outcome {
    let (block, mut answer) = (vec![7; 1 << 20], Vec::with_capacity(1 << 20));
    for _ in 0..megabytes {
        side.write_all(&block)?;
        answer.clear();
        while answer.len() < block.len() {
            side.read_some(&mut answer)?;
        }
    }
    Ok(())
}

/// The floor: two words, each moved by one side and watched by the other.
fn bare_spin(cpus: [usize; 2], rounds: u64) -> Outcome<u128> {
    let words = Words::new(Map::anonymous(4096)?);
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            process::run_on(cpus[1])?;
            for round in 1..=rounds {
                while words.load(0) < round {
                    std::hint::spin_loop();
                }
                words.store(32, round);
            }
            std::io::Result::Ok(())
        });
        process::run_on(cpus[0])?;
        let began = Instant::now();
        for round in 1..=rounds {
            words.store(0, round);
            while words.load(32) < round {
                std::hint::spin_loop();
            }
        }
        let took = began.elapsed().as_nanos();
        echo.join().map_err(|_| "the other side panicked")??;
        Ok(took)
    })
}

/// Both sides look for a while before they sleep.
const SPIN: [bool; 2] = [true, true];

/// Two processors that this process may use, if it has as many.
fn processors() -> Outcome<Vec<usize>> {
    let usable = || (0..1024).filter(|cpu| process::run_on(*cpu).is_ok()).take(2).collect();
    std::thread::spawn(usable).join().map_err(|_| "no processor to be found".into())
}

fn measure(rounds: usize) -> Outcome {
    let each = |took: u128, count: usize| took as f64 / count as f64;
    let (few, megabytes) = (rounds / 20 + 1, rounds / 1000 + 1);
    let processors = processors()?;
    if let [first, ..] = processors[..] {
        let one = each(both([first; 2], SPIN, |side| round_trips(side, few))?, few);
        println!("64 bytes there and back on one processor: {one:.0} ns");
    }
    let [first, second] = processors[..] else { return Ok(()) };
    let apart = [first, second];
    let floor = each(bare_spin(apart, rounds as u64)?, rounds);
    let trip = each(both(apart, SPIN, |side| round_trips(side, rounds))?, rounds);
    println!("on two: {trip:.0} ns, where a single word takes {floor:.0} ns: {:.2} times that", trip / floor);
    let asleep = each(both(apart, [false, false], |side| round_trips(side, few))?, few);
    let half = each(both(apart, [true, false], |side| round_trips(side, few))?, few);
    println!("asleep at once: {asleep:.0} ns, only the far side: {half:.0} ns");
    for depth in [1, 16, 256] {
        let frame = each(both(apart, SPIN, |side| pipeline(side, rounds, depth))?, rounds);
        println!("{depth} frames under way: {:.2} million/s", 1e3 / frame);
    }
    let byte = each(both(apart, SPIN, |side| bulk(side, megabytes))?, megabytes << 20);
    println!("a mebibyte there and back: {:.2} GB/s each way", 1.0 / byte);
    Ok(())
}

fn main() -> Outcome {
    let rounds = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    (0..3).try_for_each(|_| measure(rounds))
}

#[test]
fn who_writes_to_a_peer_that_is_gone_is_told() {
    let [mut ours, theirs] = Side::pair([false; 2]).unwrap();
    drop(theirs);
    let more = vec![7; RING_BYTES_DEFAULT as usize + 1];
    assert!(ours.write_all(&more).is_err());
}

#[test]
fn every_figure_is_still_measured() {
    measure(40).unwrap();
}
