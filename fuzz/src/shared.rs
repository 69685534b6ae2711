//! Memory that a peer writes, too, with anything in it: rings, and the words of a store that another process
//! has open.

use crate::store;
use std::io::IoSlice;
use std::os::fd::AsFd;
use thalweg_log::{Attached, Disk, Query};
use thalweg_sync::words::Words;
use thalweg_sys::memory;
use thalweg_transport::{ReadOutcome, SharedEnd, Wanted};

const RING_BYTES: u32 = 4096;
/// Words of the map in front of the rings' bytes that mean something: what it is, the tails and heads, who
/// sleeps.
const WORDS: [usize; 9] = [0, 1, 16, 32, 48, 64, 80, 81, 96];
/// The words that a founder reads of its peer: how far that has written, and read.
const PEERS: [(usize, usize); 2] = [(48, 32), (16, 64)];

/// An end of a pair of rings whose peer writes what it likes, wherever it likes, between one step and the
/// next: what is read was there, and a word that lies is told.
///
/// The input is a list of steps: `what 1 | argument 1`, and where that writes a word, its 8 bytes.
pub fn rings(data: &[u8]) {
    let Some((side, mut data)) = data.split_first() else { return };
    let side = usize::from(side & 1);
    let (founder, memory) = SharedEnd::create(RING_BYTES).expect("memory");
    let words = Words::new(memory::map(memory.as_fd()).expect("a map"));
    let joined = memory.try_clone().map(SharedEnd::adopt).expect("a descriptor");
    let mut end = if side == 0 { founder } else { joined.expect("rings") };
    let (mut read, mut written) = (0_u64, 0_u64);
    while let Some(([what, argument], rest)) = data.split_first_chunk() {
        data = rest;
        let count = usize::from(*argument) * 33;
        match what % 8 {
            0 => {
                let Some((value, rest)) = data.split_first_chunk() else { return };
                data = rest;
                // Anywhere, or where it hurts.
                let place = usize::from(*argument);
                let place = WORDS.get(place % 16).copied().unwrap_or(512 + place);
                words.store(place, u64::from_le_bytes(*value));
            }
            // What a peer that keeps to the rules writes, and one that does not quite.
            1 => words.store(PEERS[side].0, read.wrapping_add(count as u64)),
            2 => words.store(PEERS[side].1, written.wrapping_sub(count as u64)),
            3 => {
                let mut into = Vec::with_capacity(count);
                let claimed = words.load(PEERS[side].0).wrapping_sub(read);
                match end.read(&mut into) {
                    Ok(ReadOutcome::Bytes(count)) => {
                        assert_eq!(count, into.len());
                        assert_eq!(into, bytes(&words, 1 - side, read, count));
                        read += count as u64;
                    }
                    Ok(ReadOutcome::WouldBlock) => assert!(claimed == 0),
                    Ok(ReadOutcome::End) => panic!("rings do not end"),
                    // The peer is parted with.
                    Err(_) => return,
                }
            }
            4 => {
                let piece = vec![*argument; count];
                let Ok(taken) = end.write_gathered(&[IoSlice::new(&piece), IoSlice::new(b"x")]) else {
                    return;
                };
                if let thalweg_transport::WriteOutcome::Bytes(taken) = taken {
                    assert!(taken <= RING_BYTES as usize && taken <= count + 1);
                    let put = taken.min(count);
                    assert_eq!(bytes(&words, side, written, put), piece[..put]);
                    written += taken as u64;
                }
            }
            5 => {
                let _ = (end.pending(), end.has_space(), end.shares_cpu(), end.bell_wanted());
                end.anticipate();
            }
            6 => {
                let _ = end.prepare_to_sleep(Wanted::beside_unsent(argument & 1 != 0))
                    || end.prepare_to_sleep(Wanted::Space);
                end.wake_up();
            }
            // A client that joins now takes the map as it is, or says why not.
            _ => drop(memory.try_clone().map(SharedEnd::adopt).expect("a descriptor")),
        }
    }
}

/// Bytes of a ring from a place on.
fn bytes(words: &Words, ring: usize, from: u64, count: usize) -> Vec<u8> {
    let size = u64::from(RING_BYTES);
    let place = |at: u64| 4096 + ring as u64 * size + (from + at) % size;
    let byte = |at: u64| words.load((place(at) / 8) as usize).to_le_bytes()[(place(at) % 8) as usize];
    (0..count as u64).map(byte).collect()
}

/// A store that is read while somebody writes its words, whatever they are: reading ends, and stays within
/// what is there.
///
/// The input is a list of words: `which 1 | value 8`, little-endian; with the highest bit of the first byte,
/// the value is added to what is there.
pub fn attached(data: &[u8]) {
    let directory = store::copied(store::sample());
    let control = Disk::Real.open(&directory.path().join("control")).expect("a control file");
    let words = Words::new(control.map(4096, true).expect("a map"));
    let (mut attached, mut logs) = (None, Vec::new());
    for ([which, value @ ..], _) in data.chunks_exact(9).filter_map(|edit| edit.split_first_chunk::<9>()) {
        let (place, value) = (usize::from(which & 0x7f) % 64, u64::from_le_bytes(*value));
        words.store(place, if which & 0x80 == 0 { value } else { words.load(place).wrapping_add(value) });
        if attached.is_none() {
            attached = Attached::open(&Disk::Real, directory.path()).ok();
        }
        let Some(attached) = &attached else { continue };
        let mut found = Vec::new();
        if attached.visit(|log| found.push(log.clone())).is_ok() {
            found.extend(attached.find(b"a").ok().flatten());
            logs = found;
        }
        // Where nobody can say which there are, those that were known are read all the same.
        for log in &logs {
            let mut reader = attached.reader(log);
            reader.entries(&Query::default()).take(1_000).for_each(drop);
            let mut back = attached.reader(log);
            back.entries_back(&Query::default()).take(100).for_each(drop);
        }
    }
}
