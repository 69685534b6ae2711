//! A commit as the bytes of its entry, and back: change messages of the open state protocol for Durable
//! Streams (`packages/state/STATE-PROTOCOL.md` of durable-streams/durable-streams), each followed by a comma,
//! as a stream of JSON keeps them. So a fork's log is a Durable Stream that a browser follows as it is.
//!
//! A value that is JSON, without blanks around it, is written unchanged, byte for byte, if common JSON
//! parsers read it (`plain`). Any other value is written in base64, and the header `encoding` says so. All
//! messages of one commit have the same `txid`: the offset at which its entry begins.

use crate::changes::{Changes, EachChange};
use crate::map::{Key, Map, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use thalweg_log::Offset;
use thalweg_wire::json::{Text, write};

/// The content type of a fork's log.
pub(crate) const CONTENT_TYPE: &str = "application/json";
const BASE64: &str = "base64";
/// The depth of lists and objects in a value that is written unchanged. With the two around it, it stays
/// below 64, the lowest bound among common parsers.
const NESTED_MAX: u32 = 60;
/// The longest message, without its type, key and value, and the comma after it.
const MESSAGE: &str = concat!(
    r#"{"type":,"key":,"value":,"#,
    r#""headers":{"operation":"insert","encoding":"base64","txid":"18446744073709551615"}},"#,
);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Operation {
    Insert,
    Update,
    Delete,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, rename = "type")]
    _type: Cow<'a, str>,
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "there")]
    value: Option<&'a RawValue>,
    #[serde(borrow)]
    headers: Headers<'a>,
}

/// A value that is present: `null` is a value, too.
fn there<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
struct Headers<'a> {
    operation: Operation,
    #[serde(borrow, default)]
    encoding: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "txid")]
    _txid: Cow<'a, str>,
}

/// Appends the messages of a commit that changes `before`, all but the last comma. Changes without an effect
/// are left out.
pub(crate) fn encode<'c>(
    kind: &str,
    before: &Map,
    changes: impl EachChange<'c>,
    at: Offset,
    out: &mut Vec<u8>,
) {
    for (key, value) in changes {
        let held = before.get(key);
        let operation = match (held, value) {
            (None, None) => continue,
            (Some(held), Some(value)) if held == value => continue,
            (None, Some(_)) => "insert",
            (Some(_), Some(_)) => "update",
            (Some(_), None) => "delete",
        };
        if !out.is_empty() {
            out.push(b',');
        }
        out.extend_from_slice(br#"{"type":"#);
        write::string(out, kind);
        out.extend_from_slice(br#","key":"#);
        write::string(out, key);
        let json = value.and_then(|value| plain(value));
        if let Some(value) = value {
            out.extend_from_slice(br#","value":"#);
            match json {
                Some(json) => out.extend_from_slice(json.as_bytes()),
                None => write::base64(out, value),
            }
        }
        out.extend_from_slice(br#","headers":{"operation":""#);
        out.extend_from_slice(operation.as_bytes());
        if value.is_some() && json.is_none() {
            out.extend_from_slice(br#"","encoding":""#);
            out.extend_from_slice(BASE64.as_bytes());
        }
        out.extend_from_slice(br#"","txid":""#);
        write::unsigned(out, at);
        out.extend_from_slice(br#""}}"#);
    }
}

/// An upper bound of the bytes that the message of a change takes in an entry, its comma included, whatever
/// the key held before and wherever the entry begins. Complexity: the key's length.
pub(crate) fn bytes_max(kind: &str, key: &str, value: Option<&Value>) -> usize {
    // In base64, which is longer than the value unchanged.
    let value = value.map_or(0, |value| write::base64_length(value.len()));
    MESSAGE.len() + write::string_length(kind) + write::string_length(key) + value
}

/// Reads an entry.
///
/// # Errors
/// Why it is not one.
pub(crate) fn decode(payload: &[u8]) -> Result<Changes, String> {
    let inner = payload.strip_suffix(b",").ok_or("it does not end with a comma")?;
    let list = [b"[", inner, b"]"].concat();
    let messages: Vec<Message<'_>> = serde_json::from_slice(&list).map_err(|error| error.to_string())?;
    let mut changes = Changes::default();
    for message in messages {
        let key = Key::from(&*message.key);
        match (message.headers.operation, message.value) {
            (Operation::Delete, _) => changes.delete(key),
            (_, None) => return Err(format!("the message of {key} has no value")),
            (_, Some(raw)) => changes.put(key, value(raw, message.headers.encoding.as_deref())?),
        }
    }
    Ok(changes)
}

fn value(raw: &RawValue, encoding: Option<&str>) -> Result<Value, String> {
    match encoding {
        None => Ok(raw.get().as_bytes().into()),
        Some(BASE64) => {
            let text: Cow<'_, str> = serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
            Ok(STANDARD.decode(&*text).map_err(|error| error.to_string())?.into())
        }
        Some(other) => Err(format!("the encoding {other} is unknown")),
    }
}

/// The value as text, if it is JSON without blanks around it that common parsers read. They fail on deep
/// nesting, halves of surrogate pairs and numbers beyond a double, and with such a value the rest of the
/// stream is lost to them. Complexity: its length.
fn plain(value: &[u8]) -> Option<&str> {
    // Most values that are not JSON are recognised by their first byte.
    matches!(value.first(), Some(b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n'))
        .then_some(())?;
    let text = std::str::from_utf8(value).ok()?;
    let json = Text::new(text).value_within(NESTED_MAX, |number| number.parse().is_ok_and(f64::is_finite));
    json.ok().filter(|json| json.len() == text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::Change;
    use proptest::prelude::*;

    fn encoded(before: &Map, changes: &Changes) -> Vec<u8> {
        let mut out = Vec::new();
        encode("kv", before, changes, 42, &mut out);
        out.push(b',');
        out
    }

    #[test]
    fn messages_are_those_of_the_protocol() {
        let mut before = Map::default();
        before.apply(
            &[Change::Put("b".into(), b"1"[..].into()), Change::Put("c".into(), b"1"[..].into())]
                .into_iter()
                .collect(),
        );
        let changes: Changes = [
            Change::Put("a".into(), br#"{"x":1.50}"#[..].into()),
            Change::Put("b".into(), b"\xff"[..].into()),
            Change::Delete("c".into()),
            Change::Delete("never".into()),
        ]
        .into_iter()
        .collect();
        let wanted = concat!(
            r#"{"type":"kv","key":"a","value":{"x":1.50},"headers":{"operation":"insert","txid":"42"}},"#,
            r#"{"type":"kv","key":"b","value":"/w==","headers":{"operation":"update","encoding":"base64","txid":"42"}},"#,
            r#"{"type":"kv","key":"c","headers":{"operation":"delete","txid":"42"}},"#,
        );
        assert_eq!(String::from_utf8(encoded(&before, &changes)).unwrap(), wanted);
    }

    #[test]
    fn what_some_parser_does_not_read_stands_in_base64() {
        let nested = |count: u32| {
            format!("{}{}", r#"{"a":["#.repeat(count as usize / 2), "]}".repeat(count as usize / 2))
        };
        for (value, is_plain) in [
            (nested(NESTED_MAX), true),
            (format!("[{}]", nested(NESTED_MAX)), false),
            (nested(NESTED_MAX + 2), false),
            (nested(1_000), false),
            (format!("[{}0]", "[],{},".repeat(100)), true),
            (format!("\"{}\"", "[".repeat(100)), true),
            (r#""\ud83d\uDE00 \\ud800 \\\"[ \u00e9""#.to_owned(), true),
            (r#""\ud83d""#.to_owned(), false),
            (r#""\uDE00""#.to_owned(), false),
            (r#""\ud83d\ud83d\ude00""#.to_owned(), false),
            (r#""\ud83d \ude00""#.to_owned(), false),
            (r#"{"\\\ud83d":1}"#.to_owned(), false),
            ("[-1.5e308,1e-999,18446744073709551616]".to_owned(), true),
            ("[1e309]".to_owned(), false),
            ("9".repeat(400), false),
        ] {
            let put = Change::Put("a".into(), value.as_bytes().into());
            let changes: Changes = [put].into_iter().collect();
            let entry = encoded(&Map::default(), &changes);
            let is_base64 = String::from_utf8_lossy(&entry).contains(BASE64);
            assert_eq!(is_base64, !is_plain, "{value}");
            serde_json::from_slice::<serde_json::Value>(entry.strip_suffix(b",").unwrap()).unwrap();
            assert_eq!(decode(&entry).unwrap(), changes);
        }
        // What stands as it is in a log of before is read as ever.
        let before =
            r#"{"type":"kv","key":"a","value":"\ud83d","headers":{"operation":"insert","txid":"1"}},"#;
        let before = decode(before.as_bytes()).unwrap();
        assert_eq!(before.get("a"), Some(Some(&br#""\ud83d""#[..].into())));
    }

    proptest! {
        #[test]
        fn any_value_comes_back_byte_for_byte(
            entries in proptest::collection::btree_map("\\PC{1,8}", prop_oneof![
                any::<Vec<u8>>(),
                "\\PC{0,8}".prop_map(String::into_bytes),
                "[ \\[\\]{}\":0-9a-z,.-]{0,12}".prop_map(String::into_bytes),
                any::<i64>().prop_map(|n| n.to_string().into_bytes()),
                prop_oneof![Just("null"), Just("true"), Just("\"\"")].prop_map(|word| word.as_bytes().to_vec()),
            ], 1..6),
        ) {
            let changes: Changes = entries.into_iter().map(|(key, value)| Change::Put(key.into(), value.into())).collect();
            prop_assert_eq!(decode(&encoded(&Map::default(), &changes)).unwrap(), changes);
        }

        #[test]
        fn no_message_takes_more_than_is_counted_for_it(
            kind in any::<String>(), key in any::<String>(), control in "[\\x00-\\x1f\"\\\\]{0,8}",
            value: Option<Vec<u8>>, held: bool, at: u64,
        ) {
            let key = Key::from(key + &control);
            let value = value.map(Value::from);
            let mut before = Map::default();
            if held {
                before.apply(&[Change::Put(key.clone(), b"before"[..].into())].into_iter().collect());
            }
            let change = match value.clone() {
                Some(value) => Change::Put(key.clone(), value),
                None => Change::Delete(key.clone()),
            };
            let mut out = Vec::new();
            let changes: Changes = [change].into_iter().collect();
            encode(&kind, &before, &changes, at, &mut out);
            prop_assert!(out.len() < bytes_max(&kind, &key, value.as_ref()));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn what_is_no_entry_says_why() {
        for bad in ["", "{}", "{},", r#"{"type":"a","key":"b","headers":{"operation":"insert","txid":"1"}},"#]
        {
            assert!(decode(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
