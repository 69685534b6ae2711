//! Bytes that came in, and where the next frame lies in them.
//!
//! Frames are handed out as ranges of the buffer they were read into; the bytes stay until the next time room
//! is made. A length is believed only as far as bytes keep coming: room for a large frame is made in steps.

use std::ops::Range;
use thalweg_wire::frame::{
    FrameError, HEADER_BYTES, Header, LENGTH_BYTES, LENGTH_MAX, Welcome, plain_length,
};

/// Room that a read is offered at least.
const READ_BYTES: usize = 32 << 10;
/// Room that is made for a large frame before its bytes begin to come.
const AHEAD_BYTES: usize = 1 << 20;
/// A buffer that a large frame made larger than this is given back once it is empty.
const KEEP_BYTES: usize = 1 << 20;
/// A response's tag ends within so many bytes of its frame; one that does not is no item's.
const TAG_BYTES_MAX: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct Incoming {
    bytes: Vec<u8>,
    /// How many of `bytes` were handed out or passed over.
    taken: usize,
    /// How many bytes to pass over that are not there yet.
    skip: usize,
    /// How many bytes the frame at `taken` has, as far as is known.
    wanted: usize,
    /// The frame at `taken` is plain and too long, and is passed over once its tag has been read.
    is_tag_awaited: bool,
}

impl Incoming {
    /// The buffer, with room for the next read.
    pub(crate) fn room(&mut self) -> &mut Vec<u8> {
        self.settle();
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
            if self.bytes.capacity() > KEEP_BYTES {
                self.bytes.shrink_to(READ_BYTES);
            }
        }
        let missing = self.wanted.saturating_sub(self.bytes.len() - self.taken);
        let room = missing.min(AHEAD_BYTES.max(self.bytes.len())).max(READ_BYTES);
        if self.bytes.capacity() - self.bytes.len() < room && self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.reserve(room);
        &mut self.bytes
    }

    /// Passes over bytes, those that are not there yet included.
    pub(crate) fn pass_over(&mut self, count: usize) {
        self.skip += count;
        self.wanted = 0;
        self.is_tag_awaited = false;
        self.settle();
    }

    fn settle(&mut self) {
        let here = self.skip.min(self.bytes.len() - self.taken);
        self.taken += here;
        self.skip -= here;
    }

    fn ahead(&mut self) -> &[u8] {
        if self.skip > 0 {
            self.settle();
        }
        &self.bytes[self.taken..]
    }

    /// Bytes that were not handed out or passed over.
    pub(crate) fn len(&self) -> usize {
        (self.bytes.len() - self.taken).saturating_sub(self.skip)
    }

    /// Whether a whole frame is there, or something that is none, or the beginning of one that is longer than
    /// is allowed.
    pub(crate) fn is_ready(&self, plain: bool, length_max: u32) -> bool {
        let Some(mut ahead) = self.bytes.get(self.taken + self.skip..) else { return false };
        if self.is_tag_awaited
            && let Ok(Some(length)) = plain_length(ahead, LENGTH_MAX)
        {
            // The failure of that frame's call was reported already: only what is behind it can be ready.
            let Some(behind) = ahead.get(LENGTH_BYTES + length as usize..) else { return false };
            ahead = behind;
        }
        let whole = if plain {
            plain_length(ahead, length_max).map(|length| length.map(|length| LENGTH_BYTES + length as usize))
        } else {
            let header = Header::decode(ahead, length_max);
            header.map(|header| header.map(|header| HEADER_BYTES + header.length as usize))
        };
        whole.map_or(true, |whole| whole.is_some_and(|whole| whole <= ahead.len()))
    }

    /// The header of the next frame, whose payload may not be there yet.
    #[inline]
    pub(crate) fn header(&mut self) -> Result<Option<Header>, FrameError> {
        Header::decode(self.ahead(), LENGTH_MAX)
    }

    /// The length of the next plain frame, whose payload may not be there yet.
    #[inline]
    pub(crate) fn plain_length(&mut self) -> Result<Option<u32>, FrameError> {
        plain_length(self.ahead(), LENGTH_MAX)
    }

    /// The beginning of the next plain frame's payload, of `length` bytes, with its tag; `None` until that is
    /// there. It is to be passed over then.
    pub(crate) fn beginning(&mut self, length: usize) -> Option<&[u8]> {
        let end = LENGTH_BYTES + length.min(TAG_BYTES_MAX);
        self.is_tag_awaited = self.ahead().len() < end;
        self.ahead().get(LENGTH_BYTES..end)
    }

    /// A whole welcome, where there is one in place of a frame.
    pub(crate) fn welcome(&mut self) -> Option<Welcome> {
        Welcome::decode(self.ahead()).ok().flatten()
    }

    /// Hands out the next frame's payload, which has `head` bytes in front of it; `None` until it is whole.
    #[inline]
    pub(crate) fn take(&mut self, head: usize, length: usize) -> Option<Range<usize>> {
        if self.bytes.len() - self.taken < head + length {
            self.wanted = head + length;
            return None;
        }
        self.wanted = 0;
        let start = self.taken + head;
        self.taken = start + length;
        Some(start..start + length)
    }

    /// What was handed out.
    #[inline]
    pub(crate) fn frame(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_wire::frame::FrameKind;

    fn feed(incoming: &mut Incoming, mut bytes: &[u8]) -> usize {
        let room = incoming.room();
        let count = bytes.len().min(room.capacity() - room.len());
        bytes = &bytes[..count];
        room.extend_from_slice(bytes);
        count
    }

    #[test]
    fn a_length_alone_makes_little_room() {
        let mut incoming = Incoming::default();
        feed(&mut incoming, &Header::new(FrameKind::End, 1, LENGTH_MAX).encode());
        let header = incoming.header().unwrap().unwrap();
        assert_eq!(incoming.take(HEADER_BYTES, header.length as usize), None);
        assert!(incoming.room().capacity() <= 2 * AHEAD_BYTES);
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_whatever_the_reads(
            lengths in proptest::collection::vec(prop_oneof![0_usize..50, 0_usize..200_000], 1..12),
            reads in proptest::collection::vec(1_usize..70_000, 1..40),
            plain: bool,
        ) {
            let mut stream = Vec::new();
            for (id, length) in lengths.iter().enumerate() {
                if plain {
                    stream.extend((*length as u32).to_le_bytes());
                } else {
                    stream.extend(Header::new(FrameKind::End, id as u64, *length as u32).encode());
                }
                stream.extend(std::iter::repeat_n(id as u8, *length));
            }
            let (mut incoming, mut fed, mut seen) = (Incoming::default(), 0, 0);
            let mut reads = reads.iter().cycle();
            while seen < lengths.len() {
                let ready = incoming.is_ready(plain, LENGTH_MAX);
                let (head, length) = if plain {
                    (LENGTH_BYTES, incoming.plain_length().unwrap())
                } else {
                    (HEADER_BYTES, incoming.header().unwrap().map(|header| header.length))
                };
                let Some(length) = length else {
                    let end = stream.len().min(fed + reads.next().unwrap());
                    fed += feed(&mut incoming, &stream[fed..end]);
                    continue;
                };
                prop_assert_eq!(length as usize, lengths[seen]);
                if seen % 3 == 2 {
                    incoming.pass_over(head + length as usize);
                    seen += 1;
                } else if let Some(frame) = incoming.take(head, length as usize) {
                    prop_assert!(ready && frame.len() == lengths[seen]);
                    prop_assert!(incoming.frame(frame).iter().all(|byte| *byte == seen as u8));
                    seen += 1;
                } else {
                    prop_assert!(!ready);
                    let end = stream.len().min(fed + reads.next().unwrap());
                    fed += feed(&mut incoming, &stream[fed..end]);
                }
            }
            while fed < stream.len() {
                fed += feed(&mut incoming, &stream[fed..]);
                incoming.room();
            }
            prop_assert_eq!(incoming.len(), 0);
        }
    }
}
