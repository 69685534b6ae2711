//! Answers leave in the order of their questions, whatever order they come in.
//!
//! The one reorder stash of the workspace: pipelined HTTP requests, FIFO services, batches. No allocation
//! while empty, nor while only one answer is awaited.

use std::collections::VecDeque;

/// The place of one question in its connection's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sequence(u32);

/// A reorder stash.
#[derive(Debug)]
pub struct Ordered<T> {
    /// The sequence of the oldest question not popped yet.
    first: u32,
    pending: u32,
    /// The oldest question's answer, outside the queue: a connection that does not pipeline never
    /// allocates one.
    head: Option<T>,
    /// The answers of the questions after the oldest.
    rest: VecDeque<Option<T>>,
}

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Ordered<T> {
    /// An empty stash.
    pub const fn new() -> Self {
        Self { first: 0, pending: 0, head: None, rest: VecDeque::new() }
    }

    /// A question came: its place in the order.
    pub fn expect(&mut self) -> Sequence {
        let sequence = Sequence(self.first.wrapping_add(self.pending));
        if self.pending > 0 {
            self.rest.push_back(None);
        }
        self.pending += 1;
        sequence
    }

    /// An answer came; whether it was awaited. One for a place that is not (answered twice, or long gone)
    /// is dropped.
    #[inline]
    pub fn complete(&mut self, sequence: Sequence, answer: T) -> bool {
        let index = sequence.0.wrapping_sub(self.first);
        let place = match index {
            _ if index >= self.pending => None,
            0 => Some(&mut self.head),
            _ => self.rest.get_mut(index as usize - 1),
        };
        match place {
            Some(place) if place.is_none() => {
                *place = Some(answer);
                true
            }
            _ => false,
        }
    }

    /// The next answer in the order of the questions, if it is there.
    pub fn pop(&mut self) -> Option<T> {
        let answer = self.head.take()?;
        self.step();
        Some(answer)
    }

    /// The answer that [`Ordered::pop`] would bring, where it lies: a large one need not be moved.
    #[inline]
    pub fn first(&self) -> Option<&T> {
        self.head.as_ref()
    }

    /// Drops that answer, if it is there.
    #[inline]
    pub fn drop_first(&mut self) {
        if self.head.is_some() {
            self.head = None;
            self.step();
        }
    }

    /// The next question is the oldest.
    fn step(&mut self) {
        self.first = self.first.wrapping_add(1);
        self.pending -= 1;
        if self.pending > 0 {
            self.head = self.rest.pop_front().flatten();
        } else if self.rest.capacity() > 0 {
            // Gives the allocation of a past burst back.
            self.rest = VecDeque::new();
        }
    }

    /// Whether this question is the oldest: its answer would leave at once.
    pub fn is_first(&self, sequence: Sequence) -> bool {
        self.pending > 0 && sequence.0 == self.first
    }

    /// Whether [`Ordered::pop`] would bring an answer.
    pub fn is_ready(&self) -> bool {
        self.head.is_some()
    }

    /// The answers that came and were not popped yet, in the order of the questions, whether or not an
    /// earlier one is still awaited.
    pub fn answers(&self) -> impl Iterator<Item = &T> {
        self.head.iter().chain(self.rest.iter().flatten())
    }

    /// Questions not popped yet, answered or not.
    pub fn pending(&self) -> usize {
        self.pending as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_are_seen_before_they_may_leave() {
        let mut ordered = Ordered::new();
        let sequences: Vec<_> = (0..4).map(|_| ordered.expect()).collect();
        assert_eq!(ordered.answers().count(), 0);
        assert!(ordered.complete(sequences[3], 3) && ordered.complete(sequences[1], 1));
        assert_eq!(ordered.answers().collect::<Vec<_>>(), [&1, &3]);
        assert!(ordered.complete(sequences[0], 0));
        assert_eq!((ordered.pop(), ordered.answers().collect::<Vec<_>>()), (Some(0), vec![&1, &3]));
    }

    #[test]
    fn one_question_at_a_time_never_allocates() {
        let mut ordered = Ordered::new();
        for round in 0..1_000 {
            let sequence = ordered.expect();
            assert_eq!(ordered.pop(), None);
            assert!(ordered.complete(sequence, round));
            assert_eq!(ordered.pop(), Some(round));
            assert_eq!(ordered.rest.capacity(), 0);
        }
    }

    #[test]
    fn an_answer_nobody_awaits_is_dropped() {
        let mut ordered = Ordered::new();
        let first = ordered.expect();
        let second = ordered.expect();
        assert!(ordered.complete(second, 'b'));
        assert!(!ordered.complete(second, 'c'), "answered twice");
        assert!(ordered.complete(first, 'a'));
        assert_eq!((ordered.pop(), ordered.pop(), ordered.pop()), (Some('a'), Some('b'), None));
        assert!(!ordered.complete(first, 'd'), "long gone");
        assert_eq!(ordered.rest.capacity(), 0, "an empty stash holds no memory");
    }

    proptest! {
        /// Whatever the order of completion and the moments of popping, and across the wrap of the
        /// sequence, answers leave in the order of the questions, each once.
        #[test]
        fn any_completion_order_leaves_in_request_order(
            steps in proptest::collection::vec((0_u8..3, any::<prop::sample::Index>()), 1..200),
            first in prop_oneof![Just(0_u32), Just(u32::MAX - 3)],
        ) {
            let mut ordered = Ordered { first, ..Ordered::new() };
            let mut open: Vec<(Sequence, u64)> = Vec::new();
            let (mut asked, mut left) = (0_u64, 0_u64);
            let mut done = std::collections::HashSet::new();
            for (step, pick) in steps {
                match step {
                    0 => {
                        open.push((ordered.expect(), asked));
                        asked += 1;
                    }
                    1 if !open.is_empty() => {
                        let (sequence, question) = open.swap_remove(pick.index(open.len()));
                        prop_assert!(ordered.complete(sequence, question));
                        done.insert(question);
                    }
                    _ => match ordered.first().copied() {
                        Some(answer) => {
                            if pick.index(2) == 0 {
                                ordered.drop_first();
                            } else {
                                prop_assert_eq!(ordered.pop(), Some(answer));
                            }
                            prop_assert_eq!(answer, left);
                            prop_assert!(done.remove(&answer));
                            left += 1;
                        }
                        None => {
                            ordered.drop_first();
                            prop_assert!(ordered.pop().is_none() && !done.contains(&left));
                        }
                    },
                }
                prop_assert_eq!(ordered.pending() as u64, asked - left);
            }
        }
    }
}
