//! Bytes on their way out, and how many there ever were.
//!
//! A frame's place is counted among all bytes there ever were. What is taken back stays where it lies and is
//! passed over, so that taking back costs the same however much is unsent; once most of the buffer is that,
//! it is cut out, and only then do places change.
//!
//! Invariant, checked by the property test below: no piece that was taken back lies at the front, so a buffer
//! that is not empty begins with something to send.

use std::collections::BTreeMap;
use std::ops::Range;
use thalweg_transport::Unsent;

/// A buffer that a burst made larger than this is given back once it is empty.
const KEEP_BYTES: usize = 1 << 20;
/// What it costs to tell a call of its request's new place, in bytes that could be moved meanwhile.
const CALL_BYTES: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    unsent: Unsent,
    /// How many bytes were ever written, or passed over.
    gone: u64,
    /// The pieces that never leave: where each begins, and where it ends.
    taken_back: BTreeMap<u64, u64>,
    taken_back_bytes: usize,
}

impl Outgoing {
    /// Appends pieces of one frame; where it ends among all bytes there ever were.
    #[inline]
    pub(crate) fn push(&mut self, pieces: [&[u8]; 2]) -> u64 {
        self.unsent.make_way();
        pieces.iter().for_each(|piece| self.unsent.buffer().extend_from_slice(piece));
        self.gone + self.unsent.len() as u64
    }

    /// How many bytes are to be written.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.unsent.len() - self.taken_back_bytes
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.unsent.is_empty()
    }

    /// What is to be written, in its order.
    #[inline]
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (bytes, gone) = (self.unsent.as_slice(), self.gone);
        let begins = std::iter::once(0).chain(self.taken_back.values().map(move |end| (end - gone) as usize));
        let ends = self.taken_back.keys().map(move |begin| (begin - gone) as usize).chain([bytes.len()]);
        begins.zip(ends).map(|(begin, end)| &bytes[begin..end]).filter(|piece| !piece.is_empty())
    }

    /// `count` bytes of what was unsent are written.
    #[inline]
    pub(crate) fn sent(&mut self, mut count: usize) {
        while let Some((&begin, &end)) = self.taken_back.first_key_value() {
            let before = (begin - self.gone) as usize;
            if count < before {
                break;
            }
            count -= before;
            let length = (end - begin) as usize;
            self.leave(before + length);
            self.taken_back_bytes -= length;
            self.taken_back.pop_first();
        }
        self.leave(count);
        if self.is_empty() {
            self.unsent.buffer().shrink_to(KEEP_BYTES);
        }
    }

    #[inline]
    fn leave(&mut self, count: usize) {
        self.unsent.sent(count);
        self.gone += count as u64;
    }

    /// Takes back a piece that has not begun to leave, by its place among all bytes there ever were.
    pub(crate) fn take_back(&mut self, piece: Range<u64>) {
        self.taken_back_bytes += (piece.end - piece.start) as usize;
        self.taken_back.insert(piece.start, piece.end);
        self.sent(0);
    }

    /// Whether so much of the buffer was taken back that it pays to move the rest, and to tell `calls` of it.
    pub(crate) fn is_sparse(&self, calls: usize) -> bool {
        self.taken_back_bytes > self.len().max(CALL_BYTES * calls)
    }

    /// Rids the buffer of what was taken back: these pieces, in their order. What lies behind them moves up.
    pub(crate) fn cut(&mut self) -> Vec<Range<u64>> {
        let (start, gone) = (self.unsent.length_at(0), self.gone);
        let place = |at: u64| start + (at - gone) as usize;
        let pieces: Vec<Range<u64>> =
            std::mem::take(&mut self.taken_back).into_iter().map(|(begin, end)| begin..end).collect();
        self.taken_back_bytes = 0;
        let buffer = self.unsent.buffer();
        let Some(mut kept) = pieces.first().map(|first| place(first.start)) else { return pieces };
        for (n, piece) in pieces.iter().enumerate() {
            let (from, to) =
                (place(piece.end), pieces.get(n + 1).map_or(buffer.len(), |next| place(next.start)));
            buffer.copy_within(from..to, kept);
            kept += to - from;
        }
        buffer.truncate(kept);
        pieces
    }

    /// `count` bytes are written that bypassed this buffer.
    pub(crate) fn went_past(&mut self, count: usize) {
        self.gone += count as u64;
    }

    /// How many bytes were ever written, or passed over: what begins before has begun to leave.
    pub(crate) const fn gone(&self) -> u64 {
        self.gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn unsent(outgoing: &Outgoing) -> Vec<u8> {
        outgoing.pieces().flatten().copied().collect()
    }

    #[test]
    fn where_a_frame_ends_counts_what_left_and_what_never_lay_here() {
        let mut outgoing = Outgoing::default();
        assert_eq!(outgoing.push([b"head", b"body"]), 8);
        outgoing.sent(3);
        assert_eq!((outgoing.gone(), unsent(&outgoing)), (3, b"dbody".to_vec()));
        outgoing.sent(5);
        outgoing.went_past(10);
        assert_eq!((outgoing.gone(), outgoing.push([b"x", b""])), (18, 19));
    }

    #[test]
    fn what_a_burst_took_is_given_back() {
        let mut outgoing = Outgoing::default();
        outgoing.push([&vec![0; 3 * KEEP_BYTES], b""]);
        outgoing.sent(3 * KEEP_BYTES - 1);
        outgoing.sent(1);
        assert!(outgoing.unsent.buffer().capacity() <= KEEP_BYTES, "{outgoing:?}");
    }

    /// Forwards, backwards, and every second one first: what is moved in all is some times what there was.
    #[test]
    fn taking_back_very_many_costs_about_what_they_cost_to_queue() {
        const CALLS: u64 = 20_000;
        const BYTES: u64 = 30;
        let orders: [Vec<u64>; 3] = [
            (0..CALLS).collect(),
            (0..CALLS).rev().collect(),
            (0..CALLS).step_by(2).chain((1..CALLS).step_by(2)).collect(),
        ];
        for order in orders {
            let mut outgoing = Outgoing::default();
            let mut begins: Vec<u64> =
                (0..CALLS).map(|_| outgoing.push([&[0; BYTES as usize], b""]) - BYTES).collect();
            let mut moved = 0;
            for call in order {
                let begin = begins[call as usize];
                outgoing.take_back(begin..begin + BYTES);
                assert!(outgoing.unsent.len() <= 2 * outgoing.len() + CALL_BYTES * CALLS as usize);
                if outgoing.is_sparse(CALLS as usize) {
                    moved += outgoing.unsent.len() + CALL_BYTES * CALLS as usize;
                    let pieces = outgoing.cut();
                    for begin in &mut begins {
                        *begin -= BYTES * pieces.partition_point(|piece| piece.end <= *begin) as u64;
                    }
                }
            }
            assert!(outgoing.is_empty() && outgoing.taken_back.is_empty());
            assert!(moved <= 4 * (CALLS * BYTES) as usize, "{moved} bytes were moved");
        }
    }

    proptest! {
        /// As a list of frames does, of which one that has begun to leave stays.
        #[test]
        fn what_is_taken_back_leaves_the_rest_in_its_order(
            steps in proptest::collection::vec((0_u8..6, 1_usize..40, any::<prop::sample::Index>()), 1..80),
        ) {
            let (mut outgoing, mut model) = (Outgoing::default(), VecDeque::<(Range<u64>, Vec<u8>)>::new());
            for (n, (step, length, which)) in steps.into_iter().enumerate() {
                match step {
                    0..=2 => {
                        let bytes = vec![n as u8; length];
                        let end = outgoing.push([&bytes[..length / 2], &bytes[length / 2..]]);
                        model.push_back((end - length as u64..end, bytes));
                    }
                    3 => {
                        let mut count = length.min(outgoing.len());
                        outgoing.sent(count);
                        while count > 0 {
                            let (_, first) = &mut model[0];
                            let part = count.min(first.len());
                            first.drain(..part);
                            count -= part;
                            if first.is_empty() {
                                model.pop_front();
                            }
                        }
                    }
                    4 if !model.is_empty() => {
                        let at = which.index(model.len());
                        if model[at].0.start >= outgoing.gone() {
                            outgoing.take_back(model.remove(at).unwrap().0);
                        }
                    }
                    4 => {}
                    _ => {
                        let pieces = outgoing.cut();
                        for (place, _) in &mut model {
                            let before = pieces.iter().filter(|piece| piece.end <= place.start);
                            let gone: u64 = before.map(|piece| piece.end - piece.start).sum();
                            *place = place.start - gone..place.end - gone;
                        }
                    }
                }
                let left: Vec<u8> = model.iter().flat_map(|(_, bytes)| bytes).copied().collect();
                prop_assert_eq!((outgoing.len(), outgoing.is_empty()), (left.len(), left.is_empty()));
                prop_assert_eq!(unsent(&outgoing), left);
            }
        }
    }
}
