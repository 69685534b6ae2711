//! Stores that lost a file or part of one: nothing wrong is served as right, nothing good is removed, and
//! what is put back is found again.

use super::store::{append, config, content, payload};
use crate::format::BATCH_HEADER_BYTES;
use crate::{
    Attached, CommitError, Durability, Offset, Options, Purge, Query, ReadError, Recovered, Start, Store,
    Touched, place_of, verify,
};
use std::fs;
use std::path::Path;
use thalweg_sys::disk::Disk;

fn options() -> Options {
    Options {
        durability: Durability::Os,
        segment_bytes_min: 65_536,
        segment_bytes_max: 65_536,
        ..Options::default()
    }
}

fn open(directory: &Path) -> (Store, Recovered) {
    Store::open(&Disk::Real, directory, options()).unwrap()
}

/// Some segments' worth of a busy log, and others that something happened to in the second of them.
fn sample(directory: &Path) -> Store {
    let store = open(directory).0;
    for name in [b"busy".as_slice(), b"quiet", b"later", b"gone", b"shut"] {
        store.create(name, &config(), None, &payload(b"early"), None).unwrap();
    }
    for round in 0..30 {
        append(&store, b"busy", &[round; 9_000]);
        if round == 10 {
            assert_eq!(store.stats().segments, 2);
            append(&store, b"later", b" and late");
            store.create(b"born", &config(), None, &payload(b"x"), None).unwrap();
            let gone = store.find(b"gone").unwrap();
            store.delete(&gone, 1, 0, None).unwrap();
            let shut = store.find(b"shut").unwrap();
            store.commit(&shut, 1, &crate::Commit { close: true, ..payload(b"") }, None).unwrap();
        }
    }
    store.flush().unwrap();
    store
}

fn segment(directory: &Path, number: u32) -> std::path::PathBuf {
    directory.join(crate::segment::file_name(number))
}

fn refused(store: &Store, name: &[u8]) -> bool {
    let log = store.find(name).unwrap();
    matches!(store.read(&log, 0, 10), Err(ReadError::Damaged(_)))
}

/// Takes a file away, lets the store live without it, and puts it back.
fn without(number: u32, clean: bool, judge: impl Fn(&Store, &Recovered)) {
    let directory = tempfile::tempdir().unwrap();
    let store = sample(directory.path());
    if clean {
        store.close().unwrap();
    }
    drop(store);
    let away = directory.path().join("away");
    fs::rename(segment(directory.path(), number), &away).unwrap();
    assert!(!crate::verify(&Disk::Real, directory.path()).unwrap().damage.is_empty(), "verify misses it");
    let (store, report) = open(directory.path());
    assert!(!report.damage.is_empty());
    judge(&store, &report);
    store.maintain(0).unwrap();
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    fs::rename(&away, segment(directory.path(), number)).unwrap();
    let (store, report) = open(directory.path());
    assert_eq!(report.damage, [], "put back, everything is whole");
    assert_eq!(content(&store, b"later"), b"early and late");
    assert_eq!(content(&store, b"busy").len(), 5 + 30 * 9_000);
    assert!(store.find(b"gone").is_none() && store.find(b"shut").unwrap().visible().unwrap().closed);
    store.create(b"new", &config(), None, &payload(b""), None).unwrap();
}

#[test]
fn without_its_first_segment_a_store_creates_and_removes_nothing() {
    without(1, false, |store, report| {
        assert!(report.unnamed.is_some());
        let error = store.create(b"busy", &config(), None, &payload(b""), None).unwrap_err();
        assert!(matches!(error, CommitError::Damaged(_)), "{error}");
    });
}

#[test]
fn a_search_by_time_says_that_the_first_segment_is_missing() {
    without(1, true, |store, _| {
        let log = store.find(b"quiet").unwrap();
        let query = Query { start: Start::Time(0), ..Query::default() };
        let found = store.reader(&log).entries(&query).next().map(|entry| entry.map(drop));
        assert!(matches!(found, Some(Err(ReadError::Damaged(_)))), "{found:?}");
        assert!(matches!(store.since(&log, 0), Err(ReadError::Damaged(_))));
    });
}

/// Somebody's copy, say, beside an original whose header is lost.
#[test]
fn a_segment_under_the_name_of_another_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    store.create(b"log", &config(), None, &payload(b"x"), None).unwrap();
    store.close().unwrap();
    drop(store);
    let (first, second) = (segment(directory.path(), 1), segment(directory.path(), 2));
    fs::copy(&first, &second).unwrap();
    let mut bytes = fs::read(&first).unwrap();
    bytes[..64].fill(0);
    fs::write(&first, bytes).unwrap();
    assert!(!Attached::open(&Disk::Real, directory.path()).unwrap().damage().is_empty());
    let (store, found) = open(directory.path());
    assert!(found.damage.iter().any(|damage| damage.file.ends_with('1')), "{found:?}");
    assert!(store.create(b"log", &config(), None, &payload(b""), None).is_err());
}

#[test]
fn a_hole_in_the_middle_brings_nothing_back_and_reopens_nothing() {
    without(2, false, |store, report| {
        assert!(
            report.damage.iter().any(|damage| damage.file.ends_with("2") && damage.logs == Touched::Unknown)
        );
        for name in [b"busy".as_slice(), b"quiet", b"later", b"gone", b"shut"] {
            assert!(refused(store, name), "{}", String::from_utf8_lossy(name));
        }
        assert!(store.create(b"born", &config(), None, &payload(b""), None).is_err());
    });
}

/// A power cut may keep a later file and lose an earlier one, as long as neither was acknowledged.
#[test]
fn an_end_that_nobody_acknowledged_may_lack_any_of_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let options = || Options { durability: Durability::Sync, committer_thread: false, ..options() };
    let store = Store::open(&Disk::Real, directory.path(), options()).unwrap().0;
    let log = store.log(b"log").unwrap();
    (0..3).for_each(|round| assert!(store.append(&log, &[round; 9_000], 5).is_ok()));
    store.flush().unwrap();
    (3..24).for_each(|round| assert!(store.append(&log, &[round; 9_000], 5).is_ok()));
    assert!(segment(directory.path(), 4).exists());
    let blank: fn(&Path) = |path| fs::write(path, [0; 65_536]).unwrap();
    let garbage: fn(&Path) = |path| fs::write(path, [0xa5; 65_536]).unwrap();
    let removed: fn(&Path) = |path| fs::remove_file(path).unwrap();
    for (way, lose) in [blank, garbage, removed].into_iter().enumerate() {
        for lost in 2..=4 {
            let cut = tempfile::tempdir().unwrap();
            for file in fs::read_dir(directory.path()).unwrap().flatten() {
                fs::copy(file.path(), cut.path().join(file.file_name())).unwrap();
            }
            lose(&segment(cut.path(), lost));
            let verified = crate::verify(&Disk::Real, cut.path()).unwrap();
            assert_eq!(verified.damage, [], "segment {lost} lost in way {way}");
            let parsed = crate::parse(&Disk::Real, cut.path()).unwrap().map(Result::unwrap);
            let damaged = parsed.filter(|piece| matches!(piece, crate::Piece::Damage(_))).count();
            // What has a header that is none is looked at as it is.
            assert!(damaged == 0 || way == 1, "segment {lost} lost in way {way}");
            for time in 0..2 {
                let (store, report) = Store::open(&Disk::Real, cut.path(), options()).unwrap();
                assert_eq!(report.damage, [], "segment {lost} lost in way {way}, opened before: {time}");
                let found = content(&store, b"log");
                assert!(found.len() >= 27_000 && found.len().is_multiple_of(9_000), "{}", found.len());
                let whole = found.chunks(9_000).zip(0..).all(|(chunk, round)| chunk == [round; 9_000]);
                assert!(whole && !segment(cut.path(), lost).exists());
            }
        }
    }
}

#[test]
fn an_end_that_was_acknowledged_and_is_gone_is_no_end() {
    without(5, false, |store, _| assert!(refused(store, b"busy")));
    without(5, true, |store, _| assert!(refused(store, b"busy")));
}

#[test]
fn a_segment_that_only_a_checkpoint_knows_is_missed() {
    without(2, true, |store, report| {
        assert!(refused(store, b"busy") && refused(store, b"later"));
        assert_eq!(content(store, b"quiet"), b"early", "lies elsewhere");
        assert!(report.unnamed.is_none(), "the checkpoint names everything");
    });
}

#[test]
fn a_shortened_segment_costs_what_lay_in_it() {
    for (number, clean) in [(2, false), (5, false), (2, true), (5, true)] {
        for length in [0, 20, 10_000] {
            let directory = tempfile::tempdir().unwrap();
            let store = sample(directory.path());
            if clean {
                store.close().unwrap();
            }
            drop(store);
            let file = fs::File::options().write(true).open(segment(directory.path(), number)).unwrap();
            file.set_len(length).unwrap();
            assert!(!crate::verify(&Disk::Real, directory.path()).unwrap().damage.is_empty());
            let (store, report) = open(directory.path());
            let what = format!("segment {number} of {length} bytes, clean {clean}: {report:?}");
            let busy = store.find(b"busy").unwrap();
            let whole = store.read(&busy, 0, usize::MAX);
            assert!(matches!(whole, Err(ReadError::Damaged(_))), "{what}");
            let refused = store.append(&busy, b"!", 9);
            assert!(matches!(refused, Err(CommitError::Damaged(_))) && !store.damage().is_empty(), "{what}");
            assert!(segment(directory.path(), number).exists(), "left for inspection: {what}");
        }
    }
}

#[test]
fn a_place_in_a_segment_that_is_missing_is_said_to_be_damaged() {
    for clean in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let store = sample(directory.path());
        let mut reader = store.reader(&store.find(b"busy").unwrap());
        let places: Vec<_> = reader.entries(&Query::default()).map(|entry| entry.unwrap().place()).collect();
        if clean {
            store.close().unwrap();
        }
        drop((store, reader));
        fs::remove_file(segment(directory.path(), 2)).unwrap();
        let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
        let theirs = attached.reader(&attached.find(b"busy").unwrap().unwrap());
        let store = open(directory.path()).0;
        let own = store.reader(&store.find(b"busy").unwrap());
        let mut missing = 0;
        for mut reader in [own, theirs] {
            for place in &places {
                let read = reader.at(*place).map(|entry| entry.map(|entry| entry.offset));
                if crate::segment_of(place.position) == 2 {
                    missing += 1;
                    assert!(matches!(read, Err(ReadError::Damaged(_))), "{clean}, {place:?}: {read:?}");
                } else {
                    assert_eq!(read, Ok(Some(place.offset)), "{clean}, {place:?}");
                }
            }
        }
        assert!(missing >= 8, "{missing}");
    }
}

#[test]
fn a_segment_begun_while_an_earlier_one_is_missing_does_not_make_that_older_than_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).0;
    for (name, time) in [(b"other", 1), (b"every", 1_000), (b"other", 10)] {
        store.append(&store.log(name).unwrap(), b"x", time).unwrap();
        store.rotate().unwrap();
    }
    store.flush().unwrap();
    drop(store);
    let away = directory.path().join("away");
    fs::rename(segment(directory.path(), 2), &away).unwrap();
    let (store, report) = open(directory.path());
    assert!(!report.damage.is_empty());
    let other = store.find(b"other").unwrap();
    store.append(&other, b"x", 20).unwrap();
    store.rotate().unwrap();
    store.append(&other, b"x", 21).unwrap();
    store.flush().unwrap();
    drop((store, other));
    fs::rename(&away, segment(directory.path(), 2)).unwrap();
    let options = Options { retain_us: Some(500), ..options() };
    let (store, report) = Store::open(&Disk::Real, directory.path(), options).unwrap();
    assert_eq!(report.damage, []);
    // Nothing in front of the segment that was begun is taken to be older than it is.
    store.maintain(1_200).unwrap();
    let every = store.find(b"every").unwrap();
    let times: Vec<u64> = store
        .reader(&every)
        .entries(&Query::from(Start::Time(900)))
        .map(|entry| entry.unwrap().time)
        .collect();
    assert_eq!(times, [1_000]);
}

/// How many entries are read up to damage, whether there was any, and the offsets that are read behind it.
fn around_damage(store: &Store, start: Start) -> (usize, bool, Vec<Offset>) {
    let mut reader = store.reader(&store.find(b"log").unwrap());
    let mut entries = reader.entries(&Query::from(start));
    let (mut before, mut damaged) = (0, false);
    for entry in entries.by_ref() {
        match entry {
            Ok(_) => before += 1,
            Err(error) => damaged |= matches!(error, ReadError::Damaged(_)),
        }
    }
    entries.resume();
    (before, damaged, entries.map(|entry| entry.unwrap().offset).collect())
}

#[test]
fn whoever_begins_inside_what_is_lost_is_told_so_and_not_led_behind_it() {
    for (lost, clean) in [(0, false), (3, false), (3, true), (9, false), (9, true)] {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path()).0;
        let log = store.log(b"log").unwrap();
        (0..30).for_each(|_| assert!(store.append(&log, &[7; 9_000], 5).is_ok()));
        let places: Vec<_> =
            store.reader(&log).entries(&Query::default()).map(|entry| entry.unwrap().place()).collect();
        store.flush().unwrap();
        if clean {
            store.close().unwrap();
        }
        drop((store, log));
        let path = segment(directory.path(), crate::segment_of(places[lost].position));
        let mut bytes = fs::read(&path).unwrap();
        bytes[crate::place_of(places[lost].position) as usize + 100] ^= 1;
        fs::write(&path, bytes).unwrap();
        let store = open(directory.path()).0;
        let behind: Vec<_> = places[lost + 1..].iter().map(|place| place.offset).collect();
        for (index, place) in places.iter().enumerate() {
            for start in [place.offset, place.offset + 4_000] {
                let (before, damaged, after) = around_damage(&store, Start::Offset(start));
                let what = format!("from {start}, entry {index}, of which {lost} is lost, {clean}");
                if index <= lost {
                    assert_eq!((before, damaged, after), (lost - index, true, behind.clone()), "{what}");
                } else {
                    // A checkpoint knows of a run of batches where it begins, so that the way there leads
                    // through it.
                    assert!(clean || !damaged, "{what}");
                    assert_eq!(before + after.len(), 30 - index, "{what}");
                }
            }
        }
        assert_eq!(around_damage(&store, Start::First), (lost, true, behind));
    }
}

/// The times that are read when all damage is passed over, and whether the first thing met was damage, and
/// whether any was.
fn ahead(store: &Store, query: &Query) -> (Vec<u64>, bool, bool) {
    let mut reader = store.reader(&store.find(b"log").unwrap());
    let (mut entries, mut times, mut first, mut damaged) = (reader.entries(query), Vec::new(), false, false);
    while let Some(entry) = entries.next() {
        match entry {
            Ok(entry) => times.push(entry.time),
            Err(error) => {
                assert!(matches!(error, ReadError::Damaged(_)), "{error}");
                (first, damaged) = (first || times.is_empty(), true);
                entries.resume();
            }
        }
    }
    (times, first, damaged)
}

/// The same from the last one.
fn back(store: &Store, query: &Query) -> (Vec<u64>, bool, bool) {
    let mut reader = store.reader(&store.find(b"log").unwrap());
    let (mut entries, mut times, mut first, mut damaged) =
        (reader.entries_back(query), Vec::new(), false, false);
    while let Some(entry) = entries.next() {
        match entry {
            Ok(entry) => times.push(entry.time),
            Err(error) => {
                assert!(matches!(error, ReadError::Damaged(_)), "{error}");
                (first, damaged) = (first || times.is_empty(), true);
                assert!(entries.next().is_none(), "went on by itself");
                entries.resume();
            }
        }
    }
    (times, first, damaged)
}

#[test]
fn around_damage_the_same_is_read_in_either_direction() {
    const COUNT: u64 = 24;
    for (lost, clean) in (0..COUNT).flat_map(|lost| [(lost, false), (lost, true)]) {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path()).0;
        let log = store.log(b"log").unwrap();
        // Several in each kibibyte, and a segment behind them.
        (0..COUNT).for_each(|time| assert!(store.append(&log, &[7; 90], time).is_ok()));
        store.rotate().unwrap();
        store.append(&log, b"last", COUNT).unwrap();
        let places: Vec<_> =
            store.reader(&log).entries(&Query::default()).map(|entry| entry.unwrap().place()).collect();
        store.flush().unwrap();
        if clean {
            store.close().unwrap();
        }
        drop((store, log));
        let path = segment(directory.path(), 1);
        let mut bytes = fs::read(&path).unwrap();
        bytes[crate::place_of(places[lost as usize].position) as usize + 40] ^= 1;
        fs::write(&path, bytes).unwrap();
        let store = open(directory.path()).0;
        let left: Vec<u64> = (0..=COUNT).filter(|time| *time != lost).collect();
        for (query, damaged) in [
            (Query::default(), true),
            (Query::from(Start::Time(0)), true),
            (Query::from(Start::Time(lost + 1)), false),
            (Query { end: Some(lost + 2), ..Query::default() }, true),
            (Query::from(Start::Exact(lost)), false),
            (Query::from(Start::Exact(lost + 1)), false),
        ] {
            let what = format!("{query:?}, {lost} lost, clean {clean}");
            let (there, ahead_first, ahead_damaged) = ahead(&store, &query);
            let (mut reversed, back_first, back_damaged) = back(&store, &query);
            reversed.reverse();
            assert_eq!(reversed, there, "{what}");
            assert!(!damaged || ahead_damaged && back_damaged, "{what}");
            match query.start {
                Start::First if query.end.is_none() => assert_eq!(there, left, "{what}"),
                // Whether there was an earlier one nobody knows.
                Start::Exact(_) => assert!(!ahead_first || back_first, "{what}"),
                _ => {}
            }
        }
    }
}

#[test]
fn a_lost_creation_keeps_its_name_from_being_taken() {
    let directory = tempfile::tempdir().unwrap();
    drop(sample(directory.path()));
    let path = segment(directory.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(5).position(|window| window == b"quiet").unwrap();
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (store, report) = open(directory.path());
    assert!(report.unnamed.is_some() && store.find(b"quiet").is_none());
    assert!(matches!(
        store.create(b"quiet", &config(), None, &payload(b""), None),
        Err(CommitError::Damaged(_))
    ));
    assert_eq!(content(&store, b"later"), b"early and late", "the others are served");
}

/// What was purged says where the log ended by then.
#[test]
fn a_log_whose_end_is_lost_and_purged_begins_no_later_than_it_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    let (log, _) = store.create(b"log", &config(), None, &payload(b"early"), None).unwrap();
    let lost = place_of(store.staged_end()) as usize;
    append(&store, b"log", b" and lost");
    store.trim(&log, 14, 0).unwrap();
    drop((store, log));
    let path = segment(directory.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[lost..lost + BATCH_HEADER_BYTES as usize].fill(0);
    fs::write(&path, bytes).unwrap();
    let (store, report) = open(directory.path());
    assert_eq!(report.damage.len(), 1, "{report:?}");
    let state = store.find(b"log").unwrap().visible().unwrap();
    assert_eq!((state.first, state.tail), (14, 14));
    assert!(refused(&store, b"log"));
    let purge = Purge { log: Some(b"log"), destroy: true, ..Purge::default() };
    assert_eq!(store.purge(&purge).unwrap()[0].bytes, 0);
}

#[test]
fn ids_are_not_given_out_twice_even_when_every_checkpoint_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let store = sample(directory.path());
    let last = store.create(b"last", &config(), None, &payload(b""), None).unwrap().0.id();
    store.close().unwrap();
    drop(store);
    for entry in fs::read_dir(directory.path()).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("checkpoint-") {
            let mut bytes = fs::read(entry.path()).unwrap();
            bytes[60] ^= 1;
            fs::write(entry.path(), bytes).unwrap();
        }
    }
    let (store, report) = open(directory.path());
    assert!(report.unnamed.is_none(), "the segments are all there");
    assert_eq!(content(&store, b"later"), b"early and late");
    assert!(store.create(b"next", &config(), None, &payload(b""), None).unwrap().0.id() > last);
}

#[test]
fn what_a_killed_process_had_stored_is_not_taken_for_a_torn_end() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&Disk::Real, directory.path(), options()).unwrap().0;
    let logs = [store.log(b"a").unwrap(), store.log(b"b").unwrap()];
    for time in 0..600 {
        store.append(&logs[time as usize % 2], &[7; 1_000], time).unwrap();
    }
    // Not closed, and nothing was ever synced.
    drop((logs, store));
    let segments = || {
        let names = Disk::Real.names(directory.path()).unwrap();
        names.into_iter().filter(|name| name.starts_with("segment-")).collect::<Vec<_>>()
    };
    let before = segments();
    assert!(before.len() > 4, "{before:?}");
    let path = directory.path().join(&before[1]);
    let mut bytes = fs::read(&path).unwrap();
    bytes[21_000] ^= 8;
    fs::write(&path, bytes).unwrap();
    let file = |damage: &[crate::Damage]| damage.first().map(|damage| damage.file.clone());
    assert_eq!(file(&verify(&Disk::Real, directory.path()).unwrap().damage), Some(before[1].clone()));
    let (store, report) = open(directory.path());
    assert_eq!((file(&report.damage), report.discarded_bytes), (Some(before[1].clone()), 0));
    assert!(before.iter().all(|name| segments().contains(name)), "nothing that was acknowledged goes");
    assert!(refused(&store, b"a") || refused(&store, b"b"));
}

/// A segment that ends in front of its batches is sound as far as it goes: what is missing shows in the
/// offsets alone.
#[test]
fn what_is_missing_between_sound_segments_is_named_in_both_directions() {
    for lost in [1_usize, 2] {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { segment_bytes_min: 4_096, segment_bytes_max: 16_384, ..options() };
        let open = || Store::open(&Disk::Real, directory.path(), options.clone()).unwrap().0;
        let store = open();
        let log = store.log(b"x").unwrap();
        for time in 0..600 {
            store.append(&log, &[time as u8; 60], time).unwrap();
        }
        store.close().unwrap();
        drop((store, log));
        let name = crate::segment::file_name(lost as u32);
        let file = std::fs::OpenOptions::new().write(true).open(directory.path().join(&name)).unwrap();
        file.set_len(64).unwrap();
        let store = open();
        let mut reader = store.reader(&store.find(b"x").unwrap());
        let told = |error: ReadError| match error {
            ReadError::Damaged(damage) => damage.file,
            other => panic!("{other}"),
        };
        let (mut forwards, mut named) = (Vec::new(), Vec::new());
        let mut entries = reader.entries(&Query::default());
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) => forwards.push(entry.offset),
                Err(error) => {
                    named.push(told(error));
                    entries.resume();
                }
            }
        }
        assert_eq!(named, std::slice::from_ref(&name), "forwards");
        let (mut back, mut named) = (Vec::new(), Vec::new());
        let mut entries = reader.entries_back(&Query::default());
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) => back.push(entry.offset),
                Err(error) => {
                    named.push(told(error));
                    assert!(entries.next().is_none(), "nothing more until somebody goes on");
                    entries.resume();
                }
            }
        }
        assert_eq!(named, [name], "backwards");
        back.reverse();
        assert!(back == forwards && back.len() < 600);
    }
}

/// What is cut off a file under its map is not there, as what lies in a bad sector is not: looking at it
/// would end the process.
#[test]
fn what_the_disk_does_not_give_is_damage_to_whoever_looks_at_it_first() {
    let directory = tempfile::tempdir().unwrap();
    sample(directory.path()).close().unwrap();
    let whole = fs::read(segment(directory.path(), 2)).unwrap();
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    let (store, report) = open(directory.path());
    assert_eq!(report.damage, []);
    let file = fs::File::options().write(true).open(segment(directory.path(), 2)).unwrap();
    file.set_len(20_001).unwrap();
    let judge = |mut reader: crate::Reader| {
        let outcomes: Vec<_> = reader.entries(&Query::default()).map(|entry| entry.map(|_| ())).collect();
        let read = outcomes.iter().take_while(|outcome| outcome.is_ok()).count();
        // Those of the first segment, and what stands in front of the cut.
        assert!((8..15).contains(&read), "{read}");
        let Err(ReadError::Damaged(damage)) = &outcomes[read] else { panic!("{:?}", outcomes[read]) };
        assert_eq!(damage.file, crate::segment::file_name(2));
    };
    judge(store.reader(&store.find(b"busy").unwrap()));
    judge(attached.reader(&attached.find(b"busy").unwrap().unwrap()));
    fs::write(segment(directory.path(), 2), whole).unwrap();
}
