//! The notation of types: a leaf or `map<T>`, then any of `?`, `[]`, `[N]`, read from left to right. Owns the
//! grammar; never knows which names are declared.

use crate::elsewhere;

/// A reference as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    /// A name, and where it begins in the reference.
    Name(String, usize),
    Map(Box<Reference>),
    Optional(Box<Reference>),
    List(Box<Reference>),
    Array(Box<Reference>, usize),
}

/// What is wrong, and where in the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReferenceError {
    pub(crate) at: usize,
    pub(crate) what: String,
    pub(crate) hint: &'static str,
}

/// The largest fixed array.
pub(crate) const ARRAY_MAX: usize = 1024;
/// How many suffixes and maps one reference may have.
const DEPTH_MAX: usize = 16;

/// Reads one reference.
pub(crate) fn parse(text: &str) -> Result<Reference, ReferenceError> {
    let mut at = 0;
    let reference = read(text, &mut at, 0)?;
    if at < text.len() {
        return Err(wrong(at, format!("{:?} does not continue a type", &text[at..]), NOTATION));
    }
    Ok(reference)
}

const NOTATION: &str = "a type is a name or map<T>, followed by any of ? (optional), [] (list), [N] (array)";

fn wrong(at: usize, what: impl Into<String>, hint: &'static str) -> ReferenceError {
    ReferenceError { at, what: what.into(), hint }
}

fn read(text: &str, at: &mut usize, depth: usize) -> Result<Reference, ReferenceError> {
    if depth > DEPTH_MAX {
        return Err(wrong(*at, format!("nested more than {DEPTH_MAX} deep"), "declare a type in between"));
    }
    let start = *at;
    let length =
        text[start..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len() - start);
    if length == 0 {
        let hint = elsewhere::in_front(&text[start..]).unwrap_or(NOTATION);
        return Err(wrong(start, "a type's name is missing here", hint));
    }
    *at += length;
    let name = &text[start..*at];
    let mut reference = if text[*at..].starts_with('<') {
        if name != "map" {
            return Err(wrong(start, format!("{name}<…>: only map takes a type"), elsewhere::made_by(name)));
        }
        *at += 1;
        let item = read(text, at, depth + 1)?;
        if text[*at..].starts_with(',') {
            return Err(wrong(
                *at,
                "map takes one type: its keys are strings",
                "write map<T>, T of the values",
            ));
        }
        if !text[*at..].starts_with('>') {
            return Err(wrong(*at, "map<… is never closed", "add >"));
        }
        *at += 1;
        Reference::Map(Box::new(item))
    } else {
        Reference::Name(name.to_owned(), start)
    };
    for _ in depth..DEPTH_MAX {
        match suffix(text, at, reference)? {
            (longer, true) => reference = longer,
            (whole, false) => return Ok(whole),
        }
    }
    Err(wrong(*at, format!("nested more than {DEPTH_MAX} deep"), "declare a type in between"))
}

/// Passes one suffix, if there is one.
fn suffix(text: &str, at: &mut usize, of: Reference) -> Result<(Reference, bool), ReferenceError> {
    let rest = &text[*at..];
    if rest.starts_with('?') {
        if matches!(of, Reference::Optional(_)) {
            return Err(wrong(*at, "optional twice", "nil can be told from a value, not from another nil"));
        }
        *at += 1;
        return Ok((Reference::Optional(Box::new(of)), true));
    }
    let Some(inside) = rest.strip_prefix('[') else { return Ok((of, false)) };
    let Some(length) = inside.find(']') else {
        return Err(wrong(*at, "[ is never closed", "add ]"));
    };
    let start = *at;
    let count = &inside[..length];
    *at += length + 2;
    if count.is_empty() {
        return Ok((Reference::List(Box::new(of)), true));
    }
    match count.parse() {
        Ok(count @ 1..=ARRAY_MAX) if !inside.starts_with('+') => {
            Ok((Reference::Array(Box::new(of), count), true))
        }
        _ => {
            let what = format!("[{count}] is no array's length: 1 to {ARRAY_MAX} are allowed");
            Err(wrong(start, what, "a list of any length is written T[]"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn suffixes_apply_from_left_to_right() {
        let name = |n: &str, at| Box::new(Reference::Name(n.to_owned(), at));
        assert_eq!(parse("u8[]?").unwrap(), Reference::Optional(Box::new(Reference::List(name("u8", 0)))));
        assert_eq!(parse("u8?[]").unwrap(), Reference::List(Box::new(Reference::Optional(name("u8", 0)))));
        assert_eq!(parse("map<u8>[2]").unwrap(), {
            Reference::Array(Box::new(Reference::Map(name("u8", 4))), 2)
        });
    }

    #[test]
    fn what_is_wrong_has_a_place() {
        for (text, at, says) in [
            ("", 0, "missing"),
            ("u8 ", 2, "does not continue"),
            ("u8[", 2, "never closed"),
            ("u8[0]", 2, "[0]"),
            ("u8[1025]", 2, "[1025]"),
            ("u8[-1]", 2, "[-1]"),
            ("u8??", 3, "optional twice"),
            ("map<u8", 6, "never closed"),
            ("map<>", 4, "missing"),
            ("list<u8>", 0, "only map"),
            ("u8[][][][][][][][][][][][][][][][][][]", 34, "deep"),
        ] {
            let wrong = parse(text).unwrap_err();
            assert_eq!(wrong.at, at, "{text}");
            assert!(wrong.what.contains(says), "{text}: {}", wrong.what);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\PCmapu8<>?\\[\\]0-9]{0,60}") {
            if let Err(wrong) = parse(&text) {
                prop_assert!(wrong.at <= text.len());
            }
        }
    }
}
