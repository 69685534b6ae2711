//! The end of the log, where batches are put down: through the map at once, or several together by one call.
//!
//! Purpose: a sync takes the right to write from every page of the map that was stored to, with an interrupt
//! for each processor that the program runs on, and the next store to such a page costs a fault. A call that
//! writes to the file costs neither, and the map shows what it wrote. So in `sync` mode a batch of a page or
//! more goes by a call of its own, unless it is large, and what a turn commits is *staged*: it is kept in
//! memory and goes by one call in front of the sync that its turn ends with.
//!
//! Owns the writer of the active segment's region, and the bytes that are staged.
//!
//! Invariants: what is staged lies right behind what is in the map, so that whatever else is put down has it
//! flushed first; it is bounded; nothing that is staged is published. Where a call fails, what is staged
//! stays so for good, and the store takes nothing more: the bytes do not go through the map instead, because
//! a store to a page that the file system has no room for, or lets no process write to any more, ends the
//! process. Checked by the tests of [turns](crate::committer), which read what is staged before and behind
//! the flush, and by the crash simulation, half of whose commits are a turn's, and some of whose calls take
//! some of the bytes and fail.

use crate::batch::PlannedBatch;
use crate::options::{Durability, Options};
use crate::probes::Probes;
use crate::segment::Segment;
use std::io;
use thalweg_sync::region::RegionWriter;

/// In `sync` mode a batch of this many bytes or more goes by a call. Tests take every way.
const CALL_BYTES_MIN: usize = if cfg!(test) { 256 } else { 4096 };
/// Bytes that are staged at most. What is larger goes through the map, because it would have to be put
/// together first.
const STAGED_BYTES_MAX: usize = if cfg!(test) { 4096 } else { 256 << 10 };

/// How a batch gets into the file, and so when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteMode {
    /// At once, without a system call.
    Stored,
    /// At once, and a sync follows.
    Synced,
    /// By the next [`SegmentTail::flush`], which a sync follows.
    Flushed,
}

impl WriteMode {
    /// Of a batch. `carried`: its committer flushes at the end of a turn.
    pub(crate) fn of(durability: Durability, carried: bool) -> WriteMode {
        match durability {
            Durability::Sync if carried => WriteMode::Flushed,
            Durability::Sync => WriteMode::Synced,
            Durability::Os | Durability::Memory => WriteMode::Stored,
        }
    }
}

/// Where the next batch goes.
pub(crate) struct SegmentTail {
    region: RegionWriter,
    staged: Vec<u8>,
    probes: Probes,
}

impl SegmentTail {
    pub(crate) fn new(region: RegionWriter, options: &Options) -> SegmentTail {
        SegmentTail { region, staged: Vec::new(), probes: Probes::of(options) }
    }

    /// Goes on in another segment. Nothing may be staged.
    pub(crate) fn move_to(&mut self, region: RegionWriter) {
        debug_assert!(self.staged.is_empty(), "staged for a segment that is left");
        self.region = region;
    }

    /// End of the last batch, staged or not.
    pub(crate) fn end(&self) -> u32 {
        self.region.filled() + self.staged_bytes()
    }

    /// End of what is in the file, and readers may see.
    pub(crate) fn published(&self) -> u32 {
        self.region.filled()
    }

    /// Room that is left, in bytes.
    pub(crate) fn remaining(&self) -> u32 {
        self.region.remaining() - self.staged_bytes()
    }

    fn staged_bytes(&self) -> u32 {
        u32::try_from(self.staged.len()).unwrap_or(u32::MAX)
    }

    /// Puts a batch down, its header in front. There must be room for it.
    ///
    /// # Errors
    /// Of a call: see [`SegmentTail::flush`]. It is unknown whether it took the batch.
    pub(crate) fn put(
        &mut self,
        header: &[u8],
        batch: &PlannedBatch<'_>,
        mode: WriteMode,
        segment: &Segment,
    ) -> io::Result<()> {
        let bytes = || usize::try_from(batch.bytes()).unwrap_or(usize::MAX);
        let by_call = match mode {
            WriteMode::Stored => false,
            WriteMode::Synced => bytes() >= CALL_BYTES_MIN || !self.staged.is_empty(),
            WriteMode::Flushed => true,
        };
        let kept = by_call && bytes() <= STAGED_BYTES_MAX;
        if !kept || self.staged.len() + bytes() > STAGED_BYTES_MAX {
            self.flush(segment)?;
        }
        if kept {
            self.staged.extend_from_slice(header);
            batch.pieces(|piece| self.staged.extend_from_slice(piece));
            return if mode == WriteMode::Flushed { Ok(()) } else { self.flush(segment) };
        }
        self.region.write(header);
        self.probes.behind_header(&mut self.region, header.len(), segment);
        batch.pieces(|piece| self.region.write(piece));
        self.region.publish();
        Ok(())
    }

    /// Brings what is staged into the file, where readers may see it.
    ///
    /// # Errors
    /// It took some of it or nothing: it stays staged, and nothing more may be put down.
    pub(crate) fn flush(&mut self, segment: &Segment) -> io::Result<()> {
        if self.staged.is_empty() {
            return Ok(());
        }
        self.probes.written(segment.write(self.region.filled(), &self.staged))?;
        self.region.pass(self.staged_bytes());
        self.region.publish();
        self.staged.clear();
        Ok(())
    }
}
