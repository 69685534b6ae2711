//! Many readers against one and several writers: every read is a prefix that once was the log, whole
//! transactions only, never shorter than an earlier one, and nothing is missing that was acknowledged before
//! it began.
//!
//! Each entry says who wrote it, in which of their transactions, and which part of it, so a reader can judge
//! what it sees by itself; what all saw is held against plain vectors afterwards. Seeded by `THALWEG_SEED`,
//! which fixes what is written and read, not how the threads take turns.
//!
//! | what can go wrong with a log that is read while it is written | test |
//! |---|---|
//! | entries behind a rotation on the handle that was there before | `reader::a_cursor_resumes_after_the_end_and_across_segments` |
//! | concurrent writers | `readers_see_growing_prefixes_of_whole_transactions` here, `backup::backups_taken_…` |
//! | sizes while segments come | `sizes_follow_the_segments_while_somebody_writes` here |
//! | many rotations on one handle | `one_reader_and_one_cursor_cross_a_thousand_segments` here |
//! | the first reader of a segment nobody indexed | `readers_that_come_first_at_once_agree` here |
//! | several handles on one log | the same, and `reader::an_attached_store_reads_what_another_handle_writes` |
//! | a cursor used again | `reader::a_cursor_resumes_…`, `one_reader_and_one_cursor_…` |
//! | a start past the end | `a_start_past_the_end_finds_nothing_until_something_is_there` here |
//! | times out of order | `reader::times_that_go_back_…`, the queries in `query` |
//! | torn end, damage in the middle with what follows it | `parse::a_torn_end_…`, `parse::a_cursor_stops_…`, `flips` |
//! | lengths that are zero or lie, a batch within a payload | `parse::lengths_that_lie_…`, `parse::a_payload_that_holds_…` |
//! | headers cut short, newer versions, other files | `parse::files_that_are_short_…`, `store::a_newer_store_…` |
//! | more pieces than one system call takes | `a_transaction_of_thousands_of_entries_is_one_commit` here |
//! | writes that are done in part | `segment_tail::a_call_that_fails_stops_…`, and `sim`, where writes fail and power cuts tear pages |
//! | a query after a purge, a reader while its log is purged or destroyed | `purge::a_purge_takes_…`, `trim::readers_outlive_…` |
//! | files that stay though nobody needs them, a purge cut short | `purge::what_a_purge_takes_…`, `trim::a_purge_that_is_cut_short_…` |
//! | an offset or a beginning that is lost | `damage::whoever_begins_inside_what_is_lost_…` |
//! | an aborted transaction | `reader::an_aborted_transaction_…` |
//! | bad names, closed and closing stores, entries too large, full disks, syncs that fail | `refusals` |

use super::store::{open, os, small};
use crate::{Attached, Cursor, Durability, Entry, Log, Query, Reader, Start, Store};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_sys::disk::Disk;
use thalweg_sys::disk::sim::Random;

const LOGS: [&[u8]; 3] = [b"a", b"b", b"c"];

/// What an entry says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    writer: u8,
    transaction: u32,
    /// Which of the transaction's entries in this log, and of how many.
    index: u16,
    count: u16,
    /// The logs that the transaction touches, a bit each.
    touches: u8,
    filler: Vec<u8>,
}

impl Part {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.writer, self.touches];
        bytes.extend_from_slice(&self.transaction.to_le_bytes());
        bytes.extend_from_slice(&self.index.to_le_bytes());
        bytes.extend_from_slice(&self.count.to_le_bytes());
        bytes.extend_from_slice(&self.filler);
        bytes
    }

    fn decode(bytes: &[u8]) -> Part {
        let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let transaction = u32::from_le_bytes(bytes[2..6].try_into().unwrap());
        let (index, count, filler) = (number(6), number(8), bytes[10..].to_vec());
        Part { writer: bytes[0], transaction, index, count, touches: bytes[1], filler }
    }
}

/// What a log holds as far as somebody read it, judged entry by entry.
#[derive(Clone, Debug, Default)]
struct Seen {
    parts: Vec<Part>,
    next: u64,
    /// The last transaction of each writer.
    last: BTreeMap<u8, u32>,
}

impl Seen {
    fn take(&mut self, entry: &Entry<'_>) {
        let part = Part::decode(entry.data);
        assert_eq!(entry.offset, self.next, "offsets follow on");
        assert_eq!(entry.last, part.index + 1 == part.count, "{part:?}");
        match self.parts.last().filter(|before| before.index + 1 < before.count) {
            Some(before) => assert_eq!(
                (part.writer, part.transaction, part.index),
                (before.writer, before.transaction, before.index + 1),
                "a transaction is not interrupted"
            ),
            None => {
                assert_eq!(part.index, 0, "a transaction begins with its first entry: {part:?}");
                let earlier = self.last.insert(part.writer, part.transaction);
                assert!(earlier.is_none_or(|earlier| earlier < part.transaction), "a writer's order is kept");
            }
        }
        self.next += entry.data.len() as u64;
        self.parts.push(part);
    }

    fn whole(&self) {
        assert!(
            self.parts.last().is_none_or(|part| part.index + 1 == part.count),
            "half a transaction is seen"
        );
    }

    fn holds(&self, floor: &BTreeMap<u8, u32>, how: &str) {
        for (writer, transaction) in floor {
            let seen = self.last.get(writer);
            assert!(seen >= Some(transaction), "{how}: acknowledged {writer}/{transaction}, seen {seen:?}");
        }
    }
}

/// What writers tell readers: per log, each writer's last acknowledged transaction.
#[derive(Default)]
struct Told {
    acknowledged: [BTreeMap<u8, u32>; 3],
    writing: usize,
}

/// Commits random transactions, and answers what went to each log in its own order.
fn write(store: &Store, writer: u8, seed: u64, told: &Mutex<Told>) -> [Vec<Part>; 3] {
    let mut random = Random::new(seed);
    let logs: Vec<Arc<Log>> = LOGS.iter().map(|name| store.log(name).unwrap()).collect();
    let mut written: [Vec<Part>; 3] = Default::default();
    for number in 0..120 {
        let touches = 1 + random.below(7) as u8;
        let mut transaction = store.transaction(random.below(1000));
        let mut parts = Vec::new();
        for log in (0..3).filter(|log| touches & 1 << log != 0) {
            let count = 1 + random.below(4) as u16;
            for index in 0..count {
                let filler = vec![random.word() as u8; random.below(90) as usize];
                parts.push((log, Part { writer, transaction: number, index, count, touches, filler }));
            }
        }
        parts.iter().for_each(|(log, part)| transaction.append(&logs[*log], &part.encode()).unwrap());
        if random.once_in(10) {
            transaction.abort();
            continue;
        }
        transaction.commit().unwrap();
        let mut told = told.lock();
        for (log, part) in parts {
            told.acknowledged[log].insert(writer, number);
            written[log].push(part);
        }
    }
    told.lock().writing -= 1;
    written
}

/// Where readers come from: the process that writes, or a neighbour.
#[derive(Clone)]
enum Door {
    Own(Store),
    Neighbour(Attached),
}

impl Door {
    fn reader(&self, log: usize) -> Reader {
        match self {
            Door::Own(store) => store.reader(&store.find(LOGS[log]).unwrap()),
            Door::Neighbour(attached) => attached.reader(&attached.find(LOGS[log]).unwrap().unwrap()),
        }
    }
}

/// Reads until the writers are done and everything was seen: afresh, with one reader again and again,
/// backwards and with cursors, in turn. Answers the last thing seen of each log, of which everything seen
/// before is a prefix.
fn read(door: &Door, seed: u64, told: &Mutex<Told>) -> [Seen; 3] {
    let mut random = Random::new(seed);
    let mut best: [Seen; 3] = Default::default();
    let mut kept: Vec<Reader> = (0..3).map(|log| door.reader(log)).collect();
    let mut cursors: Vec<Cursor> = (0..3).map(|log| door.reader(log).follow(&Query::default())).collect();
    let mut followed: [Seen; 3] = Default::default();
    loop {
        let (done, floors) = {
            let told = told.lock();
            (told.writing == 0, told.acknowledged.clone())
        };
        let order = [[0, 1, 2], [2, 0, 1], [1, 2, 0]][random.below(3) as usize];
        let mut earlier: Vec<(usize, Seen)> = Vec::new();
        let way = random.below(4);
        let how = ["afresh", "again", "backwards", "with a cursor"][way as usize];
        for log in order {
            let mut seen = Seen::default();
            match way {
                0 => {
                    let mut reader = door.reader(log);
                    reader.entries(&Query::default()).for_each(|entry| seen.take(&entry.unwrap()));
                }
                1 => kept[log].entries(&Query::default()).for_each(|entry| seen.take(&entry.unwrap())),
                2 => {
                    let back: Vec<_> =
                        kept[log].entries_back(&Query::default()).map(Result::unwrap).collect();
                    back.iter().rev().for_each(|entry| seen.take(entry));
                }
                _ => {
                    while let Some(entry) = cursors[log].next().unwrap() {
                        followed[log].take(&entry);
                    }
                    seen = followed[log].clone();
                }
            }
            seen.whole();
            seen.holds(&floors[log], how);
            for (before, known) in &earlier {
                // What touched both logs and was seen in the first is seen in the second.
                let both = known.parts.iter().filter(|part| part.touches & 1 << log != 0);
                for part in both {
                    assert!(
                        seen.last.get(&part.writer) >= Some(&part.transaction),
                        "{before} is ahead of {log}"
                    );
                }
            }
            let (short, long) =
                if seen.next < best[log].next { (&seen, &best[log]) } else { (&best[log], &seen) };
            assert!(long.parts.starts_with(&short.parts), "what was read is not read any more");
            assert!(way == 3 || seen.next >= best[log].next, "a later query saw less");
            best[log] = long.clone();
            earlier.push((log, seen));
        }
        if done {
            return best;
        }
    }
}

fn round(seed: u64, store: &Store, doors: &[Door], writers: u8) {
    let told = Mutex::new(Told { writing: usize::from(writers), ..Told::default() });
    let (written, seen) = std::thread::scope(|scope| {
        let told = &told;
        let writing: Vec<_> = (0..writers)
            .map(|n| scope.spawn(move || write(store, n, seed << 8 | u64::from(n), told)))
            .collect();
        let reader = |(n, door)| scope.spawn(move || read(door, seed << 16 | n, told));
        let reading: Vec<_> = (0..).zip(doors).map(reader).collect();
        let written: Vec<_> = writing.into_iter().map(|thread| thread.join().unwrap()).collect();
        (written, reading.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>())
    });
    for log in 0..3 {
        let mut all = Seen::default();
        let mut reader = store.reader(&store.find(LOGS[log]).unwrap());
        reader.entries(&Query::default()).for_each(|entry| all.take(&entry.unwrap()));
        for (writer, own) in (0..).zip(&written) {
            let of_it: Vec<_> = all.parts.iter().filter(|part| part.writer == writer).cloned().collect();
            assert!(of_it == own[log], "seed {seed}: {} of {} entries", of_it.len(), own[log].len());
        }
        assert!(
            seen.iter().all(|seen| seen[log].parts == all.parts),
            "seed {seed}: somebody saw another log"
        );
    }
}

fn first_seed() -> u64 {
    std::env::var("THALWEG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

#[test]
fn readers_see_growing_prefixes_of_whole_transactions() {
    for seed in first_seed()..first_seed() + 6 {
        for writers in [1, 3] {
            let directory = tempfile::tempdir().unwrap();
            let memory = Store::memory(small()).unwrap();
            LOGS.iter().for_each(|name| drop(memory.log(name).unwrap()));
            round(seed, &memory, &vec![Door::Own(memory.clone()); 3], writers);
            let written = open(directory.path(), os());
            LOGS.iter().for_each(|name| drop(written.log(name).unwrap()));
            let neighbour = Door::Neighbour(Attached::open(&Disk::Real, directory.path()).unwrap());
            round(
                seed,
                &written,
                &[Door::Own(written.clone()), Door::Own(written.clone()), neighbour],
                writers,
            );
        }
    }
}

#[test]
fn in_sync_mode_what_was_persisted_is_seen_and_nothing_before_it_is_durable() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), small());
    LOGS.iter().for_each(|name| drop(store.log(name).unwrap()));
    store.flush().unwrap();
    let neighbour = Door::Neighbour(Attached::open(&Disk::Real, directory.path()).unwrap());
    round(first_seed(), &store, &[Door::Own(store.clone()), neighbour], 2);
}

#[test]
fn one_reader_and_one_cursor_cross_a_thousand_segments() {
    let store = Store::memory(crate::Options { segment_bytes_max: 8192, ..small() }).unwrap();
    let log = store.log(b"a").unwrap();
    let (mut reader, mut cursor) = (store.reader(&log), store.reader(&log).follow(&Query::default()));
    for number in 0..2_100u64 {
        store.append(&log, &[&number.to_le_bytes()[..], &[0; 4000]].concat(), number).unwrap();
        assert_eq!(cursor.next().unwrap().map(|entry| entry.time), Some(number));
        if number % 100 == 0 {
            let times =
                reader.entries(&Query::from(Start::Time(number / 2))).map(|entry| entry.unwrap().time);
            assert!(times.eq(number / 2..=number), "{number}");
        }
    }
    assert_eq!(cursor.next(), Ok(None));
    assert!(store.stats().segments > 1_000, "{}", store.stats().segments);
}

#[test]
fn readers_that_come_first_at_once_agree() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let log = store.log(b"a").unwrap();
    (0..3_000u64).for_each(|number| drop(store.append(&log, &number.to_le_bytes(), number * 10)));
    store.close().unwrap();
    drop((store, log));
    for turn in 0..10 {
        // Nothing of it is verified or indexed by anybody yet.
        let store = open(directory.path(), os());
        let log = store.find(b"a").unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (mut reader, start) = (store.reader(&log), (turn * 977 + thread * 701) % 3_000);
                scope.spawn(move || {
                    let found = reader
                        .entries(&Query::from(Start::Time(start * 10)))
                        .map(|entry| entry.unwrap().time);
                    assert!(found.eq((start..3_000).map(|number| number * 10)), "{turn} {thread}");
                });
            }
        });
        store.close().unwrap();
    }
}

#[test]
fn a_start_past_the_end_finds_nothing_until_something_is_there() {
    let store = Store::memory(small()).unwrap();
    let log = store.log(b"a").unwrap();
    store.append(&log, b"early", 10).unwrap();
    for start in [Start::Time(100), Start::After(99), Start::Exact(100), Start::Offset(50)] {
        let mut cursor = store.reader(&log).follow(&Query::from(start));
        assert_eq!(cursor.next(), Ok(None), "{start:?}");
        assert_eq!(store.reader(&log).entries(&Query::from(start)).count(), 0, "{start:?}");
        let other = store.log(b"other").unwrap();
        store.append(&other, b"not this one", 100).unwrap();
        assert_eq!(cursor.next(), Ok(None), "{start:?}");
    }
    let mut cursors = [Start::Time(100), Start::After(99), Start::Exact(100), Start::Offset(50)]
        .map(|start| store.reader(&log).follow(&Query::from(start)));
    store.append(&log, &[1; 60], 50).unwrap();
    store.append(&log, b"wanted", 100).unwrap();
    for (cursor, first) in cursors.iter_mut().zip([6, 6, 6, 15]) {
        assert_eq!(cursor.next().unwrap().map(|entry| entry.data.len()), Some(first));
    }
}

#[test]
fn a_transaction_of_thousands_of_entries_is_one_commit() {
    let store = Store::memory(crate::Options { segment_bytes_max: 1 << 20, ..small() }).unwrap();
    let logs: Vec<_> = (0..40).map(|n| store.log(format!("log {n}").as_bytes()).unwrap()).collect();
    let mut cursor = store.reader(&logs[7]).follow(&Query::default());
    let mut transaction = store.transaction(5);
    for number in 0..6_000u32 {
        transaction.append(&logs[number as usize % 40], &number.to_le_bytes()).unwrap();
    }
    assert_eq!((transaction.count(), cursor.next()), (6_000, Ok(None)));
    transaction.commit().unwrap();
    for number in 0..150 {
        let entry = cursor.next().unwrap().unwrap();
        let expected = (number * 40 + 7u32).to_le_bytes();
        assert_eq!((entry.data, entry.last), (&expected[..], number == 149));
    }
    assert_eq!(cursor.next(), Ok(None));
}

#[test]
fn sizes_follow_the_segments_while_somebody_writes() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    assert_eq!(store.durability(), Durability::Os);
    let log = store.log(b"a").unwrap();
    let mut before = store.stats();
    for number in 0..400u64 {
        store.append(&log, &[3; 500], number).unwrap();
        let now = store.stats();
        assert!(now.staged_end > before.staged_end && now.segments >= before.segments);
        assert_eq!(now.segment_bytes > before.segment_bytes, now.segments > before.segments, "{number}");
        before = now;
    }
    let lengths = std::fs::read_dir(directory.path())
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("segment-"));
    let on_disk: u64 = lengths.map(|entry| entry.metadata().unwrap().len()).sum();
    assert!(before.segments > 4);
    assert_eq!(before.segment_bytes, on_disk);
}
