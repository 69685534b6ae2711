//! JSON bodies as messages: validation, and one level of array flattened, bytes preserved.
//!
//! Nothing is decoded: values are passed over ([`skim`]), each byte once and without the thread's stack, so a
//! hostile body cannot overflow anything. Messages are kept joined by single commas; a body that comes that
//! way already is borrowed, not copied.

use super::lexeme;
use super::skim::{self, Open};
use super::text::SyntaxError;
use std::borrow::Cow;

/// Why a body is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not UTF-8.
    #[error("the body is not UTF-8 from byte {0} on")]
    Utf8(usize),
    /// Not one JSON value.
    #[error("the body is not JSON: {0}")]
    Syntax(#[from] SyntaxError),
}

/// The messages of one body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Messages<'a> {
    /// How many there are; 0 for an empty array.
    pub count: u64,
    /// The messages, joined by single commas, without blanks between them.
    pub joined: Cow<'a, [u8]>,
}

/// The messages in `body`: the elements of an array, or one value of any other kind.
///
/// # Errors
/// [`JsonError`] unless the body is exactly one JSON value.
pub fn messages(body: &[u8]) -> Result<Messages<'_>, JsonError> {
    if let Err(error) = std::str::from_utf8(body) {
        return Err(JsonError::Utf8(error.valid_up_to()));
    }
    let first = lexeme::blanks(body, 0);
    let (messages, end) = if body.get(first) == Some(&b'[') {
        elements(body, lexeme::blanks(body, first + 1))?
    } else {
        let end = skim::value(body, first, &mut Open::default())?;
        (Messages { count: 1, joined: Cow::Borrowed(&body[first..end]) }, end)
    };
    skim::finish(body, lexeme::blanks(body, end))?;
    Ok(messages)
}

/// Where the `count`-th of messages ends, each of which is kept with a comma behind it, that comma included;
/// `None` if there are fewer, or if what is kept begins with something else. Nothing behind it is looked at.
pub fn end_of_message(kept: &[u8], count: u64) -> Option<usize> {
    // The shortest one is a digit.
    if count > kept.len() as u64 / 2 {
        return None;
    }
    let (mut at, mut open) = (0, Open::default());
    for _ in 0..count {
        at = skim::value(kept, at, &mut open).ok()?;
        if kept.get(at) != Some(&b',') {
            return None;
        }
        at += 1;
    }
    Some(at)
}

/// The elements of an array, joined, and where it ends; what follows its first bracket and blanks comes next.
/// They are borrowed for as long as they lie one comma apart, and copied from the first that does not.
fn elements(body: &[u8], mut at: usize) -> Result<(Messages<'_>, usize), SyntaxError> {
    if body.get(at) == Some(&b']') {
        return Ok((Messages { count: 0, joined: Cow::Borrowed(&[]) }, at + 1));
    }
    let (mut open, mut built) = (Open::default(), None);
    let (mut count, first, mut end) = (0, at, at);
    loop {
        let next = skim::value(body, at, &mut open)?;
        if built.is_some() || count > 0 && at != end + 1 {
            let built = built.get_or_insert_with(|| copied(&body[first..end], body.len()));
            built.push(b',');
            built.extend_from_slice(&body[at..next]);
        }
        (count, end) = (count + 1, next);
        at = lexeme::blanks(body, next);
        match body.get(at) {
            Some(b',') => at = lexeme::blanks(body, at + 1),
            Some(b']') => break,
            _ => return Err(lexeme::wrong(at, "neither a comma nor the end of the array")),
        }
    }
    let joined = built.map_or(Cow::Borrowed(&body[first..end]), Cow::Owned);
    Ok((Messages { count, joined }, at + 1))
}

#[cold]
fn copied(bytes: &[u8], room: usize) -> Vec<u8> {
    let mut copy = Vec::with_capacity(room);
    copy.extend_from_slice(bytes);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::de::IgnoredAny;
    use serde_json::Value;

    fn joined(body: &str) -> (u64, String) {
        let messages = messages(body.as_bytes()).unwrap();
        (messages.count, String::from_utf8(messages.joined.into_owned()).unwrap())
    }

    #[test]
    fn one_level_is_flattened_and_bytes_are_kept() {
        assert_eq!(joined(r#"{"a": 1}"#), (1, r#"{"a": 1}"#.into()));
        assert_eq!(joined(" 42\n"), (1, "42".into()));
        assert_eq!(joined(r#"[{"a":1},{"b":2}]"#), (2, r#"{"a":1},{"b":2}"#.into()));
        assert_eq!(joined("[ 1 ,\n 2.50e+1 , \"\\u00e9\" ]"), (3, "1,2.50e+1,\"\\u00e9\"".into()));
        assert_eq!(joined("[1,2, 3,4]"), (4, "1,2,3,4".into()));
        assert_eq!(joined("[[1,2], [3,4]]"), (2, "[1,2],[3,4]".into()));
        assert_eq!(joined("[[[1,2,3]]]"), (1, "[[1,2,3]]".into()));
        assert_eq!(joined("[ ]"), (0, String::new()));
        assert_eq!(joined("null"), (1, "null".into()));
    }

    #[test]
    fn the_compact_form_is_borrowed() {
        for body in ["[1,[2],{}]", "{}", " [1] "] {
            assert!(matches!(messages(body.as_bytes()).unwrap().joined, Cow::Borrowed(_)), "{body}");
        }
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for bad in [
            "",
            " ",
            "{ invalid json }",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1",
            "1 2",
            "[1] [2]",
            "{\"a\":1,}",
            "'a'",
            "01",
            "nul",
            "[\"\u{1}\"]",
            "\"\\x\"",
            "NaN",
            "\u{feff}1",
            "[1]x",
        ] {
            assert!(messages(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(matches!(messages(b"\"\xff\""), Err(JsonError::Utf8(1))));
    }

    #[test]
    fn depth_costs_no_stack() {
        let depth = 2_000_000;
        let deep = "[".repeat(depth) + &"]".repeat(depth);
        let messages = std::thread::Builder::new()
            .stack_size(64 * 1024)
            .spawn(move || messages(deep.as_bytes()).map(|m| (m.count, m.joined.len())).unwrap())
            .unwrap();
        assert_eq!(messages.join().unwrap(), (1, 2 * depth - 2));
        assert!(super::messages("[{\"a\":".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn messages_end_behind_their_separators() {
        let kept = br#"{"a":",]"},[1,2],"x\",",4,"#;
        let ends = [11, 17, 24, 26];
        for (count, end) in (1..).zip(ends) {
            assert_eq!(end_of_message(kept, count), Some(end), "{count}");
            assert_eq!(kept[end - 1], b',');
        }
        assert_eq!(end_of_message(kept, 5), None);
        assert_eq!(end_of_message(b"", 1), None);
        assert_eq!(end_of_message(b"2],3,", 1), None, "not where a message begins");
        assert_eq!(end_of_message(b"1,no message", 1), Some(2), "nothing behind it is looked at");
        assert_eq!(end_of_message(&[b'['; 64], u64::MAX), None);
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec((".{0,4}", inner), 0..4)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn wrapped_in_brackets_it_is_the_array_again(value in tree(), pretty in any::<bool>()) {
            let body = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
            let messages = messages(&body).unwrap();
            let read = [b"[", messages.joined.as_ref(), b"]"].concat();
            let expected = match value { Value::Array(elements) => elements, other => vec![other] };
            prop_assert_eq!(messages.count, expected.len() as u64);
            prop_assert_eq!(serde_json::from_slice::<Vec<Value>>(&read).unwrap(), expected);
        }

        #[test]
        fn what_passes_is_json(body in r#"[\[\]{},:0-9ae" \n\\.-]{0,24}"#) {
            prop_assert_eq!(messages(body.as_bytes()).is_ok(), serde_json::from_str::<IgnoredAny>(&body).is_ok());
        }

        #[test]
        fn any_bytes_are_survived(body in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(messages) = messages(&body) {
                prop_assert!(messages.joined.len() <= body.len());
            }
        }
    }
}
