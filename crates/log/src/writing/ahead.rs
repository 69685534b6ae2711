//! The pages ahead of the writer, in `os` mode.
//!
//! Purpose: a store to a page that the file system has only reserved costs a fault and a journal entry,
//! ten times as much as one to a page that is there. So the writer *prefaults*: pages are brought in some
//! at a time, by writing zeros over bytes that were never written. While these are appended to, a thread
//! of the store's own brings in the next ones, so that no append waits for it.
//!
//! Invariants: only one prefault is ordered at a time, in the active segment, and nothing is stored to its
//! bytes before they are brought in or the order is taken back. An order that the thread has not begun when
//! its bytes are needed is taken back, so a store without the thread brings in pages on the spot. A segment
//! is left only when no prefault of it is under way. If the file system refuses, nothing is lost: the blocks
//! are reserved.

use crate::options::Durability;
use crate::segment::Segment;
use crate::store::Shared;
use crate::writer::Writer;
use std::sync::{Arc, OnceLock};

/// Bytes whose pages are brought in at a time, at most: as many as one large page has, so that the kernel may
/// keep them as one and map them by one fault. Of a small segment it is about an eighth.
const PREFAULT_BYTES_MAX: u32 = 2 << 20;

/// Bytes of a segment whose pages are brought in at a time.
pub(crate) fn prefault_bytes(capacity: u32) -> u32 {
    (capacity / 8).next_power_of_two().clamp(4096, PREFAULT_BYTES_MAX).min(capacity)
}

/// Bytes of a segment that were not written yet, and whose pages are to be brought in.
#[derive(Debug)]
pub(crate) struct Prefault {
    segment: Arc<Segment>,
    from: u32,
    to: u32,
    /// Whether the pages are there, once that is known.
    brought: OnceLock<bool>,
}

impl Prefault {
    pub(crate) fn bring_in(&self) {
        let _ = self.brought.set(self.segment.blank(self.from, self.to).is_ok());
    }

    /// Up to where there is nothing to bring in: refused once, it is not tried again in this segment.
    fn ready(&self) -> u32 {
        if *self.brought.wait() { self.to } else { self.segment.header.capacity }
    }
}

/// How far the pages of the active segment are there.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// Up to there they are.
    pub(crate) ready: u32,
    ordered: Option<Arc<Prefault>>,
    /// The thread has begun it.
    begun: bool,
}

impl Ahead {
    /// Of a segment that was just begun.
    pub(crate) fn of(ready: u32) -> Ahead {
        Ahead { ready, ..Ahead::default() }
    }

    /// Brings in the pages for what ends at `needed` and some to come, behind what is written.
    #[cold]
    fn reach(&mut self, segment: &Arc<Segment>, written: u32, needed: u32) {
        self.settle();
        let capacity = segment.header.capacity;
        let prefault = |from: u32, needed: u32| Prefault {
            segment: segment.clone(),
            from,
            to: needed.next_multiple_of(prefault_bytes(capacity)).min(capacity),
            brought: OnceLock::new(),
        };
        if needed > self.ready {
            let missing = prefault(self.ready.max(written), needed);
            missing.bring_in();
            self.ready = missing.ready();
        }
        if self.ready < capacity {
            self.ordered = Some(Arc::new(prefault(self.ready, self.ready + 1)));
        }
    }

    /// Waits for the prefault that is under way, or takes back the one that was ordered.
    pub(crate) fn settle(&mut self) {
        if let Some(prefault) = self.ordered.take()
            && std::mem::take(&mut self.begun)
        {
            self.ready = prefault.ready();
        }
    }

    /// Whether a prefault is ordered that the thread has not begun.
    pub(crate) fn is_wanted(&self) -> bool {
        self.ordered.is_some() && !self.begun
    }

    /// Takes the order.
    pub(crate) fn begin(&mut self) -> Option<Arc<Prefault>> {
        let prefault = self.ordered.clone().filter(|_| !self.begun)?;
        self.begun = true;
        Some(prefault)
    }
}

impl Writer {
    /// Sees to it that the pages for another batch are there, where it is stored through a map that writes
    /// nothing back.
    #[inline]
    pub(crate) fn bring_in(&mut self, length: u32) {
        let needed = self.segment_tail.end() + length;
        if needed > self.ahead.ready && self.options.durability == Durability::Os {
            self.ahead.reach(&self.active, self.segment_tail.end(), needed);
        }
    }
}

impl Shared {
    /// The thread that brings in what is ordered, until the store closes.
    pub(crate) fn run_ahead(&self) {
        loop {
            let prefault = {
                let mut writer = self.writer.lock();
                loop {
                    if writer.closed {
                        return;
                    }
                    if let Some(prefault) = writer.ahead.begin() {
                        break prefault;
                    }
                    writer.lead.committer_idle = true;
                    self.work.wait(&mut writer);
                }
            };
            prefault.bring_in();
        }
    }
}
