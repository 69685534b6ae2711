//! Bytes as hexadecimal digits, two a byte, lower case: hashes, digests, names that are numbers. One text per
//! value.

use std::fmt;

/// Shows bytes as digits.
///
/// ```
/// use thalweg_wire::hex::{self, Hex};
///
/// assert_eq!(Hex(&[0x0c, 0xff]).to_string(), "0cff");
/// assert_eq!(hex::parse("0cff"), Some([0x0c, 0xff]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// The bytes that digits stand for, or `None` unless they are just as many, in lower case.
pub fn parse<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_so_many_digits_of_lower_case_pass() {
        for bad in ["", "0", "000", "00000", "0g00", "+100", "0X00", "00F0", " 000", "é00"] {
            assert_eq!(parse::<2>(bad), None, "{bad}");
        }
        assert_eq!(parse(""), Some([]));
    }

    proptest! {
        #[test]
        fn parsing_undoes_showing(bytes in any::<[u8; 8]>()) {
            prop_assert_eq!(parse(&Hex(&bytes).to_string()), Some(bytes));
        }

        #[test]
        fn what_passes_shows_the_same(text in "[0-9a-fA-F]{3,5}") {
            if let Some(bytes) = parse::<2>(&text) {
                prop_assert_eq!(Hex(&bytes).to_string(), text);
            }
        }
    }
}
