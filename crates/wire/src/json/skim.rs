//! JSON that is passed over: each byte looked at once, nothing kept but which brackets are open. As strict as
//! RFC 8259 writes it, and as much stricter as its caller has it ([`Rules`]): with [`Open`] nesting has no
//! bound but the text's length, and an escape may be half of a surrogate pair.
//!
//! Made for bodies of millions of small values, which pass on a thread that others wait for.

use super::lexeme::{Pass, blanks, number, ordinary, word, wrong};
use super::text::SyntaxError;

/// Which brackets are open, and what is not passed although it is JSON.
pub(super) trait Rules {
    /// Whether one more bracket may be open.
    fn has_room(&self) -> bool;
    /// A bracket that is not empty begins: an object's, or an array's.
    fn push(&mut self, is_object: bool);
    /// The innermost ends.
    fn pop(&mut self);
    /// Whether the innermost is an object's; `None` where nothing is open.
    fn innermost(&self) -> Option<bool>;
    /// Whether a number that stands there may.
    fn takes_number(&self, start: usize, end: usize) -> bool;
    /// Bytes of the escape at a backslash.
    fn escape(bytes: &[u8], at: usize) -> Pass;
}

/// Behind the value that begins at a byte.
///
/// Where it stands is handed from step to step and kept nowhere else: it is what every step waits for.
#[inline(always)]
pub(super) fn value<R: Rules>(bytes: &[u8], at: usize, rules: &mut R) -> Pass {
    match bytes.get(at) {
        Some(b'[') if rules.has_room() && bytes.get(at + 1) == Some(&b']') => Ok(at + 2),
        Some(b'{') if rules.has_room() && bytes.get(at + 1) == Some(&b'}') => Ok(at + 2),
        Some(b'[' | b'{') => nested(bytes, at, rules),
        _ => scalar(bytes, at, rules),
    }
}

/// Nothing may be left.
pub(super) fn finish(bytes: &[u8], at: usize) -> Result<(), SyntaxError> {
    if at == bytes.len() { Ok(()) } else { Err(wrong(at, "something behind the value")) }
}

/// Behind an array or an object.
fn nested<R: Rules>(bytes: &[u8], mut at: usize, rules: &mut R) -> Pass {
    loop {
        let first = bytes.get(at);
        if let Some(b'[' | b'{') = first {
            let is_object = first == Some(&b'{');
            if !rules.has_room() {
                return Err(wrong(at, "nested too deep"));
            }
            at = blanks(bytes, at + 1);
            if bytes.get(at) != Some(if is_object { &b'}' } else { &b']' }) {
                rules.push(is_object);
                if is_object {
                    at = name::<R>(bytes, at)?;
                }
                continue;
            }
            at += 1;
        } else {
            at = scalar(bytes, at, rules)?;
        }
        // Out of everything that ends here, to the next value.
        loop {
            let Some(is_object) = rules.innermost() else { return Ok(at) };
            at = blanks(bytes, at);
            match bytes.get(at) {
                Some(b',') => {
                    at = blanks(bytes, at + 1);
                    if is_object {
                        at = name::<R>(bytes, at)?;
                    }
                    break;
                }
                Some(b'}') if is_object => {}
                Some(b']') if !is_object => {}
                _ if is_object => return Err(wrong(at, "neither a comma nor the end of the object")),
                _ => return Err(wrong(at, "neither a comma nor the end of the array")),
            }
            at += 1;
            rules.pop();
        }
    }
}

/// Behind a member's name, its colon and the blanks there.
#[inline(always)]
fn name<R: Rules>(bytes: &[u8], at: usize) -> Pass {
    if bytes.get(at) != Some(&b'"') {
        return Err(wrong(at, "no name where an object needs one"));
    }
    let at = blanks(bytes, string(bytes, at + 1, R::escape)?);
    if bytes.get(at) != Some(&b':') {
        return Err(wrong(at, "no colon behind a name"));
    }
    Ok(blanks(bytes, at + 1))
}

#[inline(always)]
fn scalar<R: Rules>(bytes: &[u8], at: usize, rules: &R) -> Pass {
    match bytes.get(at) {
        Some(b'-' | b'0'..=b'9') => match number(bytes, at)? {
            end if rules.takes_number(at, end) => Ok(end),
            end => Err(wrong(end, "a number beyond what is taken")),
        },
        Some(b'"') => string(bytes, at + 1, R::escape),
        Some(b't') => word(bytes, at, b"true"),
        Some(b'f') => word(bytes, at, b"false"),
        Some(b'n') => word(bytes, at, b"null"),
        Some(_) => Err(wrong(at, "no value")),
        None => Err(wrong(at, "the text ends where a value should begin")),
    }
}

/// Behind the quote that ends a string, from any place in it that is within no escape.
#[inline(always)]
pub(super) fn string(bytes: &[u8], mut at: usize, escape: impl Fn(&[u8], usize) -> Pass) -> Pass {
    loop {
        at += ordinary(&bytes[at..]);
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at += escape(bytes, at)?,
            Some(_) => return Err(wrong(at, "a control character in a string")),
            None => return Err(wrong(at, "the text ends inside a string")),
        }
    }
}

/// Bytes of the escape at a backslash, whether or not it is half of a surrogate pair.
fn escape(bytes: &[u8], at: usize) -> Pass {
    match &bytes[at + 1..] {
        [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => Ok(2),
        [b'u', a, b, c, d, ..] if [a, b, c, d].into_iter().all(u8::is_ascii_hexdigit) => Ok(6),
        _ => Err(wrong(at, "an escape that JSON does not have")),
    }
}

/// Which brackets are open: one bit each, 1 for an object's, the innermost lowest.
#[derive(Debug, Default)]
pub(super) struct Open {
    depth: usize,
    /// Of the innermost ones: 1 to 64, if there are any.
    bits: u64,
    /// The others, 64 a word.
    outer: Vec<u64>,
}

impl Rules for Open {
    #[inline]
    fn has_room(&self) -> bool {
        true
    }

    #[inline]
    fn push(&mut self, is_object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.outer.push(self.bits);
        }
        self.bits = self.bits << 1 | u64::from(is_object);
        self.depth += 1;
    }

    #[inline]
    fn pop(&mut self) {
        self.depth -= 1;
        self.bits >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.bits = self.outer.pop().unwrap_or_default();
        }
    }

    #[inline]
    fn innermost(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.bits & 1 == 1)
    }

    #[inline]
    fn takes_number(&self, _start: usize, _end: usize) -> bool {
        true
    }

    #[inline]
    fn escape(bytes: &[u8], at: usize) -> Pass {
        escape(bytes, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    fn is_json(text: &str) -> bool {
        let bytes = text.as_bytes();
        let end = value(bytes, blanks(bytes, 0), &mut Open::default());
        end.and_then(|end| finish(bytes, blanks(bytes, end))).is_ok()
    }

    #[test]
    fn half_of_a_surrogate_pair_is_json() {
        for text in [r#""\ud800""#, r#""\udC00x""#, r#"{"\uFFFF":[]}"#] {
            assert!(is_json(text), "{text}");
        }
    }

    #[test]
    fn brackets_fit_at_every_depth() {
        for depth in 1..200 {
            let (open, close) = (r#"[{"":"#.repeat(depth), "}]".repeat(depth));
            assert!(is_json(&format!("{open}0{close}")), "{depth}");
            for wrong in [&close[1..], &close[..2 * depth - 1], &format!("]{close}"), &format!("{close}]")] {
                assert!(!is_json(&format!("{open}0{wrong}")), "{depth}: {wrong}");
            }
            let swapped = format!("{open}0{}]}}{}", &close[..depth - depth % 2], &close[depth - depth % 2..]);
            assert!(!is_json(&swapped), "{depth}");
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_another_parser(text in r#"[\[\]{},:0-9aeu" \n\\.+-]{0,24}"#) {
            prop_assert_eq!(is_json(&text), serde_json::from_str::<IgnoredAny>(&text).is_ok(), "{:?}", text);
        }

        #[test]
        fn it_agrees_where_something_is_whole(parts in proptest::collection::vec(
            prop::sample::select(vec!["[", "]", "{", "}", ",", ":", "\"a\"", "-1.5e+3", "0", "true", "null", " ", "\"\\u00e9\\\\\""]),
            0..16,
        )) {
            let text = parts.concat();
            prop_assert_eq!(is_json(&text), serde_json::from_str::<IgnoredAny>(&text).is_ok(), "{:?}", text);
        }
    }
}
