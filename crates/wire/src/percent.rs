//! Percent-decoding, shared by names and queries. Allocates only when something is escaped.

use std::borrow::Cow;

/// A `%` that two hexadecimal digits do not follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadEscape;

/// Decodes `%XX`; with `plus_is_space` also the form convention of queries.
pub(crate) fn decode(input: &str, plus_is_space: bool) -> Result<Cow<'_, [u8]>, BadEscape> {
    let bytes = input.as_bytes();
    let special = |byte: u8| byte == b'%' || (plus_is_space && byte == b'+');
    let Some(first) = bytes.iter().position(|byte| special(*byte)) else {
        return Ok(Cow::Borrowed(bytes));
    };
    let mut decoded = Vec::with_capacity(bytes.len());
    decoded.extend_from_slice(&bytes[..first]);
    let mut rest = &bytes[first..];
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b'%' => {
                let [high, low, tail @ ..] = rest else { return Err(BadEscape) };
                decoded.push((digit(*high)? << 4) | digit(*low)?);
                rest = tail;
            }
            b'+' if plus_is_space => decoded.push(b' '),
            byte => decoded.push(*byte),
        }
    }
    Ok(Cow::Owned(decoded))
}

fn digit(byte: u8) -> Result<u8, BadEscape> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        b'A'..=b'F' => Ok(byte - b'A' + 10),
        _ => Err(BadEscape),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_text_is_borrowed() {
        assert!(matches!(decode("a+b", false), Ok(Cow::Borrowed(b"a+b"))));
        assert_eq!(decode("a+b%2B", true).unwrap().as_ref(), b"a b+");
    }

    #[test]
    fn cut_and_foreign_escapes_are_refused() {
        for bad in ["%", "%4", "%zz", "a%2", "%%41", "%+1", "%é"] {
            assert_eq!(decode(bad, false), Err(BadEscape), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let encoded: String = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
            prop_assert_eq!(decode(&encoded, true).unwrap().into_owned(), bytes);
        }

        #[test]
        fn any_text_is_survived(text in ".*") {
            if let Ok(decoded) = decode(&text, true) {
                prop_assert!(decoded.len() <= text.len());
            }
        }
    }
}
