//! Stores that are read along while they are written to, moved, replaced and removed.

use super::*;
use crate::segment::Readable;
use crate::{Durability, Options, Query, Store, place_of};
use thalweg_sync::words::Words;

/// A store of several segments, and an attachment that reads along.
fn attached(directory: &Path) -> (Store, Arc<Log>, Attached) {
    let (segment_bytes_min, segment_bytes_max) = (4096, 8192);
    let options = Options { segment_bytes_min, segment_bytes_max, ..Options::default() };
    let (store, _) =
        Store::open(&Disk::Real, directory, Options { durability: Durability::Os, ..options }).unwrap();
    let log = store.log(b"a").unwrap();
    for time in 0..100 {
        store.append(&log, &[7; 100], time).unwrap();
    }
    let attached = Attached::open(&Disk::Real, directory).unwrap();
    (store, log, attached)
}

fn write_more(store: &Store, log: &Arc<Log>) {
    for time in 100..200 {
        store.append(log, &[7; 100], time).unwrap();
    }
}

#[test]
fn threads_that_verify_a_segment_while_others_move_its_mark_look_at_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Os, ..Options::default() };
    let (store, _) = Store::open(&Disk::Real, directory.path(), options).unwrap();
    let log = store.log(b"a").unwrap();
    let mut ends = Vec::new();
    for time in 0..10_000 {
        store.append(&log, &[7; 8], time).unwrap();
        ends.push(store.maps().file_end());
    }
    let path = directory.path().join(segment::file_name(1));
    for _ in 0..20 {
        let header = segment::read_header(&Disk::Real, &path).unwrap().unwrap().unwrap();
        let segment = Segment::attach(header, Disk::Real.open_read_only(&path).unwrap()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| ends.iter().for_each(|end| assert_eq!(segment.end(*end), place_of(*end))));
            let last = place_of(ends[ends.len() - 1]);
            let mut from = SEGMENT_HEADER_BYTES;
            while from < last {
                let to = segment.region().published();
                match segment.readable(from, to) {
                    Readable::To(end) => from = end.max(from),
                    Readable::Damaged(damage, _) => panic!("{damage}"),
                }
            }
        });
    }
}

#[test]
fn segments_of_another_store_at_the_path_are_not_taken_for_this_one_s() {
    let directory = tempfile::tempdir().unwrap();
    let (store, log, attached) = attached(directory.path());
    let mut reader = attached.reader(&attached.find(b"a").unwrap().unwrap());
    write_more(&store, &log);
    drop((store, log));
    std::fs::remove_dir_all(directory.path()).unwrap();
    let (_other, _, _) = self::attached(directory.path());
    for query in [Query::default(), Query::from(crate::Start::Time(90))] {
        let read: Vec<_> = reader.entries(&query).collect();
        let [Err(ReadError::Io { why, .. })] = &read[..] else { panic!("{read:?}") };
        assert!(why.contains("removed") || why.contains("another store"), "{why}");
    }
    assert!(attached.find(b"a").is_err());
}

/// A backup is of the same store as far as its files say.
#[test]
fn a_backup_that_is_put_in_its_place_between_two_looks_is_not_taken_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (store, log, attached) = attached(&at("here"));
    let mut reader = attached.reader(&attached.find(b"a").unwrap().unwrap());
    store.backup(&at("backup")).unwrap();
    write_more(&store, &log);
    let neighbour = &attached.neighbour;
    neighbour.check_place().unwrap();
    std::fs::rename(at("here"), at("away")).unwrap();
    std::fs::rename(at("backup"), at("here")).unwrap();
    let options = Options { segment_bytes_min: 4096, segment_bytes_max: 8192, ..Options::default() };
    let (other, _) = Store::open(&Disk::Real, &at("here"), options).unwrap();
    for time in 100..200 {
        other.append(&other.find(b"a").unwrap(), &[9; 100], time).unwrap();
    }
    other.flush().unwrap();
    neighbour.go_on(&mut neighbour.catalogue.lock()).unwrap();
    let read: Vec<_> = reader.entries(&Query::default()).map(|entry| entry.unwrap().data[0]).collect();
    assert_eq!(read, [7; 200]);
    assert!(attached.find(b"a").is_err(), "and then it is told");
}

#[test]
fn what_is_left_of_a_store_that_is_being_removed_is_not_taken_for_all_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let (store, log, attached) = attached(directory.path());
    let mut reader = attached.reader(&attached.find(b"a").unwrap().unwrap());
    write_more(&store, &log);
    let file = segment::file_name(segment_of(store.maps().file_end()));
    std::fs::remove_file(directory.path().join(&file)).unwrap();
    let read: Vec<_> = reader.entries(&Query::from(crate::Start::Time(20))).collect();
    let [Err(ReadError::Io { why, .. })] = &read[..] else { panic!("{read:?}") };
    assert!(why.contains("removed") && why.contains(&file), "{why}");
}

/// As where a store is opened without it: early and late readers find the same.
#[test]
fn a_segment_that_is_lost_is_stood_in_for_by_those_who_knew_it_too() {
    let directory = tempfile::tempdir().unwrap();
    let (store, log, attached) = attached(directory.path());
    let early = attached.find(b"a").unwrap().unwrap();
    let mut known = attached.reader(&early);
    let mut entries = known.entries(&Query::from(crate::Start::Time(50)));
    let place = entries.next().unwrap().unwrap().place();
    let number = segment_of(place.position);
    write_more(&store, &log);
    std::fs::remove_file(directory.path().join(segment::file_name(number))).unwrap();
    drop((store, log));
    let options = Options { segment_bytes_min: 4096, segment_bytes_max: 8192, ..Options::default() };
    let (store, found) =
        Store::open(&Disk::Real, directory.path(), Options { durability: Durability::Os, ..options })
            .unwrap();
    let log = store.find(b"a").unwrap();
    assert!(found.damage.iter().all(|damage| damage.file == segment::file_name(number)), "{found:?}");
    let anew = Attached::open(&Disk::Real, directory.path()).unwrap();
    let late = anew.find(b"a").unwrap().unwrap();
    let readers = [store.reader(&log), anew.reader(&late), attached.reader(&early)];
    for (mut reader, who) in readers.into_iter().zip(["own", "new", "old"]) {
        for start in [crate::Start::First, crate::Start::Time(50), crate::Start::Offset(5000)] {
            let mut entries = reader.entries(&Query::from(start));
            let stop = entries.by_ref().find_map(Result::err);
            let Some(ReadError::Damaged(damage)) = stop else { panic!("{start:?}: {stop:?}") };
            // Who begins at an offset of which nothing is known is told of the next place that is.
            let is_named = damage.file == segment::file_name(number);
            assert!(is_named || matches!(start, crate::Start::Offset(_)), "{who}, {start:?}: {damage}");
            entries.resume();
            assert_eq!(entries.last().map(|entry| entry.map(|entry| entry.time)), Some(Ok(199)));
        }
        assert!(matches!(reader.at(place), Err(ReadError::Damaged(_))));
    }
    assert!(early.lock().damage().is_some() && attached.find(b"a").unwrap().is_some());
}

#[test]
fn a_visible_end_that_goes_back_into_a_batch_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Os, ..Options::default() };
    let (store, _) = Store::open(&Disk::Real, directory.path(), options).unwrap();
    let log = store.log(b"a").unwrap();
    for time in 0..3 {
        store.append(&log, &[7; 100], time).unwrap();
    }
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    let log = attached.find(b"a").unwrap().unwrap();
    assert_eq!(attached.reader(&log).entries(&Query::default()).count(), 3);
    let file = Disk::Real.open(&directory.path().join(control::FILE_NAME)).unwrap();
    let words = Words::new(file.map(4096, true).unwrap());
    let end = words.load(control::VISIBLE);
    words.store(control::VISIBLE, end - 64);
    let mut reader = attached.reader(&log);
    let read: Vec<_> =
        reader.entries(&Query::default()).map(|entry| entry.map(|entry| entry.data.len())).collect();
    assert!(matches!(read[..], [Ok(100), Ok(100), Err(ReadError::Damaged(_))]), "{read:?}");
    let mut back = attached.reader(&log);
    assert!(back.entries_back(&Query::default()).flatten().all(|entry| entry.data.len() == 100));
    words.store(control::VISIBLE, end);
}
