//! Bytes on their way out, and how many there ever were.
//!
//! A frame's place is counted among all bytes there ever were. What is taken back stays where it lies and is
//! passed over, so that taking back costs the same however much is unsent; once most of the buffer is that,
//! it is cut out, and only then do places change.
//!
//! Invariant, checked by the property test below: each piece that was taken back lies between two that are
//! to be sent. So there are fewer of those than of these, and a buffer that is not empty begins with
//! something to send.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use thalweg_transport::Unsent;

/// A buffer that a burst made larger than this is given back once it is empty.
const KEEP_BYTES: usize = 1 << 20;
/// What it costs to tell a call of its request's new place, in bytes that could be moved meanwhile.
const CALL_BYTES: usize = 64;
/// Of so many pieces that were passed over it is known where they lay.
const PASSED_OVER_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    unsent: Unsent,
    /// How many bytes were ever written, or passed over.
    gone: u64,
    /// The pieces that never leave: where each begins, and where it ends.
    taken_back: BTreeMap<u64, u64>,
    taken_back_bytes: usize,
    /// Where the last pieces lay that were passed over.
    passed_over: VecDeque<Range<u64>>,
}

impl Outgoing {
    /// Appends pieces of one frame; where it ends among all bytes there ever were.
    #[inline]
    pub(crate) fn push(&mut self, pieces: [&[u8]; 2]) -> u64 {
        self.unsent.make_way();
        pieces.iter().for_each(|piece| self.unsent.buffer().extend_from_slice(piece));
        self.end()
    }

    /// Where the buffer ends among all bytes there ever were.
    #[inline]
    const fn end(&self) -> u64 {
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
            self.note_passed_over(begin..end);
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

    fn note_passed_over(&mut self, piece: Range<u64>) {
        match self.passed_over.back_mut() {
            Some(last) if last.end == piece.start => last.end = piece.end,
            _ => {
                if self.passed_over.len() == PASSED_OVER_MAX {
                    self.passed_over.pop_front();
                }
                self.passed_over.push_back(piece);
            }
        }
    }

    /// Takes back a piece that has not begun to leave, by its place among all bytes there ever were.
    pub(crate) fn take_back(&mut self, piece: Range<u64>) {
        let Range { mut start, mut end } = piece;
        self.taken_back_bytes += (end - start) as usize;
        if let Some(behind) = self.taken_back.remove(&end) {
            end = behind;
        }
        if let Some((&begin, &before)) = self.taken_back.range(..start).next_back()
            && before == start
        {
            start = begin;
        }
        if end == self.end() {
            // Nothing lies behind it whose place would change.
            self.taken_back.remove(&start);
            self.taken_back_bytes -= (end - start) as usize;
            let kept = self.unsent.length_at((start - self.gone) as usize);
            self.unsent.buffer().truncate(kept);
        } else {
            self.taken_back.insert(start, end);
        }
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

    /// Up to where the peer has read, if it never read the last `unread` bytes that were written. Where more
    /// than [`PASSED_OVER_MAX`] pieces were passed over since, the peer may have read less than that.
    pub(crate) fn read_up_to(&self, mut unread: u64) -> u64 {
        let mut at = self.gone;
        for piece in self.passed_over.iter().rev() {
            let written = at - piece.end;
            if unread <= written {
                break;
            }
            unread -= written;
            at = piece.start;
        }
        at.saturating_sub(unread)
    }
}

#[cfg(test)]
mod tests {
    use super::super::calls::{Calls, UNCOUNTED};
    use super::*;
    use crate::call::CallId;
    use proptest::prelude::*;

    fn unsent(outgoing: &Outgoing) -> Vec<u8> {
        outgoing.pieces().flatten().copied().collect()
    }

    /// A call whose request is these bytes.
    fn ask(calls: &mut Calls, outgoing: &mut Outgoing, bytes: &[u8]) -> CallId {
        let call = calls.begin(UNCOUNTED, false);
        let (head, rest) = bytes.split_at(bytes.len() / 2);
        let end = outgoing.push([head, rest]);
        calls.lies_at(call, end - bytes.len() as u64..end);
        call
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

    /// Of more than that it is not known where they lay, and they count as read.
    #[test]
    fn where_pieces_lay_that_were_passed_over_is_known_of_so_many() {
        let (mut calls, mut outgoing) = (Calls::default(), Outgoing::default());
        let asked = 4 * PASSED_OVER_MAX as u64;
        let asked: Vec<CallId> = (0..asked).map(|_| ask(&mut calls, &mut outgoing, b"ab")).collect();
        for call in asked.into_iter().step_by(2) {
            outgoing.take_back(calls.take_back(call, outgoing.gone()).unwrap());
        }
        outgoing.sent(outgoing.len());
        assert_eq!(outgoing.passed_over.len(), PASSED_OVER_MAX);
        assert_eq!([0, 2, 4].map(|unread| outgoing.gone() - outgoing.read_up_to(unread)), [0, 2, 6]);
        let all = 4 * PASSED_OVER_MAX as u64;
        assert_eq!(outgoing.read_up_to(all), 2 * PASSED_OVER_MAX as u64, "not less than they read");
    }

    /// Forwards, backwards, every second one first, and all but every tenth first: what is moved in all is
    /// some times what there was.
    #[test]
    fn taking_back_very_many_costs_about_what_they_cost_to_queue() {
        const CALLS: usize = 20_000;
        const BYTES: usize = 4 * CALL_BYTES;
        let orders: [(Vec<usize>, bool); 4] = [
            ((0..CALLS).collect(), false),
            ((0..CALLS).rev().collect(), false),
            ((0..CALLS).step_by(2).chain((1..CALLS).step_by(2)).collect(), false),
            ((0..CALLS).filter(|n| n % 10 != 0).chain((0..CALLS).step_by(10)).collect(), true),
        ];
        for (order, moves) in orders {
            let (mut calls, mut outgoing) = (Calls::default(), Outgoing::default());
            let asked: Vec<CallId> =
                (0..CALLS).map(|_| ask(&mut calls, &mut outgoing, &[0; BYTES])).collect();
            let mut moved = 0;
            for (n, call) in order.into_iter().enumerate() {
                let place = calls.take_back(asked[call], outgoing.gone()).expect("none of it left");
                outgoing.take_back(place);
                assert!(outgoing.unsent.len() <= 2 * outgoing.len() + BYTES + CALL_BYTES * CALLS);
                assert!(outgoing.taken_back.len() <= CALLS - n);
                if outgoing.is_sparse(calls.slots()) {
                    moved += outgoing.unsent.len() + CALL_BYTES * calls.slots();
                    calls.cut(&outgoing.cut());
                    assert_eq!(outgoing.unsent.len(), outgoing.len());
                }
            }
            assert!(outgoing.is_empty() && outgoing.taken_back.is_empty() && outgoing.taken_back_bytes == 0);
            assert_eq!(moved > 0, moves, "{moved} bytes were moved");
            assert!(moved <= 4 * CALLS * BYTES, "{moved} bytes were moved");
        }
    }

    /// A request that was not taken back.
    #[derive(Debug)]
    struct Asked {
        call: CallId,
        left: Vec<u8>,
        length: usize,
        /// How many bytes had left when it had whole.
        written: Option<u64>,
    }

    proptest! {
        /// As a list of frames does, of which one that has begun to leave stays; and what a peer has read of
        /// them is what left but for the last bytes, whatever was taken back between them.
        #[test]
        fn what_is_taken_back_leaves_the_rest_in_its_order(
            steps in proptest::collection::vec((0_u8..6, 1_usize..40, any::<prop::sample::Index>()), 1..80),
            unread: prop::sample::Index,
        ) {
            let (mut calls, mut outgoing) = (Calls::default(), Outgoing::default());
            let (mut model, mut gone, mut written) = (VecDeque::<Asked>::new(), Vec::new(), 0);
            for (n, (step, length, which)) in steps.into_iter().enumerate() {
                match step {
                    0..=2 => {
                        let left = vec![n as u8; length];
                        let call = ask(&mut calls, &mut outgoing, &left);
                        model.push_back(Asked { call, left, length, written: None });
                    }
                    3 => {
                        let mut count = length.min(outgoing.len());
                        outgoing.sent(count);
                        while count > 0 {
                            let first = &mut model[0];
                            let part = count.min(first.left.len());
                            first.left.drain(..part);
                            count -= part;
                            written += part as u64;
                            if first.left.is_empty() {
                                first.written = Some(written);
                                gone.extend(model.pop_front());
                            }
                        }
                    }
                    4 if !model.is_empty() => {
                        let at = which.index(model.len());
                        let place = calls.take_back(model[at].call, outgoing.gone());
                        prop_assert_eq!(place.is_some(), model[at].left.len() == model[at].length);
                        if let Some(place) = place {
                            outgoing.take_back(place);
                            let asked = model.remove(at).unwrap();
                            prop_assert!(calls.end(asked.call));
                        }
                    }
                    4 => {}
                    _ => calls.cut(&outgoing.cut()),
                }
                let left: Vec<u8> = model.iter().flat_map(|asked| &asked.left).copied().collect();
                prop_assert_eq!((outgoing.len(), outgoing.is_empty()), (left.len(), left.is_empty()));
                prop_assert_eq!(unsent(&outgoing), left);
                prop_assert!(outgoing.taken_back.len() <= model.len().saturating_sub(1));
            }
            let unread = unread.index(written as usize + 1) as u64;
            let has_read = |asked: &Asked| asked.written.is_some_and(|at| at <= written - unread);
            let model: Vec<_> =
                gone.iter().chain(&model).map(|asked| (asked.call, has_read(asked))).collect();
            prop_assert_eq!(calls.lose(outgoing.read_up_to(unread)), model);
        }
    }
}
