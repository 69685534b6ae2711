//! One measurement: threads that begin together and repeat a turn until the time is over, or for a fixed
//! number of turns. Counts operations, the rate and the processor time of exactly these threads.

use crate::side::Failure;
use crate::workload::Sum;
use serde_json::json;
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use thalweg_sys::clock;

/// When a thread has measured enough.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After this time.
    Elapsed(Duration),
    /// After this number of turns: for runs whose counts must agree.
    Turns(u64),
}

impl Until {
    /// As an option of the program.
    pub(crate) fn option(self) -> (&'static str, String) {
        match self {
            Until::Elapsed(time) => ("--milliseconds", time.as_millis().to_string()),
            Until::Turns(count) => ("--turns", count.to_string()),
        }
    }

    /// A time, multiplied by `times`; a number of turns stays what it is.
    pub(crate) fn longer(self, times: u32) -> Until {
        match self {
            Until::Elapsed(time) => Until::Elapsed(time * times),
            turns @ Until::Turns(_) => turns,
        }
    }

    fn is_over(self, turns: u64, since: Instant) -> bool {
        match self {
            Until::Elapsed(time) => since.elapsed() >= time,
            Until::Turns(count) => turns >= count,
        }
    }
}

/// What one thread did in one turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    pub(crate) operations: u64,
    pub(crate) sum: Sum,
}

/// What threads did between the barrier and their end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) operations: u64,
    /// The threads' rates, added up: each has its own time, so one that ends late slows nobody's down.
    pub(crate) per_second: f64,
    pub(crate) processor_ns: u64,
    pub(crate) turns: u64,
    pub(crate) sum: Sum,
}

impl Measured {
    fn add(&mut self, other: Measured) {
        self.operations += other.operations;
        self.per_second += other.per_second;
        self.processor_ns += other.processor_ns;
        self.turns += other.turns;
        self.sum.add(other.sum);
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
            "entries": self.sum.entries,
            "digest": self.sum.bytes,
            "fixed": fixed,
        });
        println!("{line}");
    }
}

/// Runs `threads` threads and adds up what they measured. Each prepares its reader, waits for the others, and
/// then repeats its turn, with its own number and the turn's. Meanwhile the calling thread runs `beside`,
/// until the channel it is handed closes.
///
/// # Errors
/// The first that a thread meets.
pub(crate) fn crew<R>(
    threads: usize,
    until: Until,
    prepare: impl Fn(usize) -> Result<R, Failure> + Sync,
    turn: impl Fn(&mut R, usize, u64) -> Result<Turn, Failure> + Sync,
    beside: impl FnOnce(&Receiver<()>) -> Result<(), Failure>,
) -> Result<Measured, Failure> {
    let ready = Barrier::new(threads + 1);
    let (prepare, turn, ready) = (&prepare, &turn, &ready);
    std::thread::scope(|scope| {
        let (under_way, ended) = channel::<()>();
        let spawn = |thread| {
            let under_way = under_way.clone();
            scope.spawn(move || {
                let prepared = prepare(thread);
                ready.wait();
                let measured =
                    prepared.and_then(|mut reader| repeat(until, |n| turn(&mut reader, thread, n)));
                drop(under_way);
                measured
            })
        };
        let spawned: Vec<_> = (0..threads).map(spawn).collect();
        drop(under_way);
        ready.wait();
        let besides = beside(&ended);
        let mut all = Measured::default();
        for thread in spawned {
            all.add(thread.join().unwrap_or_else(|_| Err("a thread died".into()))?);
        }
        besides.map(|()| all)
    })
}

/// Nothing beside: sleeps until the threads are done.
pub(crate) fn alone(ended: &Receiver<()>) -> Result<(), Failure> {
    // Nothing is ever sent: the channel closes.
    let _ = ended.recv();
    Ok(())
}

fn repeat(until: Until, mut turn: impl FnMut(u64) -> Result<Turn, Failure>) -> Result<Measured, Failure> {
    let mut measured = Measured::default();
    let (since, before_ns) = (Instant::now(), clock::thread_processor_ns());
    while !until.is_over(measured.turns, since) {
        let Turn { operations, sum } = turn(measured.turns)?;
        measured.operations += operations;
        measured.sum.add(sum);
        measured.turns += 1;
    }
    measured.per_second = measured.operations as f64 / since.elapsed().as_secs_f64();
    measured.processor_ns = clock::thread_processor_ns() - before_ns;
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{RecvError, RecvTimeoutError};

    #[test]
    fn a_crew_adds_up_what_its_threads_did() {
        let turn = |reader: &mut u64, thread: usize, turn: u64| {
            *reader += 1;
            assert_eq!(*reader, turn + 1, "a thread keeps its reader");
            Ok(Turn { operations: thread as u64 + turn, sum: Sum { entries: 1, ..Sum::default() } })
        };
        let measured = crew(3, Until::Turns(4), |_| Ok(0), turn, alone).unwrap();
        assert_eq!((measured.operations, measured.turns, measured.sum.entries), (4 * 3 + 3 * 6, 12, 12));
        assert!(measured.per_second > 0.0);
    }

    #[test]
    fn what_is_beside_goes_on_until_the_last_thread_ends() {
        let last = Barrier::new(2);
        let turn = |(): &mut (), thread: usize, _: u64| {
            if thread == 1 {
                last.wait();
            }
            Ok(Turn::default())
        };
        let beside = |ended: &Receiver<()>| {
            let before = ended.recv_timeout(Duration::from_millis(1));
            last.wait();
            let after = ended.recv();
            assert_eq!((before, after), (Err(RecvTimeoutError::Timeout), Err(RecvError)));
            Ok(())
        };
        crew(2, Until::Turns(1), |_| Ok(()), turn, beside).unwrap();
    }

    #[test]
    fn a_member_that_fails_fails_the_crew_and_hangs_no_other() {
        let fails = |n: usize| if n == 1 { Err("not ready".into()) } else { Ok(()) };
        let turn = |(): &mut (), _: usize, _: u64| Ok(Turn::default());
        let outcome = crew(2, Until::Turns(2), fails, turn, alone);
        assert_eq!(outcome.unwrap_err().to_string(), "not ready");
        let turn = |(): &mut (), thread: usize, _: u64| {
            if thread == 0 { Err("no".into()) } else { Ok(Turn::default()) }
        };
        assert_eq!(crew(2, Until::Turns(2), |_| Ok(()), turn, alone).unwrap_err().to_string(), "no");
    }
}
