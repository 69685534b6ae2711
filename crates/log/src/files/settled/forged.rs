//! Settled files with correct checksums and arbitrary tables: for tests, and for fuzzing.

use super::{End, RANGE_BYTES, Settled, Way, range};
use crate::format::SegmentHeader;
use crate::{LogId, Offset};
use std::path::Path;
use thalweg_sys::disk::Disk;
use thalweg_sys::disk::sim::SimDisk;

/// A file with correct checksums and the given tables, `ranges` and `bounds` of them, and a block of payload;
/// and the header of the segment behind its own.
fn forged(ranges: u32, bounds: u32, told: &[u8]) -> (Vec<u8>, SegmentHeader) {
    let next = SegmentHeader { number: 2, ..SegmentHeader::default() };
    let payload = 300;
    let mut end = End { segment: 1, payload, ranges, bounds, ..End::default() };
    let mut bytes = vec![7; payload as usize];
    let checksum = crc32c::crc32c(&bytes);
    let length = (ranges * RANGE_BYTES + bounds * 4) as usize;
    bytes.extend(told.iter().copied().chain(std::iter::repeat(0)).take(length));
    bytes.extend_from_slice(&checksum.to_le_bytes());
    end.checksum = crc32c::crc32c(&bytes[payload as usize..]);
    bytes.extend_from_slice(&end.encode());
    (bytes, next)
}

/// Checks that no table leads a look-up out of the file, and that each look-up leads on. Answers whether the
/// tables were accepted.
pub(crate) fn leads_nowhere_that_harms(
    ranges: u32,
    bounds: u32,
    told: &[u8],
    asked: &[(LogId, Offset)],
) -> bool {
    let (bytes, next) = forged(ranges, bounds, told);
    let disk = Disk::Sim(SimDisk::new(1, 1 << 20));
    let path = Path::new("/settled");
    let opened = disk.create(path).and_then(|file| file.write_at(&bytes, 0));
    let Ok(Some(settled)) = opened.and_then(|()| Settled::open(&disk, path, &next)) else {
        panic!("it is not taken for what it says it is");
    };
    let told = (0..ranges).map(|index| range(settled.told(), index));
    let each: Vec<_> =
        told.flat_map(|one| [(one.log, one.offset), (one.log, one.offset.wrapping_add(7))]).collect();
    for (log, from) in each.into_iter().chain(asked.iter().copied()) {
        for to in [from, from.saturating_add(1), from.saturating_add(100), Offset::MAX] {
            match settled.way(log, from, Offset::MAX, to) {
                Some(Way::Together { bytes, .. }) => {
                    assert!(bytes.start < bytes.end && bytes.end <= 300 && settled.verify(bytes));
                }
                Some(Way::Apart(bound)) => assert!(bound > from),
                None => {}
            }
        }
    }
    settled.is_sound()
}

/// Gives a file whose bytes were changed correct checksums again, as far as it is one.
#[cfg(fuzzing)]
pub(crate) fn reseal(bytes: &mut [u8]) {
    use super::END_BYTES;
    let Some(at) = bytes.len().checked_sub(END_BYTES as usize) else { return };
    let (rest, last) = bytes.split_at_mut(at);
    let sum = crc32c::crc32c(&last[..60]);
    last[60..].copy_from_slice(&sum.to_le_bytes());
    let Some(mut end) = End::decode(last)
        .filter(|end| end.file_bytes().is_some_and(|all| all as usize == at + END_BYTES as usize))
    else {
        return;
    };
    let (payload, told) = rest.split_at_mut(end.payload as usize);
    let (_, sums) = told.split_at_mut(told.len() - end.blocks() as usize * 4);
    for (block, sum) in payload.chunks(super::BLOCK_BYTES as usize).zip(sums.chunks_exact_mut(4)) {
        sum.copy_from_slice(&crc32c::crc32c(block).to_le_bytes());
    }
    end.checksum = crc32c::crc32c(told);
    last.copy_from_slice(&end.encode());
}
