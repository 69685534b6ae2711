//! How long a stream lives (PROTOCOL 5.1): pure functions of its lifetime, its last access and the time.

use crate::store::Lifetime;

const SECOND_US: u64 = 1_000_000;

/// When the stream expires, microseconds since the epoch; `None` = never.
pub(crate) fn expires_us(lifetime: Lifetime, accessed_us: u64) -> Option<u64> {
    match lifetime {
        Lifetime::Unlimited => None,
        // PROTOCOL 5.1: the stream expires after being idle for this duration.
        Lifetime::Sliding { ttl_s } => Some(accessed_us.saturating_add(ttl_s.saturating_mul(SECOND_US))),
        Lifetime::Until { expires_us } => Some(expires_us),
    }
}

/// Whether the stream's time is over.
pub(crate) fn is_expired(lifetime: Lifetime, accessed_us: u64, now_us: u64) -> bool {
    expires_us(lifetime, accessed_us).is_some_and(|expires_us| now_us >= expires_us)
}

/// Whole seconds the stream has left; `None` = no limit.
pub(crate) fn remaining_s(lifetime: Lifetime, accessed_us: u64, now_us: u64) -> Option<u64> {
    expires_us(lifetime, accessed_us).map(|expires_us| expires_us.saturating_sub(now_us) / SECOND_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_expires_early_and_everything_in_time() {
        let sliding = Lifetime::Sliding { ttl_s: 2 };
        assert!(!is_expired(sliding, 1_000, 2_000_999));
        assert!(is_expired(sliding, 1_000, 2_001_000));
        assert!(!is_expired(sliding, 5_000_000, 1), "a clock that went back expires nothing");
        assert!(is_expired(Lifetime::Until { expires_us: 5 }, u64::MAX, 5));
        assert!(!is_expired(Lifetime::Until { expires_us: 5 }, 0, 4));
        assert!(!is_expired(Lifetime::Unlimited, 0, u64::MAX));
        assert!(!is_expired(Lifetime::Sliding { ttl_s: u64::MAX }, 7, u64::MAX - 1));
        assert_eq!(remaining_s(sliding, 0, 500_000), Some(1));
    }
}
