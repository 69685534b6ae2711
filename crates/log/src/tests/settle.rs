//! Settling: what is read much lies together and reads as ever, and is the first to go.

use super::store::{config, payload, small};
use crate::settled::file_name;
use crate::{Attached, Disk, Durability, Fork, Log, Offset, Options, Query, Read, Store, Touched, verify};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::sim::{Random, SimDisk};

const DIRECTORY: &str = "/store";
const LOGS: u64 = 4;

fn open(disk: &Disk, directory: &Path, options: Options) -> Store {
    let (store, report) = Store::open(disk, directory, options).unwrap();
    assert_eq!(report.damage, []);
    store
}

fn name(log: u64) -> Vec<u8> {
    format!("log-{log}").into_bytes()
}

/// Records of several logs in turn, across segments of which the last one is empty.
pub(super) fn fill(store: &Store, records: u64, length: u64) {
    let mut random = Random::new(records ^ length);
    for record in 0..records {
        let log = store.log(&name(record % LOGS)).unwrap();
        let bytes: Vec<u8> = (0..1 + random.below(length)).map(|byte| (record * 31 + byte) as u8).collect();
        store.append(&log, &bytes, 1_000 + record).unwrap();
    }
    store.rotate().unwrap();
    store.flush().unwrap();
}

fn logs(store: &Store) -> Vec<Arc<Log>> {
    let mut logs = store.logs();
    logs.sort_by_key(|log| log.id());
    logs
}

fn all(store: &Store, log: &Log) -> Vec<u8> {
    store.read(log, log.visible().unwrap().first, usize::MAX).unwrap().pieces.concat()
}

/// Reads everything, as often as it takes, until all is settled that can be.
pub(super) fn settle(store: &Store) -> usize {
    for _ in 0..8 {
        logs(store).iter().for_each(|log| drop(all(store, log)));
    }
    while store.shared.settle().unwrap() {}
    settled(store).len()
}

fn settled(store: &Store) -> Vec<u32> {
    let view = store.shared.segments.latest();
    let of = |segment: &Arc<crate::segment::Segment>| segment.settled().map(|_| segment.header.number);
    view.all().iter().filter_map(of).collect()
}

fn files(directory: &Path) -> usize {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("settled-")).count()
}

/// What a read says, but where its bytes are.
fn said(read: &Read) -> (Vec<u8>, Offset, bool, bool, bool) {
    (read.pieces.concat(), read.next, read.at_tail, read.closed, read.inside)
}

/// Where records begin, and where the last one ends.
fn bounds(store: &Store, log: &Arc<Log>) -> Vec<Offset> {
    let mut bounds: Vec<Offset> =
        store.reader(log).entries(&Query::default()).map(|entry| entry.unwrap().offset).collect();
    bounds.push(log.visible().unwrap().tail);
    bounds
}

/// Every read, of any length and from anywhere, says what it said before, and ends where a record does.
fn compare(store: &Store, log: &Arc<Log>, bytes: &[u8], random: &mut Random) {
    let (first, bounds) = (log.visible().unwrap().first, bounds(store, log));
    assert!(all(store, log) == bytes);
    for _ in 0..200 {
        let from = random.below(bytes.len() as u64);
        let limit = 1 + random.below(bytes.len() as u64) as usize;
        let read = store.read(log, first + from, limit).unwrap();
        let (got, next, at_tail, _, inside) = said(&read);
        assert!(got == bytes[from as usize..(next - first) as usize]);
        assert_eq!(at_tail, next == first + bytes.len() as u64);
        assert_eq!(inside, bounds.binary_search(&(first + from)).is_err(), "from {from}");
        let place = bounds.binary_search(&next).expect("it ends where a record does");
        // At least one, and no more than fit.
        assert!(got.len() <= limit || bounds[place - 1] <= first + from, "{} of {limit}", got.len());
    }
}

#[test]
fn what_is_settled_reads_as_it_did_from_anywhere_in_any_parts() {
    let disk = Disk::Sim(SimDisk::new(1, 64 << 20));
    let store = open(&disk, Path::new(DIRECTORY), small());
    fill(&store, 3_000, 90);
    let mut random = Random::new(5);
    let parent = store.find(&name(1)).unwrap();
    // Forks of forks, one in the middle of a record, and one that is trimmed.
    for (source, child, part) in [(name(1), &b"fork"[..], 3), (b"fork".to_vec(), b"of-a-fork", 2)] {
        let parent = store.find(&source).unwrap();
        let at = parent.staged().unwrap().tail / part + 1;
        let fork = Fork { parent, at, asked: [at, 0] };
        store.create(child, &config(), Some(&fork), &payload(b"own"), None).unwrap();
    }
    let trim = crate::Commit { trim: Some(parent.visible().unwrap().tail / 5 + 2), ..Default::default() };
    store.commit(&parent, parent.staged().unwrap().version, &trim, None).unwrap();
    store.flush().unwrap();
    fill(&store, 1_000, 40);
    let before: Vec<(Arc<Log>, Vec<u8>)> =
        logs(&store).into_iter().map(|log| (log.clone(), all(&store, &log))).collect();
    let segments = store.stats().segments as usize;
    assert!(segments > 5 && settle(&store) >= segments - 3, "{:?} of {segments}", settled(&store));
    for (log, bytes) in &before {
        compare(&store, log, bytes, &mut random);
    }
    // A deleted parent's bytes are its forks'.
    store.delete(&parent, parent.staged().unwrap().version, 9_000, None).unwrap();
    store.flush().unwrap();
    store.close().unwrap();
    let kept = settled(&store);
    drop((store, parent));
    assert_eq!(verify(&disk, Path::new(DIRECTORY)).unwrap().damage, []);
    let store = open(&disk, Path::new(DIRECTORY), small());
    assert_eq!(settled(&store), kept, "and it is found again");
    for (log, bytes) in &before {
        let Some(log) = store.find(log.name()).filter(|log| log.visible().is_some()) else { continue };
        compare(&store, &log, bytes, &mut random);
    }
}

#[test]
fn large_stretches_are_lent_from_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes_min: 4 << 20, segment_bytes_max: 4 << 20, ..Options::default() };
    let store = open(&Disk::Real, directory.path(), options.clone());
    fill(&store, 8_000, 500);
    let log = store.find(&name(2)).unwrap();
    let bytes = all(&store, &log);
    assert!(store.read(&log, 0, usize::MAX).unwrap().pieces.iter().all(|piece| piece.file.is_none()));
    assert_eq!(settle(&store), 1);
    assert!(store.stats().settled_bytes > 3 * bytes.len() as u64);
    let lent = |store: &Store, log: &Log| {
        let read = store.read(log, 0, usize::MAX).unwrap();
        assert_eq!(read.pieces.len(), 1);
        let piece = &read.pieces[0];
        let (file, at) = piece.file.clone().expect("it is lent");
        let mut there = vec![0; piece.bytes.len()];
        std::os::unix::fs::FileExt::read_exact_at(&fs::File::from(file.try_clone().unwrap()), &mut there, at)
            .unwrap();
        assert!(there == bytes && piece.bytes == bytes);
    };
    lent(&store, &log);
    store.close().unwrap();
    drop((store, log));
    // Nobody has looked at it yet in this life: a read that does not wait is told so, once.
    let store = open(&Disk::Real, directory.path(), options);
    let log = store.find(&name(2)).unwrap();
    let mut warmed = 0;
    while let Some(prefetch) = store.needs_disk(&log, 0, usize::MAX) {
        prefetch.run();
        warmed += 1;
    }
    assert_eq!(warmed, 2, "what tells where it is, and what is there");
    lent(&store, &log);
}

#[test]
fn only_what_is_copied_much_is_settled_and_only_once_it_is_sealed() {
    let store = open(&Disk::Sim(SimDisk::new(1, 64 << 20)), Path::new(DIRECTORY), small());
    fill(&store, 60, 100);
    let log = store.find(&name(0)).unwrap();
    let held = store.shared.segments.latest().all()[0].header.held_bytes();
    let bytes: u64 = log.lock().extents.of_segment(1).iter().map(|one| u64::from(one.length)).sum();
    let reads = held.div_ceil(4).div_ceil(bytes);
    assert!(reads > 2, "{held} bytes, {bytes} each");
    for _ in 1..reads {
        all(&store, &log);
        assert!(!store.shared.settle().unwrap() && settled(&store).is_empty());
    }
    all(&store, &log);
    assert!(!store.shared.settle().unwrap());
    assert_eq!(settled(&store), [1]);
    // What is there is not settled again, and what is written to not yet.
    store.append(&log, &[7; 2_000], 9_000).unwrap();
    store.flush().unwrap();
    let active = log.lock().extents.all().last().unwrap().offset;
    (0..50).for_each(|_| drop(store.read(&log, active, usize::MAX).unwrap()));
    assert!(!store.shared.settle().unwrap());
    assert_eq!(settled(&store), [1]);
}

/// A cursor that follows a log reads everything, and nothing of it is history.
#[test]
fn what_is_read_as_it_comes_is_not_settled() {
    let store = open(&Disk::Sim(SimDisk::new(1, 64 << 20)), Path::new(DIRECTORY), small());
    let log = store.log(b"log").unwrap();
    let mut next = 0;
    for time in 0..1_000 {
        store.append(&log, &[7; 50], time).unwrap();
        store.flush().unwrap();
        (0..3).for_each(|_| drop(store.read(&log, next, usize::MAX).unwrap()));
        next = store.read(&log, next, usize::MAX).unwrap().next;
        store.shared.settle().unwrap();
    }
    assert!(store.stats().segments > 3);
    assert_eq!(settled(&store), []);
}

#[test]
fn who_does_not_want_it_does_not_get_it_nor_does_what_is_large() {
    let options = Options { settles: false, ..small() };
    let store = open(&Disk::Sim(SimDisk::new(1, 64 << 20)), Path::new(DIRECTORY), options);
    fill(&store, 200, 100);
    assert_eq!(settle(&store), 0);
    let disk = Disk::Sim(SimDisk::new(2, 64 << 20));
    let options = Options { segment_bytes_min: 65_536, ..small() };
    let store = open(&disk, Path::new(DIRECTORY), options);
    // What most of its bytes lie in decides, whatever it begins with.
    let records: [(&[u8], &[usize], bool); 4] = [
        (b"large", &[5_000; 5], false),
        (b"mostly-large", &[50, 5_000, 50], false),
        (b"mostly-small", &[5_000, 3_000, 3_000], true),
        (b"small", &[50; 10], true),
    ];
    for (name, lengths, _) in records {
        let log = store.log(name).unwrap();
        lengths.iter().for_each(|length| assert!(store.append(&log, &vec![1; *length], 7).is_ok()));
    }
    store.rotate().unwrap();
    store.flush().unwrap();
    (0..100).for_each(|_| logs(&store).iter().for_each(|log| drop(all(&store, log))));
    store.shared.settle().unwrap();
    let view = store.shared.segments.latest();
    for (name, _, is_settled) in records {
        let (log, settled) = (store.find(name).unwrap(), view.all()[0].settled().unwrap());
        let way = settled.way(log.id(), 0, Offset::MAX, Offset::MAX);
        assert_eq!(way.is_some(), is_settled, "{}", String::from_utf8_lossy(name));
    }
}

#[test]
fn what_is_wrong_with_it_harms_nobody_and_is_made_good() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&Disk::Real, directory.path(), small());
    fill(&store, 600, 100);
    let held: Vec<Vec<u8>> = logs(&store).iter().map(|log| all(&store, log)).collect();
    let count = settle(&store);
    let first = settled(&store)[0];
    store.close().unwrap();
    drop(store);
    let path = directory.path().join(file_name(first));
    let whole = fs::read(&path).unwrap();
    for (damage, at_opening) in
        [("payload", false), ("ranges", false), ("end", true), ("cut", true), ("empty", true)]
    {
        let mut bytes = whole.clone();
        match damage {
            "payload" => bytes[5] ^= 1,
            "ranges" => {
                let ranges = bytes.len() - 64 - 10;
                bytes[ranges] ^= 1;
            }
            "end" => *bytes.last_mut().unwrap() ^= 1,
            "cut" => bytes.truncate(whole.len() - 1),
            _ => bytes.clear(),
        }
        fs::write(&path, &bytes).unwrap();
        let named = verify(&Disk::Real, directory.path()).unwrap().damage;
        assert_eq!(
            (named.len(), &named[0].file, &named[0].logs),
            (1, &file_name(first), &Touched::Nobody),
            "{damage}"
        );
        let store = open(&Disk::Real, directory.path(), small());
        assert_eq!(settled(&store).len(), count - usize::from(at_opening), "{damage}");
        for (log, bytes) in logs(&store).iter().zip(&held) {
            assert!(&all(&store, log) == bytes, "{damage}");
        }
        assert_eq!((settled(&store).len(), store.damage()), (count - 1, vec![]), "{damage}");
        assert_eq!(settle(&store), count, "{damage}: it is made anew");
        store.close().unwrap();
        assert_eq!(verify(&Disk::Real, directory.path()).unwrap().damage, [], "{damage}");
    }
}

#[test]
fn it_goes_with_its_segment() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&Disk::Real, directory.path(), Options { rest_parts: 0, ..small() });
    fill(&store, 600, 100);
    assert!(settle(&store) > 2 && files(directory.path()) == settled(&store).len());
    let stale = fs::read(directory.path().join(file_name(1))).unwrap();
    // Written anew without the other three's, segments have to be worth it once more.
    for log in 1..LOGS {
        let log = store.find(&name(log)).unwrap();
        store.delete(&log, log.staged().unwrap().version, 3_000, None).unwrap();
    }
    super::compact::reclaim(&store);
    assert_eq!((files(directory.path()), settled(&store)), (0, vec![]));
    assert!(settle(&store) > 0 && files(directory.path()) == settled(&store).len());
    // What a crash left of before is more than is needed.
    store.close().unwrap();
    drop(store);
    fs::write(directory.path().join(file_name(1)), stale).unwrap();
    let store = open(&Disk::Real, directory.path(), Options { rest_parts: 0, ..small() });
    assert!(!settled(&store).contains(&1) && files(directory.path()) == settled(&store).len());
    assert!(settle(&store) > 0);
    let last = store.find(&name(0)).unwrap();
    store.delete(&last, last.staged().unwrap().version, 3_000, None).unwrap();
    super::compact::reclaim(&store);
    super::compact::reclaim(&store);
    assert_eq!((files(directory.path()), settled(&store)), (0, vec![]), "removed");
    // What is left of one that is not there any more is removed when the store is opened.
    store.close().unwrap();
    drop((store, last));
    fs::write(directory.path().join(file_name(1)), b"whatever").unwrap();
    fs::write(directory.path().join(file_name(99)), b"whatever").unwrap();
    open(&Disk::Real, directory.path(), small());
    assert_eq!(files(directory.path()), 0);
}

#[test]
fn it_is_given_up_where_the_store_has_a_bound_or_the_disk_is_full() {
    let sim = SimDisk::new(1, 64 << 20);
    let options = Options { retain_bytes: Some(40 << 10), segment_bytes_max: 8192, ..small() };
    let store = open(&Disk::Sim(sim.clone()), Path::new(DIRECTORY), options);
    fill(&store, 120, 100);
    let segments = settle(&store);
    let held = |store: &Store| store.stats().segment_bytes + store.stats().settled_bytes;
    assert!(segments > 0 && held(&store) <= 40 << 10, "{} bytes", held(&store));
    fill(&store, 150, 100);
    store.shared.settle().unwrap();
    assert!(settled(&store).len() < segments, "segments come first");
    assert!(settled(&store).is_empty() || held(&store) <= 40 << 10, "{} bytes", held(&store));
    let sim = SimDisk::new(2, 64 << 20);
    let store = open(&Disk::Sim(sim.clone()), Path::new(DIRECTORY), small());
    fill(&store, 600, 100);
    assert!(settle(&store) > 2);
    let log = store.find(&name(0)).unwrap();
    sim.set_space(sim.used_bytes());
    while store.append(&log, &[1; 3_000], 9_000).is_ok() {}
    store.shared.settle().unwrap();
    assert_eq!(settled(&store), [], "what can be had again makes room for what cannot");
    assert!(store.append(&log, &[1; 3_000], 9_000).is_ok());
}

#[test]
fn nobody_else_notices() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&Disk::Real, directory.path(), small());
    fill(&store, 600, 100);
    let rows =
        |entries: crate::Entries<'_>| entries.map(|entry| entry.unwrap().data.to_vec()).collect::<Vec<_>>();
    let log = store.find(&name(3)).unwrap();
    let before = rows(store.reader(&log).entries(&Query::default()));
    assert!(settle(&store) > 2);
    assert_eq!(rows(store.reader(&log).entries(&Query::default())), before);
    let neighbour = Attached::open(&Disk::Real, directory.path()).unwrap();
    let log = neighbour.find(&name(3)).unwrap().unwrap();
    assert_eq!(rows(neighbour.reader(&log).entries(&Query::default())), before);
    // A backup does without.
    let copy = directory.path().join("copy");
    crate::backup(&Disk::Real, directory.path(), &copy).unwrap();
    assert!(files(&copy) == 0 && verify(&Disk::Real, &copy).unwrap().damage.is_empty());
}

/// A power cut takes the end of a segment that was settled, and others are written in its place.
#[test]
fn what_a_crash_took_is_not_served_from_what_was_settled() {
    let mut taken = 0;
    for seed in 0..40 {
        let sim = SimDisk::new(seed, 64 << 20);
        let sizes = Options { segment_bytes_min: 16_384, ..small() };
        let options = Options { durability: Durability::Os, committer_thread: false, ..sizes };
        let store = open(&Disk::Sim(sim.clone()), Path::new(DIRECTORY), options.clone());
        let log = store.log(b"log").unwrap();
        let fill = |store: &Store, log: &Arc<Log>, byte: u8| {
            (0..30).for_each(|time| assert!(store.append(log, &[byte; 50], time).is_ok()));
        };
        fill(&store, &log, b'a');
        store.flush().unwrap();
        fill(&store, &log, b'b');
        store.rotate().unwrap();
        (0..40).for_each(|_| drop(all(&store, &log)));
        store.shared.settle().unwrap();
        assert!(settled(&store).contains(&1));
        let before = all(&store, &log);
        let crashed = Disk::Sim(sim.crash());
        drop((store, log));
        let store = open(&crashed, Path::new(DIRECTORY), options.clone());
        let log = store.find(b"log").unwrap();
        let mut expected = all(&store, &log);
        assert!(before.starts_with(&expected));
        taken += u32::from(expected.len() < before.len() && settled(&store).is_empty());
        for byte in [b'c', b'd'] {
            fill(&store, &log, byte);
            store.rotate().unwrap();
            expected.extend([byte; 1_500]);
            assert!(all(&store, &log) == expected, "seed {seed}");
        }
        store.close().unwrap();
        drop((store, log));
        assert_eq!(verify(&crashed, Path::new(DIRECTORY)).unwrap().damage, []);
        let store = open(&crashed, Path::new(DIRECTORY), options);
        assert!(all(&store, &store.find(b"log").unwrap()) == expected, "seed {seed}");
    }
    assert!(taken > 10, "{taken} ends were taken");
}
