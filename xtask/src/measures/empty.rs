//! What an empty server weighs: resident memory, the peak of its start included. How much of its code the
//! kernel maps at a time is up to how the file lies in the page cache, so of several starts the median
//! counts.

use crate::harness::memory;
use crate::harness::options::Options;
use crate::harness::server::{Launch, Program, Scratch};
use crate::{Outcome, Tally};
use std::time::Duration;

/// Bytes that an empty server may have resident.
const BAR_BYTES: u64 = 6_000_000;

/// Starts that are measured.
const STARTS: usize = 5;

/// `cargo xtask empty`.
///
/// # Errors
/// The server cannot be started.
pub(crate) fn run(options: &Options) -> Outcome {
    let launch = Launch::new(Program::of(options), options.text("durability", "sync"))?;
    let (mut resident, mut peaks) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let scratch = Scratch::new("empty")?;
        let server = launch.start(&scratch.path().join("data"))?;
        std::thread::sleep(Duration::from_millis(500));
        let now = memory::now(server.process())?;
        let peak = memory::resident_peak(server.process())?;
        println!(
            "{}, empty: {:.2} MB resident, peak {:.2} MB, private dirty {:.2} MB, bar {:.2} MB",
            launch.name(),
            megabytes(now.resident),
            megabytes(peak),
            megabytes(now.private_dirty),
            megabytes(BAR_BYTES)
        );
        resident.push(now.resident);
        peaks.push(peak);
    }
    let mut tally = Tally::default();
    for (what, mut bytes) in [("at the peak", peaks), ("resident", resident)] {
        bytes.sort_unstable();
        let median = bytes[STARTS / 2];
        tally.check(median <= BAR_BYTES, || format!("{median} bytes {what}, {BAR_BYTES} are allowed"));
    }
    Ok(tally)
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
