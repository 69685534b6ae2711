//! What waits for a ticket: the position in a store's commit order behind which it may go on.
//!
//! A store says now and then that every ticket up to one is complete, or, once, that none will be any more.
//! Tickets are given out in order, so a newcomer is nearly always the last in the queue, and what became
//! complete is always its beginning. Checked by the tests here against a plain map.

use std::collections::VecDeque;

/// What becomes of a value that comes to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what need not wait is given back"]
pub enum Admission<T> {
    /// It waits.
    Waits,
    /// Its ticket is complete: it goes on at once.
    Complete(T),
    /// Its ticket will never be known to be complete.
    Failed(T),
}

/// What waits, by its ticket; of equal tickets, the older first. Everything that was put in comes out once,
/// complete or failed.
///
/// ```
/// use thalweg_queue::{ByTicket, Admission};
///
/// let mut answers = ByTicket::new();
/// assert_eq!(answers.wait(7, "seven"), Admission::Waits);
/// assert_eq!(answers.wait(9, "nine"), Admission::Waits);
/// assert!(answers.complete(8).eq(["seven"]));
/// assert_eq!(answers.wait(8, "eight"), Admission::Complete("eight"));
/// assert!(answers.fail().eq(["nine"]));
/// assert_eq!(answers.wait(10, "ten"), Admission::Failed("ten"));
/// ```
#[derive(Debug)]
pub struct ByTicket<T> {
    /// Sorted by ticket, and all beyond `completed`; nothing once it failed.
    waiting: VecDeque<(u64, T)>,
    /// The highest ticket known to be complete. 0 stands for what waits for nothing.
    completed: u64,
    /// No further ticket will be complete.
    failed: bool,
}

impl<T> Default for ByTicket<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> ByTicket<T> {
    /// Nothing waits, and no ticket is complete but 0.
    pub const fn new() -> Self {
        Self { waiting: VecDeque::new(), completed: 0, failed: false }
    }

    /// Has `value` wait for `ticket`, unless that is decided already.
    pub fn wait(&mut self, ticket: u64, value: T) -> Admission<T> {
        if ticket <= self.completed {
            return Admission::Complete(value);
        }
        if self.failed {
            return Admission::Failed(value);
        }
        if self.waiting.back().is_none_or(|(last, _)| *last <= ticket) {
            self.waiting.push_back((ticket, value));
        } else {
            let behind = self.waiting.partition_point(|(other, _)| *other <= ticket);
            self.waiting.insert(behind, (ticket, value));
        }
        Admission::Waits
    }

    /// Every ticket up to this one is complete: what waited for one of them. A lower one than before says
    /// nothing new.
    pub fn complete(&mut self, up_to: u64) -> impl ExactSizeIterator<Item = T> {
        self.completed = self.completed.max(up_to);
        let done = self.waiting.partition_point(|(ticket, _)| *ticket <= self.completed);
        self.waiting.drain(..done).map(|(_, value)| value)
    }

    /// No further ticket will be complete: everything that waits.
    pub fn fail(&mut self) -> impl ExactSizeIterator<Item = T> {
        self.failed = true;
        std::mem::take(&mut self.waiting).into_iter().map(|(_, value)| value)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn what_waits_for_nothing_does_not_wait() {
        let mut queue = ByTicket::new();
        assert_eq!(queue.wait(0, 'a'), Admission::Complete('a'));
        assert_eq!(queue.fail().len(), 0);
        assert_eq!(queue.wait(0, 'b'), Admission::Complete('b'));
    }

    #[test]
    fn the_last_ticket_there_is_becomes_complete() {
        let mut queue = ByTicket::new();
        assert_eq!(queue.wait(u64::MAX, 'a'), Admission::Waits);
        assert_eq!(queue.complete(u64::MAX - 1).len(), 0);
        assert!(queue.complete(u64::MAX).eq(['a']));
    }

    #[test]
    fn what_is_given_back_and_not_looked_at_is_gone_all_the_same() {
        let mut queue = ByTicket::new();
        for ticket in 1..=3 {
            assert_eq!(queue.wait(ticket, ticket), Admission::Waits);
        }
        assert_eq!(queue.complete(2).next(), Some(1));
        assert_eq!(queue.len(), 1, "two went with what gave them back");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Wait(u64),
        Complete(u64),
        Fail,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Few tickets, so that many are equal and out of order; and a failure late, if at all.
        let step = prop_oneof![
            20 => (0_u64..40).prop_map(Step::Wait),
            5 => (0_u64..40).prop_map(Step::Complete),
            1 => Just(Step::Fail),
        ];
        proptest::collection::vec(step, 0..80)
    }

    proptest! {
        /// A map of lists, asked the same, says the same.
        #[test]
        fn it_is_a_map_of_lists(steps in steps()) {
            let mut queue = ByTicket::new();
            let mut model: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
            let (mut completed, mut failed) = (0, false);
            for (name, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Wait(ticket) => {
                        let admission = if ticket <= completed {
                            Admission::Complete(name)
                        } else if failed {
                            Admission::Failed(name)
                        } else {
                            model.entry(ticket).or_default().push(name);
                            Admission::Waits
                        };
                        prop_assert_eq!(queue.wait(ticket, name), admission);
                    }
                    Step::Complete(up_to) => {
                        completed = completed.max(up_to);
                        let left = model.split_off(&(completed + 1));
                        let done = std::mem::replace(&mut model, left).into_values().flatten();
                        prop_assert_eq!(queue.complete(up_to).collect::<Vec<_>>(), done.collect::<Vec<_>>());
                    }
                    Step::Fail => {
                        failed = true;
                        let lost = std::mem::take(&mut model).into_values().flatten();
                        prop_assert_eq!(queue.fail().collect::<Vec<_>>(), lost.collect::<Vec<_>>());
                    }
                }
                let waiting: usize = model.values().map(Vec::len).sum();
                prop_assert_eq!((queue.len(), queue.is_empty()), (waiting, waiting == 0));
            }
        }
    }
}
