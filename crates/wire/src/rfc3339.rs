//! Instants as RFC 3339 text, microseconds since the Unix epoch in between.

use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};

/// RFC 3339: four digits.
const YEAR_MAX: i32 = 9999;

/// The instant in `text` in microseconds since the epoch; instants before the epoch count as the epoch.
/// `None` unless the text is RFC 3339, and for instants after the year 9999, which [`format()`] cannot write.
pub fn parse(text: &str) -> Option<u64> {
    let instant = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    if instant.checked_to_offset(UtcOffset::UTC).is_none_or(|instant| instant.year() > YEAR_MAX) {
        return None;
    }
    let time_us = instant.unix_timestamp_nanos().max(0) / 1_000;
    u64::try_from(time_us).ok()
}

/// The instant as RFC 3339 text in UTC; `None` after the year 9999.
pub fn format(time_us: u64) -> Option<String> {
    let instant = OffsetDateTime::from_unix_timestamp_nanos(i128::from(time_us) * 1_000).ok()?;
    instant.format(&Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_instants() {
        assert_eq!(parse("2024-10-09T00:00:00Z"), Some(1_728_432_000_000_000));
        assert_eq!(parse("2024-10-09T02:00:00.000001+02:00"), Some(1_728_432_000_000_001));
        assert_eq!(parse("1969-12-31T23:59:59Z"), Some(0));
        assert_eq!(format(1_728_432_000_500_000).as_deref(), Some("2024-10-09T00:00:00.5Z"));
        assert_eq!(format(u64::MAX), None);
        assert_eq!(
            parse("9999-12-31T23:59:59.999999Z").and_then(format).as_deref(),
            Some("9999-12-31T23:59:59.999999Z")
        );
    }

    #[test]
    fn other_text_is_refused() {
        for bad in [
            "",
            "not-a-timestamp",
            "2024-10-09",
            "2024-10-09T00:00:00",
            "2024-13-01T00:00:00Z",
            "0",
            "9999-12-31T23:59:59-12:00",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn parsing_undoes_formatting(time_us in 0_u64..253_402_300_800_000_000) {
            prop_assert_eq!(format(time_us).as_deref().and_then(parse), Some(time_us));
        }

        #[test]
        fn any_text_is_survived(text in ".*") {
            if let Some(time_us) = parse(&text) {
                prop_assert!(format(time_us).is_some());
            }
        }
    }
}
