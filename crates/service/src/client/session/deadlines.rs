//! The deadlines of calls.
//!
//! A call that ends leaves its deadline behind, and the heap is swept when those outnumber the living: so
//! ending a call costs nothing, and the heap is never more than about twice as large as there are calls.

use crate::call::CallId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

const SWEEP_AT: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    heap: BinaryHeap<Reverse<(Instant, CallId)>>,
}

impl Deadlines {
    /// A call has a deadline; `alive` of all calls are in flight, and `has` tells which.
    pub(crate) fn add(&mut self, at: Instant, call: CallId, alive: usize, has: impl Fn(CallId) -> bool) {
        if self.heap.len() >= SWEEP_AT.max(2 * alive) {
            self.heap.retain(|Reverse((_, call))| has(*call));
        }
        self.heap.push(Reverse((at, call)));
    }

    /// The next deadline of a call in flight.
    pub(crate) fn next(&mut self, has: impl Fn(CallId) -> bool) -> Option<Instant> {
        loop {
            let Reverse((at, call)) = *self.heap.peek()?;
            if has(call) {
                return Some(at);
            }
            self.heap.pop();
        }
    }

    /// The next call whose deadline passed. It may have ended meanwhile.
    pub(crate) fn passed(&mut self, now: Instant) -> Option<CallId> {
        let Reverse((at, call)) = *self.heap.peek()?;
        if at > now {
            return None;
        }
        self.heap.pop();
        Some(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_earliest_of_the_living_is_next_and_what_passed_comes_out_in_order() {
        let (start, mut deadlines) = (Instant::now(), Deadlines::default());
        for (call, ms) in [(1, 30), (2, 10), (3, 20)] {
            deadlines.add(start + Duration::from_millis(ms), CallId(call), 3, |_| true);
        }
        assert_eq!(deadlines.next(|call| call != CallId(2)), Some(start + Duration::from_millis(20)));
        assert_eq!(deadlines.passed(start + Duration::from_millis(19)), None);
        let end = start + Duration::from_millis(40);
        assert_eq!([deadlines.passed(end), deadlines.passed(end)], [Some(CallId(3)), Some(CallId(1))]);
        assert_eq!(deadlines.passed(end), None);
    }

    #[test]
    fn calls_that_ended_do_not_pile_up() {
        let (start, mut deadlines) = (Instant::now(), Deadlines::default());
        for call in 0..100_000 {
            deadlines.add(start + Duration::from_secs(3_600), CallId(call), 1, |alive| alive.0 == call);
        }
        assert!(deadlines.heap.len() <= SWEEP_AT);
    }
}
