//! Decimal integers as protocols write them: digits only, no sign, no leading zero, bounded.

/// The largest integer that JavaScript holds exactly, 2^53 - 1.
pub const SAFE_INTEGER_MAX: u64 = (1 << 53) - 1;

/// The value of `digits`, or `None` unless it is a plain decimal of at most `max`.
pub fn parse(digits: &[u8], max: u64) -> Option<u64> {
    if digits.is_empty() || (digits.len() > 1 && digits[0] == b'0') {
        return None;
    }
    let value = digits.iter().try_fold(0_u64, |value, byte| match byte {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })?;
    (value <= max).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_plain_digits_pass() {
        for bad in ["", "00", "01", "+1", "-1", "1.0", "1e3", " 1", "1 ", "0x1", "1abc", "١"] {
            assert_eq!(parse(bad.as_bytes(), u64::MAX), None, "{bad}");
        }
        assert_eq!(parse(b"0", 0), Some(0));
        assert_eq!(parse(b"9007199254740991", SAFE_INTEGER_MAX), Some(SAFE_INTEGER_MAX));
        assert_eq!(parse(b"9007199254740992", SAFE_INTEGER_MAX), None);
        assert_eq!(parse(b"18446744073709551616", u64::MAX), None);
    }

    proptest! {
        #[test]
        fn parsing_undoes_printing(value in any::<u64>()) {
            prop_assert_eq!(parse(value.to_string().as_bytes(), u64::MAX), Some(value));
        }

        #[test]
        fn what_passes_prints_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
            if let Some(value) = parse(&bytes, u64::MAX) {
                prop_assert_eq!(value.to_string().into_bytes(), bytes);
            }
        }
    }
}
