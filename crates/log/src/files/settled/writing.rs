//! Writing a settled file, from its first byte to its last, in one go.

use super::{BLOCK_BYTES, BOUND_BYTES, End, RANGE_BYTES, Settled, SettledRange};
use crate::format::SegmentHeader;
use crate::pace::PacedFile;
use crate::{LogId, Offset};
use std::io;

/// A settled file that is being written: record by record, each log's in order, one log behind the other in
/// the order of their ids.
pub(crate) struct Writing<'l> {
    file: PacedFile<'l>,
    ranges: Vec<u8>,
    bounds: Vec<u8>,
    checksums: Vec<u8>,
    /// The last range, and its last bound.
    last: Option<(SettledRange, u32)>,
    payload: u32,
    /// Checksum of the block that is being filled, so far.
    checksum: u32,
}

impl<'l> Writing<'l> {
    pub(crate) fn new(file: PacedFile<'l>) -> Writing<'l> {
        let (ranges, bounds, checksums) = (Vec::new(), Vec::new(), Vec::new());
        Writing { file, ranges, bounds, checksums, last: None, payload: 0, checksum: 0 }
    }

    /// Adds a record of a log.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn put(&mut self, log: LogId, offset: Offset, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        if length == 0 {
            return Ok(());
        }
        match &mut self.last {
            Some((range, bound)) if range.log == log && range.end() == offset => {
                if range.length - *bound >= BOUND_BYTES {
                    *bound = range.length;
                    self.bounds.extend_from_slice(&bound.to_le_bytes());
                }
                range.length += length;
            }
            _ => {
                self.end_range();
                let bounds = (self.bounds.len() / 4) as u32;
                self.bounds.extend_from_slice(&[0; 4]);
                self.last = Some((SettledRange { log, offset, byte: self.payload, length, bounds }, 0));
            }
        }
        self.put_payload(bytes)
    }

    fn end_range(&mut self) {
        if let Some((range, _)) = self.last.take() {
            range.encode(&mut self.ranges);
        }
    }

    fn put_payload(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.file.put(bytes)?;
        while !bytes.is_empty() {
            let room = (BLOCK_BYTES - self.payload % BLOCK_BYTES) as usize;
            let (here, rest) = bytes.split_at(room.min(bytes.len()));
            self.checksum = crc32c::crc32c_append(self.checksum, here);
            self.payload += here.len() as u32;
            if self.payload.is_multiple_of(BLOCK_BYTES) {
                self.end_block();
            }
            bytes = rest;
        }
        Ok(())
    }

    fn end_block(&mut self) {
        let checksum = std::mem::take(&mut self.checksum);
        self.checksums.extend_from_slice(&checksum.to_le_bytes());
    }

    /// Whether there is anything in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.payload == 0
    }

    /// Makes it durable, as the file of the segment in front of `next`. The file has yet to be given its
    /// name.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn finish(mut self, next: &SegmentHeader) -> io::Result<Settled> {
        self.end_range();
        if !self.payload.is_multiple_of(BLOCK_BYTES) {
            self.end_block();
        }
        let told = [&self.ranges, &self.bounds, &self.checksums];
        let checksum = told.iter().fold(0, |sum, part| crc32c::crc32c_append(sum, part));
        let end = End {
            segment: next.number - 1,
            store_id: next.store_id,
            link: next.previous,
            payload: self.payload,
            ranges: self.ranges.len() as u32 / RANGE_BYTES,
            bounds: self.bounds.len() as u32 / 4,
            checksum,
        };
        for part in told {
            self.file.put(part)?;
        }
        self.file.put(&end.encode())?;
        let (file, _) = self.file.finish()?;
        Settled::map(file, end).map(Settled::trusted)
    }
}
