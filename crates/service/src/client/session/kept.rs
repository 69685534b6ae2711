//! What came of calls and was not taken: in the order it came, and found by its call.
//!
//! A caller takes either what came next, or what came next of one call, in whatever order it likes. Both cost
//! the same however much lies here for other calls.
//!
//! Invariant, checked by the property test below: `order` names exactly what is in `by_call`, each by the
//! number it came with.

use crate::call::CallId;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Kept<T> {
    /// By call, and of one call in the order it came.
    by_call: BTreeMap<(CallId, u64), T>,
    order: BTreeMap<u64, CallId>,
    /// How many ever came.
    came: u64,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { by_call: BTreeMap::new(), order: BTreeMap::new(), came: 0 }
    }
}

impl<T> Kept<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Appends what came of a call.
    pub(crate) fn push(&mut self, call: CallId, what: T) {
        self.order.insert(self.came, call);
        self.by_call.insert((call, self.came), what);
        self.came += 1;
    }

    /// Takes out what came first.
    pub(crate) fn pop(&mut self) -> Option<(CallId, T)> {
        let (number, call) = self.order.pop_first()?;
        Some((call, self.by_call.remove(&(call, number))?))
    }

    /// Takes out what came first of one call.
    pub(crate) fn take(&mut self, call: CallId) -> Option<T> {
        let number = self.first(call)?;
        self.order.remove(&number);
        self.by_call.remove(&(call, number))
    }

    /// Whether something of the call lies here.
    pub(crate) fn has(&self, call: CallId) -> bool {
        self.first(call).is_some()
    }

    /// Whether something of the call lies here that is such.
    pub(crate) fn any(&self, call: CallId, is_such: impl FnMut(&T) -> bool) -> bool {
        self.of(call).map(|(_, what)| what).any(is_such)
    }

    fn first(&self, call: CallId) -> Option<u64> {
        let (number, _) = self.of(call).next()?;
        Some(number)
    }

    /// What lies here of the call, in the order it came, each with its number.
    fn of(&self, call: CallId) -> impl Iterator<Item = (u64, &T)> {
        self.by_call.range((call, 0)..=(call, u64::MAX)).map(|(&(_, number), what)| (number, what))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As a list does that is searched from its front.
        #[test]
        fn whatever_is_asked_for_comes_in_the_order_it_came(
            steps in proptest::collection::vec((0_u8..4, 0_u64..5), 1..200),
        ) {
            let (mut kept, mut model) = (Kept::default(), Vec::new());
            for (n, (step, call)) in steps.into_iter().enumerate() {
                let call = CallId(call);
                let of_call = model.iter().position(|(other, _)| *other == call);
                prop_assert_eq!(kept.has(call), of_call.is_some());
                let is_even = |n: usize| n.is_multiple_of(2);
                let evens = model.iter().filter(|(other, n)| *other == call && is_even(*n));
                prop_assert_eq!(kept.any(call, |n| is_even(*n)), evens.count() > 0);
                match step {
                    0 | 1 => {
                        kept.push(call, n);
                        model.push((call, n));
                    }
                    2 => prop_assert_eq!(kept.take(call), of_call.map(|at| model.remove(at).1)),
                    _ => {
                        let first = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(kept.pop(), first);
                    }
                }
                prop_assert_eq!((kept.len(), kept.by_call.len()), (model.len(), model.len()));
                prop_assert_eq!(kept.is_empty(), model.is_empty());
            }
        }
    }
}
