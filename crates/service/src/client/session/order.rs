//! Whose answer a plain connection brings next.
//!
//! Answers come in the order of the requests, so a call whose request left keeps its place although it has
//! ended. One whose request was taken back has none: it is passed over, so that taking back costs the same
//! however many calls there are, and the list is rid of such calls once most of it is that.
//!
//! Invariant: the first call has a place.

use crate::call::CallId;
use std::collections::{BTreeSet, VecDeque};

#[derive(Debug, Default)]
pub(crate) struct Order {
    calls: VecDeque<CallId>,
    /// Those of them whose requests were taken back.
    taken_back: BTreeSet<CallId>,
}

impl Order {
    pub(crate) fn push(&mut self, call: CallId) {
        self.calls.push_back(call);
    }

    /// The call whose answer comes next.
    pub(crate) fn first(&self) -> Option<CallId> {
        self.calls.front().copied()
    }

    /// It was answered.
    pub(crate) fn pop(&mut self) {
        self.calls.pop_front();
        self.pass_over();
    }

    /// No answer will come of this call, which is among them.
    pub(crate) fn take_back(&mut self, call: CallId) {
        self.taken_back.insert(call);
        self.pass_over();
        if self.taken_back.len() > self.calls.len() / 2 {
            self.calls.retain(|call| !self.taken_back.contains(call));
            self.taken_back.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.calls.clear();
        self.taken_back.clear();
    }

    fn pass_over(&mut self) {
        while !self.taken_back.is_empty()
            && let Some(first) = self.calls.front()
            && self.taken_back.remove(first)
        {
            self.calls.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn those_are_passed_over_that_were_taken_back(
            steps in proptest::collection::vec(any::<Option<prop::sample::Index>>(), 1..100),
        ) {
            let (mut order, mut model) = (Order::default(), Vec::new());
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    Some(which) if !model.is_empty() && n % 3 == 0 => {
                        order.take_back(model.remove(which.index(model.len())));
                        prop_assert!(order.calls.len() <= 2 * model.len());
                    }
                    Some(_) if !model.is_empty() => {
                        model.remove(0);
                        order.pop();
                    }
                    _ => {
                        model.push(CallId(n as u64));
                        order.push(CallId(n as u64));
                    }
                }
                prop_assert_eq!(order.first(), model.first().copied());
            }
        }
    }
}
