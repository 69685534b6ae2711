//! Payload that holds what looks like batches, where the header around it is lost.

use super::store::{config, payload};
use crate::format::{self, BatchHeader, Kind, Link, Seal, Stamp};
use crate::{Commit, Options, Store, place_of, segment_of};
use std::fs;
use std::path::Path;
use thalweg_sys::clock::thread_processor_ns;
use thalweg_sys::disk::Disk;

fn open(directory: &Path) -> (Store, crate::Recovered) {
    let options = Options { committer_thread: false, segment_bytes_min: 8 << 20, ..Options::default() };
    Store::open(&Disk::Real, directory, options).unwrap()
}

/// A batch that deletes a log and says that everything there is was durable, as a writer that knows the
/// format would write it.
fn forged(log: u64, tail: u64) -> Vec<u8> {
    let body = format::frame_header(Kind::Delete, 0, Stamp { log, offset: tail, time: 9 }, 0);
    let header = BatchHeader {
        length: format::BATCH_HEADER_BYTES + format::TOUCHED_BYTES + format::FRAME_HEADER_BYTES,
        header_checksum: 0,
        body_checksum: crc32c::crc32c(&body),
        previous: Link::default(),
        durable: u64::MAX >> 1,
        time: 9,
        frames: 1,
        touched: 1,
    };
    let mut bytes = Vec::new();
    header.encode(&[(log, tail)], Seal::default().at(0), &mut bytes);
    bytes.extend_from_slice(&body);
    bytes
}

/// A store that was opened, and the processor time that it took.
struct Opened {
    _directory: tempfile::TempDir,
    store: Store,
    report: crate::Recovered,
    took_ns: u64,
}

/// What a power cut leaves of the last append: its sectors, all but the one that the header was in.
fn torn(payload_of: impl Fn(&Store) -> Vec<u8>) -> Opened {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, _) = open(first.path());
    for name in [&b"bystander"[..], b"writer"] {
        store.create(name, &config(), None, &payload(b"before"), None).unwrap();
    }
    store.flush().unwrap();
    for file in fs::read_dir(first.path()).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), second.path().join(file.file_name())).unwrap();
    }
    let (log, at) = (store.find(b"writer").unwrap(), store.stats().staged_end);
    let bytes = payload_of(&store);
    let state = log.visible().unwrap();
    store.commit(&log, state.version, &Commit { payload: &bytes, ..Commit::default() }, None).unwrap();
    store.flush().unwrap();
    let name = crate::segment::file_name(segment_of(at));
    let mut segment = fs::read(first.path().join(&name)).unwrap();
    segment[place_of(at) as usize..][..format::BATCH_HEADER_BYTES as usize].fill(0);
    fs::write(second.path().join(&name), segment).unwrap();
    drop(store);
    let begun_ns = thread_processor_ns();
    let (store, report) = open(second.path());
    Opened { _directory: second, store, report, took_ns: thread_processor_ns() - begun_ns }
}

#[test]
fn no_payload_is_taken_for_batches_where_the_header_around_it_is_lost() {
    let Opened { store, report, _directory, .. } = torn(|store| {
        let log = store.find(b"bystander").unwrap();
        forged(log.id(), log.visible().unwrap().tail).repeat(3)
    });
    assert_eq!(report.damage, [], "an append that nobody acknowledged is no damage");
    assert!(report.discarded_bytes > 0);
    assert!(store.find(b"bystander").is_some());
    let log = store.find(b"writer").unwrap();
    assert_eq!(log.visible().unwrap().tail, 6);
    store.create(b"another", &config(), None, &payload(b""), None).unwrap();
}

#[test]
fn a_payload_of_headers_takes_no_longer_to_pass_over_than_any_other() {
    // Each of these says that logs by the thousand were touched: summed up one by one they are 500 GB.
    let header = BatchHeader {
        length: 1 << 24,
        header_checksum: 0,
        body_checksum: 0,
        previous: Link::default(),
        durable: 0,
        time: 0,
        frames: 1,
        touched: u16::MAX,
    };
    let mut bytes = Vec::new();
    header.encode(&[], Seal::default().at(0), &mut bytes);
    let headers = torn(|_| bytes.repeat((4 << 20) / bytes.len()));
    let ordinary = torn(|_| vec![7; 4 << 20]);
    assert_eq!((&headers.report.damage[..], &ordinary.report.damage[..]), (&[][..], &[][..]));
    let (took_ns, ordinary_ns) = (headers.took_ns, ordinary.took_ns);
    assert!(took_ns < ordinary_ns * 10, "{took_ns} ns, where anything else takes {ordinary_ns}");
}
