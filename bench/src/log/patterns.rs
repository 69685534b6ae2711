//! The patterns, each written once for every side: what a turn reads, how many operations that is, and what
//! it must have read. A writer beside the readers is the calling thread, so that it is nobody's cost but its
//! own.

use crate::sample::{Measured, Turn, Until, alone, crew};
use crate::side::{Cold, Failure, Reading, Side};
use crate::workload::{Random, STEP, Sum, TICK_ENTRIES, expected, time};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Queries in one tick.
const TICK_QUERIES: usize = 1_000;
/// Entries that a short range covers.
const RANGE_ENTRIES: u64 = 10;
/// Iterators that are open at once, and entries that each yields before it is closed.
const ITERATORS: usize = 100;
const ITERATOR_ENTRIES: u64 = 100;
/// Ticks whose places are chosen before anything is measured.
const TICKS: usize = 256;
/// Polls in one turn of a follower.
const POLLS: u64 = 64;
/// From one tick of a paced writer to the next.
const PACE: Duration = Duration::from_millis(1);
/// After which a follower that waits for entries has been forgotten.
const PATIENCE: Duration = Duration::from_secs(20);

/// A side and how many entries it holds by now.
pub(crate) struct Subject<S> {
    side: S,
    entries: Mutex<u64>,
}

impl<S: Side> Subject<S> {
    pub(crate) fn new(side: S, entries: u64) -> Subject<S> {
        Subject { side, entries: Mutex::new(entries) }
    }

    /// The same side, to which somebody else appended.
    pub(crate) fn with_entries(self, entries: u64) -> Subject<S> {
        Subject::new(self.side, entries)
    }

    pub(crate) fn entries(&self) -> u64 {
        *self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one tick's entries.
    fn tick(&self, together: bool) -> Result<(), Failure> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        match together {
            true => self.side.append(*entries, TICK_ENTRIES)?,
            false => self.side.append_each(*entries, TICK_ENTRIES)?,
        }
        *entries += TICK_ENTRIES;
        Ok(())
    }

    /// Writes a tick each millisecond until the readers are done.
    fn write_paced(&self, ended: &Receiver<()>) -> Result<(), Failure> {
        let mut due = Instant::now();
        loop {
            self.tick(true)?;
            due += PACE;
            let pause = due.saturating_duration_since(Instant::now());
            if ended.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
                return Ok(());
            }
        }
    }

    /// Writes ticks as fast as it can until the readers are done.
    fn write_at_full_speed(&self, ended: &Receiver<()>, together: bool) -> Result<(), Failure> {
        while ended.try_recv() != Err(TryRecvError::Disconnected) {
            self.tick(together)?;
        }
        Ok(())
    }
}

fn check(right: bool, read: &Sum, wanted: &Sum, side: &str) -> Result<(), Failure> {
    if right { Ok(()) } else { Err(format!("{side} read {read:?}, there was {wanted:?}").into()) }
}

/// Reads everything, over and over; with `writing` beside a paced writer. An operation is an entry.
///
/// # Errors
/// The store fails, or something was not read.
pub(crate) fn scan<S: Side>(
    subject: &Subject<S>,
    readers: usize,
    until: Until,
    writing: bool,
) -> Result<Measured, Failure> {
    let least = subject.entries();
    let prepare = |_| {
        let mut reader = subject.side.reader()?;
        reader.scan()?;
        Ok(reader)
    };
    let turn = |reader: &mut S::Reader<'_>, _: usize, _: u64| {
        let sum = reader.scan()?;
        let wanted = expected(0, sum.entries.max(least));
        let right = if writing { sum.agrees_but_for_times(&wanted) } else { sum.agrees(&wanted) };
        check(right, &sum, &wanted, S::NAME)?;
        Ok(Turn { operations: sum.entries, sum })
    };
    let beside = |ended: &Receiver<()>| if writing { subject.write_paced(ended) } else { alone(ended) };
    crew(readers, until, prepare, turn, beside)
}

/// Opens a store that was closed, reads all its `entries` and closes it, over and over. An operation is an
/// entry.
///
/// # Errors
/// The store fails, or something was not read.
pub(crate) fn cold<C: Cold>(closed: &C, entries: u64, until: Until) -> Result<Measured, Failure> {
    let wanted = expected(0, entries);
    let turn = |(): &mut (), _: usize, _: u64| {
        let sum = closed.scan()?;
        check(sum.agrees(&wanted), &sum, &wanted, C::NAME)?;
        Ok(Turn { operations: sum.entries, sum })
    };
    crew(1, until, |_| Ok(()), turn, alone)
}

/// What a tick asks for and what it must add up to.
struct Tick {
    asked: Vec<u64>,
    wanted: Sum,
}

/// Ticks of `queries` random numbers, each wanting `count` entries from there.
fn ticks(queries: usize, entries: u64, count: u64) -> Result<Vec<Tick>, Failure> {
    let places =
        entries.checked_sub(count).filter(|places| *places > 0).ok_or("too few entries to choose from")?;
    let mut random = Random::new(entries);
    let tick = |_| {
        let asked: Vec<u64> = (0..queries).map(|_| random.below(places)).collect();
        let mut wanted = Sum::default();
        asked.iter().for_each(|start| wanted.add(expected(*start, count)));
        Tick { asked, wanted }
    };
    Ok((0..TICKS).map(tick).collect())
}

/// Repeats ticks, each thread from another one on. `read` answers what was read, `operations` are counted per
/// tick.
fn repeat_ticks<S: Side>(
    subject: &Subject<S>,
    (readers, until, writing): (usize, Until, bool),
    ticks: &[Tick],
    operations: u64,
    read: impl Fn(&mut S::Reader<'_>, &[u64]) -> Result<Sum, Failure> + Sync,
) -> Result<Measured, Failure> {
    let prepare = |_| {
        let mut reader = subject.side.reader()?;
        reader.scan()?;
        Ok(reader)
    };
    let turn = |reader: &mut S::Reader<'_>, thread: usize, turn: u64| {
        let tick = &ticks[(turn as usize + thread * 5) % ticks.len()];
        let sum = read(reader, &tick.asked)?;
        check(sum.agrees(&tick.wanted), &sum, &tick.wanted, S::NAME)?;
        Ok(Turn { operations, sum })
    };
    let beside = |ended: &Receiver<()>| if writing { subject.write_paced(ended) } else { alone(ended) };
    crew(readers, until, prepare, turn, beside)
}

/// Ticks of 1,000 fresh queries over the times of 10 entries each, anywhere in the first `entries`. An
/// operation is a query.
///
/// # Errors
/// The store fails, or something else was read.
pub(crate) fn ranges<S: Side>(
    subject: &Subject<S>,
    entries: u64,
    readers: usize,
    until: Until,
) -> Result<Measured, Failure> {
    let ticks = ticks(TICK_QUERIES, entries, RANGE_ENTRIES)?;
    repeat_ticks(subject, (readers, until, false), &ticks, TICK_QUERIES as u64, |reader, asked| {
        reader.ranges(asked, RANGE_ENTRIES)
    })
}

/// Ticks of 1,000 reads of the first entry after a random time. An operation is a read.
///
/// # Errors
/// The store fails, or something else was read.
pub(crate) fn seeks<S: Side>(
    subject: &Subject<S>,
    entries: u64,
    readers: usize,
    until: Until,
) -> Result<Measured, Failure> {
    let mut ticks = ticks(TICK_QUERIES, entries, 1)?;
    // Between two entries, so that nobody gets away with a search for an equal key.
    ticks.iter_mut().flat_map(|tick| &mut tick.asked).for_each(|asked| *asked = time(*asked) - STEP / 2);
    repeat_ticks(subject, (readers, until, false), &ticks, TICK_QUERIES as u64, |reader, asked| {
        reader.seeks(asked)
    })
}

/// Ticks of 1,000 reads of an entry anywhere whose place is known. An operation is a read.
///
/// # Errors
/// The store fails, or something else was read.
pub(crate) fn reads<'s, S: Side>(
    subject: &'s Subject<S>,
    entries: u64,
    readers: usize,
    until: Until,
) -> Result<Measured, Failure> {
    let ticks = ticks(TICK_QUERIES, entries, 1)?;
    let numbers: Vec<u64> = ticks.iter().flat_map(|tick| &tick.asked).copied().collect();
    let places = subject.side.reader()?.places(&numbers)?;
    let prepare = |_| {
        let mut reader = subject.side.reader()?;
        reader.scan()?;
        Ok(reader)
    };
    let turn = |reader: &mut S::Reader<'s>, thread: usize, turn: u64| {
        let number = (turn as usize + thread * 5) % ticks.len();
        let (from, wanted) = (number * TICK_QUERIES, &ticks[number].wanted);
        let sum = reader.reads(&places[from..from + TICK_QUERIES])?;
        check(sum.agrees(wanted), &sum, wanted, S::NAME)?;
        Ok(Turn { operations: TICK_QUERIES as u64, sum })
    };
    crew(readers, until, prepare, turn, alone)
}

/// Holds 100 iterators open and takes one entry of each in turn; with `writing` beside a paced writer. An
/// operation is an entry.
///
/// # Errors
/// The store fails, or something else was read.
pub(crate) fn iterators<S: Side>(
    subject: &Subject<S>,
    entries: u64,
    until: Until,
    writing: bool,
) -> Result<Measured, Failure> {
    let ticks = ticks(ITERATORS, entries, ITERATOR_ENTRIES)?;
    let operations = ITERATORS as u64 * ITERATOR_ENTRIES;
    repeat_ticks(subject, (1, until, writing), &ticks, operations, |reader, asked| {
        reader.iterate(asked, ITERATOR_ENTRIES)
    })
}

/// Followers of one writer.
struct Follower<R> {
    reader: R,
    from: u64,
    total: Sum,
}

impl<R: Reading> Follower<R> {
    /// One poll; what came is what comes next.
    fn poll(&mut self, side: &str) -> Result<u64, Failure> {
        let sum = self.reader.poll()?;
        if sum.entries > 0 {
            self.total.add(sum);
            let wanted = expected(self.from, self.total.entries);
            check(self.total.agrees_but_for_times(&wanted), &self.total, &wanted, side)?;
        }
        Ok(sum.entries)
    }
}

fn follower<'s, S: Side>(subject: &'s Subject<S>) -> Result<Follower<S::Reader<'s>>, Failure> {
    let mut reader = subject.side.reader()?;
    reader.follow()?;
    Ok(Follower { reader, from: subject.entries(), total: Sum::default() })
}

/// Polls for what a paced writer wrote, without a pause. An operation is a poll.
///
/// # Errors
/// The store fails, or an entry is missing.
pub(crate) fn polls<'s, S: Side>(
    subject: &'s Subject<S>,
    readers: usize,
    until: Until,
) -> Result<Measured, Failure> {
    let turn = |follower: &mut Follower<S::Reader<'s>>, _: usize, _: u64| {
        let before = follower.total;
        for _ in 0..POLLS {
            follower.poll(S::NAME)?;
        }
        Ok(Turn { operations: POLLS, sum: gained(before, follower.total) })
    };
    crew(readers, until, |_| follower(subject), turn, |ended| subject.write_paced(ended))
}

/// Polls for what a writer wrote that never pauses: ticks of entries of which each is a transaction of its
/// own, or all of a tick one `together`. An operation is an entry that was delivered to a reader.
///
/// # Errors
/// The store fails, or an entry is missing.
pub(crate) fn delivered<'s, S: Side>(
    subject: &'s Subject<S>,
    readers: usize,
    until: Until,
    together: bool,
) -> Result<Measured, Failure> {
    let turn = |follower: &mut Follower<S::Reader<'s>>, _: usize, _: u64| {
        let (before, since) = (follower.total, Instant::now());
        let mut count = 0;
        while count < 10 * TICK_ENTRIES {
            count += follower.poll(S::NAME)?;
            if count == 0 && since.elapsed() > PATIENCE {
                return Err("nothing came".into());
            }
        }
        Ok(Turn { operations: count, sum: gained(before, follower.total) })
    };
    crew(readers, until, |_| follower(subject), turn, |ended| subject.write_at_full_speed(ended, together))
}

fn gained(before: Sum, after: Sum) -> Sum {
    Sum { entries: after.entries - before.entries, bytes: after.bytes - before.bytes, ..Sum::default() }
}

/// Appends transactions of `each` entries from one thread. An operation is an entry. Afterwards everything is
/// there.
///
/// # Errors
/// The store fails, or something is missing.
pub(crate) fn append<S: Side>(side: &S, each: u64, until: Until) -> Result<Measured, Failure> {
    verify(side, appending(each, until, |first| side.append(first, each))?)
}

/// The same for whatever can append the next `each` entries.
///
/// # Errors
/// It cannot.
pub(crate) fn appending(
    each: u64,
    until: Until,
    append: impl Fn(u64) -> Result<(), Failure> + Sync,
) -> Result<Measured, Failure> {
    let turn = |next: &mut u64, _: usize, _: u64| {
        let transactions = if each == 1 { 64 } else { 1 };
        for _ in 0..transactions {
            append(*next)?;
            *next += each;
        }
        let operations = transactions * each;
        Ok(Turn { operations, sum: expected(*next - operations, operations) })
    };
    crew(1, until, |_| Ok(0), turn, alone)
}

/// Appends one by one from `workers` threads at once. An operation is an entry. Afterwards everything is
/// there.
///
/// # Errors
/// The store fails, or something is missing.
pub(crate) fn workers<S: Side>(side: &S, workers: usize, until: Until) -> Result<Measured, Failure> {
    let turn = |next: &mut u64, _: usize, _: u64| {
        let first = *next;
        for _ in 0..16 {
            side.append_unordered(*next)?;
            *next += 1;
        }
        Ok(Turn { operations: 16, sum: expected(first, 16) })
    };
    let measured = crew(workers, until, |_| Ok(0), turn, alone)?;
    verify(side, measured)
}

fn verify<S: Side>(side: &S, measured: Measured) -> Result<Measured, Failure> {
    let read = side.reader()?.scan()?;
    check(read.agrees_but_for_times(&measured.sum), &read, &measured.sum, S::NAME)?;
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A side that only counts, and may leave an entry out of whatever it reads.
    struct Counting {
        held: Mutex<Sum>,
        lacks: u64,
    }

    struct Counter<'s> {
        side: &'s Counting,
        seen: u64,
    }

    impl Counting {
        fn of(entries: u64, lacks: u64) -> Subject<Counting> {
            Subject::new(Counting { held: Mutex::new(expected(0, entries)), lacks }, entries)
        }

        fn entries(&self) -> u64 {
            self.held.lock().unwrap().entries
        }
    }

    impl Side for Counting {
        const NAME: &'static str = "counting";
        type Reader<'s> = Counter<'s>;

        fn reader(&self) -> Result<Counter<'_>, Failure> {
            Ok(Counter { side: self, seen: 0 })
        }

        fn append(&self, first: u64, count: u64) -> Result<(), Failure> {
            self.held.lock().unwrap().add(expected(first, count));
            Ok(())
        }
    }

    impl Counter<'_> {
        fn sum(&self, from: u64, count: u64) -> Sum {
            expected(from, count.saturating_sub(self.side.lacks))
        }

        fn all(&self, starts: impl Iterator<Item = u64>, count: u64) -> Result<Sum, Failure> {
            let mut sum = Sum::default();
            starts.for_each(|start| sum.add(self.sum(start, count)));
            Ok(sum)
        }
    }

    impl Reading for Counter<'_> {
        type Place = u64;

        fn scan(&mut self) -> Result<Sum, Failure> {
            let held = *self.side.held.lock().unwrap();
            Ok(Sum { entries: held.entries - self.side.lacks, ..held })
        }

        fn ranges(&mut self, starts: &[u64], count: u64) -> Result<Sum, Failure> {
            self.all(starts.iter().copied(), count)
        }

        fn seeks(&mut self, times: &[u64]) -> Result<Sum, Failure> {
            self.all(times.iter().map(|since| since.saturating_sub(time(0)).div_ceil(STEP)), 1)
        }

        fn places(&mut self, numbers: &[u64]) -> Result<Vec<u64>, Failure> {
            Ok(numbers.to_vec())
        }

        fn reads(&mut self, places: &[u64]) -> Result<Sum, Failure> {
            self.all(places.iter().copied(), 1)
        }

        fn iterate(&mut self, starts: &[u64], each: u64) -> Result<Sum, Failure> {
            self.all(starts.iter().copied(), each)
        }

        fn follow(&mut self) -> Result<(), Failure> {
            self.seen = self.side.entries();
            Ok(())
        }

        /// What is lacking is the first of what came, so it is noticed at once.
        fn poll(&mut self) -> Result<Sum, Failure> {
            let from = std::mem::replace(&mut self.seen, self.side.entries());
            let lacks = self.side.lacks.min(self.seen - from);
            Ok(expected(from + lacks, self.seen - from - lacks))
        }
    }

    type Pattern = fn(&Subject<Counting>) -> Result<Measured, Failure>;

    const TURNS: Until = Until::Turns(2);
    const PATTERNS: [(&str, Pattern); 10] = [
        ("scan", |subject| scan(subject, 2, TURNS, false)),
        ("scan beside a writer", |subject| scan(subject, 2, TURNS, true)),
        ("ranges", |subject| ranges(subject, 1000, 2, TURNS)),
        ("seeks", |subject| seeks(subject, 1000, 2, TURNS)),
        ("reads", |subject| reads(subject, 1000, 2, TURNS)),
        ("iterators", |subject| iterators(subject, 1000, TURNS, true)),
        ("delivered", |subject| delivered(subject, 2, TURNS, false)),
        ("delivered together", |subject| delivered(subject, 2, TURNS, true)),
        ("append", |subject| append(&subject.side, 1, TURNS)),
        ("workers", |subject| workers(&subject.side, 3, TURNS)),
    ];

    #[test]
    fn a_side_that_leaves_an_entry_out_is_caught_by_every_pattern() {
        for (name, pattern) in PATTERNS {
            let entries = if name.starts_with("append") || name == "workers" { 0 } else { 1000 };
            let measured = pattern(&Counting::of(entries, 0)).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(measured.operations > 0 && measured.sum.entries > 0, "{name}");
            let caught = pattern(&Counting::of(entries, 1)).unwrap_err().to_string();
            assert!(caught.contains("there was"), "{name}: {caught}");
        }
    }

    #[test]
    fn a_poll_that_finds_nothing_counts_all_the_same() {
        let measured = polls(&Counting::of(1000, 0), 1, TURNS).unwrap();
        assert_eq!(measured.operations, 2 * POLLS);
    }
}
