//! Cursors that keep caches from looping (PROTOCOL 10.1): the number of the current 20 s interval, or a
//! number past the client's own.
//!
//! What a live subscriber carries is a floor: 0 for most, so that all of them share one encoding, or the
//! number drawn past the client's. The cursor sent is the larger of floor and interval, so it never goes
//! back.

use thalweg_wire::decimal;
use thalweg_wire::exchange::Now;

/// 2024-10-09T00:00:00Z, microseconds since the Unix epoch.
const EPOCH_US: u64 = 1_728_432_000_000_000;
const INTERVAL_S: u64 = 20;
const JITTER_S_MAX: u64 = 3_600;
/// The largest that a greater one can be drawn for, whatever the jitter.
const CURSOR_MAX: u64 = u64::MAX - JITTER_S_MAX.div_ceil(INTERVAL_S);

/// The floor for a client that sent `cursor`, if it sent one. A cursor that is no number of ours is as none.
pub(crate) fn floor(cursor: Option<&str>, now: Now) -> u64 {
    let Some(cursor) = cursor.and_then(|text| decimal::parse(text.as_bytes(), CURSOR_MAX)) else {
        return 0;
    };
    if cursor < interval(now.time_us) {
        return 0;
    }
    // PROTOCOL 10.1: at or past the current interval, the answer is strictly greater, by a jitter of
    // 1 to 3600 seconds, rounded up to whole intervals.
    let jitter_s = 1 + now.entropy % JITTER_S_MAX;
    cursor + jitter_s.div_ceil(INTERVAL_S)
}

/// The cursor to send now to a client with that floor.
pub(crate) fn current(floor: u64, now: Now) -> u64 {
    interval(now.time_us).max(floor)
}

fn interval(time_us: u64) -> u64 {
    time_us.saturating_sub(EPOCH_US) / (INTERVAL_S * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_wire::decimal::SAFE_INTEGER_MAX;

    #[test]
    fn intervals_count_from_the_epoch() {
        let now = |time_us| Now { time_us, entropy: 0 };
        assert_eq!(current(0, now(EPOCH_US)), 0);
        assert_eq!(current(0, now(EPOCH_US + 19_999_999)), 0);
        assert_eq!(current(0, now(EPOCH_US + 20_000_000)), 1);
        assert_eq!(current(0, now(0)), 0);
    }

    #[test]
    fn what_is_no_cursor_counts_as_none() {
        let now = Now { time_us: EPOCH_US, entropy: 9 };
        for text in [None, Some(""), Some("x"), Some("-1"), Some("01"), Some("99999999999999999999")] {
            assert_eq!(floor(text, now), 0);
        }
    }

    proptest! {
        #[test]
        fn the_answer_is_past_the_client_and_never_goes_back(
            cursor in prop_oneof![0..=SAFE_INTEGER_MAX, SAFE_INTEGER_MAX..=CURSOR_MAX], time_us in EPOCH_US..EPOCH_US * 2, entropy in any::<u64>(), later in 0..1_u64 << 40
        ) {
            let now = Now { time_us, entropy };
            let floor = floor(Some(&cursor.to_string()), now);
            let first = current(floor, now);
            prop_assert!(first > cursor);
            prop_assert!(first <= interval(time_us).max(cursor + 180));
            let later = Now { time_us: time_us + later, entropy: !entropy };
            prop_assert!(current(floor, later) >= first);
        }
    }
}
