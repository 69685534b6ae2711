//! Logs whose entries lie among others': what they cost in memory, and that it is found again however one
//! comes to it.

use super::store::{config, open, os, payload, small};
use crate::extents::Extent;
use crate::places::{RUN, Unfolder};
use crate::{Attached, Commit, Fork, Log, Options, Purge, Query, Start, Store, place_of, segment_of};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::Disk;

const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];

/// Entry `n` of a log, each of another length.
fn entry(log: usize, n: u64) -> Vec<u8> {
    vec![b'a' + log as u8; 1 + (n as usize * 7 + log) % 40]
}

/// Logs side by side with a given number of entries each: by appends, transactions over several logs, and
/// commits in turn.
fn fill(store: &Store, entries: std::ops::Range<u64>) {
    let logs: Vec<Arc<Log>> = NAMES.iter().map(|name| store.log(name).unwrap()).collect();
    for n in entries {
        if n % 5 == 0 {
            let mut both = store.transaction(n);
            for (index, log) in logs.iter().enumerate() {
                both.append(log, &entry(index, n)).unwrap();
            }
            both.submit().unwrap();
            continue;
        }
        for (index, log) in logs.iter().enumerate() {
            if n % 3 == 0 {
                let (version, bytes) = (log.staged().unwrap().version, entry(index, n));
                store.commit(log, version, &Commit { time: n, ..payload(&bytes) }, None).unwrap();
            } else {
                store.append(log, &entry(index, n), n).unwrap();
            }
        }
    }
    store.flush().unwrap();
}

fn extents(log: &Log) -> Vec<Extent> {
    log.lock().extents.all().to_vec()
}

fn folded(log: &Log) -> usize {
    extents(log).iter().filter(|extent| extent.is_folded()).count()
}

/// Everything of a log that there should be, by every way that leads to it.
fn check(store: &Store, index: usize, entries: std::ops::Range<u64>, first: u64) {
    let log = store.find(NAMES[index]).unwrap();
    let whole: Vec<u8> = entries.clone().flat_map(|n| entry(index, n)).collect();
    let read = store.read(&log, first, usize::MAX).unwrap();
    assert_eq!(read.pieces.concat(), whole);
    let mut starts = Vec::new();
    let mut offset = first;
    for n in entries {
        starts.push((n, offset));
        offset += entry(index, n).len() as u64;
    }
    let mut cursor = store.reader(&log).follow(&Query::default());
    for (n, offset) in starts.iter().step_by(13) {
        let bytes = entry(index, *n);
        let one = store.read(&log, *offset, 1).unwrap();
        assert_eq!((one.pieces.concat(), one.next), (bytes.clone(), offset + bytes.len() as u64));
        cursor.seek(&Query::from(Start::Offset(*offset)));
        let found = cursor.next().unwrap().unwrap();
        assert_eq!((found.offset, found.data), (*offset, &bytes[..]));
    }
    let mut reader = store.reader(&log);
    let mut back: Vec<u64> = reader.entries_back(&Query::default()).map(|e| e.unwrap().offset).collect();
    back.reverse();
    assert_eq!(back, starts.iter().map(|(_, offset)| *offset).collect::<Vec<_>>());
}

#[test]
fn memory_does_not_grow_with_history() {
    let store = Store::memory(small()).unwrap();
    fill(&store, 0..100);
    let few = extents(&store.find(b"a").unwrap()).len();
    fill(&store, 100..4_000);
    for (index, name) in NAMES.iter().enumerate() {
        let log = store.find(name).unwrap();
        let many = extents(&log);
        assert!(many.len() < 2 * (4_000 / RUN), "{} extents", many.len());
        assert!(few < 100 && folded(&log) >= 4_000 / RUN / 2, "{few} {}", folded(&log));
        assert!(many.windows(2).all(|pair| pair[0].end() == pair[1].offset));
        let in_one = |extent: &Extent| {
            extent.bytes().end
                <= store.shared.segments.find(segment_of(extent.position)).unwrap().region().published()
        };
        assert!(many.iter().all(in_one));
        check(&store, index, 0..4_000, 0);
    }
}

#[test]
fn whoever_replays_comes_to_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    fill(&store, 0..300);
    let early = Attached::open(&Disk::Real, directory.path()).unwrap();
    let followed = early.find(b"b").unwrap().unwrap();
    fill(&store, 300..700);
    let live: Vec<_> = NAMES.map(|name| extents(&store.find(name).unwrap())).into();
    assert!(live.iter().flatten().filter(|extent| extent.is_folded()).count() > 60);
    // A neighbour that followed, and one that comes to it now.
    assert_eq!(early.reader(&followed).entries(&Query::default()).count(), 700);
    assert_eq!(extents(&followed), live[1]);
    let late = Attached::open(&Disk::Real, directory.path()).unwrap();
    assert_eq!(extents(&late.find(b"b").unwrap().unwrap()), live[1]);
    drop((early, late, followed, store));
    // Killed: from the first batch, then from a checkpoint, then from a checkpoint and what came behind it.
    for (round, more) in [(0, 700..700), (1, 700..900), (2, 900..900)] {
        let store = open(directory.path(), os());
        let reopened: Vec<_> = NAMES.map(|name| extents(&store.find(name).unwrap())).into();
        if round < 2 {
            assert!(reopened == live, "round {round}");
        }
        store.checkpoint().unwrap();
        let end = more.end;
        fill(&store, more);
        (0..NAMES.len()).for_each(|index| check(&store, index, 0..end, 0));
    }
}

/// The bytes of a file with one of them changed.
fn spoil(directory: &Path, position: u64, behind: usize) {
    let path = directory.join(crate::segment::file_name(segment_of(position)));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[place_of(position) as usize + behind] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn damage_to_what_says_where_takes_nothing_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    fill(&store, 0..400);
    // Nothing is replayed that lies before the older of two checkpoints.
    for n in 400..402 {
        store.rotate().unwrap();
        store.checkpoint().unwrap();
        fill(&store, n..n + 1);
    }
    let log = store.find(b"a").unwrap();
    let told = extents(&log).into_iter().find(|extent| extent.is_folded() && extent.offset > 1_000).unwrap();
    let view = store.shared.segments.latest();
    let unfolder = Unfolder { view: &view, limit: store.maps().file_end() };
    let unfolded: Vec<_> = unfolder.unfold(log.id(), &told).unwrap().collect();
    store.close().unwrap();
    drop((log, view, store));
    spoil(directory.path(), told.places, 100);
    let store = open(directory.path(), os());
    let log = store.find(b"a").unwrap();
    let whole: Vec<u8> = (0..402).flat_map(|n| entry(0, n)).collect();
    let (from, to) = (told.offset as usize, told.end() as usize);
    let read = store.read(&log, told.offset, to - from).unwrap();
    assert_eq!(read.pieces.concat(), whole[from..to]);
    // Of the others' entries all are there that do not lie in that batch, and this log's up to it.
    let refused = store.read(&log, 0, usize::MAX).unwrap_err();
    assert!(refused.to_string().contains("segment-"), "{refused}");
    let mut cursor = store.reader(&log).follow(&Query::from(Start::Offset(told.offset)));
    assert_eq!(cursor.next().unwrap().unwrap().offset, told.offset);
    drop((cursor, log, store));
    // With one of the entries gone, too, the others are there, and who wants that one hears of it.
    let (gone, others) = (unfolded[3], [0, 1, 2, 4, 5].map(|n| unfolded[n]));
    spoil(directory.path(), gone.position, 90);
    let store = open(directory.path(), os());
    let log = store.find(b"a").unwrap();
    for one in others {
        let read = store.read(&log, one.offset, one.length as usize).unwrap();
        assert_eq!(read.pieces.concat(), whole[one.offset as usize..one.end() as usize]);
    }
    assert!(matches!(store.read(&log, gone.offset, 1), Err(crate::ReadError::Damaged(_))));
}

#[test]
fn what_is_purged_inherited_or_too_much_is_found_though_it_is_folded() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    fill(&store, 0..500);
    let log = store.find(b"a").unwrap();
    let middle: u64 = (0..250).map(|n| entry(0, n).len() as u64).sum();
    let fork = Fork { parent: log.clone(), at: middle + 1, asked: [0; 2] };
    let (child, _) = store.create(b"child", &config(), Some(&fork), &payload(b"own"), None).unwrap();
    let inherited: Vec<u8> = (0..251).flat_map(|n| entry(0, n)).take(middle as usize + 1).collect();
    let read = store.read(&child, 0, usize::MAX).unwrap().pieces.concat();
    assert_eq!(read, [&inherited[..], b"own"].concat());
    store.purge(&Purge { log: Some(b"b"), before: Some(333), ..Purge::default() }).unwrap();
    let gone: u64 = (0..333).map(|n| entry(1, n).len() as u64).sum();
    assert_eq!(store.find(b"b").unwrap().visible().unwrap().first, gone);
    check(&store, 1, 333..500, gone);
    // To the byte, as if every entry had an extent of its own.
    let third = store.find(b"c").unwrap();
    let bounds: Vec<u8> = [0u64, 1_000].iter().flat_map(|word| word.to_le_bytes()).collect();
    let notes: &[(&[u8], &[u8])] = &[(crate::RETAIN_NOTE, &bounds)];
    let version = third.staged().unwrap().version;
    store.commit(&third, version, &Commit { notes, ..Commit::default() }, None).unwrap();
    fill(&store, 500..5_000);
    store.retain_each(crate::now()).unwrap();
    let state = third.visible().unwrap();
    assert!(state.tail - state.first >= 1_000 && state.tail - state.first < 1_000 + 120, "{state:?}");
}

/// What stands for its parent's extents reaches behind its own entries.
#[test]
fn a_fork_ends_its_inheritance_where_it_branched_off_though_that_is_folded_later() {
    let store = Store::memory(Options { segment_bytes_min: 65_536, ..small() }).unwrap();
    fill(&store, 0..103);
    let parent = store.find(b"a").unwrap();
    // In the middle of an entry, behind which the fork has offsets that the rest of that entry has, too.
    let base = parent.visible().unwrap().tail - 30;
    let fork = Fork { parent: parent.clone(), at: base, asked: [0; 2] };
    let (child, _) = store.create(b"child", &config(), Some(&fork), &payload(b"own"), None).unwrap();
    let last = extents(&parent).last().unwrap().position;
    fill(&store, 103..203);
    store.append(&child, b"more", 203).unwrap();
    let spans = |extent: &Extent| extent.is_folded() && extent.position <= last && extent.end() > base;
    assert!(extents(&parent).iter().any(spans), "nothing is folded across the base");
    let inherited: Vec<u8> = (0..103).flat_map(|n| entry(0, n)).take(base as usize).collect();
    let read = store.read(&child, 0, usize::MAX).unwrap().pieces.concat();
    assert_eq!(read, [&inherited[..], b"ownmore"].concat());
    let mut reader = store.reader(&child);
    reader.source.cover(0);
    let (mut stretch, mut filter) = (1, reader.progress.filter.clone());
    let ends = reader.source.previous(&mut stretch, 0, &mut filter).unwrap();
    assert!(ends <= extents(&child)[0].position, "what is inherited ends behind the fork's beginning");
    for (offset, count) in [(0, 105), (base - 1, 3), (base, 2), (base + 1, 2), (base + 3, 1)] {
        let query = Query::from(Start::Offset(offset));
        let mut forth: Vec<u64> = reader.entries(&query).map(|entry| entry.unwrap().offset).collect();
        let back: Vec<u64> = reader.entries_back(&query).map(|entry| entry.unwrap().offset).collect();
        assert_eq!((forth.len(), forth[0]), (count, offset));
        forth.reverse();
        assert_eq!(back, forth);
    }
}

/// What would have to be waited for is found out for a fork as for any log, wherever its parent's places are
/// said, and damage to what it does not inherit is none of its business.
#[test]
fn a_fork_is_looked_at_as_far_as_it_reaches() {
    for cut_short in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let large = Options { segment_bytes_min: 1 << 20, segment_bytes_max: 1 << 20, ..os() };
        let store = open(directory.path(), large.clone());
        fill(&store, 0..43);
        let parent = store.find(b"a").unwrap();
        let at = parent.visible().unwrap().tail - 3;
        let fork = Fork { parent: parent.clone(), at, asked: [0; 2] };
        let (child, _) = store.create(b"child", &config(), Some(&fork), &payload(b"own"), None).unwrap();
        for n in 0..100 {
            store.append(&child, &[b'c'; 30], n).unwrap();
            store.append(&store.find(b"b").unwrap(), &[7; 3_000], n).unwrap();
        }
        fill(&store, 43..100);
        let foreign = extents(&parent).last().unwrap().position;
        store.rotate().unwrap();
        let expected = store.read(&child, 0, usize::MAX).unwrap().pieces.concat();
        assert!(store.needs_disk(&child, 0, usize::MAX).is_none(), "just written");
        for _ in 0..2 {
            store.log(b"later").and_then(|log| store.append(&log, b"x", 1)).unwrap();
            store.rotate().unwrap();
            store.checkpoint().unwrap();
        }
        store.close().unwrap();
        drop((parent, child, fork, store));
        if cut_short {
            let path = directory.path().join(crate::segment::file_name(1));
            std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(100_000).unwrap();
        } else {
            spoil(directory.path(), foreign, 90);
        }
        let store = open(directory.path(), large);
        let child = store.find(b"child").unwrap();
        for _ in 0..8 {
            let Some(prefetch) = store.needs_disk(&child, 0, usize::MAX) else { break };
            prefetch.run();
        }
        assert!(store.needs_disk(&child, 0, usize::MAX).is_none(), "it never becomes warm");
        match store.read(&child, 0, usize::MAX) {
            Ok(read) => assert!(!cut_short && read.pieces.concat() == expected),
            Err(error) => assert!(cut_short, "{error}"),
        }
    }
}

#[test]
fn places_never_make_an_entry_too_large() {
    let store = Store::memory(Options { segment_bytes_max: 8192, ..small() }).unwrap();
    let most = 8192 - 64 - 48 - 16 - 32;
    let (log, other) = (store.log(b"a").unwrap(), store.log(b"b").unwrap());
    for n in 0..40u64 {
        for log in [&log, &other] {
            store.append(log, b"small", n).unwrap();
        }
        if n % 10 == 9 {
            assert!(log.lock().has_foldable || extents(&log).iter().any(Extent::is_folded));
            store.append(&log, &vec![9; most], n).unwrap();
            let version = other.staged().unwrap().version;
            store.commit(&other, version, &payload(&vec![9; most]), None).unwrap();
            let mut both = store.transaction(n);
            both.append(&log, &vec![8; most / 2 - 200]).unwrap();
            both.append(&other, &vec![8; most / 2 - 200]).unwrap();
            both.commit().unwrap();
        }
    }
    assert_eq!(store.reader(&log).entries(&Query::default()).count(), 48);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Entries of any length, some of them alone, through any number of segments.
    #[test]
    fn any_mixture_reads_back(
        steps in proptest::collection::vec((0usize..3, 1usize..3_000, 1usize..60), 20..120), from in any::<prop::sample::Index>(),
    ) {
        let store = Store::memory(Options { segment_bytes_max: 16_384, ..small() }).unwrap();
        let logs = NAMES.map(|name| store.log(name).unwrap());
        let mut model = [Vec::new(), Vec::new(), Vec::new()];
        for (n, (lone, length, count)) in steps.into_iter().enumerate() {
            // A run of small ones side by side, then one that is alone and may be large.
            for index in (0..count * 3).map(|turn| turn % 3) {
                let bytes = vec![n as u8; 1 + (index + n) % 9];
                store.append(&logs[index], &bytes, n as u64).unwrap();
                model[index].extend(bytes);
            }
            store.append(&logs[lone], &vec![n as u8; length], n as u64).unwrap();
            model[lone].extend(vec![n as u8; length]);
        }
        for (log, model) in logs.iter().zip(&model) {
            let at = from.index(model.len());
            let read = store.read(log, at as u64, usize::MAX).unwrap();
            prop_assert!(read.pieces.concat() == model[at..]);
            let held = extents(log);
            prop_assert!(held.windows(2).all(|pair| pair[0].end() == pair[1].offset));
        }
    }
}
