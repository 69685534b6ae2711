//! Where the least parts of JSON text end, each of which stands for itself: blanks, words, numbers, what is
//! ordinary in a string. Each takes a byte's index, returns another, and keeps nothing: reading millions of
//! small values spends most of its time here.

use super::text::SyntaxError;

/// Behind what was passed.
pub(super) type Pass = Result<usize, SyntaxError>;

#[cold]
pub(super) fn wrong(at: usize, what: &'static str) -> SyntaxError {
    SyntaxError { what, at }
}

/// Behind blanks.
#[inline(always)]
pub(super) fn blanks(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = bytes.get(at) {
        at += 1;
    }
    at
}

/// Behind a word, if it is the one that is wanted.
#[inline(always)]
pub(super) fn word(bytes: &[u8], at: usize, word: &'static [u8]) -> Pass {
    if bytes[at..].starts_with(word) { Ok(at + word.len()) } else { Err(wrong(at, "no value")) }
}

/// Behind a number.
#[inline(always)]
pub(super) fn number(bytes: &[u8], at: usize) -> Pass {
    let first = at + usize::from(bytes.get(at) == Some(&b'-'));
    let mut end = digits(bytes, first);
    let mut is_number = end == first + 1 || end > first && bytes[first] != b'0';
    if let Some(b'.' | b'e' | b'E') = bytes.get(end) {
        if bytes[end] == b'.' {
            let first = end + 1;
            end = digits(bytes, first);
            is_number &= end > first;
        }
        if let Some(b'e' | b'E') = bytes.get(end) {
            let first = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            end = digits(bytes, first);
            is_number &= end > first;
        }
    }
    if is_number { Ok(end) } else { Err(no_number(bytes, first, end)) }
}

#[cold]
fn no_number(bytes: &[u8], first: usize, end: usize) -> SyntaxError {
    if !bytes.get(first).is_some_and(u8::is_ascii_digit) {
        return wrong(first, "no number");
    }
    let lacks_digit = !bytes[end - 1].is_ascii_digit();
    wrong(end, if lacks_digit { "no digit where a number needs one" } else { "no number" })
}

/// An integer of at most 64 bits that is written without a sign, and where it ends; `None` for whatever else
/// is there.
#[inline(always)]
pub(super) fn unsigned(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let (mut integer, mut end) = (0_u64, at);
    while let Some(digit @ b'0'..=b'9') = bytes.get(end) {
        integer = integer.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
        end += 1;
    }
    let is_number = end == at + 1 || end > at && bytes[at] != b'0';
    let goes_on = matches!(bytes.get(end), Some(b'.' | b'e' | b'E'));
    (is_number && !goes_on).then_some((integer, end))
}

#[inline(always)]
fn digits(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b'0'..=b'9') = bytes.get(at) {
        at += 1;
    }
    at
}

/// How many bytes need no look of their own: neither quote nor backslash nor control character. Eight at a
/// time.
#[inline]
pub(super) fn ordinary(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;
    // The high bit of each byte that is zero, and maybe of some above the first such.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let controls = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
        let found = controls | zeros(word ^ (ONES * 0x22)) | zeros(word ^ (ONES * 0x5c));
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at + bytes[at..].iter().take_while(|byte| **byte >= 0x20 && !matches!(byte, b'"' | b'\\')).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_ends_where_its_last_digit_does() {
        for (text, end) in [("0,", 1), ("-0]", 2), ("10.50e-7 ", 8), ("1E+2", 4), ("7", 1)] {
            assert_eq!(number(text.as_bytes(), 0), Ok(end), "{text}");
        }
        for (text, at) in [("", 0), ("-", 1), ("01", 2), ("-01", 3), (".5", 0), ("+1", 0)] {
            assert_eq!(number(text.as_bytes(), 0), Err(wrong(at, "no number")), "{text}");
        }
        for (text, at) in [("1.", 2), ("1.e1", 4), ("1e", 2), ("1e+", 3)] {
            let error = number(text.as_bytes(), 0).unwrap_err();
            assert_eq!(error.at, at, "{text}");
        }
        assert_eq!(number(b"1e+,", 0), Err(wrong(3, "no digit where a number needs one")));
    }

    proptest! {
        #[test]
        fn an_unsigned_integer_is_a_number_that_fits(text in "-?[0-9]{0,21}[.e,]?[0-9]?", any in any::<u64>()) {
            for text in [text, any.to_string(), format!("{any}0")] {
                let bytes = text.as_bytes();
                let end = number(bytes, 0).ok().filter(|_| !text.starts_with('-'));
                let plainly = end.and_then(|end| Some((text[..end].parse().ok()?, end)));
                prop_assert_eq!(unsigned(bytes, 0), plainly, "{}", text);
            }
        }

        #[test]
        fn ordinary_bytes_are_counted_to_the_first_that_is_not(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let plainly = bytes.iter().take_while(|byte| **byte >= 0x20 && **byte != b'"' && **byte != b'\\').count();
            prop_assert_eq!(ordinary(&bytes), plainly);
        }
    }
}
