//! One measurement: clients, each on a thread of its own, begin together and repeat a turn until the time is
//! over.

use crate::Failure;
use serde_json::json;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use thalweg_sys::clock;

/// When enough was measured.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this time.
    Elapsed(Duration),
    /// After this number of turns: for runs whose counts must agree, or that only show that they run.
    Turns(u64),
}

/// How turns are taken.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Turns before the clock starts: both ends find their pace.
    pub warm_turns: u64,
    /// Turns between two readings of the clock, which take nearly as long as a short turn. With 1 the time of
    /// each turn is kept.
    pub look_every: u64,
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// How many.
    pub operations: u64,
    /// How many in a second.
    pub per_second: f64,
    /// Processor time of both ends.
    pub processor_ns: u64,
    /// What each turn took, in nanoseconds, if that was kept.
    pub turns_ns: Vec<u64>,
}

impl Measured {
    /// With what the far end used.
    #[must_use]
    pub fn with_far(mut self, processor_ns: u64) -> Self {
        self.processor_ns += processor_ns;
        self
    }

    /// With the 99th percentile of the turns as its rate: how many such turns there would be in a second.
    #[must_use]
    pub fn by_percentile(mut self) -> Self {
        self.turns_ns.sort_unstable();
        let at = self.turns_ns.len() * 99 / 100;
        let slow_ns = self.turns_ns.get(at).copied().unwrap_or(u64::MAX);
        self.per_second = 1e9 / slow_ns as f64;
        self
    }

    /// The line that the report is made from; `fixed` when the amount of work was.
    pub fn print(&self, work: &str, side: &str, pair: usize, fixed: bool) {
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

    fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.per_second += other.per_second;
        self.processor_ns += other.processor_ns;
        self.turns_ns.extend(other.turns_ns);
    }
}

/// Runs clients. A turn answers how many operations it was.
///
/// # Errors
/// The first that anybody meets.
pub fn clients<C>(
    count: usize,
    pace: Pace,
    until: Until,
    connect: impl Fn() -> Result<C, Failure> + Sync,
    turn: impl Fn(&mut C) -> Result<u64, Failure> + Sync,
) -> Result<Measured, Failure> {
    let ready = Barrier::new(count);
    let (connect, turn, ready) = (&connect, &turn, &ready);
    let one = move || -> Result<Measured, Failure> {
        let prepared = connect().and_then(|mut client| {
            warm(pace, until, &mut || turn(&mut client))?;
            Ok(client)
        });
        ready.wait();
        let mut client = prepared?;
        timed(pace, until, &mut || turn(&mut client))
    };
    std::thread::scope(|scope| {
        let spawned: Vec<_> = (0..count).map(|_| scope.spawn(one)).collect();
        let mut all = Measured::default();
        for thread in spawned {
            all.add(thread.join().unwrap_or_else(|_| Err("a client died".into()))?);
        }
        Ok(all)
    })
}

/// Repeats a turn on this thread.
///
/// # Errors
/// The first that a turn meets.
pub fn repeat(
    pace: Pace,
    until: Until,
    mut turn: impl FnMut() -> Result<u64, Failure>,
) -> Result<Measured, Failure> {
    warm(pace, until, &mut turn)?;
    timed(pace, until, &mut turn)
}

fn warm(pace: Pace, until: Until, turn: &mut impl FnMut() -> Result<u64, Failure>) -> Result<(), Failure> {
    let turns = if matches!(until, Until::Turns(_)) { 1 } else { pace.warm_turns };
    (0..turns).try_for_each(|_| turn().map(drop))
}

fn timed(
    pace: Pace,
    until: Until,
    turn: &mut impl FnMut() -> Result<u64, Failure>,
) -> Result<Measured, Failure> {
    let (since, before_ns) = (Instant::now(), clock::thread_processor_ns());
    let (mut measured, mut last) = (Measured::default(), since);
    for turns in 1.. {
        measured.operations += turn()?;
        if pace.look_every == 1 {
            let now = Instant::now();
            measured.turns_ns.push(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX));
            last = now;
        }
        let over = match until {
            Until::Turns(count) => turns >= count,
            Until::Elapsed(time) => turns % pace.look_every == 0 && since.elapsed() >= time,
        };
        if over {
            break;
        }
    }
    measured.per_second = measured.operations as f64 / since.elapsed().as_secs_f64();
    measured.processor_ns = clock::thread_processor_ns() - before_ns;
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_takes_its_turns_and_one_that_fails_fails_all() {
        let pace = Pace { warm_turns: 200, look_every: 1 };
        let begin = || Ok(0_u64);
        let measured = clients(3, pace, Until::Turns(10), begin, |_| Ok(2)).unwrap();
        assert_eq!((measured.operations, measured.turns_ns.len()), (60, 30));
        let outcome = clients(2, pace, Until::Turns(10), begin, |turns| {
            *turns += 1;
            if *turns > 5 { Err("enough".into()) } else { Ok(1) }
        });
        assert_eq!(outcome.unwrap_err().to_string(), "enough");
    }

    #[test]
    fn the_slowest_of_a_hundred_is_the_rate() {
        let measured =
            Measured { turns_ns: (1..=100).map(|n| n * 1_000_000).collect(), ..Measured::default() };
        assert_eq!(measured.by_percentile().per_second, 10.0);
    }
}
