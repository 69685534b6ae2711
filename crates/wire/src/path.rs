//! Stream names: the part of a path that names a stream, decoded and checked.
//!
//! A name is what the store keys streams by, so one stream must have one name: dot segments, empty segments
//! and escaped slashes, which proxies fold differently, are refused instead of folded.

use crate::percent;
use std::borrow::Cow;

/// What the path of a stream begins with; its name follows, percent-encoded.
pub const STREAMS: &str = "/v1/stream/";
/// Where streams are listed.
pub const LIST: &str = "/v1/streams";
/// Where a server says that it is there.
pub const HEALTH: &str = "/healthz";
/// PROTOCOL 6: the first segment that no stream's name has; subscriptions live beneath it.
pub const RESERVED: &str = "__ds";

/// The longest name, bytes after decoding.
pub const NAME_BYTES_MAX: usize = 1024;

/// Why a path does not name a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A `%` without two hexadecimal digits.
    #[error("the name has a % without two hexadecimal digits behind it")]
    Escape,
    /// A slash written as `%2F`.
    #[error("the name has an escaped slash; write it as a plain slash")]
    Slash,
    /// Longer than [`NAME_BYTES_MAX`].
    #[error("the name is longer than 1024 bytes after decoding")]
    Length,
    /// Not UTF-8 after decoding.
    #[error("the name is not UTF-8 after decoding")]
    Utf8,
    /// NUL or another control character.
    #[error("the name has a control character")]
    Control,
    /// An empty segment, `.` or `..`.
    #[error("the name is empty, or has a segment that is empty, `.` or `..`")]
    Segment,
}

impl NameError {
    /// Stable machine-readable word for the rule.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Escape => "name-percent-encoding",
            Self::Slash => "name-escaped-slash",
            Self::Length => "name-too-long",
            Self::Utf8 => "name-not-utf8",
            Self::Control => "name-control-character",
            Self::Segment => "name-segment",
        }
    }
}

/// The stream name in `encoded`, a percent-encoded path without its leading slash.
///
/// # Errors
/// [`NameError`] says which rule the name breaks.
pub fn stream_name(encoded: &str) -> Result<Cow<'_, str>, NameError> {
    // An escape is three bytes for one: anything longer is too long however it decodes.
    if encoded.len() > 3 * NAME_BYTES_MAX {
        return Err(NameError::Length);
    }
    let mut has_escaped_slash = false;
    let name = match percent::decode(encoded, false).map_err(|_| NameError::Escape)? {
        Cow::Borrowed(_) => Cow::Borrowed(encoded),
        Cow::Owned(bytes) => {
            let name = String::from_utf8(bytes).map_err(|_| NameError::Utf8)?;
            has_escaped_slash = slashes(&name) != slashes(encoded);
            Cow::Owned(name)
        }
    };
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::Length);
    }
    if name.chars().any(char::is_control) {
        return Err(NameError::Control);
    }
    if has_escaped_slash {
        return Err(NameError::Slash);
    }
    if name.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return Err(NameError::Segment);
    }
    Ok(name)
}

/// The text as one path segment: everything but unreserved characters (RFC 3986 2.3) is escaped.
pub fn encode(segment: &str) -> String {
    let mut encoded = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            encoded.extend(escape(byte));
        }
    }
    encoded
}

/// The path of a target as a URL has it: what a target may hold raw, and RFC 3986 3.3 does not allow, is
/// escaped.
pub fn as_url(path: &str) -> Cow<'_, str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%".contains(&byte);
    if path.bytes().all(allowed) {
        return Cow::Borrowed(path);
    }
    let mut escaped = String::with_capacity(path.len() + 16);
    for byte in path.bytes() {
        if allowed(byte) {
            escaped.push(byte.into());
        } else {
            escaped.extend(escape(byte));
        }
    }
    Cow::Owned(escaped)
}

fn escape(byte: u8) -> [char; 3] {
    let hex = |digit: u8| char::from(b"0123456789ABCDEF"[usize::from(digit)]);
    ['%', hex(byte >> 4), hex(byte & 15)]
}

/// The path of a stream, its name encoded but for the slashes. What [`stream_name`] makes a name of, behind
/// [`STREAMS`].
pub fn of_stream(name: &str) -> String {
    let segments: Vec<String> = name.split('/').map(encode).collect();
    format!("{STREAMS}{}", segments.join("/"))
}

fn slashes(text: &str) -> usize {
    memchr::memchr_iter(b'/', text.as_bytes()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn good_names_decode() {
        assert!(matches!(stream_name("a/b-c.d"), Ok(Cow::Borrowed("a/b-c.d"))));
        assert_eq!(stream_name("gr%C3%BC%C3%9Fe/%41").unwrap(), "grüße/A");
        assert_eq!(stream_name("a..b/...").unwrap(), "a..b/...");
        assert_eq!(stream_name(&"x".repeat(1024)).unwrap().len(), 1024);
        assert_eq!(stream_name(&"%78".repeat(1024)).unwrap().len(), 1024);
    }

    #[test]
    fn bad_names_say_why() {
        let long = "x".repeat(1025);
        for (name, error) in [
            ("", NameError::Segment),
            ("a//b", NameError::Segment),
            ("a/", NameError::Segment),
            ("/a", NameError::Segment),
            ("..", NameError::Segment),
            ("a/../b", NameError::Segment),
            ("%2e%2E/b", NameError::Segment),
            ("a/.", NameError::Segment),
            ("a%2Fb", NameError::Slash),
            ("..%2f..", NameError::Slash),
            ("a%00b", NameError::Control),
            ("a%0d%0ab", NameError::Control),
            ("%7f", NameError::Control),
            ("%C2%85", NameError::Control),
            ("%ff", NameError::Utf8),
            ("%c0%ae", NameError::Utf8),
            ("a%", NameError::Escape),
            ("a%2", NameError::Escape),
            ("a%g1", NameError::Escape),
            (&long, NameError::Length),
        ] {
            assert_eq!(stream_name(name), Err(error), "{name}");
        }
        assert_eq!(stream_name(&"%".repeat(4000)), Err(NameError::Length));
    }

    #[test]
    fn a_path_is_escaped_where_a_url_has_to_be() {
        assert!(matches!(as_url("/v1/stream/a-._~!$&'()*+,;=:@%20/b"), Cow::Borrowed(_)));
        let raw = "/\"<>[\\]^`{|}";
        assert_eq!(as_url(raw), "/%22%3C%3E%5B%5C%5D%5E%60%7B%7C%7D");
        assert_eq!(stream_name(&as_url(raw)[1..]).unwrap(), &raw[1..]);
    }

    proptest! {
        #[test]
        fn an_encoded_segment_names_what_it_was_made_of(segment in "[^/\\p{Cc}]{1,40}") {
            prop_assume!(!matches!(segment.as_str(), "." | ".."));
            let encoded = encode(&segment);
            prop_assert!(encoded.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(stream_name(&encoded).unwrap(), segment);
        }

        #[test]
        fn an_accepted_name_keeps_every_rule(encoded in "([a-z./]|%[0-9a-fA-F]{2}|.){0,40}") {
            if let Ok(name) = stream_name(&encoded) {
                prop_assert!(!name.is_empty() && name.len() <= NAME_BYTES_MAX);
                prop_assert!(!name.chars().any(char::is_control));
                prop_assert!(!name.split('/').any(|segment| ["", ".", ".."].contains(&segment)));
            }
        }
    }
}
