//! Parsing, against what was written and against what was broken since.

use super::store::{config, open, os, payload};
use crate::format::{
    BATCH_HEADER_BYTES, BatchHeader, SEGMENT_HEADER_BYTES, Seal, SegmentHeader, TOUCHED_BYTES, word32, word64,
};
use crate::{Commit, Damage, FramePiece, Kind, OpenError, Piece, Producer, Query, ReadError, Start};
use crate::{Options, Store, parse, place_of, segment_of};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use thalweg_sys::disk::Disk;
use thalweg_sys::disk::sim::Random;

fn pieces(path: &Path) -> Vec<Piece> {
    parse(&Disk::Real, path).unwrap().map(Result::unwrap).collect()
}

fn frames(path: &Path) -> Vec<FramePiece> {
    let frame = |piece| if let Piece::Frame(frame) = piece { Some(frame) } else { None };
    pieces(path).into_iter().filter_map(frame).collect()
}

fn damage(pieces: &[Piece]) -> Vec<Damage> {
    let damage = |piece: &Piece| if let Piece::Damage(damage) = piece { Some(damage.clone()) } else { None };
    pieces.iter().filter_map(damage).collect()
}

fn payloads(frames: &[FramePiece]) -> Vec<Vec<u8>> {
    frames.iter().filter(|frame| frame.kind == Kind::Data).map(|frame| frame.payload.to_vec()).collect()
}

fn segment(directory: &Path, number: u32) -> PathBuf {
    directory.join(crate::segment::file_name(number))
}

/// One segment with a batch for each entry.
fn one_segment(directory: &Path, entries: &[&[u8]]) -> PathBuf {
    let options = Options { segment_bytes_min: 65_536, ..os() };
    let store = open(directory, options);
    let log = store.log(b"a").unwrap();
    for entry in entries {
        store.append(&log, entry, 7).unwrap();
    }
    segment(directory, 1)
}

/// Where each batch begins, in a segment that is whole.
fn batches(path: &Path) -> Vec<u32> {
    let at = |piece| if let Piece::Batch(batch) = piece { Some(place_of(batch.position)) } else { None };
    pieces(path).into_iter().filter_map(at).collect()
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Every byte of a segment belongs to one piece: whatever is whole, what is not, and what is unused.
fn covers_every_byte(path: &Path) {
    let mut at = SEGMENT_HEADER_BYTES;
    let mut damaged_to = None;
    for piece in pieces(path) {
        match piece {
            // Of a batch that is not believed the damage behind it tells the extent.
            Piece::Batch(batch) if batch.whole && batch.linked => {
                assert_eq!(place_of(batch.position), at);
                at += batch.bytes;
            }
            Piece::Damage(damage) => {
                assert_eq!(place_of(damage.from), at);
                assert!(damaged_to.is_none(), "nothing follows damage without an end");
                match damage.resumes {
                    Some(resumes) => at = place_of(resumes),
                    None => damaged_to = Some(at),
                }
            }
            Piece::End(end) => {
                assert_eq!((place_of(end.position), damaged_to), (at, None));
                at += end.unused_bytes;
                damaged_to = Some(at);
            }
            Piece::Segment(_) | Piece::Batch(_) | Piece::Frame(_) => {}
        }
    }
    assert!(damaged_to.is_some(), "neither an end nor damage up to the end");
    assert!(damaged_to == Some(at) || u64::from(at) == fs::metadata(path).unwrap().len());
}

#[test]
fn what_was_committed_is_parsed_in_its_order_with_every_kind_of_frame() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let (a, b) = (store.log(b"a").unwrap(), store.log(b"b").unwrap());
    let mut expected = Vec::new();
    for index in 0..400u64 {
        let mut transaction = store.transaction(index);
        for (log, name) in [(&a, b"a"), (&b, b"b"), (&a, b"a")] {
            let bytes = format!("{index} for {}", name[0] as char).into_bytes();
            transaction.append(log, &bytes).unwrap();
            expected.push((name.to_vec(), index, bytes));
        }
        transaction.commit().unwrap();
    }
    let producer = Some((&b"me"[..], Producer { epoch: 1, seq: 2 }));
    let notes: [(&[u8], &[u8]); 1] = [(b"k", b"v")];
    let commit = Commit { producer, writer_seq: Some(b"9"), notes: &notes, close: true, ..payload(b"end") };
    store.commit(&b, b.staged().unwrap().version, &commit, None).unwrap();
    store.delete(&a, a.staged().unwrap().version, 0, None).unwrap();
    expected.push((b"b".to_vec(), 0, b"end".to_vec()));
    assert!(store.stats().segments > 3);
    drop(store);

    let found = frames(directory.path());
    let data = found.iter().filter(|frame| frame.kind == Kind::Data);
    let rows: Vec<_> =
        data.map(|f| (f.name.as_ref().unwrap().to_vec(), f.time, f.payload.to_vec())).collect();
    assert_eq!(rows, expected);
    let kinds: BTreeSet<u8> = found.iter().map(|frame| frame.kind as u8).collect();
    assert_eq!(kinds, (Kind::Data as u8..=Kind::Note as u8).collect());
    let mut tails = [0; 2];
    for frame in found.iter().filter(|frame| frame.kind == Kind::Data) {
        let tail = &mut tails[usize::from(frame.log == b.id())];
        assert_eq!(frame.offset, *tail, "offsets follow each other");
        *tail += frame.payload.len() as u64;
    }
    let lasts = found.chunk_by(|one, next| one.time == next.time && one.log == next.log);
    assert!(lasts.into_iter().count() > 800 && found.iter().filter(|frame| frame.last).count() == 801);
    assert_eq!(damage(&pieces(directory.path())), []);
    let one_by_one: Vec<_> = (1..=found.last().map(|f| segment_of(f.position)).unwrap())
        .flat_map(|number| frames(&segment(directory.path(), number)))
        .map(|frame| FramePiece { name: None, ..frame })
        .collect();
    let together: Vec<_> = found.into_iter().map(|frame| FramePiece { name: None, ..frame }).collect();
    assert_eq!(one_by_one, together, "a segment by itself says the same");
}

#[test]
fn a_flipped_bit_is_named_and_every_other_batch_is_still_there() {
    let directory = tempfile::tempdir().unwrap();
    let entries: Vec<Vec<u8>> =
        (0..200u8).map(|index| vec![index; 1 + usize::from(index) * 3 % 70]).collect();
    let path = one_segment(directory.path(), &entries.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let (good, starts) = (fs::read(&path).unwrap(), batches(&path));
    let end = place_of(match pieces(&path).last() {
        Some(Piece::End(end)) => end.position,
        other => panic!("{other:?}"),
    });
    let mut random = Random::new(11);
    for round in 0..400 {
        let byte = (SEGMENT_HEADER_BYTES as u64 + random.below((end - SEGMENT_HEADER_BYTES).into())) as usize;
        let mut bytes = good.clone();
        bytes[byte] ^= 1 << random.below(8);
        fs::write(&path, bytes).unwrap();
        let hit = starts.iter().rposition(|start| *start as usize <= byte).unwrap();
        let damage = damage(&pieces(&path));
        assert_eq!(damage.len(), 1, "round {round}: {damage:?}");
        let last = hit + 1 == starts.len();
        let (from, to) = (place_of(damage[0].from), place_of(damage[0].resumes.unwrap_or(damage[0].from)));
        // Behind the last batch its own header says where it ends, or nothing does.
        let next = if !last {
            starts[hit + 1]
        } else if to == from {
            from
        } else {
            end
        };
        assert_eq!((from, to), (starts[hit], next), "round {round}");
        // The first batch creates the log; each other is an entry.
        let mut left = entries.clone();
        if hit > 0 {
            left.remove(hit - 1);
        }
        assert_eq!(payloads(&frames(&path)), left, "round {round}");
        covers_every_byte(&path);
    }
}

#[test]
fn whatever_is_written_over_a_segment_its_bytes_are_accounted_for() {
    let directory = tempfile::tempdir().unwrap();
    let entries: Vec<Vec<u8>> = (0..60u8).map(|index| vec![index; 300]).collect();
    let path = one_segment(directory.path(), &entries.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let good = fs::read(&path).unwrap();
    let mut random = Random::new(5);
    for _ in 0..300 {
        let mut bytes = good.clone();
        for _ in 0..=random.below(3) {
            let from = random.below(bytes.len() as u64) as usize;
            let length = random.below(2_000).min((bytes.len() - from) as u64) as usize;
            let fill = random.word() as u8;
            match random.below(3) {
                0 => bytes[from..from + length].fill(0),
                1 => bytes[from..from + length].iter_mut().for_each(|byte| *byte = random.word() as u8),
                _ => bytes[from..from + length].fill(fill),
            }
        }
        fs::write(&path, bytes).unwrap();
        covers_every_byte(&path);
        let known: BTreeSet<&[u8]> = entries.iter().map(Vec::as_slice).collect();
        assert!(payloads(&frames(&path)).iter().all(|payload| known.contains(payload.as_slice())));
    }
}

#[test]
fn a_torn_end_is_no_damage_in_a_store_and_damage_in_a_file_of_which_nothing_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let path = one_segment(directory.path(), &[b"first", b"second", b"third"]);
    let last = *batches(&path).last().unwrap() as usize;
    change(&path, |bytes| bytes[last + 40..].fill(0));
    // No process that was killed leaves that behind.
    assert_eq!(damage(&pieces(directory.path())).len(), 1);
    let boot = crate::control::BOOT * 8;
    change(&directory.path().join("control"), |bytes| bytes[boot..boot + 8].fill(1));
    let whole = pieces(directory.path());
    let Some(Piece::End(end)) = whole.last() else { panic!("{whole:?}") };
    assert_eq!((damage(&whole).len(), place_of(end.position) as usize), (0, last));
    assert!(end.torn_bytes > 0 && end.torn_bytes <= 40);
    assert_eq!(payloads(&frames(&path)), [&b"first"[..], b"second"]);
    let alone = damage(&pieces(&path));
    assert_eq!(alone.len(), 1);
    assert_eq!((place_of(alone[0].from) as usize, alone[0].resumes), (last, None));
}

fn seal(segment: &[u8]) -> Seal {
    SegmentHeader::decode(segment).unwrap().seal()
}

#[test]
fn a_payload_that_holds_a_batch_is_no_batch_even_when_the_header_around_it_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let path = one_segment(directory.path(), &[b"honest", b"x"]);
    let bytes = fs::read(&path).unwrap();
    let at = batches(&path)[1] as usize;
    let batch = &bytes[at..at + word32(&bytes, at + 4) as usize];
    assert!(BatchHeader::decode(batch, seal(&bytes).at(at as u32)).is_some());
    // The same bytes again, as somebody's payload, at a place where a batch could begin.
    let other = tempfile::tempdir().unwrap();
    let path = one_segment(other.path(), &[b"before", batch, b"after", b"more"]);
    let around = batches(&path)[2] as usize;
    let good = fs::read(&path).unwrap();
    for (byte, bit) in (0..64).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
        let mut bytes = good.clone();
        bytes[around + byte] ^= 1 << bit;
        fs::write(&path, bytes).unwrap();
        assert_eq!(payloads(&frames(&path)), [&b"before"[..], b"after", b"more"], "byte {byte} bit {bit}");
        assert_eq!(damage(&pieces(&path)).len(), 1);
    }
}

#[test]
fn lengths_that_lie_are_damage_and_never_a_read_past_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = one_segment(directory.path(), &[b"first", b"second", b"third"]);
    let (good, starts) = (fs::read(&path).unwrap(), batches(&path));
    for length in [0, 1, 8, 47, 48, 1 << 16, 1 << 30, u32::MAX - 7, u32::MAX] {
        for (batch, header_too) in [(1, false), (1, true), (3, false), (3, true)] {
            let at = starts[batch] as usize;
            let mut bytes = good.clone();
            bytes[at + 4..at + 8].copy_from_slice(&length.to_le_bytes());
            if header_too {
                // A header that vouches for the wrong length.
                let here = seal(&bytes).at(at as u32);
                BatchHeader::forge(&mut bytes[at..], here);
            }
            fs::write(&path, bytes).unwrap();
            let seen = payloads(&frames(&path));
            assert!(
                seen.len() < 3 && seen.iter().all(|p| [&b"first"[..], b"second", b"third"].contains(&&p[..]))
            );
            assert!(!damage(&pieces(&path)).is_empty());
        }
    }
}

#[test]
fn a_batch_that_adds_up_and_is_not_made_of_the_frames_that_it_says_is_damage() {
    type Lie = fn(&mut [u8]);
    const FRAMES: usize = 40;
    const FRAME: usize = (BATCH_HEADER_BYTES + TOUCHED_BYTES) as usize;
    let lies: [(&str, Lie); 3] = [
        ("a length beyond the batch", |batch| batch[FRAME..FRAME + 4].fill(0xff)),
        ("a kind that there is not", |batch| batch[FRAME + 4] = 99),
        ("another number of frames", |batch| batch[FRAMES] += 1),
    ];
    for (what, lie) in lies {
        let directory = tempfile::tempdir().unwrap();
        let path = one_segment(directory.path(), &[b"first", b"second"]);
        let at = *batches(&path).last().unwrap() as usize;
        change(&path, |bytes| {
            let (here, length) = (seal(bytes).at(at as u32), word32(bytes, at + 4) as usize);
            let batch = &mut bytes[at..at + length];
            lie(batch);
            let body = crc32c::crc32c(&batch[FRAME..]);
            batch[12..16].copy_from_slice(&body.to_le_bytes());
            BatchHeader::forge(batch, here);
        });
        assert_eq!(payloads(&frames(&path)), [b"first"], "{what}");
        let parsed = damage(&pieces(&path));
        let verified = crate::verify(&Disk::Real, directory.path()).unwrap().damage;
        let (store, found) = Store::open(&Disk::Real, directory.path(), os()).unwrap();
        let log = store.find(b"a").unwrap();
        for told in [parsed, verified, found.damage] {
            let [damage] = &told[..] else { panic!("{what}: {told:?}") };
            assert_eq!((place_of(damage.from) as usize, damage.logs.known()), (at, Some(&[log.id()][..])));
        }
        assert!(log.is_damaged(), "{what}");
    }
}

#[test]
fn files_that_are_short_blank_newer_or_no_segments_say_what_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = one_segment(directory.path(), &[b"first", b"second"]);
    let good = fs::read(&path).unwrap();
    let mut newer = good.clone();
    newer[8] = 99;
    let sum = crc32c::crc32c(&newer[..60]);
    newer[60..64].copy_from_slice(&sum.to_le_bytes());
    fs::write(&path, newer).unwrap();
    assert!(matches!(parse(&Disk::Real, &path), Err(OpenError::Newer { found: 99, .. })));
    let items: Vec<_> = parse(&Disk::Real, directory.path()).unwrap().collect();
    assert!(matches!(items[..], [Err(OpenError::Newer { found: 99, .. })]), "{items:?}");

    fs::write(&path, &good[..40]).unwrap();
    assert_eq!(damage(&pieces(&path)).len(), 1);
    let mut headless = good.clone();
    headless[20] ^= 1;
    fs::write(&path, headless).unwrap();
    assert_eq!(payloads(&frames(&path)), [&b"first"[..], b"second"], "batches stand for themselves");
    assert_eq!(damage(&pieces(&path)).len(), 1);
    fs::write(&path, vec![0; 4096]).unwrap();
    assert!(matches!(pieces(&path)[..], [Piece::End(end)] if end.unused_bytes == 4096));
    fs::write(&path, &good[..5_000]).unwrap();
    assert_eq!(payloads(&frames(&path)).len(), 2);
    assert_eq!(damage(&pieces(&path)).len(), 1, "shorter than its header says");

    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(
        parse(&Disk::Real, empty.path()),
        Err(OpenError::NotAStore { .. } | OpenError::Io { .. })
    ));
    assert!(parse(&Disk::Real, &empty.path().join("none")).is_err());
}

#[test]
fn a_segment_whose_last_batches_were_blanked_is_missed_by_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let log = store.log(b"a").unwrap();
    for index in 0..40 {
        store.append(&log, &[index; 500], 1).unwrap();
    }
    drop(store);
    let path = segment(directory.path(), 1);
    let last = *batches(&path).last().unwrap() as usize;
    change(&path, |bytes| bytes[last..].fill(0));
    assert_eq!(damage(&pieces(&path)), [], "by itself it looks whole");
    let found = damage(&pieces(directory.path()));
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].file.as_str(), place_of(found[0].from) as usize), ("segment-0000000001", last));
}

#[test]
fn a_segment_that_is_missing_is_damage_where_it_would_stand() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { segment_bytes_max: 8_192, ..os() });
    let log = store.log(b"a").unwrap();
    (0..100).for_each(|index| drop(store.append(&log, &[index; 500], 1)));
    let last = segment_of(store.stats().staged_end);
    store.close().unwrap();
    drop(store);
    assert!(last > 4 && damage(&pieces(directory.path())).is_empty());
    let removed: fn(&Path) = |path| fs::remove_file(path).unwrap();
    let blanked: fn(&Path) = |path| fs::write(path, vec![0; 4096]).unwrap();
    for lose in [removed, blanked] {
        for lost in [1, 3, last] {
            let path = segment(directory.path(), lost);
            let good = fs::read(&path).unwrap();
            lose(&path);
            let found = pieces(directory.path());
            let told = damage(&found);
            assert_eq!(told, crate::verify(&Disk::Real, directory.path()).unwrap().damage);
            assert_eq!((told.len(), &told[0].file), (1, &crate::segment::file_name(lost)));
            let at = found.iter().position(|piece| matches!(piece, Piece::Damage(_))).unwrap();
            let behind = found[at..].iter().find_map(|piece| match piece {
                Piece::Segment(segment) => Some(segment.number),
                _ => None,
            });
            assert_eq!(behind, Some(lost + 1).filter(|next| *next <= last));
            fs::write(&path, good).unwrap();
        }
    }
}

#[test]
fn a_segment_that_went_because_nobody_needs_it_is_not_missed() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let (log, passing) = (store.log(b"a").unwrap(), store.log(b"passing").unwrap());
    store.append(&log, b"kept", 1).unwrap();
    (0..30).for_each(|_| drop(store.append(&passing, &[7; 2000], 1)));
    store.delete(&passing, passing.staged().unwrap().version, 2, None).unwrap();
    for _ in 0..2 {
        store.append(&log, b"kept", 1).unwrap();
        store.checkpoint().unwrap();
    }
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(segment(directory.path(), 1).exists() && !segment(directory.path(), 2).exists(), "{names:?}");
    for closed in [false, true] {
        if closed {
            store.close().unwrap();
        }
        assert_eq!(damage(&pieces(directory.path())), []);
    }
}

#[test]
fn a_cursor_stops_in_front_of_a_broken_transaction_and_goes_on_behind_it_only_when_told() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { segment_bytes_min: 65_536, ..os() });
    let log = store.log(b"a").unwrap();
    for index in 0..50u8 {
        let mut transaction = store.transaction(u64::from(index));
        (0..3).for_each(|part| transaction.append(&log, &[index, part]).unwrap());
        transaction.commit().unwrap();
    }
    store.flush().unwrap();
    drop(store);
    let path = segment(directory.path(), 1);
    let broken = batches(&path)[21] as usize;
    // The second of its three entries.
    change(&path, |bytes| {
        let entry = broken + 64 + 40;
        assert_eq!((word32(bytes, entry), word64(bytes, entry + 24)), (2, 20));
        bytes[entry + 33] ^= 4;
    });
    let (store, report) = Store::open(&Disk::Real, directory.path(), os()).unwrap();
    assert_eq!(report.damage.len(), 1, "{report:?}");
    let log = store.find(b"a").unwrap();
    let mut cursor = store.reader(&log).follow(&Query::default());
    let mut seen = Vec::new();
    let error = loop {
        match cursor.next() {
            Ok(Some(entry)) => seen.push((entry.data.to_vec(), entry.last)),
            Ok(None) => panic!("passed over {seen:?}"),
            Err(error) => break error,
        }
    };
    let ReadError::Damaged(damage) = error else { panic!("{error}") };
    assert_eq!((damage.file.as_str(), place_of(damage.from) as usize), ("segment-0000000001", broken));
    assert_eq!(seen.len(), 60);
    assert_eq!(seen.last(), Some(&(vec![19, 2], true)), "a whole transaction is the last");
    for _ in 0..3 {
        assert_eq!(cursor.next(), Ok(None), "nothing more comes by itself");
    }
    cursor.resume();
    assert_eq!(cursor.next().unwrap().map(|entry| entry.data.to_vec()), Some(vec![21, 0]));
    let rest = std::iter::from_fn(|| cursor.next().unwrap().map(|entry| entry.data[0])).count();
    assert_eq!(rest, 29 * 3 - 1);
    let mut reader = store.reader(&log);
    assert_eq!(reader.entries(&Query::from(Start::Time(21))).filter(Result::is_ok).count(), 29 * 3);
    assert!(store.create(b"new", &config(), None, &payload(b""), None).is_ok());
}

#[test]
fn a_directory_without_segments_is_no_store() {
    let directory = tempfile::tempdir().unwrap();
    let none = |path: &Path| matches!(parse(&Disk::Real, path), Err(OpenError::NotAStore { .. }));
    assert!(none(directory.path()));
    std::fs::write(directory.path().join("something"), "else").unwrap();
    assert!(none(directory.path()));
}

#[test]
fn an_empty_segment_is_a_spare_and_one_that_is_cut_short_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = segment(directory.path(), 1);
    fs::write(&path, b"").unwrap();
    assert!(matches!(pieces(&path)[..], [Piece::End(end)] if end.unused_bytes == 0));
    fs::write(&path, b"cut").unwrap();
    assert_eq!(damage(&pieces(&path)).len(), 1);
}
