//! Spinning for a while before sleeping, without keeping the processor from the thread that could bring what
//! is waited for.
//!
//! A wake across processors costs tens of microseconds, so where waits have been short ([`Pace`]) a thread
//! looks for about as long before it sleeps ([`Patience`]). Where there are fewer processors than threads
//! with something to do, the one that it looks on may be the one that its peer needs: so after a moment it
//! makes way between two looks. That costs next to nothing where nobody waits for the processor. Where
//! somebody does, the time was theirs and is not counted; but a look is given up once others had the
//! processor for longer than a wake costs, twice: a thread that sleeps is put on whichever processor is free
//! when it is woken, one that only makes way stays where it is.
//!
//! No memory is shared here: each belongs to one thread.

use thalweg_sys::{clock, process};

/// About what a wake across processors costs.
pub const WAKE_NS: u64 = 50_000;
/// Waits for a peer that are shorter than this are looked through: twice what a wake costs, because one that
/// was slept through has a wake in it.
pub const QUICK_NS: u64 = 2 * WAKE_NS;
/// A peer that is up and has nothing else to do answers within this: until then nobody is made way for.
pub const ALONE_NS: u64 = 5_000;
/// A yield that takes longer went to somebody.
const YIELD_NS: u64 = 2_000;
/// How many times another thread may have the processor for longer than a wake costs.
const ABSENCES_MAX: u32 = 2;
/// A longer wait counts as this much, so that a burst behind it is recognised within a few waits.
const WAIT_NS_MAX: u64 = 4 * WAKE_NS;

/// How long waits recently took.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    average_ns: u64,
    quick_ns: u64,
}

impl Pace {
    /// Waits are quick while they take less than this on average, and they are to begin with.
    pub const fn new(quick_ns: u64) -> Self {
        Self { average_ns: 0, quick_ns }
    }

    /// The same, and they are not to begin with.
    pub const fn slow(quick_ns: u64) -> Self {
        Self { average_ns: WAIT_NS_MAX, quick_ns }
    }

    /// Whether looking is likely to be cheaper than sleeping.
    #[inline]
    pub const fn is_quick(&self) -> bool {
        self.average_ns < self.quick_ns
    }

    /// A wait took so long, asleep or not.
    #[inline]
    pub fn record(&mut self, waited_ns: u64) {
        let waited_ns = if waited_ns < WAIT_NS_MAX { waited_ns } else { WAIT_NS_MAX };
        self.average_ns = (3 * self.average_ns + waited_ns) / 4;
    }
}

/// How much longer one wait looks.
#[derive(Debug)]
pub struct Patience {
    /// Until then it does not make way.
    alone_until_ns: u64,
    until_ns: u64,
    absences: u32,
}

/// What comes before the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Look,
    MakeWay,
    Sleep,
}

impl Patience {
    /// For a wait that looks for as long as a wake costs, and for the first `alone_ns` does not make way.
    #[inline]
    pub fn new(alone_ns: u64) -> Self {
        Self::at(clock::monotonic_ns(), alone_ns)
    }

    /// The same for a wait for a peer that may be anywhere: a thread with one processor makes way for it at
    /// once.
    #[inline]
    pub fn for_peer(alone_ns: u64) -> Self {
        Self::for_peer_at(clock::monotonic_ns(), alone_ns)
    }

    /// The same for a caller that has just read the monotonic clock.
    #[inline]
    pub fn for_peer_at(now_ns: u64, alone_ns: u64) -> Self {
        Self::at(now_ns, if process::processors_lately(now_ns) > 1 { alone_ns } else { 0 })
    }

    const fn at(now_ns: u64, alone_ns: u64) -> Self {
        Self { alone_until_ns: now_ns + alone_ns, until_ns: now_ns + WAKE_NS, absences: 0 }
    }

    /// Between two looks: makes way to others where it is time for that. `false`: it is time to sleep.
    #[inline]
    pub fn lasts(&mut self) -> bool {
        let now_ns = clock::monotonic_ns();
        match self.step(now_ns) {
            Step::Look => std::hint::spin_loop(),
            Step::MakeWay => {
                process::yield_now();
                self.was_away(clock::monotonic_ns().saturating_sub(now_ns));
            }
            Step::Sleep => return false,
        }
        true
    }

    fn step(&self, now_ns: u64) -> Step {
        match now_ns {
            _ if self.absences >= ABSENCES_MAX || now_ns >= self.until_ns => Step::Sleep,
            _ if now_ns < self.alone_until_ns => Step::Look,
            _ => Step::MakeWay,
        }
    }

    fn was_away(&mut self, away_ns: u64) {
        if away_ns >= YIELD_NS {
            self.until_ns = self.until_ns.saturating_add(away_ns);
            self.absences += u32::from(away_ns >= WAKE_NS);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_looks_alone_then_makes_way_then_sleeps() {
        let patience = Patience::at(1_000, 5_000);
        let steps = [1_000, 5_999, 6_000, 50_999, 51_000].map(|now_ns| patience.step(now_ns));
        assert_eq!(steps, [Step::Look, Step::Look, Step::MakeWay, Step::MakeWay, Step::Sleep]);
    }

    #[test]
    fn what_others_take_is_theirs_but_not_for_ever() {
        let mut patience = Patience::at(0, 0);
        patience.was_away(300);
        assert_eq!(patience.step(WAKE_NS), Step::Sleep, "a yield to nobody is time of its own");
        (0..10).for_each(|_| patience.was_away(30_000));
        assert_eq!(patience.step(WAKE_NS + 299_999), Step::MakeWay);
        patience.was_away(WAKE_NS);
        assert_eq!(patience.step(100_000), Step::MakeWay);
        patience.was_away(3_000_000);
        assert_eq!(patience.step(100_000), Step::Sleep, "it is better off asleep, and put elsewhere");
    }

    #[test]
    fn every_wait_comes_to_its_end() {
        let mut patience = Patience::new(0);
        while patience.lasts() {}
        assert!(!patience.lasts());
    }

    #[test]
    fn a_pace_follows_what_waits_took() {
        let mut pace = Pace::new(WAKE_NS);
        assert!(pace.is_quick(), "nothing is known yet");
        (0..12).for_each(|_| pace.record(60_000));
        assert!(!pace.is_quick());
        (0..3).for_each(|_| pace.record(5_000));
        assert!(pace.is_quick());
        pace.record(u64::MAX);
        pace.record(u64::MAX);
        assert!(!pace.is_quick());
        (0..6).for_each(|_| pace.record(5_000));
        assert!(pace.is_quick(), "a long wait is not remembered for long");
        let mut slow = Pace::slow(WAKE_NS);
        assert!(!slow.is_quick(), "nothing is known yet");
        (0..12).for_each(|_| slow.record(5_000));
        assert!(slow.is_quick());
    }
}
