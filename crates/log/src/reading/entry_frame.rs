//! An entry at a place in mapped bytes, and where the next one is.
//!
//! Purpose: what every walk over frames needs of one frame: whether its header is of an entry of the log,
//! what it says, and where the next header stands. That is predicted where entries have had one length. Owns
//! nothing. Invariant: an entry that [`lone`] or [`Pace::foreseen`] answers ends within the bytes it was
//! found in, and the two never differ. Checked below, by the models of `tests/query.rs` and
//! `tests/reader.rs`, and by flips and fuzzing.

use crate::format::{BATCH_HEADER_BYTES, BATCH_MAGIC, FLAG_LAST, FRAME_HEADER_BYTES, Kind};
use crate::format::{SEGMENT_BYTES_MAX, TOUCHED_BYTES, word16, word64};
use crate::query::Entry;
use crate::{LogId, Offset, Position, Time};

pub(crate) const HEAD: usize = FRAME_HEADER_BYTES as usize;
/// Header and touched table of a batch that touches one log.
const LONE: usize = (BATCH_HEADER_BYTES + TOUCHED_BYTES) as usize;

/// The bit of a header's first word that marks the last entry of its log in a transaction.
const LAST: u64 = (FLAG_LAST as u64) << 40;

/// The frame of an entry: where it begins and what its header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryFrame {
    pub(crate) at: u32,
    /// Payload bytes left out in front and behind.
    pub(crate) skip: u32,
    pub(crate) length: u32,
    pub(crate) offset: Offset,
    pub(crate) time: Time,
    pub(crate) last: bool,
}

/// Whether a header whose first word this is belongs to the last entry of its log in a transaction.
#[inline(always)]
pub(crate) fn is_last(first: u64) -> bool {
    first & LAST != 0
}

/// The entry whose header stands at `at`, or the first one of a batch of this log alone whose header stands
/// there; `None` unless it ends within `bytes`.
#[inline(always)]
pub(crate) fn lone(bytes: &[u8], at: u32, log: LogId) -> Option<EntryFrame> {
    let rest = bytes.get(at as usize..)?;
    let mut head = rest.first_chunk::<HEAD>()?;
    let (mut first, mut here) = (word64(head, 0), at);
    if first as u32 == BATCH_MAGIC {
        let whole = rest.first_chunk::<{ LONE + HEAD }>()?;
        if word16(whole, 44) != 1 {
            return None;
        }
        head = whole.last_chunk::<HEAD>()?;
        (first, here) = (word64(head, 0), at + LONE as u32);
    }
    if (first >> 32) as u8 != Kind::Data as u8 || word64(head, 8) != log {
        return None;
    }
    let last = is_last(first);
    let (length, offset, time) = (first as u32, word64(head, 16), word64(head, 24));
    let found = EntryFrame { at: here, skip: 0, length, offset, time, last };
    found.is_within(bytes).then_some(found)
}

impl EntryFrame {
    /// The entry of `log` whose header stands at `at`, if there is one. The bytes need not be verified, so it
    /// may claim to end anywhere.
    #[inline]
    pub(crate) fn read(bytes: &[u8], at: u32, log: LogId) -> Option<EntryFrame> {
        let head = bytes.get(at as usize..)?.first_chunk::<HEAD>()?;
        let first = word64(head, 0);
        let (length, kind) = (first as u32, (first >> 32) as u8);
        let ours = kind == Kind::Data as u8 && word64(head, 8) == log && length <= SEGMENT_BYTES_MAX;
        let last = is_last(first);
        let (offset, time) = (word64(head, 16), word64(head, 24));
        ours.then_some(EntryFrame { at, skip: 0, length, offset, time, last })
    }

    /// Where its payload begins.
    #[inline]
    pub(crate) fn start(&self) -> u32 {
        self.at + FRAME_HEADER_BYTES + self.skip
    }

    /// Where its payload ends.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        self.start() + self.length
    }

    /// Whether all of its payload is in `bytes`. That holds of every verified batch, except where the limit
    /// of reading lies within a batch.
    #[inline(always)]
    pub(crate) fn is_within(&self, bytes: &[u8]) -> bool {
        let start = self.at as usize + HEAD + self.skip as usize;
        bytes.len().checked_sub(start).is_some_and(|left| self.length as usize <= left)
    }

    /// Where the next header is, of an entry of which nothing is left out.
    #[inline(always)]
    fn next(&self) -> u32 {
        self.at + FRAME_HEADER_BYTES + self.length.next_multiple_of(8)
    }

    /// The entry itself, given its header's position and the bytes it was found in.
    #[inline(always)]
    pub(crate) fn entry(self, position: Position, bytes: &[u8]) -> Entry<'_> {
        let start = self.at as usize + FRAME_HEADER_BYTES as usize + self.skip as usize;
        let data = &bytes[start..start + self.length as usize];
        Entry { offset: self.offset, time: self.time, last: self.last, position, data }
    }
}

/// How long entries have been of late.
///
/// The next header's byte follows from a length that has to be read first, so a walk waits for one header
/// after the other. Where entries have had the same length for a while, the next header's byte is predicted,
/// and the processor reads several headers at once; each prediction is checked against the header. Where
/// lengths vary it would be wrong more often than it helps, so prediction stops until they are alike again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    length: u32,
    /// Bytes from a header to the next, at that length.
    pub(crate) frame_bytes: u32,
    /// Entries of that length in a row, counted up to [`ALIKE`].
    alike: u32,
    steady: bool,
}

/// Entries of one length in a row after which the next length is predicted.
const ALIKE: u32 = 16;

impl Pace {
    /// Where the next header is, of an entry of which nothing is left out.
    #[inline(always)]
    pub(crate) fn next(&mut self, found: &EntryFrame) -> u32 {
        if self.steady {
            // A branch and not a conditional move: the predicted value must not depend on the load.
            if found.length == self.length {
                return found.at + self.frame_bytes;
            }
            self.stumble();
        } else {
            self.alike = if found.length == self.length { self.alike + 1 } else { 0 };
            self.length = found.length;
            if self.alike == ALIKE {
                self.settle();
            }
        }
        found.next()
    }

    /// The entry at `at`, if its header has the predicted length and kind: one comparison tells.
    #[inline(always)]
    pub(crate) fn foreseen(&self, bytes: &[u8], at: u32, log: LogId) -> Option<EntryFrame> {
        if !self.steady {
            return None;
        }
        let frame = bytes.get(at as usize..)?.get(..HEAD + self.length as usize)?;
        let head = frame.first_chunk::<HEAD>()?;
        let (first, alike) = (word64(head, 0), u64::from(self.length) | (Kind::Data as u64) << 32);
        if first & !LAST != alike || word64(head, 8) != log {
            return None;
        }
        let (offset, time, last) = (word64(head, 16), word64(head, 24), is_last(first));
        Some(EntryFrame { at, skip: 0, length: self.length, offset, time, last })
    }

    #[cold]
    #[inline(never)]
    fn stumble(&mut self) {
        (self.steady, self.alike) = (false, 0);
    }

    #[cold]
    #[inline(never)]
    fn settle(&mut self) {
        self.frame_bytes = FRAME_HEADER_BYTES + self.length.next_multiple_of(8);
        self.steady = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Stamp, frame_header};
    use proptest::prelude::*;

    /// A frame: its kind, flags, log, payload bytes.
    fn frame() -> impl Strategy<Value = (Kind, u8, LogId, u32)> {
        let kind = prop_oneof![9 => Just(Kind::Data), 1 => Just(Kind::Note), 1 => Just(Kind::Close)];
        (
            kind,
            prop_oneof![0..2_u8, 0..2_u8, any::<u8>()],
            1..3_u64,
            prop_oneof![3 => Just(16_u32), 1 => 0..40_u32],
        )
    }

    proptest! {
        /// Whatever the frames are, and wherever the bytes are cut off: a predicted entry is there, and an
        /// entry like those before it is predicted.
        #[test]
        fn what_is_foreseen_is_what_stands_there(
            frames in proptest::collection::vec(frame(), 1..12), cut in 0..24_usize, length in prop_oneof![4 => Just(16_u32), 1 => 0..40_u32],
        ) {
            let (mut bytes, mut starts) = (Vec::new(), Vec::new());
            for (number, (kind, flags, log, length)) in (7..).zip(&frames) {
                starts.push(bytes.len() as u32);
                let stamp = Stamp { log: *log, offset: number, time: number * 10 };
                bytes.extend_from_slice(&frame_header(*kind, *flags, stamp, *length));
                bytes.resize(bytes.len() + length.next_multiple_of(8) as usize, 9);
            }
            bytes.truncate(bytes.len() - cut);
            let mut pace = Pace { length, ..Pace::default() };
            pace.settle();
            for (start, (_, flags, ..)) in starts.into_iter().zip(&frames) {
                let (foreseen, there) = (pace.foreseen(&bytes, start, 1), lone(&bytes, start, 1));
                let is_plain = there.is_some_and(|found| found.length == length) && *flags <= FLAG_LAST;
                prop_assert_eq!(foreseen.is_some(), is_plain);
                prop_assert!(foreseen.is_none() || foreseen == there);
                let unsure = Pace { steady: false, ..pace };
                prop_assert!(unsure.foreseen(&bytes, start, 1).is_none());
            }
        }
    }
}
