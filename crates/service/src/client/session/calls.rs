//! The calls in flight: which there are, without hashing.
//!
//! A call's number holds the slot it lies in (the low bits) and how many calls there were before it (the
//! rest), so a number is looked up by an index, is never used twice, and a late frame for an old call matches
//! none.

use crate::call::CallId;
use std::ops::Range;

const SLOT_BITS: u32 = 20;
/// Calls in flight at most.
pub(crate) const CALLS_MAX: u32 = 1 << SLOT_BITS;
/// The number of a slot where no call lies. No call has it: the first has sequence 1.
const VACANT: u64 = 0;
/// The place of a request that lies nowhere yet, or no more.
const NOWHERE: u64 = u64::MAX;

#[derive(Debug)]
struct Slot {
    number: u64,
    /// Where its request begins and ends among all bytes of the connection: once all are written, the server
    /// may have it.
    begin: u64,
    end: u64,
    /// Items that its stream may still send.
    credit: u64,
    /// One frame answers it, and no stream.
    unary: bool,
    /// Its connection ended before it did, or its deadline passed. That it failed is still to be told;
    /// nothing it sends, and nothing that is received, concerns it any more.
    is_lost: bool,
}

/// Credit that is not counted: it is not known yet with how much streams begin. What is granted meanwhile is
/// added to it.
pub(crate) const UNCOUNTED: u64 = 1 << 63;

#[derive(Debug, Default)]
pub(crate) struct Calls {
    slots: Vec<Slot>,
    free: Vec<u32>,
    sequence: u64,
    len: usize,
}

impl Calls {
    /// A new call, whose stream may send `credit` items; `unary`: one frame answers it. The place of its
    /// request is set once it is known.
    pub(crate) fn begin(&mut self, credit: u64, unary: bool) -> CallId {
        self.sequence += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { number: VACANT, begin: 0, end: 0, credit: 0, unary, is_lost: false });
            (self.slots.len() - 1) as u32
        });
        let number = self.sequence << SLOT_BITS | u64::from(slot);
        self.slots[slot as usize] =
            Slot { number, begin: NOWHERE, end: NOWHERE, credit, unary, is_lost: false };
        self.len += 1;
        CallId(number)
    }

    /// Says where the call's request lies.
    pub(crate) fn lies_at(&mut self, call: CallId, place: Range<u64>) {
        if let Some(slot) = self.slot(call) {
            (slot.begin, slot.end) = (place.start, place.end);
        }
    }

    /// Takes back the call's request: where it lay, if none of it had left when `gone` bytes had.
    pub(crate) fn take_back(&mut self, call: CallId, gone: u64) -> Option<Range<u64>> {
        let slot = self.slot(call).filter(|slot| slot.begin >= gone && slot.begin != NOWHERE)?;
        let place = slot.begin..slot.end;
        (slot.begin, slot.end) = (NOWHERE, NOWHERE);
        Some(place)
    }

    /// These pieces are cut out, which were taken back and are given in their order: what lay behind them
    /// moves up.
    pub(crate) fn cut(&mut self, pieces: &[Range<u64>]) {
        let mut gone = 0;
        let gone: Vec<u64> = std::iter::once(0)
            .chain(pieces.iter().map(|piece| {
                gone += piece.end - piece.start;
                gone
            }))
            .collect();
        for slot in self.slots.iter_mut().filter(|slot| slot.begin != NOWHERE) {
            let before = pieces.partition_point(|piece| piece.end <= slot.begin);
            (slot.begin, slot.end) = (slot.begin - gone[before], slot.end - gone[before]);
        }
    }

    /// The call's stream may send `items` more items.
    pub(crate) fn grant(&mut self, call: CallId, items: u32) {
        if let Some(slot) = self.slot(call) {
            slot.credit = slot.credit.saturating_add(items.into());
        }
    }

    /// From now on it is known with how much those streams began of which it was not.
    pub(crate) fn count(&mut self, credit: u32) {
        for slot in &mut self.slots {
            if slot.credit & UNCOUNTED != 0 {
                slot.credit = (slot.credit & !UNCOUNTED) + u64::from(credit);
            }
        }
    }

    /// An item came for a call in flight; `false` when it was one more than it might send.
    #[inline]
    pub(crate) fn spend(&mut self, call: CallId) -> bool {
        let Some(slot) = self.slot(call) else { return true };
        if slot.credit & UNCOUNTED != 0 {
            return true;
        }
        let left = slot.credit.checked_sub(1);
        slot.credit = left.unwrap_or(0);
        left.is_some()
    }

    /// Whether the call is in flight and one frame answers it.
    pub(crate) fn is_unary(&self, call: CallId) -> bool {
        self.slots.get(index(call)).is_some_and(|slot| slot.number == call.0 && slot.unary)
            && call.0 != VACANT
    }

    /// Whether the call has not ended.
    pub(crate) fn has(&self, call: CallId) -> bool {
        self.slots.get(index(call)).is_some_and(|slot| slot.number == call.0 && call.0 != VACANT)
    }

    /// Whether the call has not ended, nor is it lost.
    #[inline]
    pub(crate) fn is_current(&self, call: CallId) -> bool {
        self.slots.get(index(call)).is_some_and(|slot| slot.number == call.0 && !slot.is_lost)
            && call.0 != VACANT
    }

    /// Whatever comes of the call from now on is not wanted.
    pub(crate) fn give_up(&mut self, call: CallId) {
        if let Some(slot) = self.slot(call) {
            slot.is_lost = true;
        }
    }

    /// Ends the call; `false` when it was not in flight.
    pub(crate) fn end(&mut self, call: CallId) -> bool {
        let Some(slot) = self.slot(call) else { return false };
        slot.number = VACANT;
        self.free.push(index(call) as u32);
        self.len -= 1;
        true
    }

    /// As great as any call's number so far, and less than that of any later call.
    pub(crate) const fn last(&self) -> CallId {
        CallId(self.sequence << SLOT_BITS | (CALLS_MAX - 1) as u64)
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// How many there ever were at once, through which [`Calls::cut`] goes.
    pub(crate) const fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The connection ended, of which `gone` bytes had left: every call that was made on it, as they were
    /// begun, and whether its request had left whole. Their places are of that connection, and gone with
    /// it.
    pub(crate) fn lose(&mut self, gone: u64) -> Vec<(CallId, bool)> {
        let current = self.slots.iter_mut().filter(|slot| slot.number != VACANT && !slot.is_lost);
        let lost = current.map(|slot| {
            let is_whole = slot.end <= gone;
            (slot.begin, slot.end, slot.is_lost) = (NOWHERE, NOWHERE, true);
            (CallId(slot.number), is_whole)
        });
        let mut lost: Vec<_> = lost.collect();
        lost.sort_unstable();
        lost
    }

    fn slot(&mut self, call: CallId) -> Option<&mut Slot> {
        self.slots.get_mut(index(call)).filter(|slot| slot.number == call.0 && call.0 != VACANT)
    }
}

fn index(call: CallId) -> usize {
    (call.0 & u64::from(CALLS_MAX - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_word_that_names_no_call_is_nobody() {
        let mut calls = Calls::default();
        for number in [0, 1, u64::MAX, 1 << SLOT_BITS] {
            assert!(!calls.has(CallId(number)) && !calls.end(CallId(number)));
        }
        let call = calls.begin(UNCOUNTED, false);
        assert!(calls.has(call));
        assert!(!calls.has(CallId(call.0 + 1)) && !calls.has(CallId(call.0 + (1 << SLOT_BITS))));
    }

    proptest! {
        #[test]
        fn calls_are_kept_as_a_set_keeps_them_and_no_number_comes_twice(
            steps in proptest::collection::vec(any::<Option<prop::sample::Index>>(), 1..200),
        ) {
            let (mut calls, mut model, mut seen) = (Calls::default(), BTreeSet::new(), BTreeSet::new());
            for step in steps {
                match step {
                    Some(which) if !model.is_empty() => {
                        let call = *model.iter().nth(which.index(model.len())).unwrap();
                        model.remove(&call);
                        prop_assert!(calls.end(call) && !calls.end(call) && !calls.has(call));
                    }
                    _ => {
                        let call = calls.begin(UNCOUNTED, false);
                        prop_assert!(seen.insert(call) && calls.has(call));
                        model.insert(call);
                    }
                }
                prop_assert_eq!(calls.len(), model.len());
            }
            let all: Vec<CallId> = calls.lose(0).into_iter().map(|(call, _)| call).collect();
            prop_assert_eq!(all, model.into_iter().collect::<Vec<_>>());
        }
    }
}
