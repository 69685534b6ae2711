//! JSON bodies as messages: validation, and one level of array flattened, bytes preserved.
//!
//! Nothing is decoded: elements are skipped over with an explicit stack of their own (never the thread's),
//! so nesting costs one byte a level and a hostile body cannot overflow anything. Messages are kept
//! joined by single commas; a body that comes that way already is borrowed, not copied.

use serde::Deserializer;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::ops::Range;

/// Why a body is not JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// Not UTF-8.
    #[error("the body is not UTF-8 from byte {0} on")]
    Utf8(usize),
    /// Not one JSON value.
    #[error("the body is not JSON: {0}")]
    Syntax(#[from] serde_json::Error),
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
    let text = std::str::from_utf8(body).map_err(|error| JsonError::Utf8(error.valid_up_to()))?;
    let trimmed = text.trim_matches([' ', '\t', '\r', '\n']);
    if !trimmed.starts_with('[') {
        let value: &RawValue = serde_json::from_str(trimmed)?;
        return Ok(Messages { count: 1, joined: Cow::Borrowed(value.get().as_bytes()) });
    }
    let mut joiner = Joiner { body: trimmed.as_bytes(), count: 0, span: 0..0, built: None };
    split(trimmed, |range| joiner.push(range))?;
    Ok(joiner.finish())
}

/// Calls `each` with the range of every element of the array in `text`, blanks excluded, in order.
///
/// # Errors
/// [`JsonError::Syntax`] unless the text is one array; elements before the error were reported.
pub fn split(text: &str, each: impl FnMut(Range<usize>)) -> Result<(), JsonError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.deserialize_seq(Elements { start: text.as_ptr() as usize, each })?;
    deserializer.end()?;
    Ok(())
}

struct Elements<F> {
    start: usize,
    each: F,
}

impl<'de, F: FnMut(Range<usize>)> Visitor<'de> for Elements<F> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element::<&'de RawValue>()? {
            // A raw value is a slice of the text it was read from, so its address gives its place.
            let first = element.get().as_ptr() as usize - self.start;
            (self.each)(first..first + element.get().len());
        }
        // The end of the array was seen; anything left would be a defect of the parser.
        elements.next_element::<IgnoredAny>().map(|_| ())
    }
}

/// Joins elements: extends a borrowed span while they lie one comma apart, copies from the first that
/// does not.
struct Joiner<'a> {
    body: &'a [u8],
    count: u64,
    span: Range<usize>,
    built: Option<Vec<u8>>,
}

impl<'a> Joiner<'a> {
    fn push(&mut self, element: Range<usize>) {
        self.count += 1;
        if self.count == 1 {
            self.span = element;
            return;
        }
        if self.built.is_none() && element.start == self.span.end + 1 {
            self.span.end = element.end;
            return;
        }
        let body = self.body;
        let span = self.span.clone();
        let built = self.built.get_or_insert_with(|| {
            let mut built = Vec::with_capacity(body.len());
            built.extend_from_slice(&body[span]);
            built
        });
        built.push(b',');
        built.extend_from_slice(&body[element]);
    }

    fn finish(self) -> Messages<'a> {
        let joined = self.built.map_or(Cow::Borrowed(&self.body[self.span]), Cow::Owned);
        Messages { count: self.count, joined }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
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

    fn value() -> impl Strategy<Value = Value> {
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
        fn wrapped_in_brackets_it_is_the_array_again(value in value(), pretty in any::<bool>()) {
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
