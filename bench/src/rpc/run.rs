//! One measurement: a turn, repeated until the time is over.

use crate::Failure;
use serde_json::json;
use std::time::{Duration, Instant};
use thalweg_sys::clock;

/// When enough was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After this time.
    Elapsed(Duration),
    /// After so many turns: for runs whose counts must agree.
    Turns(u64),
}

/// Turns between two looks at the clock.
const LOOK_EVERY: u64 = 16;
/// Turns before the clock starts: both ends find their pace.
const WARM_TURNS: u64 = 200;

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    operations: u64,
    per_second: f64,
    processor_ns: u64,
}

impl Measured {
    /// With what the far end used.
    pub(crate) fn with_far(mut self, processor_ns: u64) -> Self {
        self.processor_ns += processor_ns;
        self
    }

    /// The line that the report is made from; `fixed` when the amount of work was.
    pub(crate) fn print(&self, work: &str, side: &str, pair: usize, fixed: bool) {
        let line = json!({
            "work": work,
            "side": side,
            "pair": pair,
            "operations": self.operations,
            "per_second": self.per_second,
            "processor_us": self.processor_ns as f64 / 1e3 / (self.operations.max(1)) as f64,
            "entries": self.operations,
            "digest": 0,
            "fixed": fixed,
        });
        println!("{line}");
    }
}

/// Repeats a turn, which answers how many calls it was.
///
/// # Errors
/// The first that a turn meets.
pub(crate) fn repeat(
    until: Until,
    mut turn: impl FnMut() -> Result<u64, Failure>,
) -> Result<Measured, Failure> {
    let warm = if matches!(until, Until::Turns(_)) { 1 } else { WARM_TURNS };
    (0..warm).try_for_each(|_| turn().map(drop))?;
    let (since, before_ns) = (Instant::now(), clock::thread_processor_ns());
    let mut operations = 0;
    for turns in 1.. {
        operations += turn()?;
        let over = match until {
            Until::Turns(count) => turns >= count,
            Until::Elapsed(time) => turns % LOOK_EVERY == 0 && since.elapsed() >= time,
        };
        if over {
            break;
        }
    }
    let per_second = operations as f64 / since.elapsed().as_secs_f64();
    Ok(Measured { operations, per_second, processor_ns: clock::thread_processor_ns() - before_ns })
}
