//! Compaction: what is needed stays where it was and reads as ever, what is not gives its room back.

use super::store::os;
use crate::{
    Attached, Columns, Commit, Config, Cursor, Lifetime, Log, Options, Purge, Query, ReadError, Start, Store,
    verify,
};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::Disk;
use thalweg_sys::disk::sim::SimDisk;

const SMALL: usize = 40;
/// Several pages, so that what goes leaves whole ones.
const LARGE: usize = 20_000;
const ROUNDS: u64 = 600;

fn options() -> Options {
    Options { segment_bytes_min: 512 << 10, segment_bytes_max: 512 << 10, ..Options::default() }
}

pub(super) fn open(directory: &Path) -> Store {
    let (store, report) = Store::open(&Disk::Real, directory, options()).unwrap();
    assert_eq!(report.damage, []);
    store
}

fn payload(round: u64, length: usize) -> Vec<u8> {
    (0..length).map(|index| (round as usize * 31 + index) as u8).collect()
}

/// Two logs side by side: one that stays and one that goes, with notes and a log without payload between
/// them.
pub(super) fn fill(store: &Store) -> (Arc<Log>, Arc<Log>) {
    let config = Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited };
    store.create(b"empty", &config, None, &Commit::default(), None).unwrap();
    let (stays, goes) = (store.log(b"stays").unwrap(), store.log(b"goes").unwrap());
    for round in 0..ROUNDS {
        store.append(&stays, &payload(round, SMALL), 1_000 + round).unwrap();
        store.append(&goes, &payload(round, LARGE), 1_000 + round).unwrap();
        if round % 50 == 0 {
            let commit = Commit { notes: &[(b"round", &round.to_le_bytes())], ..Commit::default() };
            let version = stays.staged().unwrap().version;
            store.commit(&stays, version, &commit, None).unwrap();
        }
    }
    store.flush().unwrap();
    (stays, goes)
}

/// Two checkpoints, with something new in between, and a look at what can be compacted until there is no
/// more.
pub(super) fn reclaim(store: &Store) {
    for time in 0..2 {
        store.append(&store.log(b"later").unwrap(), b"x", 5_000 + time).unwrap();
        store.rotate().unwrap();
        store.checkpoint().unwrap();
    }
    while store.shared.compact().unwrap() {}
}

fn disk_bytes(directory: &Path) -> u64 {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let segments = names.filter(|entry| entry.file_name().to_string_lossy().starts_with("segment-"));
    segments.map(|entry| entry.metadata().unwrap().blocks() * 512).sum()
}

pub(super) fn stays(log: &Arc<Log>, store: &Store) {
    let read = store.read(log, 0, usize::MAX).unwrap();
    let expected: Vec<u8> = (0..ROUNDS).flat_map(|round| payload(round, SMALL)).collect();
    assert!(read.pieces.concat() == expected && read.at_tail);
    let mut reader = store.reader(log);
    let times = |query: &Query, reader: &mut crate::Reader| -> Vec<u64> {
        reader.entries(query).map(|entry| entry.unwrap().time).collect()
    };
    let all: Vec<u64> = (1_000..1_000 + ROUNDS).collect();
    assert_eq!(times(&Query::default(), &mut reader), all);
    for (from, to) in [(1_000, 1_001), (1_123, 1_400), (1_599, 2_000)] {
        let some: Vec<u64> = (from..to.min(1_000 + ROUNDS)).collect();
        assert_eq!(times(&Query::between(from, to), &mut reader), some);
    }
    let mut back: Vec<u64> =
        reader.entries_back(&Query::default()).map(|entry| entry.unwrap().time).collect();
    back.reverse();
    assert_eq!(back, all);
    assert_eq!(store.since(log, 1_300).unwrap(), Some(300 * SMALL as u64));
    assert_eq!(*log.notes()[0].1, 550u64.to_le_bytes());
}

#[test]
fn what_is_gathered_while_its_segment_is_compacted_lies_in_the_map_that_holds_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let goes = store.log(b"goes").unwrap();
    (0..3).for_each(|round| assert!(store.append(&goes, &payload(round, LARGE), 900).is_ok()));
    store.flush().unwrap();
    let mut cursor = store.reader(&goes).follow(&Query::default());
    fill(&store);
    let purge = Purge { log: Some(b"goes"), before: Some(1_590), ..Purge::default() };
    assert_eq!(store.purge(&purge).unwrap().len(), 1);
    reclaim(&store);
    assert!(store.maps().segments().unwrap()[0].number == 1, "compacted, and not removed");
    let mut gathered = 0;
    loop {
        let (mut times, mut offsets, mut lengths, mut places) = ([0; 8], [0; 8], [0; 8], [0; 8]);
        let mut columns =
            Columns { times: &mut times, offsets: &mut offsets, lengths: &mut lengths, places: &mut places };
        let batch = cursor.gather(&mut columns).unwrap();
        if batch.count == 0 {
            break;
        }
        let view = cursor.reader().source.view();
        let bytes =
            view.find(crate::segment_of(batch.position)).unwrap().region().bytes(0..batch.end).to_vec();
        for entry in 0..batch.count {
            let round = if times[entry] == 900 { gathered } else { times[entry] - 1_000 };
            let (from, length) = (places[entry] as usize, lengths[entry] as usize);
            assert!(bytes[from..from + length] == payload(round, LARGE), "entry {gathered} of {times:?}");
            gathered += 1;
        }
    }
    // Those that were visible to it before, those that are left, and whatever had not gone from the files
    // yet.
    assert!(gathered >= 3 + 10, "{gathered}");
}

#[test]
fn what_is_needed_reads_as_ever_and_the_rest_gives_its_room_back() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let (log, goes) = fill(&store);
    let neighbour = Attached::open(&Disk::Real, directory.path()).unwrap();
    let attached = neighbour.find(b"stays").unwrap().unwrap();
    let mut half = neighbour.reader(&attached).follow(&Query::default());
    let read: Vec<u64> = (0..ROUNDS / 2).map(|_| half.next().unwrap().unwrap().time).collect();
    let before = disk_bytes(directory.path());
    store.delete(&goes, goes.staged().unwrap().version, 3_000, None).unwrap();
    reclaim(&store);
    let after = disk_bytes(directory.path());
    assert!(after * 2 < before, "{before} bytes became {after}");
    assert!(store.stats().segment_bytes < before);
    stays(&log, &store);
    // A reader in another process that reads on, and one that begins now.
    let rest: Vec<u64> = std::iter::from_fn(|| half.next().unwrap().map(|entry| entry.time)).collect();
    assert_eq!([read, rest].concat(), (1_000..1_000 + ROUNDS).collect::<Vec<_>>());
    let anew = Attached::open(&Disk::Real, directory.path()).unwrap();
    let found = anew.find(b"stays").unwrap().unwrap();
    assert_eq!(anew.reader(&found).entries(&Query::default()).count() as u64, ROUNDS);
    drop((neighbour, anew));
    store.close().unwrap();
    drop((log, goes, store));
    assert_eq!(verify(&Disk::Real, directory.path()).unwrap().damage, []);
    let store = open(directory.path());
    stays(&store.find(b"stays").unwrap(), &store);
    assert!(store.find(b"goes").is_none() && store.find(b"empty").is_some());
    // Compacted once more, when more of it has gone.
    store.purge(&Purge { log: Some(b"stays"), before: Some(1_400), ..Purge::default() }).unwrap();
    reclaim(&store);
    let log = store.find(b"stays").unwrap();
    assert_eq!(store.reader(&log).entries(&Query::default()).count() as u64, ROUNDS - 400);
    store.close().unwrap();
    drop((log, store));
    assert_eq!(verify(&Disk::Real, directory.path()).unwrap().damage, []);
}

/// Rounds of logs side by side of which one is deleted, one expires and one keeps its newest entries; one
/// stays as it is.
#[test]
fn files_stay_proportional_to_what_is_live() {
    const CHECKPOINT: u64 = 1 << 20;
    const ROUNDS: u64 = 60;
    const SEGMENT: u32 = 256 << 10;
    let directory = tempfile::tempdir().unwrap();
    let sizes = Options { segment_bytes_min: SEGMENT, segment_bytes_max: SEGMENT, ..Options::default() };
    let more = Options { checkpoint_bytes: CHECKPOINT, rest_parts: 0, ..sizes };
    let (store, _) = Store::open(&Disk::Real, directory.path(), more).unwrap();
    let text = |lifetime| Config { content_type: "text/plain".into(), lifetime };
    let bounds = [0u64.to_le_bytes(), (400_000u64).to_le_bytes()].concat();
    let sized = Commit { notes: &[(crate::RETAIN_NOTE, &bounds)], ..Commit::default() };
    store.create(b"sized", &text(Lifetime::Unlimited), None, &sized, None).unwrap();
    let (mut written, mut most) = (0, 0);
    for round in 0..ROUNDS {
        let now = (round + 1) * 1_000_000;
        let expires = text(Lifetime::Until { expires_us: now + 500_000 });
        let _ = store.create(b"expires", &expires, None, &Commit::default(), None);
        for entry in 0..10 {
            for name in [&b"deleted"[..], b"sized", b"expires", b"stays"] {
                let length = if name == b"stays" { 400 } else { LARGE };
                let payload = payload(round * 10 + entry, length);
                store.append(&store.log(name).unwrap(), &payload, now).unwrap();
                written += length as u64;
            }
        }
        store.flush().unwrap();
        let deleted = store.log(b"deleted").unwrap();
        store.delete(&deleted, deleted.staged().unwrap().version, now, None).unwrap();
        store.maintain(now + 600_000).unwrap();
        store.flush().unwrap();
        // The committer makes room at the same time: what it takes away between the list and the look is no
        // more.
        let sizes = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().metadata());
        let taken = |known: io::Result<Metadata>| match known {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            known => known.unwrap().blocks() * 512,
        };
        let files: u64 = sizes.map(taken).sum();
        most = most.max(files);
        // What came since the older of two checkpoints, each of which comes with the first look after this
        // many bytes; the segment that is written to, the next one; and a page or two for what is live beside
        // them.
        let between = CHECKPOINT + written / (round + 1);
        let bound = 3 * store.stats().live_bytes + 3 * between + 4 * u64::from(SEGMENT);
        assert!(files <= bound, "round {round}: {files} bytes of files, {bound} allowed");
    }
    assert!(store.find(b"expires").is_none());
    assert!(most * 3 < written, "{most} bytes at most, {written} were written: too few to tell");
    let stays = store.find(b"stays").unwrap();
    assert_eq!(store.read(&stays, 0, usize::MAX).unwrap().pieces.concat().len(), ROUNDS as usize * 10 * 400);
}

#[test]
fn a_reader_whose_place_is_gone_goes_on_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let (log, goes) = fill(&store);
    let mut cursors: Vec<Cursor> = Vec::new();
    for (log, count) in [(&log, 3), (&log, 100), (&goes, 100), (&log, 599)] {
        let mut cursor = store.reader(log).follow(&Query::default());
        for _ in 0..count {
            cursor.next().unwrap().unwrap();
        }
        cursors.push(cursor);
    }
    store.purge(&Purge { log: Some(b"goes"), before: Some(1_500), ..Purge::default() }).unwrap();
    store.purge(&Purge { log: Some(b"stays"), before: Some(1_200), ..Purge::default() }).unwrap();
    reclaim(&store);
    // Those that were under way keep the map they have, or go on behind what is gone: nothing that is left is
    // missed.
    for (cursor, (stood, left)) in
        cursors.iter_mut().zip([(1_003, 1_200), (1_100, 1_200), (1_100, 1_500), (1_599, 1_599)])
    {
        let times: Vec<u64> = std::iter::from_fn(|| cursor.next().unwrap().map(|entry| entry.time)).collect();
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]) && times[0] >= stood, "{times:?}");
        assert!(times.iter().filter(|time| **time >= left).count() as u64 == 1_600 - left, "{times:?}");
    }
    let from = store.read(&log, 0, usize::MAX);
    assert!(matches!(from, Err(ReadError::Purged { first, .. }) if first == 200 * SMALL as u64));
    assert_eq!(store.reader(&log).entries(&Query::from(Start::Time(1_100))).count(), 400);
}

/// A segment in which a bit flipped since it was opened, in front of more than one look takes.
#[test]
fn what_does_not_read_as_it_was_written_is_looked_at_once_and_keeps_nothing_behind_it_from_going() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let (stays, goes) = (store.log(b"stays").unwrap(), store.log(b"goes").unwrap());
    for round in 0..500 {
        store.append(&stays, &payload(round, SMALL), 1_000).unwrap();
        store.append(&goes, &payload(round, LARGE), 1_000).unwrap();
    }
    store.rotate().unwrap();
    store.flush().unwrap();
    let first = directory.path().join(crate::segment::file_name(1));
    let mut bytes = std::fs::read(&first).unwrap();
    bytes[30_000] ^= 1;
    std::fs::write(&first, bytes).unwrap();
    store.delete(&goes, goes.staged().unwrap().version, 3_000, None).unwrap();
    for time in 0..2 {
        store.append(&stays, b"x", 5_000 + time).unwrap();
        store.rotate().unwrap();
        store.checkpoint().unwrap();
    }
    let before = disk_bytes(directory.path());
    let looks = (1..=100).find(|_| !store.shared.compact().unwrap());
    assert!(looks.is_some_and(|looks| looks > 3), "{looks:?} looks");
    let given_back = before - disk_bytes(directory.path());
    assert!(given_back > 5_000_000, "{given_back} bytes");
    let compacted = |store: &Store| -> Vec<bool> {
        store.shared.segments.latest().all().iter().map(|segment| segment.header.is_compacted()).collect()
    };
    assert!(!compacted(&store)[0] && compacted(&store)[1], "what is damaged is left to be looked at");
    let (version, as_it_is) = (store.shared.control.segments_version(), compacted(&store));
    assert!(!store.shared.compact().unwrap());
    assert_eq!((store.shared.control.segments_version(), compacted(&store)), (version, as_it_is));
    // Nothing of it is needed: it goes, whatever it reads as.
    store.purge(&Purge { log: Some(b"stays"), before: Some(1_001), ..Purge::default() }).unwrap();
    reclaim(&store);
    assert!(!first.exists() && disk_bytes(directory.path()) * 4 < before);
}

#[test]
fn forks_keep_what_they_inherit() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let (_, goes) = fill(&store);
    let config = Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited };
    let at = 10 * LARGE as u64;
    let fork = crate::Fork { parent: goes.clone(), at, asked: [at, 0] };
    let (fork, _) = store.create(b"fork", &config, Some(&fork), &Commit::default(), None).unwrap();
    store.delete(&goes, goes.staged().unwrap().version, 3_000, None).unwrap();
    drop(goes);
    reclaim(&store);
    let expected: Vec<u8> = (0..10).flat_map(|round| payload(round, LARGE)).collect();
    assert_eq!(store.read(&fork, 0, usize::MAX).unwrap().pieces.concat(), expected);
}

#[test]
fn a_bit_that_flips_in_a_compacted_segment_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let (log, goes) = fill(&store);
    store.delete(&goes, goes.staged().unwrap().version, 3_000, None).unwrap();
    reclaim(&store);
    let view = store.shared.segments.latest();
    let compacted = view.all().iter().find(|segment| segment.header.is_compacted()).unwrap();
    let path = directory.path().join(crate::segment::file_name(compacted.header.number));
    store.close().unwrap();
    drop((log, goes, view, store));
    let whole = std::fs::read(&path).unwrap();
    for byte in (0..whole.len()).step_by(9_973).chain([64, 72, 110, 118, 130, 145, 152, 400]) {
        let mut flipped = whole.clone();
        flipped[byte] ^= 1 << (byte % 8);
        std::fs::write(&path, &flipped).unwrap();
        let report = verify(&Disk::Real, directory.path()).unwrap();
        assert!(!report.damage.is_empty(), "byte {byte} of {}", whole.len());
    }
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(verify(&Disk::Real, directory.path()).unwrap().damage, []);
}

#[test]
fn without_its_checkpoints_a_compacted_store_says_what_it_cannot_know() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let (log, goes) = fill(&store);
    store.delete(&goes, goes.staged().unwrap().version, 3_000, None).unwrap();
    reclaim(&store);
    store.close().unwrap();
    drop((log, goes, store));
    for entry in std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap) {
        if entry.file_name().to_string_lossy().starts_with("checkpoint-") {
            std::fs::write(entry.path(), b"not one").unwrap();
        }
    }
    let (_, report) = Store::open(&Disk::Real, directory.path(), options()).unwrap();
    assert!(report.unnamed.is_some(), "{report:?}");
}

/// In `os` mode a delete is seen before it is durable: what it frees must not go before that.
#[test]
fn no_segment_goes_before_what_emptied_it_is_durable() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed, 64 << 20);
        let reopen =
            |disk: &SimDisk| Store::open(&Disk::Sim(disk.clone()), Path::new("/store"), os()).unwrap();
        let (store, _) = reopen(&disk);
        let (old, new) = (store.log(b"old").unwrap(), store.log(b"new").unwrap());
        for _ in 0..12 {
            store.append(&old, &[1; 9_000], 1).unwrap();
        }
        for _ in 0..12 {
            store.append(&new, &[2; 9_000], 1).unwrap();
        }
        for _ in 0..2 {
            store.append(&new, b"and on", 2).unwrap();
            store.checkpoint().unwrap();
        }
        store.delete(&old, old.staged().unwrap().version, 3, None).unwrap();
        let before = store.stats().segments;
        store.shared.drop_dead_segments();
        assert!(store.stats().segments < before);
        disk.write_back();
        let (_, found) = reopen(&disk.crash());
        assert_eq!(found.damage, [], "seed {seed}");
    }
}

/// A directory is read piece by piece, and a segment takes its own place when it is compacted.
#[test]
fn a_segment_that_a_listing_passed_over_is_not_missing() {
    let (sim, from) = (SimDisk::new(1, 64 << 20), Path::new("/store"));
    let disk = Disk::Sim(sim.clone());
    let (store, _) = Store::open(&disk, from, Options { committer_thread: false, ..os() }).unwrap();
    let (log, passing) = (store.log(b"a").unwrap(), store.log(b"passing").unwrap());
    for _ in 0..60 {
        store.append(&passing, &[7; 2000], 1).unwrap();
        store.append(&log, b"x", 1).unwrap();
    }
    store.delete(&passing, passing.staged().unwrap().version, 2, None).unwrap();
    reclaim(&store);
    let view = store.shared.segments.latest();
    let compacted = view.all().iter().find(|segment| segment.header.is_compacted()).unwrap();
    let path = from.join(crate::segment::file_name(compacted.header.number));
    let backup_of = |count: u32| {
        let to = format!("/backup-{count}");
        assert!(store.backup(Path::new(&to)).is_ok(), "backup {count}");
    };
    let verified = |count: u32| assert_eq!(verify(&disk, from).unwrap().damage, [], "verify {count}");
    let parsed = |count: u32| {
        let pieces = crate::parse(&disk, from).unwrap().map(Result::unwrap);
        let damage: Vec<_> = pieces.filter(|piece| matches!(piece, crate::Piece::Damage(_))).collect();
        assert_eq!(damage, [], "parse {count}");
    };
    let attached = |count: u32| {
        let attached = Attached::open(&disk, from).unwrap();
        assert_eq!(attached.damage(), [], "attach {count}");
        let mut reader = attached.reader(&attached.find(b"a").unwrap().unwrap());
        assert_eq!(reader.entries(&Query::default()).filter(Result::is_ok).count(), 60, "attach {count}");
    };
    // Each of the listings that they make.
    let ways: [(&dyn Fn(u32), u32); 4] = [(&verified, 3), (&parsed, 2), (&backup_of, 2), (&attached, 2)];
    for (look, listings_min) in ways {
        let mut count = 0;
        loop {
            sim.pass_over_after(&path, count);
            look(count);
            if sim.passes_over_a_file() {
                break;
            }
            count += 1;
        }
        assert!(count >= listings_min, "{count}");
    }
}
