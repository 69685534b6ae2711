//! Random logs, forks among them, and random queries, forwards and backwards, beside a plain list.

use super::store::{config, open, os, payload, small};
use crate::{Attached, Commit, Entry, Fork, Log, Options, Query, Reader, Start, Store, Time};
use proptest::prelude::*;
use std::sync::Arc;
use thalweg_sys::disk::Disk;

/// One entry as the model keeps it: offset, time, bytes.
pub(super) type Kept = (u64, u64, Vec<u8>);

#[derive(Clone, Debug)]
enum Act {
    Append {
        log: usize,
        time: u64,
        bytes: usize,
    },
    /// Entries in a row after which readers come to expect the next.
    Alike {
        log: usize,
        time: u64,
        bytes: usize,
        count: usize,
    },
    Transaction {
        time: u64,
        first: usize,
        second: usize,
    },
    Fork {
        log: usize,
        at: prop::sample::Index,
    },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0usize..6, 0u64..300, 1usize..700).prop_map(|(log, time, bytes)| Act::Append { log, time, bytes }),
        1 => (0usize..6, 0u64..300, 1usize..40, 15usize..30)
            .prop_map(|(log, time, bytes, count)| Act::Alike { log, time, bytes, count }),
        2 => (0u64..300, 0usize..6, 0usize..6).prop_map(|(time, first, second)| Act::Transaction { time, first, second }),
        1 => (0usize..6, any::<prop::sample::Index>()).prop_map(|(log, at)| Act::Fork { log, at }),
    ]
}

pub(super) fn query() -> impl Strategy<Value = Query> {
    let start = prop_oneof![
        Just(Start::First),
        (0u64..320).prop_map(Start::Time),
        (0u64..320).prop_map(Start::After),
        (0u64..320).prop_map(Start::Exact),
        (0u64..9000).prop_map(Start::Offset),
        Just(Start::Tail),
    ];
    let end = prop::option::of(0u64..320);
    (start, end).prop_map(|(start, end)| Query { start, end, uncommitted: false })
}

/// What a query has to find in a list.
fn expected(kept: &[Kept], query: &Query) -> Vec<Kept> {
    let from = match query.start {
        Start::Exact(time) => kept.iter().position(|entry| entry.1 == time).unwrap_or(kept.len()),
        Start::Tail => kept.len(),
        _ => 0,
    };
    let mut found = Vec::new();
    for (offset, time, bytes) in &kept[from..] {
        let (mut offset, mut bytes) = (*offset, bytes.clone());
        let begun = match query.start {
            Start::Time(start) => *time >= start,
            Start::After(start) => *time > start,
            Start::Offset(start) => {
                let cut = usize::try_from(start.saturating_sub(offset)).unwrap().min(bytes.len());
                bytes.drain(..cut);
                offset += cut as u64;
                !bytes.is_empty()
            }
            _ => true,
        };
        if begun && query.end.is_none_or(|end| *time < end) {
            found.push((offset, *time, bytes));
        }
    }
    found
}

fn kept(entry: &Entry<'_>) -> Kept {
    (entry.offset, entry.time, entry.data.to_vec())
}

pub(super) fn check(mut reader: Reader, model: &[Kept], query: &Query) {
    let want = expected(model, query);
    let forward: Vec<Kept> = reader.entries(query).map(|entry| kept(&entry.unwrap())).collect();
    assert_eq!(forward, want, "{query:?}");
    let mut folded = Vec::new();
    reader.entries(query).for_each(|entry| folded.push(kept(&entry.unwrap())));
    assert_eq!(folded, want, "in one loop, {query:?}");
    let mut back: Vec<Kept> = reader.entries_back(query).map(|entry| kept(&entry.unwrap())).collect();
    back.reverse();
    assert_eq!(back, want, "backwards, {query:?}");
    let mut cursor = reader.follow(query);
    let mut polled = Vec::new();
    while let Some(entry) = cursor.next().unwrap() {
        polled.push(kept(&entry));
    }
    assert_eq!(polled, want, "by cursor, {query:?}");
}

struct World {
    store: Store,
    logs: Vec<(Arc<Log>, Vec<Kept>)>,
}

impl World {
    fn create(&mut self, fork: Option<&Fork>, inherited: Vec<Kept>) {
        let name = format!("log {}", self.logs.len());
        let (log, _) = self.store.create(name.as_bytes(), &config(), fork, &payload(b""), None).unwrap();
        self.logs.push((log, inherited));
    }

    fn tail(&self, log: usize) -> u64 {
        self.logs[log].1.last().map_or(0, |entry| entry.0 + entry.2.len() as u64)
    }

    fn perform(&mut self, act: &Act) {
        let place = |log: usize| log % self.logs.len();
        match act {
            Act::Append { log, time, bytes } => {
                let (log, data) = (place(*log), vec![*bytes as u8; *bytes]);
                let offset = self.tail(log);
                assert_eq!(self.store.append(&self.logs[log].0, &data, *time).unwrap().first, offset);
                self.logs[log].1.push((offset, *time, data));
            }
            Act::Alike { log, time, bytes, count } => {
                let entries = vec![(*time, vec![*bytes as u8; *bytes]); *count];
                let log = place(*log);
                let borrowed: Vec<(Time, &[u8])> =
                    entries.iter().map(|(time, data)| (*time, &data[..])).collect();
                self.store.append_timed(&self.logs[log].0, &borrowed).unwrap();
                for (time, data) in entries {
                    let offset = self.tail(log);
                    self.logs[log].1.push((offset, time, data));
                }
            }
            Act::Transaction { time, first, second } => {
                let logs = [place(*first), place(*second), place(*first)];
                let mut transaction = self.store.transaction(*time);
                for log in logs {
                    transaction.append(&self.logs[log].0, b"in a transaction").unwrap();
                }
                transaction.commit().unwrap();
                for log in logs {
                    let offset = self.tail(log);
                    self.logs[log].1.push((offset, *time, b"in a transaction".to_vec()));
                }
            }
            Act::Fork { log, at } => {
                let log = place(*log);
                let at = at.index(usize::try_from(self.tail(log)).unwrap() + 1) as u64;
                let mut inherited: Vec<Kept> =
                    self.logs[log].1.iter().filter(|entry| entry.0 < at).cloned().collect();
                if let Some((offset, _, bytes)) = inherited.last_mut() {
                    bytes.truncate(usize::try_from(at - *offset).unwrap());
                }
                let fork = Fork { parent: self.logs[log].0.clone(), at, asked: [0; 2] };
                self.create(Some(&fork), inherited);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn queries_find_what_a_list_would_in_any_log_in_either_direction_and_any_process(
        acts in proptest::collection::vec(act(), 1..250), queries in proptest::collection::vec(query(), 12),
    ) {
        let directory = tempfile::tempdir().unwrap();
        for (store, place) in [(Store::memory(small()).unwrap(), None), (open(directory.path(), os()), Some(directory.path()))] {
            let mut world = World { store, logs: Vec::new() };
            world.create(None, Vec::new());
            world.create(None, Vec::new());
            acts.iter().for_each(|act| world.perform(act));
            let attached = place.map(|path| Attached::open(&Disk::Real, path).unwrap());
            for (log, model) in &world.logs {
                for query in &queries {
                    check(world.store.reader(log), model, query);
                    if let Some(attached) = &attached {
                        check(attached.reader(&attached.find(log.name()).unwrap().unwrap()), model, query);
                    }
                }
            }
            world.store.commit(&world.logs[0].0, 0, &Commit::default(), None).unwrap_err();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Between them lies more of another log than is walked through block by block.
    #[test]
    fn entries_far_apart_are_found_in_either_direction_wherever_one_begins(
        apart in proptest::collection::vec(0usize..160, 1..6), after in 0usize..160, rotates: bool,
        fork in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let store = Store::memory(Options { segment_bytes_max: if rotates { 65_536 } else { 1 << 20 }, ..small() }).unwrap();
        let mut world = World { store, logs: Vec::new() };
        (0..2).for_each(|_| world.create(None, Vec::new()));
        let mut time = 0;
        let mut perform = |log, bytes| {
            time += 1;
            world.perform(&Act::Append { log, time, bytes });
        };
        for blocks in &apart {
            (0..*blocks).for_each(|_| perform(1, 960));
            perform(0, 50);
        }
        (0..after).for_each(|_| perform(1, 960));
        if let Some(at) = fork {
            world.perform(&Act::Fork { log: 0, at });
        }
        let places = [Start::First, Start::Tail, Start::Checkpoint, Start::Offset(0), Start::Offset(60)];
        let about = world.logs[0].1.iter().flat_map(|entry| entry.1.saturating_sub(1)..entry.1 + 2);
        let times = about.chain([0, time]).flat_map(|time| [Start::Time(time), Start::After(time), Start::Exact(time)]);
        for start in places.into_iter().chain(times) {
            for (log, model) in world.logs.iter().filter(|(log, _)| log.name() != b"log 1") {
                check(world.store.reader(log), model, &Query::from(start));
            }
        }
    }
}

#[test]
fn the_last_time_there_is_is_taken_by_whoever_asks_for_it_and_nobody_else() {
    let store = Store::memory(Options::default()).unwrap();
    let log = store.log(b"a").unwrap();
    for time in [Time::MAX, 5, Time::MAX, 7] {
        store.append(&log, b"entry", time).unwrap();
    }
    // One at which a search leads right to an entry of that time, whatever lies in front of it.
    for length in (8..1024).step_by(8) {
        let store = Store::memory(Options::default()).unwrap();
        let log = store.log(b"a").unwrap();
        for (time, length) in [(1, length), (Time::MAX, 8), (2_000, 8)] {
            store.append(&log, &vec![7; length], time).unwrap();
        }
        let mut reader = store.reader(&log);
        let found = reader.entries(&Query::from(Start::Exact(2_000))).next().unwrap().unwrap().time;
        assert_eq!(found, 2_000, "behind {length} bytes");
    }
    let mut reader = store.reader(&log);
    let mut times = |query: &Query| -> Vec<Time> {
        let read: Vec<Time> = reader.entries(query).map(|entry| entry.unwrap().time).collect();
        let mut cursor = store.reader(&log).follow(query);
        let followed =
            std::iter::from_fn(|| cursor.next().unwrap().map(|entry| entry.time)).collect::<Vec<_>>();
        assert_eq!(read, followed, "{query:?}");
        let mut folded = Vec::new();
        reader.entries(query).for_each(|entry| folded.push(entry.unwrap().time));
        assert_eq!(folded, read, "{query:?}");
        read
    };
    assert_eq!(times(&Query::from(Start::Exact(5))), [5, Time::MAX, 7]);
    assert_eq!(times(&Query::from(Start::Exact(6))), []);
    assert_eq!(times(&Query::from(Start::Exact(Time::MAX))), [Time::MAX, 5, Time::MAX, 7]);
    assert_eq!(times(&Query::from(Start::Time(6))), [Time::MAX, Time::MAX, 7]);
    assert_eq!(times(&Query::between(0, Time::MAX)), [5, 7]);
    assert_eq!(times(&Query::between(8, 2)), []);
    assert_eq!(times(&Query { end: Some(0), ..Query::default() }), []);
}
