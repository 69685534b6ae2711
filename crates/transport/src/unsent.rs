//! Bytes on their way out that a descriptor did not take yet.
//!
//! *Ownership*: the bytes lie here until they are sent; the writer borrows them. A byte is copied in, and
//! once more at most where [`Unsent::make_way`] moves it to the front.

/// What was sent lies in front until it is as much as this and more than what was not.
const CUT_BYTES: usize = 64 << 10;

/// Bytes to be sent, of which some may have left.
///
/// ```
/// use thalweg_transport::Unsent;
///
/// let mut unsent = Unsent::default();
/// unsent.buffer().extend_from_slice(b"hello");
/// unsent.sent(2);
/// assert_eq!((unsent.as_slice(), unsent.len()), (&b"llo"[..], 3));
/// ```
#[derive(Debug, Default)]
pub struct Unsent {
    bytes: Vec<u8>,
    /// How many of `bytes` have left.
    sent: usize,
}

impl Unsent {
    /// What has not left.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// How many bytes that are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What to append to, and to take back from what was appended since. Before that lies what has left, and
    /// what is to.
    #[inline]
    pub const fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// How long the [buffer](Self::buffer) is when so many of its bytes are unsent.
    #[inline]
    pub const fn length_at(&self, unsent: usize) -> usize {
        self.sent.saturating_add(unsent)
    }

    /// The first `count` bytes have left. When they were the last, the buffer is empty, and keeps its memory.
    #[inline]
    pub fn sent(&mut self, count: usize) {
        self.sent += count;
        debug_assert!(self.sent <= self.bytes.len(), "only what is there can leave");
        if self.is_empty() {
            self.clear();
        }
    }

    /// Before more is appended: what has left goes, if it is much, and what has not takes its place.
    #[inline]
    pub fn make_way(&mut self) {
        if self.sent > CUT_BYTES && self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Forgets all of them.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
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
            let (mut unsent, mut model, mut fill) = (Unsent::default(), VecDeque::<u8>::new(), 0_u8);
            for (length, share) in steps {
                let piece: Vec<u8> = (0..length).map(|_| { fill = fill.wrapping_add(1); fill }).collect();
                model.extend(&piece);
                unsent.make_way();
                // What has left takes no more than what has not, beside a little.
                prop_assert!(unsent.buffer().len() <= 2 * unsent.len() + CUT_BYTES);
                unsent.buffer().extend_from_slice(&piece);
                prop_assert_eq!(unsent.length_at(model.len()), unsent.buffer().len());
                let count = share.index(unsent.len() + 1);
                prop_assert!(unsent.as_slice()[..count].iter().eq(model.iter().take(count)));
                model.drain(..count);
                unsent.sent(count);
                prop_assert_eq!((unsent.len(), unsent.is_empty()), (model.len(), model.is_empty()));
            }
        }
    }
}
