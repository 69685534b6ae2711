//! A batch of entries on its way into the logs that it touches.
//!
//! Purpose: the one way in for entries, appended one by one or in a transaction. Whoever has them locks their
//! logs and hands over a [`LogPart`] for each; the batch is written, staged in every log and, unless a sync
//! has to come first, visible in all of them when the call returns. Invariant: the logs stay locked
//! meanwhile, so that nobody sees some of a batch.

use crate::batch::{Entries, Placed, PlannedBatch, PlannedFrame, PlannedFrames};
use crate::commit::WhoSyncs;
use crate::committer::Pending;
use crate::error::CommitError;
use crate::format::{Kind, Stamp};
use crate::log::{Change, Inner, Log, Seen};
use crate::store::Shared;
use crate::{LogId, Offset};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::sync::Arc;

/// What a batch of entries does to one log, which is locked.
pub(crate) struct LogPart<'p> {
    pub(crate) log: &'p Arc<Log>,
    pub(crate) inner: MutexGuard<'p, Inner>,
    /// Offset of its first entry: where the log ended.
    pub(crate) first: Offset,
    /// Offset behind its last.
    pub(crate) end: Offset,
    /// Where earlier entries of the log lie, if the batch is to say it.
    places: Vec<u8>,
}

/// Watchers to be told of a log that moved, once no log is locked.
pub(crate) type Moved = SmallVec<[(u32, LogId); 1]>;

impl<'p> LogPart<'p> {
    /// Of a log that takes entries.
    ///
    /// # Errors
    /// [`CommitError::Deleted`], [`CommitError::LogClosed`], or that the log is damaged.
    #[inline]
    pub(crate) fn of(log: &'p Arc<Log>, inner: MutexGuard<'p, Inner>) -> Result<LogPart<'p>, CommitError> {
        inner.check_open()?;
        let (end, places) = (inner.tail, inner.places_to_list());
        Ok(LogPart { log, inner, first: end, end, places })
    }

    /// The log, and where in it the part begins.
    #[inline]
    pub(crate) fn begins(&self) -> (LogId, Offset) {
        (self.log.id(), self.first)
    }

    /// Where the log's earlier entries lie, to be said in the batch.
    fn places_frame(&self) -> Result<PlannedFrame<'_>, CommitError> {
        let stamp = Stamp { log: self.log.id(), offset: self.first, time: self.inner.accessed };
        PlannedFrame::of(Kind::Places, 0, stamp, [&self.places, &[]])
    }
}

impl Shared {
    /// Writes the entries, all of them those of the parts, as one batch. Once the caller holds no lock any
    /// more, it is for it to [tell](Shared::tell_moved) of what moved.
    ///
    /// # Errors
    /// [`CommitError`]; nothing was applied in any case.
    pub(crate) fn write_parts(
        &self,
        parts: &mut [LogPart<'_>],
        entries: &Entries,
        who_syncs: WhoSyncs,
    ) -> Result<(Placed, Moved), CommitError> {
        let mut beside = PlannedFrames::new();
        for part in parts.iter().filter(|part| !part.places.is_empty()) {
            beside.push(part.places_frame()?);
        }
        let (mut touched, mut payload_bytes): (SmallVec<[_; 1]>, _) = (SmallVec::new(), 0);
        for part in parts.iter() {
            touched.push((part.log.id(), part.end));
            payload_bytes += part.end - part.first;
        }
        let last = parts.len() - 1;
        let pending = parts.iter().enumerate().map(|(place, part)| Pending {
            same_batch_follows: place < last,
            ..Pending::payload(part.log, part.end)
        });
        let mut batch = PlannedBatch::of_entries(&beside, entries, &touched);
        let placed = self.publish(&mut batch, payload_bytes, pending, None, who_syncs)?;
        let (says_places, time) = (batch.says_places(), batch.times.latest());
        // It borrows from the parts, which change now.
        drop(beside);
        let mut moved = Moved::new();
        for LogPart { log, inner, first, end, places } in parts {
            let places: &[u8] = if says_places { places } else { &[] };
            let change = Change::payload(&placed, *first..*end, places, time);
            let tell = self.apply(log, inner, &change, &Seen::payload(*end));
            if tell != 0 {
                moved.push((tell, log.id()));
            }
        }
        Ok((placed, moved))
    }
}
