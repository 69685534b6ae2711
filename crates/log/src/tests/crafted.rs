//! Files that say what no store says, each with a checksum that holds: nothing that they say is believed
//! further than it can be so.

use super::store::{append, config, content, open, os};
use crate::batch::{PlannedBatch, PlannedFrame};
use crate::commit::WhoSyncs;
use crate::control::Control;
use crate::fork::Branch;
use crate::format::{self, Kind, SEGMENT_HEADER_BYTES, SegmentHeader, Stamp};
use crate::{
    Attached, Commit, Damage, LogId, Offset, Position, Purge, Query, ReadError, Store, Touched, checkpoint,
    position, segment, verify,
};
use std::path::Path;
use thalweg_sys::disk::Disk;

/// Has a store write a batch of one frame, whatever that says.
fn write(store: &Store, kind: Kind, (log, end): (LogId, Offset), payload: &[u8]) {
    let frames = [PlannedFrame::of(kind, 0, Stamp { log, offset: end, time: 1 }, [payload, &[]]).unwrap()];
    let touched = [(log, end)];
    let mut batch = PlannedBatch::of(&frames, &touched, 1);
    store.shared.publish(&mut batch, 0, [], None, WhoSyncs::Committer).unwrap();
}

#[test]
fn a_log_whose_creation_says_no_name_is_damage_and_not_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    store.create(b"a", &config(), None, &Commit::default(), None).unwrap();
    // A name shorter than its length says.
    let mut said = Vec::new();
    format::encode_create(b"b", &config(), None, &mut said).unwrap();
    said[10] = 200;
    write(&store, Kind::Create, (7, 0), &said);
    drop(store);
    let found = Store::open(&Disk::Real, directory.path(), os()).unwrap().1;
    let [damage] = &found.damage[..] else { panic!("{found:?}") };
    assert_eq!((damage.logs.clone(), found.logs), (Touched::These(vec![7]), 1));
    let verified = verify(&Disk::Real, directory.path()).unwrap();
    assert_eq!(verified.damage.len(), 1, "{verified:?}");
    assert_eq!(verified.damage[0].from, damage.from);
}

#[test]
fn frames_that_say_what_cannot_be_are_damage() {
    let most = u64::MAX;
    let b = |store: &Store| store.find(b"b").unwrap().id();
    let lies: [&dyn Fn(&Store); 9] = [
        &|store| write(store, Kind::Close, (most, 0), &[]),
        &|store| write(store, Kind::Data, (b(store), most - 3), &[7; 8]),
        &|store| write(store, Kind::Trim, (b(store), 0), &most.to_le_bytes()),
        &|store| {
            let branch = Branch { parent: 1, base: most, asked: [0; 2], first: most };
            let mut said = Vec::new();
            format::encode_create(b"c", &config(), Some(&branch), &mut said).unwrap();
            write(store, Kind::Create, (7, most), &said);
        },
        &|store| write(store, Kind::Note, (b(store), 0), b"none"),
        &|store| write(store, Kind::Producer, (b(store), 0), &[7; 15]),
        // Behind what was never written, in front of the end, and purged before it was there.
        &|store| write(store, Kind::Data, (b(store), 8), &[7; 8]),
        &|store| {
            append(store, b"b", b"once");
            write(store, Kind::Trim, (b(store), 4), &4_u64.to_le_bytes());
            write(store, Kind::Data, (b(store), 0), &[7; 2]);
        },
        &|store| write(store, Kind::Trim, (b(store), 9), &9_u64.to_le_bytes()),
    ];
    let (mut passed_over, mut untold) = (Vec::new(), Vec::new());
    for (number, lie) in lies.into_iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), os());
        let [a, _] = [b"a", b"b"].map(|name| store.log(name).unwrap());
        store.append(&a, b"kept", 1).unwrap();
        lie(&store);
        drop((store, a));
        if verify(&Disk::Real, directory.path()).unwrap().damage.len() != 1 {
            untold.push(number);
        }
        let (store, found) = Store::open(&Disk::Real, directory.path(), os()).unwrap();
        if found.damage.is_empty() {
            passed_over.push(number);
            continue;
        }
        assert_eq!(content(&store, b"a"), b"kept");
        append(&store, b"a", b" on");
        assert_eq!(content(&store, b"a"), b"kept on");
        let destroy = Purge { log: Some(b"b"), destroy: true, ..Purge::default() };
        assert!(store.purge(&destroy).unwrap()[0].bytes <= 16);
    }
    assert_eq!((passed_over, untold), (vec![], vec![]), "by opening the store, and by verifying it");
}

/// Changes the checkpoint there is, so that its checksum holds.
fn forge(directory: &Path, lie: impl FnOnce(&mut Vec<u8>) -> Option<Position>) {
    let names = Disk::Real.names(directory).unwrap();
    let [start] = names.iter().filter_map(|name| checkpoint::start_of(name)).collect::<Vec<_>>()[..] else {
        panic!("{names:?}")
    };
    let path = |start| directory.join(format!("checkpoint-{start:016x}"));
    let mut bytes = std::fs::read(path(start)).unwrap();
    let says = lie(&mut bytes);
    let sum = crc32c::crc32c(&bytes[..bytes.len() - 4]).to_le_bytes();
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&sum);
    std::fs::remove_file(path(start)).unwrap();
    std::fs::write(path(says.unwrap_or(start)), bytes).unwrap();
}

#[test]
fn a_checkpoint_that_says_what_cannot_be_is_not_taken() {
    type Lie = fn(&mut Vec<u8>) -> Option<Position>;
    fn put(bytes: &mut [u8], at: usize, word: u64) -> Option<Position> {
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        None
    }
    /// Of an extent, counted from the last.
    fn put_extent(bytes: &mut [u8], back: usize, at: usize, word: u64) -> Option<Position> {
        put(bytes, bytes.len() - 16 - 32 * back + at, word)
    }
    const RECORD: usize = 64 + 4;
    let lies: [(&str, Lie); 15] = [
        ("the id of a log", |bytes| put(bytes, RECORD, u64::MAX)),
        ("the next id", |bytes| put(bytes, 40, u64::MAX)),
        ("where a log begins", |bytes| put(bytes, RECORD + 16, u64::MAX)),
        ("where a log ends", |bytes| put(bytes, RECORD + 24, u64::MAX)),
        ("less than its extents hold", |bytes| put(bytes, RECORD + 24, 1)),
        ("where an extent lies", |bytes| put_extent(bytes, 1, 0, position(1, 8))),
        ("in the middle of a word", |bytes| put_extent(bytes, 1, 0, position(1, 2001))),
        ("extents out of order", |bytes| put_extent(bytes, 2, 0, position(1, 1 << 20))),
        ("offsets out of order", |bytes| put_extent(bytes, 2, 8, 1 << 20)),
        ("an offset", |bytes| put_extent(bytes, 1, 8, u64::MAX)),
        ("a span", |bytes| put_extent(bytes, 1, 16, 4 | 0xffff_ffff << 32)),
        ("more payload than its batches hold", |bytes| {
            put(bytes, RECORD + 24, u64::from(u32::MAX));
            put_extent(bytes, 1, 16, 0xffff_fff0 | 80 << 32)
        }),
        ("an extent behind the last batch", |bytes| put(bytes, RECORD + 8, position(1, 80))),
        ("what says the places", |bytes| put_extent(bytes, 1, 24, 7)),
        ("where it begins", |bytes| {
            put(bytes, 24, position(1, 8));
            Some(position(1, 8))
        }),
    ];
    for (what, lie) in lies {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), os());
        let [a, b] = [b"a", b"b"].map(|name| store.log(name).unwrap());
        store.delete(&b, b.staged().unwrap().version, 1, None).unwrap();
        for _ in 0..2 {
            store.append(&a, b"kept", 1).unwrap();
            store.log(b"b").and_then(|b| store.delete(&b, b.staged().unwrap().version, 1, None)).unwrap();
        }
        store.checkpoint().unwrap();
        drop((store, a, b));
        forge(directory.path(), lie);
        let (store, found) = Store::open(&Disk::Real, directory.path(), os()).unwrap();
        assert!(found.damage.iter().any(|damage| damage.file.starts_with("checkpoint")), "{what}: {found:?}");
        assert_eq!((found.checkpoint, found.damage.len()), (None, 1), "{what}");
        assert_eq!(content(&store, b"a"), b"keptkept", "{what}");
        append(&store, b"a", b" on");
    }
}

#[test]
fn a_segment_whose_number_is_far_away_costs_no_more_than_one_that_is_near() {
    const FAR: u32 = 2_000_000_000;
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let log = store.log(b"a").unwrap();
    store.append(&log, b"kept", 1).unwrap();
    drop((store, log));
    let control = Control::open(&Disk::Real, directory.path()).unwrap().unwrap();
    let far = position(FAR, SEGMENT_HEADER_BYTES);
    [Control::set_file_end, Control::set_durable, Control::set_visible]
        .iter()
        .for_each(|set| set(&control, far));
    let (number, capacity, store_id) = (FAR, 4096, control.store_id);
    let header = SegmentHeader { number, capacity, store_id, ..SegmentHeader::default() };
    let mut bytes = header.encode().to_vec();
    bytes.resize(capacity as usize, 0);
    std::fs::write(directory.path().join(segment::file_name(FAR)), bytes).unwrap();
    let verified = verify(&Disk::Real, directory.path()).unwrap();
    let hole = (position(2, 0), Some(position(FAR, 0)));
    let spans =
        |damage: &[Damage]| damage.iter().map(|damage| (damage.from, damage.resumes)).collect::<Vec<_>>();
    assert_eq!(verified.damage.len(), 1);
    assert_eq!(spans(&verified.damage), [hole]);
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    assert_eq!(spans(attached.damage()), [hole]);
    let (store, found) = Store::open(&Disk::Real, directory.path(), os()).unwrap();
    assert_eq!(spans(&found.damage), [hole]);
    assert!(store.stats().segments < 5);
    let theirs = attached.find(b"a").unwrap().unwrap();
    let readers = [store.reader(&store.find(b"a").unwrap()), attached.reader(&theirs)];
    for mut reader in readers {
        let read: Vec<_> =
            reader.entries(&Query::default()).map(|entry| entry.map(|e| e.data.to_vec())).collect();
        assert!(matches!(&read[..], [Ok(kept), Err(ReadError::Damaged(_))] if kept == b"kept"), "{read:?}");
    }
}
