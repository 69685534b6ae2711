//! One bit flipped anywhere: verification names the file, and nobody is ever served a byte that was not
//! written.
//!
//! A closed store with everything in it (logs, forks, closes, deletions, producers, notes, transactions over
//! several logs, two checkpoints, segments as written, written anew and settled) has one random bit of one
//! random file flipped, and is verified, opened and read in every way there is. Three files hold nothing:
//! `lock` is empty, whatever the `signal` says costs a wake, and the `reserve` is only room. What opening
//! cannot notice without reading everything is a flip in what it does not need: the older checkpoint, and
//! bytes that no log reads; there everything must be as it was. `THALWEG_SEED=n` begins elsewhere.

use super::store::{config, payload};
use crate::{Attached, Commit, Cursor, Damage, Durability, Entry, Fork, Log, OpenError, Options, Producer};
use crate::{Query, ReadError, Store, verify};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::Disk;
use thalweg_sys::disk::sim::{Random, SimDisk};

const DIRECTORY: &str = "/store";
const FLIPS: u64 = 2_000;

/// Offset, time, end of a transaction, payload.
type Row = (u64, u64, bool, Vec<u8>);

fn row(entry: &Entry<'_>) -> Row {
    (entry.offset, entry.time, entry.last, entry.data.to_vec())
}

/// What a log holds: its payload, whether it is closed, its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    bytes: Vec<u8>,
    closed: bool,
    rows: Vec<Row>,
}

fn options() -> Options {
    Options {
        durability: Durability::Sync,
        segment_bytes_min: 4096,
        segment_bytes_max: 8192,
        committer_thread: false,
        ..Options::default()
    }
}

fn open(sim: &SimDisk) -> Result<(Store, crate::Recovered), OpenError> {
    Store::open(&Disk::Sim(sim.clone()), Path::new(DIRECTORY), options())
}

/// A store that was closed, with everything in it.
fn sample(seed: u64) -> SimDisk {
    let sim = SimDisk::new(seed, 8 << 20);
    let mut random = Random::new(seed);
    let store = open(&sim).unwrap().0;
    let logs: Vec<_> = [&b"a"[..], b"b", b"c", b"gone"].iter().map(|name| store.log(name).unwrap()).collect();
    for round in 0..220u64 {
        let mut transaction = store.transaction(1_000 + round * 10 - random.below(30));
        for _ in 0..=random.below(4) {
            let bytes = vec![round as u8; 4 + random.below(120) as usize];
            transaction.append(&logs[random.below(3) as usize], &bytes).unwrap();
        }
        if round < 80 && round % 3 != 0 {
            store.append(&logs[3], &[round as u8; 700], 1_000 + round * 10).unwrap();
        }
        transaction.commit().unwrap();
        match round {
            60 => {
                let (parent, at) = (logs[0].clone(), logs[0].staged().unwrap().tail - 3);
                let fork = Fork { parent, at, asked: [at, 0] };
                store.create(b"fork", &config(), Some(&fork), &payload(b"own"), None).unwrap();
            }
            80 => {
                store.delete(&logs[3], logs[3].staged().unwrap().version, 0, None).unwrap();
            }
            90 | 150 => store.checkpoint().unwrap(),
            120 => {
                let shut = store.log(b"shut").unwrap();
                let producer = Some((&b"somebody"[..], Producer { epoch: 3, seq: 4 }));
                let notes: [(&[u8], &[u8]); 1] = [(b"key", b"value")];
                let last = Commit {
                    producer,
                    writer_seq: Some(b"7"),
                    notes: &notes,
                    close: true,
                    ..payload(b"end")
                };
                store.commit(&shut, 1, &last, None).unwrap();
            }
            _ => {}
        }
    }
    // What is left of those that the deleted one lay among is written anew.
    while store.shared.compact().unwrap() {}
    // Of what is read much each log's bytes are together.
    serve(&store);
    while store.shared.settle().unwrap() {}
    let segments = store.shared.segments.latest();
    assert!(segments.all().iter().any(|segment| segment.header.is_compacted()));
    assert!(segments.all().iter().any(|segment| segment.settled().is_some()));
    store.close().unwrap();
    sim
}

/// Everything a store serves; what it refuses or breaks off for is noted instead.
struct Served {
    held: BTreeMap<Vec<u8>, Held>,
    refused: Vec<Damage>,
}

fn serve(store: &Store) -> Served {
    store.flush().unwrap();
    let mut logs = Vec::new();
    store.visit(|log| logs.push(log.clone()));
    let mut served = Served { held: BTreeMap::new(), refused: Vec::new() };
    for log in logs.iter().filter(|log| log.visible().is_some()) {
        let state = log.visible().unwrap();
        let bytes = match store.read(log, 0, usize::MAX) {
            Ok(read) => read.pieces.concat(),
            Err(ReadError::Damaged(damage)) => {
                served.refused.push(*damage);
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let rows =
            store.reader(log).entries(&Query::default()).map_while(Result::ok).map(|e| row(&e)).collect();
        served.held.insert(log.name().to_vec(), Held { bytes, closed: state.closed, rows });
    }
    served
}

/// Follows a log with a cursor through whatever damage there is. Every entry it brings is one that was
/// written, in order; it breaks off at an end of a transaction, and brings nothing more until it is told to.
fn follow(mut cursor: Cursor, written: &[Row], what: &str) -> Vec<Damage> {
    let (mut next, mut met, mut whole) = (0, Vec::new(), true);
    loop {
        match cursor.next() {
            Ok(Some(entry)) => {
                let entry = row(&entry);
                let skipped = written[next..].iter().position(|row| *row == entry);
                let skipped =
                    skipped.unwrap_or_else(|| panic!("{what}: {entry:?} was never written, or not there"));
                assert!(skipped == 0 || !met.is_empty(), "{what}: passed over {skipped} entries in silence");
                (next, whole) = (next + skipped + 1, entry.2);
            }
            Ok(None) => break,
            Err(ReadError::Damaged(damage)) => {
                assert!(whole, "{what}: broke off within a transaction");
                met.push(*damage);
                assert_eq!(cursor.next(), Ok(None), "{what}: went on by itself");
                cursor.resume();
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
    assert!(
        next == written.len() || !met.is_empty(),
        "{what}: ended early in silence: {next} of {}",
        written.len()
    );
    met
}

/// The same with iterators, which end in front of damage: forwards a part of the beginning, backwards of the
/// end.
fn iterate(store: &Store, log: &Arc<Log>, written: &[Row], what: &str) {
    let mut reader = store.reader(log);
    let (mut ahead, mut broken) = (Vec::new(), false);
    for entry in reader.entries(&Query::default()) {
        assert!(!broken, "{what}: went on by itself");
        entry.map_or_else(|_| broken = true, |entry| ahead.push(row(&entry)));
    }
    let all = ahead.len() == written.len();
    assert!(written.starts_with(&ahead) && (all || broken), "{what}: {} of {}", ahead.len(), written.len());
    let mut folded = Vec::new();
    reader.entries(&Query::default()).for_each(|entry| folded.extend(entry.ok().map(|entry| row(&entry))));
    assert!(folded == ahead, "{what}: {} entries one by one, {} in one loop", ahead.len(), folded.len());
    let (mut back, mut broken) = (Vec::new(), false);
    for entry in reader.entries_back(&Query::default()) {
        assert!(!broken, "{what}: went on by itself, backwards");
        entry.map_or_else(|_| broken = true, |entry| back.push(row(&entry)));
    }
    back.reverse();
    let all = back.len() == written.len();
    assert!(
        written.ends_with(&back) && (all || broken),
        "{what}: {}: backwards {} of {}, missing {:?}",
        String::from_utf8_lossy(log.name()),
        back.len(),
        written.len(),
        written.iter().filter(|row| !back.contains(row)).map(|row| (row.0, row.3.len())).collect::<Vec<_>>()
    );
}

fn names(sim: &SimDisk) -> Vec<(String, u64)> {
    let disk = Disk::Sim(sim.clone());
    let names = disk.names(Path::new(DIRECTORY)).unwrap();
    let length = |name: &String| disk.open(&Path::new(DIRECTORY).join(name)).unwrap().length().unwrap();
    names.into_iter().map(|name| (name.clone(), length(&name))).collect()
}

/// Who noticed a flip: verification always, opening and reading what it has to do with them.
#[derive(Debug, PartialEq, Eq)]
struct Noticed {
    verified: bool,
    served: bool,
}

fn judge(sim: &SimDisk, file: &str, good: &BTreeMap<Vec<u8>, Held>, what: &str) -> Noticed {
    let disk = Disk::Sim(sim.clone());
    let named = |damage: &[Damage]| damage.iter().any(|damage| damage.file == file);
    let says = |error: &OpenError| error.to_string().contains(file);
    let verified = match verify(&disk, Path::new(DIRECTORY)) {
        Ok(report) => named(&report.damage),
        Err(error) => says(&error),
    };
    match Attached::open(&disk, Path::new(DIRECTORY)) {
        Ok(attached) => {
            for (name, known) in good {
                let Some(log) = attached.find(name).unwrap() else {
                    assert!(named(attached.damage()), "{what}: attached, {name:?} is gone");
                    continue;
                };
                follow(attached.reader(&log).follow(&Query::default()), &known.rows, what);
            }
        }
        Err(error) => assert!(says(&error), "{what}: {error}"),
    }
    let (store, report) = match open(sim) {
        Ok(opened) => opened,
        Err(error) => {
            assert!(says(&error), "{what}: {error}");
            return Noticed { verified, served: true };
        }
    };
    let served = serve(&store);
    let mut met = served.refused.clone();
    for (name, held) in &served.held {
        let known = good.get(name).unwrap_or_else(|| panic!("{what}: nobody created {name:?}"));
        assert_eq!((&held.bytes, held.closed), (&known.bytes, known.closed), "{what}: {name:?}");
    }
    for (name, known) in good {
        let Some(log) = store.find(name) else { continue };
        met.extend(follow(store.reader(&log).follow(&Query::default()), &known.rows, what));
        iterate(&store, &log, &known.rows, what);
    }
    let noticed = named(&report.damage) || named(&met);
    let all = good.iter().all(|(name, held)| served.held.get(name) == Some(held));
    assert!(
        noticed || all && met.is_empty(),
        "{what}: something is gone and nobody said why: {met:?} {report:?}"
    );
    Noticed { verified, served: noticed }
}

#[test]
fn a_flipped_bit_is_named_and_nothing_wrong_is_served() {
    let seed = std::env::var("THALWEG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let sim = sample(seed);
    let good = serve(&open(&sim.crash()).unwrap().0);
    assert!(good.refused.is_empty() && good.held.len() == 5, "{:?}", good.held.keys());
    for (name, held) in &good.held {
        let entries = held.rows.iter().map(|row| &row.3[..]).collect::<Vec<_>>().concat();
        let name = String::from_utf8_lossy(name);
        assert!(entries == held.bytes, "{name}: {} of {} bytes", entries.len(), held.bytes.len());
    }
    let files = names(&sim);
    let newest = files.iter().rfind(|(name, _)| name.starts_with("checkpoint-")).unwrap().0.clone();
    assert_eq!(files.iter().filter(|(name, _)| name.starts_with("checkpoint-")).count(), 2);
    assert!(files.iter().filter(|(name, _)| name.starts_with("segment-")).count() > 5, "{files:?}");
    let whole = verify(&Disk::Sim(sim.crash()), Path::new(DIRECTORY)).unwrap();
    assert_eq!((whole.damage, whole.torn_bytes), (vec![], 0));
    let files: Vec<_> = files.into_iter().filter(|(_, length)| *length > 0).collect();
    let mut random = Random::new(seed ^ 0xf11b);
    let (mut hit, mut unnoticed) = (BTreeSet::new(), BTreeMap::new());
    for flip in 0..FLIPS {
        let (file, length) = &files[random.below(files.len() as u64) as usize];
        let (byte, bit) = (random.below(*length), random.below(8) as u8);
        let what = format!("seed {seed}, flip {flip}: bit {bit} of byte {byte} of {file}");
        let flipped = sim.crash();
        flipped.flip(&Path::new(DIRECTORY).join(file), byte as usize, bit);
        let noticed = judge(&flipped, file, &good.held, &what);
        hit.insert(file.clone());
        // In these nothing is that anybody reads.
        if file == "signal" || file == "reserve" {
            assert_eq!(noticed, Noticed { verified: false, served: false }, "{what}");
            continue;
        }
        assert!(noticed.verified, "{what}: verification missed it");
        // Nobody lacks what is settled, and is wrong.
        if !noticed.served && !file.starts_with("settled-") {
            *unnoticed.entry(file.clone()).or_insert(0u32) += 1;
        }
    }
    assert_eq!(hit.len(), files.len(), "every file had its turn");
    let needed = |file: &String| *file == newest || file == "control";
    assert!(unnoticed.keys().all(|file| !needed(file)), "{unnoticed:?}");
    assert!(unnoticed.values().sum::<u32>() < FLIPS as u32 / 5, "{unnoticed:?}");
}

/// What is durable while a store is open moves with every commit, so no checksum covers it.
#[test]
fn control_words_of_a_killed_store_that_name_what_cannot_be_are_not_believed() {
    let sim = SimDisk::new(7, 64 << 20);
    let (store, _) = open(&sim).unwrap();
    store.append(&store.log(b"a").unwrap(), b"kept", 1).unwrap();
    store.flush().unwrap();
    let good = serve(&store).held;
    let killed = sim.crash();
    // The highest bits of the position that is durable.
    for bit in 50..64 {
        let flipped = killed.crash();
        flipped.flip(
            &Path::new(DIRECTORY).join("control"),
            crate::control::DURABLE * 8 + bit / 8,
            (bit % 8) as u8,
        );
        let report = verify(&Disk::Sim(flipped.clone()), Path::new(DIRECTORY)).unwrap();
        assert_eq!(report.damage[0].file, "control", "bit {bit}");
        let (store, report) = open(&flipped).unwrap();
        assert_eq!(report.damage.first().map(|damage| damage.file.as_str()), Some("control"), "bit {bit}");
        assert!(serve(&store).held == good, "bit {bit}");
        store.append(&store.log(b"a").unwrap(), b"more", 1).unwrap();
        store.close().unwrap();
        let report = verify(&Disk::Sim(flipped.clone()), Path::new(DIRECTORY)).unwrap();
        assert_eq!(report.damage, [], "bit {bit}");
    }
}

#[test]
fn control_words_that_do_not_add_up_are_named_and_made_good() {
    let sim = sample(1);
    let good = serve(&open(&sim.crash()).unwrap().0).held;
    // The store's id, the list's version, the end, the next id, the checksum, the four that move, and one
    // unused.
    for word in [2, 3, 4, 5, 6, 8, 16, 24, 32, 300] {
        for bit in [0, 3, 40, 63] {
            let flipped = sim.crash();
            flipped.flip(&Path::new(DIRECTORY).join("control"), word * 8 + bit / 8, (bit % 8) as u8);
            let (store, report) = open(&flipped).unwrap();
            let named: Vec<_> = report.damage.iter().map(|damage| damage.file.as_str()).collect();
            assert_eq!((named, report.clean), (vec!["control"], false), "word {word} bit {bit}");
            assert!(serve(&store).held == good, "word {word} bit {bit}");
            store.append(&store.log(b"a").unwrap(), b"more", 1).unwrap();
            store.close().unwrap();
            let report = verify(&Disk::Sim(flipped.clone()), Path::new(DIRECTORY)).unwrap();
            assert_eq!(report.damage, [], "word {word} bit {bit}");
        }
    }
}

#[test]
fn a_closed_store_stays_as_it_was_whoever_still_holds_it() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(&Disk::Real, directory.path(), options()).unwrap();
    let other = store.clone();
    store.append(&store.log(b"a").unwrap(), b"x", 1).unwrap();
    store.close().unwrap();
    assert!(other.log(b"b").is_err());
    let _ = (other.maintain(10), other.checkpoint(), other.flush(), other.close());
    let held = std::fs::read(directory.path().join("lock")).unwrap();
    assert_eq!(String::from_utf8(held).unwrap(), format!("process {}", std::process::id()));
    drop((store, other));
    assert_eq!(std::fs::metadata(directory.path().join("lock")).unwrap().len(), 0);
    assert_eq!(verify(&Disk::Real, directory.path()).unwrap().damage, []);
    let (_, report) = Store::open(&Disk::Real, directory.path(), options()).unwrap();
    assert!(report.clean && report.damage.is_empty());
}
