//! Bytes on their way out, and how many of all there ever were have left.

/// A buffer that a burst made larger than this is given back once it is empty.
const KEEP_BYTES: usize = 1 << 20;
/// What was written is cut off once it is this much and more than what was not.
const CUT_BYTES: usize = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    /// How many of `bytes` are written.
    start: usize,
    /// How many bytes were ever written.
    written: u64,
}

impl Outgoing {
    /// Appends pieces of one frame; where it ends among all bytes there ever were.
    #[inline]
    pub(crate) fn push(&mut self, pieces: [&[u8]; 2]) -> u64 {
        if self.start > CUT_BYTES && self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        for piece in pieces {
            self.bytes.extend_from_slice(piece);
        }
        self.written + self.len() as u64
    }

    /// What has not been written.
    #[inline]
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) const fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// So many bytes of what was unsent are written.
    #[inline]
    pub(crate) fn sent(&mut self, count: usize) {
        self.start += count;
        self.written += count as u64;
        if self.start == self.bytes.len() {
            self.start = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEEP_BYTES {
                self.bytes.shrink_to(KEEP_BYTES);
            }
        }
    }

    /// So many bytes are written that never lay here.
    pub(crate) fn went_past(&mut self, count: usize) {
        self.written += count as u64;
    }

    /// How many bytes were ever written.
    pub(crate) const fn written(&self) -> u64 {
        self.written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn bytes_leave_in_order_whatever_the_pieces(
            steps in proptest::collection::vec((0_usize..100_000, any::<prop::sample::Index>()), 1..60),
        ) {
            let (mut outgoing, mut model, mut fill) = (Outgoing::default(), VecDeque::<u8>::new(), 0_u8);
            let (mut pushed, mut sent) = (0_u64, 0_u64);
            for (length, share) in steps {
                let piece: Vec<u8> = (0..length).map(|_| { fill = fill.wrapping_add(1); fill }).collect();
                model.extend(&piece);
                pushed += length as u64;
                prop_assert_eq!(outgoing.push([&piece[..length / 3], &piece[length / 3..]]), pushed);
                let count = share.index(outgoing.len() + 1);
                prop_assert!(outgoing.unsent()[..count].iter().eq(model.iter().take(count)));
                model.drain(..count);
                outgoing.sent(count);
                sent += count as u64;
                prop_assert_eq!((outgoing.written(), outgoing.len()), (sent, model.len()));
            }
        }
    }
}
