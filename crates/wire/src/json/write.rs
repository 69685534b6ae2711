//! JSON values, appended.

use super::lexeme::ordinary;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A string, quotes included.
///
/// ```
/// use thalweg_wire::json::write;
/// let mut out = Vec::new();
/// write::string(&mut out, "say \"hi\"\n");
/// assert_eq!(out, br#""say \"hi\"\n""#);
/// ```
pub fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let at = ordinary(rest);
        out.extend_from_slice(&rest[..at]);
        let Some(byte) = rest.get(at) else { break };
        let (escaped, length) = escape(*byte);
        out.extend_from_slice(&escaped[..length]);
        rest = &rest[at + 1..];
    }
    out.push(b'"');
}

/// How many bytes [`string`] writes.
pub fn string_length(text: &str) -> usize {
    let (mut length, mut rest) = (text.len() + 2, text.as_bytes());
    while let Some(byte) = rest.get(ordinary(rest)) {
        length += escape(*byte).1 - 1;
        rest = &rest[ordinary(rest) + 1..];
    }
    length
}

/// How a byte is written that is not ordinary, and in how many bytes.
fn escape(byte: u8) -> ([u8; 6], usize) {
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
            return ([b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)], 6);
        }
    };
    ([b'\\', short, 0, 0, 0, 0], 2)
}

/// Bytes, as a string of base64 with its padding.
pub fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + base64_length(bytes.len()) - 2, 0);
    // The room is exactly what it takes; without room nothing would be written.
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
    out.push(b'"');
}

/// How many bytes [`base64()`] writes for this many.
pub fn base64_length(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4 + 2
}

/// An unsigned integer.
pub fn unsigned(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// A signed integer.
pub fn signed(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_back(text in "[\\x00-\\x7f\\PC]{0,40}", bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            let mut out = Vec::new();
            string(&mut out, &text);
            prop_assert_eq!(out.len(), string_length(&text));
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
            out.clear();
            base64(&mut out, &bytes);
            prop_assert_eq!(out.len(), base64_length(bytes.len()));
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), STANDARD.encode(&bytes));
        }

        #[test]
        fn integers_are_written_in_digits(number in any::<u64>(), other in any::<i64>()) {
            let mut out = Vec::new();
            unsigned(&mut out, number);
            out.push(b' ');
            signed(&mut out, other);
            prop_assert_eq!(String::from_utf8(out).unwrap(), format!("{number} {other}"));
        }
    }
}
