//! One measurement: as many clients as the work has, which begin together and repeat a turn until the time is over.

use crate::Failure;
use crate::work::Work;
use serde_json::json;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use thalweg_sys::{clock, process};

/// When a client has measured enough.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After this time.
    Elapsed(Duration),
    /// After so many turns: for runs whose counts must agree.
    Turns(u64),
}

/// Turns between two looks at the clock, which a spinning round trip is not much longer than.
const LOOK_EVERY: u64 = 64;
/// Turns before the clock starts: both ends find their pace.
const WARM_TURNS: u64 = 200;

/// What the clients did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    operations: u64,
    per_second: f64,
    /// Processor time of both ends.
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
        let cost_us = self.processor_ns as f64 / 1e3 / (self.operations.max(1)) as f64;
        let line = json!({
            "work": work,
            "side": side,
            "pair": pair,
            "operations": self.operations,
            "per_second": self.per_second,
            "processor_us": cost_us,
            "entries": self.operations,
            "digest": 0,
            "fixed": fixed,
        });
        println!("{line}");
    }
}

/// Runs the clients of a work, each on a thread pinned as the work says. A turn answers how many operations it was.
///
/// # Errors
/// The first that anybody meets.
pub(crate) fn clients<C>(
    work: &Work,
    until: Until,
    connect: impl Fn() -> Result<C, Failure> + Sync,
    turn: impl Fn(&mut C) -> Result<u64, Failure> + Sync,
) -> Result<Measured, Failure> {
    let ready = Barrier::new(work.clients);
    let (connect, turn, ready) = (&connect, &turn, &ready);
    let one = move || -> Result<Measured, Failure> {
        if let (_, Some(processor)) = work.pins.processors() {
            process::run_on(processor)?;
        }
        let prepared = connect().and_then(|mut client| {
            let warm = if matches!(until, Until::Turns(_)) { 1 } else { WARM_TURNS };
            (0..warm).try_for_each(|_| turn(&mut client).map(drop)).map(|()| client)
        });
        ready.wait();
        repeat(until, prepared?, turn)
    };
    std::thread::scope(|scope| {
        let spawned: Vec<_> = (0..work.clients).map(|_| scope.spawn(one)).collect();
        let mut all = Measured::default();
        for thread in spawned {
            let measured = thread.join().unwrap_or_else(|_| Err("a client died".into()))?;
            all.operations += measured.operations;
            all.per_second += measured.per_second;
            all.processor_ns += measured.processor_ns;
        }
        Ok(all)
    })
}

fn repeat<C>(
    until: Until,
    mut client: C,
    turn: &impl Fn(&mut C) -> Result<u64, Failure>,
) -> Result<Measured, Failure> {
    let (since, before_ns) = (Instant::now(), clock::thread_processor_ns());
    let mut measured = Measured::default();
    for turns in 1.. {
        measured.operations += turn(&mut client)?;
        let over = match until {
            Until::Turns(count) => turns >= count,
            Until::Elapsed(time) => turns % LOOK_EVERY == 0 && since.elapsed() >= time,
        };
        if over {
            break;
        }
    }
    measured.per_second = measured.operations as f64 / since.elapsed().as_secs_f64();
    measured.processor_ns = clock::thread_processor_ns() - before_ns;
    Ok(measured)
}
