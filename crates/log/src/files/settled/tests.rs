//! What is told leads to what was written, and garbage nowhere that harms.

use super::forged::leads_nowhere_that_harms;
use super::*;
use crate::pace::PacedFile;
use crate::pace::Throttle;
use proptest::prelude::*;
use thalweg_sys::disk::sim::{Random, SimDisk};

fn next() -> SegmentHeader {
    let previous = Link { length: 96, checksum: 5 };
    SegmentHeader { number: 8, store_id: 77, previous, ..SegmentHeader::default() }
}

/// Whose it is, where it begins, and what it holds.
type Record = (LogId, Offset, Vec<u8>);

/// Logs in the order of their ids, each of records of given lengths behind gaps of given numbers of offsets.
type Logs = Vec<Vec<(u64, usize)>>;

fn logs() -> impl Strategy<Value = Logs> {
    let gap = prop_oneof![9 => Just(0u64), 1 => 1u64..100];
    proptest::collection::vec(proptest::collection::vec((gap, 0usize..200), 1..60), 1..6)
}

/// Each record's log and offset, and the file of all.
fn written(disk: &Disk, path: &Path, logs: &Logs) -> (Vec<Record>, Option<Settled>) {
    let throttle = Throttle::default();
    let mut writing = Writing::new(PacedFile::new(disk.create(path).unwrap(), 4096, &throttle, 0));
    let mut records = Vec::new();
    for (log, lengths) in (3u64..).step_by(5).zip(logs) {
        let mut offset = log * 1_000;
        for (gap, length) in lengths {
            offset += gap;
            let bytes = vec![(log * 31 + offset) as u8; *length];
            writing.put(log, offset, &bytes).unwrap();
            records.push((log, offset, bytes));
            offset += *length as u64;
        }
    }
    let settled = (!writing.is_empty()).then(|| writing.finish(&next()).unwrap());
    records.retain(|(.., bytes)| !bytes.is_empty());
    (records, settled)
}

proptest! {
    #[test]
    fn every_record_is_found_and_every_way_ends_where_one_does(logs in logs(), room in 1u64..3_000) {
        let (disk, path) = (Disk::Sim(SimDisk::new(1, 1 << 20)), Path::new("/settled"));
        let (records, made) = written(&disk, path, &logs);
        prop_assert_eq!(made.is_none(), records.is_empty());
        let Some(made) = made else { return Ok(()) };
        let settled = Settled::open(&disk, path, &next()).unwrap().unwrap();
        prop_assert!(settled.is_whole() && settled.held_bytes() == made.held_bytes());
        let ends: Vec<_> = records.iter().map(|(log, offset, bytes)| (*log, offset + bytes.len() as u64)).collect();
        for (at, (log, offset, _)) in records.iter().enumerate() {
            // What follows without a gap.
            let rest = records[at..].iter().zip(&ends[at..]);
            let follow = rest.take_while(|((same, offset, _), _)| {
                same == log && (*offset == records[at].1 || ends.contains(&(*same, *offset)))
            });
            let follow: Vec<_> = follow.collect();
            let end = follow.last().unwrap().1.1;
            for to in [offset + room, end, Offset::MAX] {
                match settled.way(*log, *offset, Offset::MAX, to) {
                    Some(Way::Together { bytes, all }) => {
                        let stop = offset + bytes.len() as u64;
                        prop_assert!(ends.contains(&(*log, stop)) && stop <= to.min(end) && all == (stop == end));
                        let there: Vec<u8> = follow.iter().flat_map(|((.., bytes), _)| bytes.clone()).collect();
                        prop_assert!(settled.region().bytes(bytes.clone()) == &there[..bytes.len()]);
                        // No more of it would have ended where it may.
                        prop_assert!(all || to - stop < u64::from(BOUND_BYTES) + 200);
                    }
                    Some(Way::Apart(bound)) => {
                        prop_assert!(bound > *offset && bound - offset < u64::from(BOUND_BYTES) + 200);
                        let begins = records.iter().any(|(same, offset, _)| (same, *offset) == (log, bound));
                        prop_assert!(begins || bound == end);
                    }
                    None => prop_assert!(to - offset < u64::from(BOUND_BYTES) + 200 && to < end),
                }
            }
            // A cut ends it anywhere.
            let cut = offset + (end - offset).div_ceil(2);
            if let Some(Way::Together { bytes, all }) = settled.way(*log, *offset, cut, Offset::MAX) {
                prop_assert!(all && bytes.len() as u64 == cut - offset);
            }
            prop_assert_eq!(settled.way(log + 1, *offset, Offset::MAX, Offset::MAX), None);
        }
        prop_assert_eq!(settled.way(records[0].0, records[0].1 - 1, Offset::MAX, Offset::MAX), None);
        let others = [SegmentHeader { number: 9, ..next() }, SegmentHeader { after_damage: true, ..next() }];
        for other in others {
            prop_assert!(Settled::open(&disk, path, &other).unwrap().is_none());
        }
    }

    #[test]
    fn garbage_leads_nowhere_that_harms(
        told in proptest::collection::vec(prop_oneof![3 => 0u8..4, 1 => any::<u8>()], 0..160), ranges in 0u32..4, bounds in 0u32..6,
    ) {
        leads_nowhere_that_harms(ranges, bounds, &told, &[(0, 0), (1, 5), (u64::MAX, u64::MAX)]);
    }
}

#[test]
fn what_makes_sense_is_believed() {
    let mut told = Vec::new();
    SettledRange { log: 4, offset: 10, byte: 0, length: 200, bounds: 0 }.encode(&mut told);
    SettledRange { log: 4, offset: 210, byte: 200, length: 100, bounds: 2 }.encode(&mut told);
    [0u32, 120, 0].iter().for_each(|bound| told.extend_from_slice(&bound.to_le_bytes()));
    assert!(leads_nowhere_that_harms(2, 3, &told, &[(4, 10), (4, 130), (4, 309), (4, 310)]));
    for (at, value) in [(16, 200), (24, 1), (20, 0), (20, 255), (56, 3), (64, 1), (68, 0), (68, 201)] {
        let mut told = told.clone();
        told[at] = value;
        assert!(!leads_nowhere_that_harms(2, 3, &told, &[(4, 10)]), "{value} at {at}");
    }
}

/// What was verified is changed, by a disk that gives back other bytes or by another process: no
/// reader fails.
#[test]
fn what_changes_behind_ones_back_leads_nowhere_that_harms() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("settled");
    let logs: Logs = (1..6).map(|log| (0..50).map(|record| (0, 1 + log * record)).collect()).collect();
    let (records, _) = written(&Disk::Real, &path, &logs);
    let whole = std::fs::read(&path).unwrap();
    let mut random = Random::new(3);
    let (mut led, mut harmed) = (0, 0);
    for _ in 0..2_000 {
        let settled = Settled::open(&Disk::Real, &path, &next()).unwrap().unwrap();
        assert!(settled.is_whole());
        let told = settled.end.payload as usize..whole.len() - END_BYTES as usize;
        let file = Disk::Real.open(&path).unwrap();
        let at = told.start + random.below((told.len() - 4) as u64) as usize / 4 * 4;
        let word = [random.word() as u32, u32::MAX, 0x7fff_ffff, 0, 64][random.below(5) as usize];
        file.write_at(&word.to_le_bytes(), at as u64).unwrap();
        for (log, offset, _) in &records {
            for to in [offset + 1, offset + 500, Offset::MAX] {
                if let Some(Way::Together { bytes, .. }) = settled.way(*log, *offset, Offset::MAX, to) {
                    led += 1;
                    let _ = settled.verify(bytes);
                }
            }
        }
        harmed += u32::from(!settled.is_sound());
        file.write_at(&whole, 0).unwrap();
    }
    assert!(led > 10_000 && harmed > 20, "{led} ways, {harmed} found out");
}
