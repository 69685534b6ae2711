//! Bytes on their way out, and how many were ever written.

use std::ops::Range;
use thalweg_transport::Unsent;

/// A buffer that a burst made larger than this is given back once it is empty.
const KEEP_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    unsent: Unsent,
    /// How many bytes were ever written.
    written: u64,
}

impl Outgoing {
    /// Appends pieces of one frame; where it ends among all bytes there ever were.
    #[inline]
    pub(crate) fn push(&mut self, pieces: [&[u8]; 2]) -> u64 {
        self.unsent.make_way();
        pieces.iter().for_each(|piece| self.unsent.buffer().extend_from_slice(piece));
        self.written + self.unsent.len() as u64
    }

    /// What has not been written.
    #[inline]
    pub(crate) const fn unsent(&self) -> &Unsent {
        &self.unsent
    }

    /// `count` bytes of what was unsent are written.
    #[inline]
    pub(crate) fn sent(&mut self, count: usize) {
        self.unsent.sent(count);
        self.written += count as u64;
        if self.unsent.is_empty() {
            self.unsent.buffer().shrink_to(KEEP_BYTES);
        }
    }

    /// Takes back pieces that have not begun to leave, each by its place among all bytes there ever were, in
    /// their order.
    pub(crate) fn cut(&mut self, pieces: &[Range<u64>]) {
        let (start, written) = (self.unsent.length_at(0), self.written);
        let place = |at: u64| start + (at - written) as usize;
        let buffer = self.unsent.buffer();
        let Some(mut kept) = pieces.first().map(|first| place(first.start)) else { return };
        for (n, piece) in pieces.iter().enumerate() {
            let (from, to) =
                (place(piece.end), pieces.get(n + 1).map_or(buffer.len(), |next| place(next.start)));
            buffer.copy_within(from..to, kept);
            kept += to - from;
        }
        buffer.truncate(kept);
        // One that is empty now begins anew.
        self.sent(0);
    }

    /// `count` bytes are written that bypassed this buffer.
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

    #[test]
    fn where_a_frame_ends_counts_what_left_and_what_never_lay_here() {
        let mut outgoing = Outgoing::default();
        assert_eq!(outgoing.push([b"head", b"body"]), 8);
        outgoing.sent(3);
        assert_eq!((outgoing.written(), outgoing.unsent().as_slice()), (3, &b"dbody"[..]));
        outgoing.sent(5);
        outgoing.went_past(10);
        assert_eq!((outgoing.written(), outgoing.push([b"x", b""])), (18, 19));
    }

    #[test]
    fn what_is_taken_back_leaves_the_rest_in_its_order() {
        let mut outgoing = Outgoing::default();
        outgoing.push([b"sent", b"aabbccdd"]);
        outgoing.sent(4);
        outgoing.cut(&[4..6, 8..10]);
        assert_eq!(outgoing.unsent().as_slice(), b"bbdd");
        assert_eq!(outgoing.push([b"e", b""]), 9);
        outgoing.cut(std::slice::from_ref(&(4..9)));
        assert!(outgoing.unsent().is_empty());
        assert_eq!((outgoing.push([b"f", b""]), outgoing.unsent().as_slice()), (5, &b"f"[..]));
    }

    #[test]
    fn what_a_burst_took_is_given_back() {
        let mut outgoing = Outgoing::default();
        outgoing.push([&vec![0; 3 * KEEP_BYTES], b""]);
        outgoing.sent(3 * KEEP_BYTES - 1);
        outgoing.sent(1);
        assert!(outgoing.unsent.buffer().capacity() <= KEEP_BYTES, "{outgoing:?}");
    }
}
