//! Segments that were written anew read as they did: whatever is left of them, by whichever way, from
//! wherever a reader stood.
//!
//! Small records of several logs among each other, transactions over some of them and a fork; then some logs
//! go, or their older entries, so that what is left lies in runs of all sizes. The model is what was read
//! before anything was written anew.

use super::compact::reclaim;
use crate::{
    Attached, Commit, Config, Cursor, Durability, Entry, Fork, Lifetime, Log, Options, Place, Purge, Query,
    Reader, Start, Store, verify,
};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::Disk;

const LOGS: usize = 6;

/// Place, time and payload.
type Row = (Place, u64, Vec<u8>);

fn row(entry: &Entry<'_>) -> Row {
    (entry.place(), entry.time, entry.data.to_vec())
}

fn rows(reader: &mut Reader, query: &Query) -> Vec<Row> {
    reader.entries(query).map(|entry| row(&entry.unwrap())).collect()
}

fn options() -> Options {
    let (segment_bytes_min, segment_bytes_max, durability) = (16 << 10, 32 << 10, Durability::Os);
    Options { segment_bytes_min, segment_bytes_max, durability, rest_parts: 0, ..Options::default() }
}

fn open(directory: &Path) -> Store {
    let (store, report) = Store::open(&Disk::Real, directory, options()).unwrap();
    assert_eq!(report.damage, []);
    store
}

fn name(log: usize) -> Vec<u8> {
    format!("log {log}").into_bytes()
}

/// One transaction: which logs get how many bytes.
type Step = Vec<(usize, usize)>;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lone = (0..LOGS, 1usize..200).prop_map(|one| vec![one]);
    let several = proptest::collection::vec((0..LOGS, 1usize..120), 2..5);
    proptest::collection::vec(prop_oneof![6 => lone, 1 => several], 300..900)
}

fn fill(store: &Store, steps: &[Step]) {
    for (step, time) in steps.iter().zip(1_000u64..) {
        let mut transaction = store.transaction(time);
        for (log, length) in step {
            transaction.append(&store.log(&name(*log)).unwrap(), &vec![time as u8; *length]).unwrap();
        }
        transaction.commit().unwrap();
    }
    store.flush().unwrap();
}

/// Every way of reading a log leads to the same entries.
fn reads(store: &Store, log: &Arc<Log>, held: &[Row]) {
    let mut reader = store.reader(log);
    assert_eq!(rows(&mut reader, &Query::default()), held);
    let bytes: Vec<u8> = held.iter().flat_map(|(.., data)| data.clone()).collect();
    let first = log.visible().unwrap().first;
    assert_eq!(store.read(log, first, usize::MAX).unwrap().pieces.concat(), bytes);
    let mut back: Vec<Row> =
        reader.entries_back(&Query::default()).map(|entry| row(&entry.unwrap())).collect();
    back.reverse();
    assert_eq!(back, held);
    for index in (0..held.len()).step_by(1 + held.len() / 7) {
        let (place, time, _) = &held[index];
        let since = held.iter().position(|(_, other, _)| other >= time).unwrap();
        assert_eq!(rows(&mut reader, &Query::from(Start::Time(*time))), held[since..]);
        assert_eq!(rows(&mut reader, &Query::from(Start::Offset(place.offset))), held[index..]);
        let from: Vec<Row> =
            reader.entries_back(&Query::from(Start::Time(*time))).map(|entry| row(&entry.unwrap())).collect();
        assert_eq!(from.len(), held.len() - since);
        assert_eq!(reader.at(*place).unwrap().map(|entry| row(&entry)).as_ref(), Some(&held[index]));
    }
}

fn rest(cursor: &mut Cursor) -> Vec<Row> {
    std::iter::from_fn(|| cursor.next().unwrap().map(|entry| row(&entry))).collect()
}

/// What is left of what a log held: entries from an offset on.
fn left(held: &[Row], log: &Log) -> Vec<Row> {
    let first = log.visible().unwrap().first;
    held.iter().filter(|(place, ..)| place.offset >= first).cloned().collect()
}

fn check(directory: &Path, steps: &[Step], goes: &[bool], before: u64, stood: usize) {
    let store = open(directory);
    fill(&store, steps);
    let parent = store.log(&name(0)).unwrap();
    let config = Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited };
    if let Some((place, ..)) = rows(&mut store.reader(&parent), &Query::default()).get(3) {
        let (parent, at) = (parent.clone(), place.offset);
        let fork = Fork { parent, at, asked: [at, 0] };
        store.create(b"fork", &config, Some(&fork), &Commit::default(), None).unwrap();
    }
    store.flush().unwrap();
    let logs: Vec<Arc<Log>> = (0..LOGS).filter_map(|log| store.find(&name(log))).collect();
    let logs: Vec<Arc<Log>> = logs.into_iter().chain(store.find(b"fork")).collect();
    let held: Vec<Vec<Row>> =
        logs.iter().map(|log| rows(&mut store.reader(log), &Query::default())).collect();
    let neighbour = Attached::open(&Disk::Real, directory).unwrap();
    let mut cursors: Vec<(Cursor, Cursor, usize)> = Vec::new();
    for (log, held) in logs.iter().zip(&held) {
        let mut own = store.reader(log).follow(&Query::default());
        let found = neighbour.find(log.name()).unwrap().unwrap();
        let mut others = neighbour.reader(&found).follow(&Query::default());
        let stood = stood.min(held.len());
        (0..stood).for_each(|_| assert!(own.next().unwrap().is_some() && others.next().unwrap().is_some()));
        cursors.push((own, others, stood));
    }
    for (log, _) in logs.iter().zip(goes).filter(|(_, goes)| **goes) {
        store.delete(log, log.staged().unwrap().version, 3_000, None).unwrap();
    }
    store.purge(&Purge { log: Some(&name(1)), before: Some(before), ..Purge::default() }).ok();
    reclaim(&store);
    let view = store.shared.segments.latest();
    let compacted = view.all().iter().any(|segment| segment.header.is_compacted());
    assert!(compacted || goes.iter().filter(|goes| **goes).count() < 5, "nothing to look at");
    let is_left = |log: &Arc<Log>| log.visible().is_some();
    let bytes = |store: &Store| store.stats().segment_bytes;
    for ((log, held), (own, others, stood)) in logs.iter().zip(&held).zip(&mut cursors) {
        if !is_left(log) {
            continue;
        }
        let now = left(held, log);
        reads(&store, log, &now);
        let ahead: Vec<Row> =
            now.iter().filter(|row| held[..*stood].iter().all(|seen| seen != *row)).cloned().collect();
        // What went may still be in the map that a reader had, and nothing of what is left is missed.
        for cursor in [own, others] {
            let rest = rest(cursor);
            assert!(rest.ends_with(&ahead) && rest.len() <= held.len() - *stood);
        }
    }
    // Once more, from what was written anew already.
    let first = bytes(&store);
    store.purge(&Purge { before: Some(before + 100), ..Purge::default() }).unwrap();
    reclaim(&store);
    assert!(bytes(&store) <= first + 4 * (32 << 10));
    let names: Vec<Vec<u8>> = logs.iter().map(|log| log.name().to_vec()).collect();
    drop((cursors, neighbour, logs, parent));
    store.close().unwrap();
    drop(store);
    assert_eq!(verify(&Disk::Real, directory).unwrap().damage, []);
    let store = open(directory);
    let anew = Attached::open(&Disk::Real, directory).unwrap();
    for (name, held) in names.iter().zip(&held) {
        let Some(log) = store.find(name).filter(is_left) else { continue };
        let now = left(held, &log);
        reads(&store, &log, &now);
        let found = anew.find(name).unwrap().unwrap();
        assert_eq!(rows(&mut anew.reader(&found), &Query::default()), now);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn what_is_left_reads_as_it_did(
        steps in steps(), goes in proptest::collection::vec(prop::bool::weighted(0.6), LOGS), before in 1_000u64..1_600, stood in 0usize..120,
    ) {
        let directory = tempfile::tempdir().unwrap();
        check(directory.path(), &steps, &goes, before, stood);
    }
}

/// Small records of 32 logs in turn, of which one stays.
fn one_of_many(directory: &Path) -> Store {
    let (segment_bytes_min, segment_bytes_max) = (1 << 20, 1 << 20);
    let sizes = Options { segment_bytes_min, segment_bytes_max, rest_parts: 0, ..Options::default() };
    let (store, _) = Store::open(&Disk::Real, directory, sizes).unwrap();
    let logs: Vec<Arc<Log>> = (0..32).map(|log| store.log(&name(log)).unwrap()).collect();
    for time in 0..640 {
        for log in &logs {
            store.append(log, &[time as u8; 100], time).unwrap();
        }
    }
    for log in &logs[1..] {
        store.delete(log, log.staged().unwrap().version, 1_000, None).unwrap();
    }
    store.flush().unwrap();
    store
}

#[test]
fn small_records_among_others_that_are_gone_take_what_they_need() {
    let directory = tempfile::tempdir().unwrap();
    let store = one_of_many(directory.path());
    let written = store.stats().segment_bytes;
    reclaim(&store);
    // What was written since is as large as ever.
    let view = store.shared.segments.latest();
    let compacted = view.all().iter().map(|segment| segment.header).filter(|header| header.is_compacted());
    let taken: u64 = compacted.map(|header| header.held_bytes()).sum();
    assert!(store.stats().segment_bytes <= taken + (3 << 20));
    assert!(written > 4_000_000 && taken < 640 * 100 * 5 / 2, "{taken} of {written} bytes");
    let log = store.log(&name(0)).unwrap();
    assert_eq!(store.reader(&log).entries(&Query::default()).count(), 640);
}

/// What one bit in the table of a segment costs: the run it speaks of, named, and nothing else.
#[test]
fn a_damaged_entry_of_a_table_costs_its_run_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let store = one_of_many(directory.path());
    reclaim(&store);
    let view = store.shared.segments.latest();
    let header = view.all().iter().find(|segment| segment.header.is_compacted()).unwrap().header;
    store.close().unwrap();
    drop((view, store));
    let path = directory.path().join(crate::segment::file_name(header.number));
    let whole = std::fs::read(&path).unwrap();
    let entry = header.table_at().unwrap() as usize + 16 * (header.runs as usize / 2);
    for byte in [entry, entry + 7, entry + 15] {
        let mut flipped = whole.clone();
        flipped[byte] ^= 4;
        std::fs::write(&path, &flipped).unwrap();
        let report = verify(&Disk::Real, directory.path()).unwrap();
        assert!(
            matches!(&report.damage[..], [damage] if damage.file == crate::segment::file_name(header.number))
        );
        let store = Store::open(&Disk::Real, directory.path(), Options::default()).unwrap().0;
        let log = store.find(&name(0)).unwrap();
        let mut reader = store.reader(&log);
        let mut entries = reader.entries(&Query::default());
        let (mut times, mut damaged) = (Vec::new(), 0);
        loop {
            match entries.next() {
                Some(Ok(entry)) => times.push(entry.time),
                Some(Err(error)) => {
                    assert!(error.to_string().contains("damaged"), "{error}");
                    damaged += 1;
                    entries.resume();
                }
                None => break,
            }
        }
        // One for what nobody can find, and one for the offsets that are missing behind it.
        assert!((1..=2).contains(&damaged) && times.len() == 639, "{damaged}, {} entries", times.len());
        let read = store.read(&log, 0, usize::MAX).unwrap_err().to_string();
        assert!(read.contains("damaged"), "{read}");
        store.close().unwrap();
    }
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(verify(&Disk::Real, directory.path()).unwrap().damage, []);
}
