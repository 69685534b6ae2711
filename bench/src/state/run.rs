//! One measurement: so many clients, which begin together and repeat a turn until the time is over.

use crate::Failure;
use serde_json::json;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use thalweg_sys::clock;

/// When a client has measured enough.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After this time.
    Elapsed(Duration),
    /// After so many turns: for runs that are only to show that they run.
    Turns(u64),
}

/// Turns before the clock starts.
const WARM_TURNS: u64 = 20;

/// What the clients did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) operations: u64,
    pub(crate) per_second: f64,
    /// Processor time of both ends.
    pub(crate) processor_ns: u64,
    /// What each turn took, in nanoseconds.
    pub(crate) turns_ns: Vec<u64>,
}

impl Measured {
    /// With the 99th percentile of the turns as its rate: how many such turns there would be in a second.
    pub(crate) fn by_percentile(mut self) -> Self {
        self.turns_ns.sort_unstable();
        let at = self.turns_ns.len() * 99 / 100;
        let slow_ns = self.turns_ns.get(at).copied().unwrap_or(u64::MAX);
        self.per_second = 1e9 / slow_ns as f64;
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

/// Runs clients, each on a thread of its own. A turn answers how many operations it was.
///
/// # Errors
/// The first that anybody meets.
pub(crate) fn clients<C>(
    count: usize,
    until: Until,
    connect: impl Fn() -> Result<C, Failure> + Sync,
    turn: impl Fn(&mut C) -> Result<u64, Failure> + Sync,
) -> Result<Measured, Failure> {
    let ready = Barrier::new(count);
    let (connect, turn, ready) = (&connect, &turn, &ready);
    let one = move || -> Result<Measured, Failure> {
        let warm = if matches!(until, Until::Turns(_)) { 1 } else { WARM_TURNS };
        let prepared = connect()
            .and_then(|mut client| (0..warm).try_for_each(|_| turn(&mut client).map(drop)).map(|()| client));
        ready.wait();
        repeat(until, prepared?, turn)
    };
    std::thread::scope(|scope| {
        let spawned: Vec<_> = (0..count).map(|_| scope.spawn(one)).collect();
        let mut all = Measured::default();
        for thread in spawned {
            let measured = thread.join().unwrap_or_else(|_| Err("a client died".into()))?;
            all.operations += measured.operations;
            all.per_second += measured.per_second;
            all.processor_ns += measured.processor_ns;
            all.turns_ns.extend(measured.turns_ns);
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
    let (mut measured, mut last) = (Measured::default(), since);
    for turns in 1.. {
        measured.operations += turn(&mut client)?;
        let now = Instant::now();
        measured.turns_ns.push(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX));
        last = now;
        let over = match until {
            Until::Turns(count) => turns >= count,
            Until::Elapsed(time) => now - since >= time,
        };
        if over {
            break;
        }
    }
    measured.per_second = measured.operations as f64 / since.elapsed().as_secs_f64();
    measured.processor_ns = clock::thread_processor_ns() - before_ns;
    Ok(measured)
}
