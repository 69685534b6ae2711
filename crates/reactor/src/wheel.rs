//! A hierarchical timer wheel: one timer per slot, intrusive links, O(1) to set and to clear.
//!
//! # Shape
//!
//! Six levels of 64 lists. A timer due at tick `d` (milliseconds) while the wheel stands at `n` lies on
//! the level of the highest 6-bit digit in which `d` and `n` differ, in the list of that digit of `d`.
//! When the wheel comes to the beginning of a list's span, a timer on level 0 is due and one above moves
//! down. A 64-bit map per level says which lists hold anything, so that an idle stretch, however long, is
//! crossed in at most six steps.
//!
//! Timers that came due lie in one more list until they are taken one by one: the handler of one may clear or
//! set any other, taken or not.
//!
//! # Invariants
//!
//! 1. A timer is never taken before its tick; it is taken by the first [`Wheel::take`] at or after it.
//! 2. A slot is in at most one list; `prev` of the first names the list itself, so that unlinking needs
//!    no search.
//! 3. A list's bit is set exactly when the list holds something.
//!
//! Checked against a plain map by the property test below.

/// No slot, or no list.
const NONE: u32 = u32::MAX;
/// Marks a `prev` that names a list instead of a slot. Slots stay below it.
const LIST: u32 = 1 << 31;
const LEVELS: usize = 6;
const DIGIT_BITS: u32 = 6;
const LISTS: usize = 64;
/// The list of timers that came due, behind those of the levels.
const DUE: u32 = (LEVELS * LISTS) as u32;
/// The farthest a timer may be set ahead: half of what the 32-bit ticks in the slots can tell apart.
pub(crate) const AHEAD_MAX_MS: u32 = u32::MAX / 2;

/// A slot's place in the wheel: twelve bytes inside each slab slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    prev: u32,
    next: u32,
    /// The low 32 bits of the tick it is due at.
    due: u32,
}

impl Link {
    /// Not set.
    pub(crate) const UNSET: Self = Self { prev: NONE, next: NONE, due: 0 };

    pub(crate) fn is_set(self) -> bool {
        self.prev != NONE
    }
}

/// Where the wheel finds the links: the slab, or a test's vector.
pub(crate) trait Links {
    /// The link of a slot that is set or is just being set.
    fn link(&mut self, slot: u32) -> &mut Link;
}

#[derive(Debug)]
pub(crate) struct Wheel {
    /// Everything up to and including this tick has come due.
    now: u64,
    /// First slot of each list.
    heads: Box<[u32; LEVELS * LISTS + 1]>,
    occupied: [u64; LEVELS],
}

impl Wheel {
    pub(crate) fn new(now: u64) -> Self {
        Self { now, heads: Box::new([NONE; LEVELS * LISTS + 1]), occupied: [0; LEVELS] }
    }

    /// Sets the slot's timer, which must not be set, to the tick `due`: at most [`AHEAD_MAX_MS`] after
    /// the wheel's own. A tick already passed is due at once.
    pub(crate) fn set(&mut self, links: &mut impl Links, slot: u32, due: u64) {
        links.link(slot).due = due as u32;
        let list = self.list_of(due);
        self.push(links, slot, list);
    }

    /// Clears the slot's timer; whether it was set.
    pub(crate) fn clear(&mut self, links: &mut impl Links, slot: u32) -> bool {
        if !links.link(slot).is_set() {
            return false;
        }
        self.unlink(links, slot);
        true
    }

    /// The next slot whose timer came due at or before `now`, in no particular order within a tick. It is
    /// cleared.
    pub(crate) fn take(&mut self, links: &mut impl Links, now: u64) -> Option<u32> {
        while self.heads[DUE as usize] == NONE {
            let Some((list, tick)) = self.next_list().filter(|(_, tick)| *tick <= now) else {
                self.now = self.now.max(now);
                return None;
            };
            self.now = self.now.max(tick);
            self.empty_list(links, list);
        }
        let slot = self.heads[DUE as usize];
        self.clear(links, slot);
        Some(slot)
    }

    /// The earliest tick at which [`Wheel::take`] may have something: never later than the first timer,
    /// up to a cascade earlier. `None` when no timer is set.
    pub(crate) fn next_tick(&self) -> Option<u64> {
        if self.heads[DUE as usize] != NONE {
            return Some(self.now);
        }
        self.next_list().map(|(_, tick)| tick)
    }

    /// The list whose span begins first, and the tick it begins at.
    fn next_list(&self) -> Option<(u32, u64)> {
        // A lower level's spans all lie inside the current span of the level above it.
        let level = self.occupied.iter().position(|occupied| *occupied != 0)?;
        let shift = DIGIT_BITS * level as u32;
        let here = (self.now >> shift) & (LISTS as u64 - 1);
        let ahead = self.occupied[level].rotate_right(here as u32).trailing_zeros();
        let list = (here as u32 + ahead) % LISTS as u32;
        let tick = ((self.now >> shift) + u64::from(ahead)) << shift;
        Some(((level * LISTS) as u32 + list, tick))
    }

    /// Moves everything in a list whose span has begun down, or to the due list.
    fn empty_list(&mut self, links: &mut impl Links, list: u32) {
        while self.heads[list as usize] != NONE {
            let slot = self.heads[list as usize];
            let due = self.due_tick(links.link(slot).due);
            self.unlink(links, slot);
            let target = self.list_of(due);
            debug_assert_ne!(target, list, "a list whose span has begun holds only what moves on");
            self.push(links, slot, target);
        }
    }

    /// The whole tick that a slot's low 32 bits stand for.
    fn due_tick(&self, low: u32) -> u64 {
        let distance = low.wrapping_sub(self.now as u32);
        if distance <= AHEAD_MAX_MS + 1 {
            self.now + u64::from(distance)
        } else {
            // Behind the wheel: due long ago.
            self.now
        }
    }

    fn list_of(&self, due: u64) -> u32 {
        if due <= self.now {
            return DUE;
        }
        let differing = 63 - (due ^ self.now).leading_zeros();
        // The ticks reach 2^31 ahead, so only the last level can be passed, by a carry: there lists are
        // taken round and round, and 64 of its spans are far more than 2^31.
        let level = (differing / DIGIT_BITS).min(LEVELS as u32 - 1);
        let digit = (due >> (DIGIT_BITS * level)) & (LISTS as u64 - 1);
        level * LISTS as u32 + digit as u32
    }

    fn push(&mut self, links: &mut impl Links, slot: u32, list: u32) {
        let next = std::mem::replace(&mut self.heads[list as usize], slot);
        let link = links.link(slot);
        link.prev = LIST | list;
        link.next = next;
        if next != NONE {
            links.link(next).prev = slot;
        }
        self.mark(list, true);
    }

    fn unlink(&mut self, links: &mut impl Links, slot: u32) {
        let Link { prev, next, .. } = *links.link(slot);
        if next != NONE {
            links.link(next).prev = prev;
        }
        if prev & LIST == 0 {
            links.link(prev).next = next;
        } else {
            let list = prev & !LIST;
            self.heads[list as usize] = next;
            if next == NONE {
                self.mark(list, false);
            }
        }
        let link = links.link(slot);
        link.prev = NONE;
        link.next = NONE;
    }

    fn mark(&mut self, list: u32, holds: bool) {
        if list == DUE {
            return;
        }
        let bit = 1_u64 << (list as usize % LISTS);
        let level = &mut self.occupied[list as usize / LISTS];
        if holds { *level |= bit } else { *level &= !bit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    struct Slots(Vec<Link>);

    impl Links for Slots {
        fn link(&mut self, slot: u32) -> &mut Link {
            &mut self.0[slot as usize]
        }
    }

    const SLOTS: u32 = 24;

    #[derive(Clone, Debug)]
    enum Step {
        Set {
            slot: u32,
            after: u32,
        },
        Clear {
            slot: u32,
        },
        Pass {
            ticks: u64,
        },
        /// Go exactly to the first timer, or one tick short of it.
        Approach {
            short: bool,
        },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Distances of every magnitude, so that every level and every carry is met.
        let distance = (0_u32..32, any::<u32>()).prop_map(|(bits, word)| word >> bits);
        let step = prop_oneof![
            4 => (0..SLOTS, distance.clone()).prop_map(|(slot, word)| Step::Set { slot, after: word.min(AHEAD_MAX_MS) }),
            1 => (0..SLOTS).prop_map(|slot| Step::Clear { slot }),
            2 => distance.prop_map(|ticks| Step::Pass { ticks: u64::from(ticks) }),
            2 => any::<bool>().prop_map(|short| Step::Approach { short }),
        ];
        proptest::collection::vec(step, 1..120)
    }

    fn starts() -> impl Strategy<Value = u64> {
        prop_oneof![
            Just(0),
            Just(u64::from(u32::MAX) - 5),
            Just((1 << 36) - 3),
            any::<u32>().prop_map(|word| u64::from(word) << 9)
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        /// The wheel takes what a sorted map would, never early, never late, whatever is set and cleared
        /// on the way.
        #[test]
        fn agrees_with_a_sorted_map(start in starts(), steps in steps()) {
            let mut slots = Slots(vec![Link::UNSET; SLOTS as usize]);
            let mut wheel = Wheel::new(start);
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            let mut now = start;
            for step in steps {
                match step {
                    Step::Set { slot, after } => {
                        wheel.clear(&mut slots, slot);
                        wheel.set(&mut slots, slot, now + u64::from(after));
                        model.insert(slot, now + u64::from(after));
                    }
                    Step::Clear { slot } => {
                        prop_assert_eq!(wheel.clear(&mut slots, slot), model.remove(&slot).is_some());
                    }
                    Step::Pass { ticks } => now += ticks,
                    Step::Approach { short } => {
                        if let Some(first) = model.values().min() {
                            now = now.max(first - u64::from(short && *first > now));
                        }
                    }
                }
                let first = model.values().min().copied();
                prop_assert!(wheel.next_tick() <= first.map(|first| first.max(wheel.now)));
                prop_assert_eq!(wheel.next_tick().is_some(), first.is_some());
                let mut taken = Vec::new();
                while let Some(slot) = wheel.take(&mut slots, now) {
                    taken.push(slot);
                }
                taken.sort_unstable();
                let due: Vec<u32> = model.iter().filter(|(_, due)| **due <= now).map(|(slot, _)| *slot).collect();
                prop_assert_eq!(taken, due.clone());
                due.iter().for_each(|slot| { model.remove(slot); });
                let set = slots.0.iter().filter(|link| link.is_set()).count();
                prop_assert_eq!(set, model.len());
            }
        }
    }

    #[test]
    fn timers_due_together_may_clear_and_set_each_other_while_they_are_taken() {
        let mut slots = Slots(vec![Link::UNSET; 8]);
        let mut wheel = Wheel::new(0);
        (0..8).for_each(|slot| wheel.set(&mut slots, slot, 5));
        let first = wheel.take(&mut slots, 5).unwrap();
        let others: Vec<u32> = (0..8).filter(|slot| *slot != first).collect();
        assert!(wheel.clear(&mut slots, others[0]));
        assert!(wheel.clear(&mut slots, others[1]));
        wheel.set(&mut slots, others[1], 9);
        let mut rest: Vec<u32> = std::iter::from_fn(|| wheel.take(&mut slots, 5)).collect();
        rest.sort_unstable();
        assert_eq!(rest, others[2..]);
        assert_eq!(wheel.take(&mut slots, 8), None);
        assert_eq!(wheel.take(&mut slots, 9), Some(others[1]));
        assert_eq!(wheel.next_tick(), None);
    }

    #[test]
    fn a_long_idle_stretch_is_crossed_in_a_few_steps() {
        let mut slots = Slots(vec![Link::UNSET; 1]);
        let mut wheel = Wheel::new(1);
        wheel.set(&mut slots, 0, u64::from(AHEAD_MAX_MS));
        let mut steps = 0;
        let mut now = 1;
        while wheel.take(&mut slots, now).is_none() {
            now = wheel.next_tick().unwrap();
            steps += 1;
        }
        assert_eq!(now, u64::from(AHEAD_MAX_MS));
        assert!(steps <= LEVELS, "{steps} steps");
    }
}
