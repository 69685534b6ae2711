//! What is written and what must come back: entry number i of every store, its time, its payload, and the
//! sums that any stretch of entries adds up to. A pattern compares what it read with these sums, so that no
//! side is fast because it skipped something.

/// Time of entry 0, microseconds since the epoch.
pub(crate) const BASE_TIME: u64 = 1_700_000_000_000_000;
/// Microseconds from one entry to the next.
pub(crate) const STEP: u64 = 1_000;
/// Bytes of every payload.
pub(crate) const PAYLOAD_BYTES: usize = 100;
/// Entries that one tick of a writer adds.
pub(crate) const TICK_ENTRIES: u64 = 50;

/// Time of an entry.
pub(crate) fn time(number: u64) -> u64 {
    BASE_TIME + number * STEP
}

/// Payload of an entry: its number's low byte first, then the number, then filling.
pub(crate) fn payload(number: u64) -> [u8; PAYLOAD_BYTES] {
    let mut payload = [b'.'; PAYLOAD_BYTES];
    payload[0] = number as u8;
    payload[1..9].copy_from_slice(&number.to_le_bytes());
    payload
}

/// What reading entries adds up to. Every reader takes of each entry its time, its place (an offset, or the
/// key again where there is none), its length and its first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) entries: u64,
    pub(crate) times: u64,
    pub(crate) bytes: u64,
    /// Adds up what differs between the sides, so that it is read and nothing else.
    pub(crate) places: u64,
}

impl Sum {
    /// Takes one entry.
    #[inline(always)]
    pub(crate) fn take(&mut self, time: u64, place: u64, data: &[u8]) {
        self.entries += 1;
        self.times = self.times.wrapping_add(time);
        self.places = self.places.wrapping_add(place);
        self.bytes += data.len() as u64 + u64::from(data.first().copied().unwrap_or(0));
    }

    /// Takes what somebody else summed.
    pub(crate) fn add(&mut self, other: Sum) {
        self.entries += other.entries;
        self.times = self.times.wrapping_add(other.times);
        self.places = self.places.wrapping_add(other.places);
        self.bytes += other.bytes;
    }

    /// Whether these are the entries expected, by everything that all sides share.
    pub(crate) fn agrees(&self, expected: &Sum) -> bool {
        (self.entries, self.times, self.bytes) == (expected.entries, expected.times, expected.bytes)
    }

    /// The same where entries of one transaction share its time.
    pub(crate) fn agrees_but_for_times(&self, expected: &Sum) -> bool {
        (self.entries, self.bytes) == (expected.entries, expected.bytes)
    }
}

/// What entries `from .. from + count` add up to.
pub(crate) fn expected(from: u64, count: u64) -> Sum {
    let below = |n: u64| (u128::from(n) * u128::from(n.saturating_sub(1)) / 2) as u64;
    let numbers = below(from + count).wrapping_sub(below(from));
    let times = BASE_TIME.wrapping_mul(count).wrapping_add(numbers.wrapping_mul(STEP));
    let bytes = first_bytes(from + count) - first_bytes(from) + count * PAYLOAD_BYTES as u64;
    Sum { entries: count, times, bytes, places: 0 }
}

/// The first bytes of entries below a number, summed: they count from 0 to 255 and begin again.
fn first_bytes(number: u64) -> u64 {
    let rest = number % 256;
    number / 256 * (255 * 128) + rest * rest.saturating_sub(1) / 2
}

/// Numbers that look random and are the same in every run.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // A Weyl sequence through a finaliser (splitmix64, Steele, Lea and Flood 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        ((u128::from(word) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_entries_one_by_one() {
        for (from, count) in [(0, 0), (0, 1), (0, 1000), (255, 2), (700, 513), (1 << 40, 300)] {
            let mut sum = Sum::default();
            (from..from + count).for_each(|n| sum.take(time(n), 0, &payload(n)));
            assert_eq!(sum, expected(from, count), "{count} from {from}");
        }
    }

    #[test]
    fn a_missing_or_a_wrong_entry_shows() {
        let right = expected(10, 5);
        let mut sum = expected(10, 4);
        assert!(!sum.agrees(&right));
        sum.take(time(14), 7, &payload(13));
        assert!(!sum.agrees(&right) && !sum.agrees_but_for_times(&right));
        let mut sum = expected(10, 4);
        sum.take(time(13), 7, &payload(14));
        assert!(!sum.agrees(&right) && sum.agrees_but_for_times(&right));
    }

    #[test]
    fn random_numbers_keep_below_their_bound_and_reach_everywhere() {
        let mut random = Random::new(1);
        let mut seen = [0_u32; 10];
        (0..10_000).for_each(|_| seen[random.below(10) as usize] += 1);
        assert!(seen.iter().all(|count| (800..1_200).contains(count)), "{seen:?}");
    }
}
