//! Media types: whether one is well-formed, what it is the same as, and how it travels in events.
//!
//! Two types are the same when their essences (`type/subtype`) are, whatever case or parameters they carry.

/// The longest media type accepted, bytes.
pub const MEDIA_BYTES_MAX: usize = 255;

/// How bytes of a type are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `application/json`: messages, read back as arrays.
    Json,
    /// `text/*`: travels in events as it is.
    Text,
    /// Anything else: travels in events as base64.
    Binary,
}

/// The kind of a media type.
pub fn kind(media: &str) -> Kind {
    let essence = essence(media);
    if essence.eq_ignore_ascii_case("application/json") {
        Kind::Json
    } else if essence.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("text/")) {
        Kind::Text
    } else {
        Kind::Binary
    }
}

/// By byte, whether a token may have it (RFC 9110, 5.6.2).
const TOKEN: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let (others, mut at) = (b"!#$%&'*+-.^_`|~", 0);
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

/// Whether two media types are the same, parameters and case ignored.
pub fn same(left: &str, right: &str) -> bool {
    left == right || essence(left).eq_ignore_ascii_case(essence(right))
}

/// The media type in a field value, or `None` unless it is `type/subtype` with printable parameters.
pub fn parse(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    let printable = |byte: u8| (b' '..=b'~').contains(&byte) || byte == b'\t';
    if text.len() > MEDIA_BYTES_MAX || !text.bytes().all(printable) {
        return None;
    }
    let essence = essence(text);
    let (major, minor) = essence.split_at(position(essence, b'/')?);
    (is_token(major) && is_token(&minor[1..])).then_some(text)
}

fn essence(media: &str) -> &str {
    media[..position(media, b';').unwrap_or(media.len())].trim_ascii()
}

/// Where an ASCII character stands. Every append asks, and types are short: a plain loop is done sooner than a searcher is made.
fn position(text: &str, wanted: u8) -> Option<usize> {
    text.bytes().position(|byte| byte == wanted)
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| TOKEN[usize::from(byte)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn case_and_parameters_do_not_tell_types_apart() {
        assert!(same("text/plain", "TEXT/PLAIN ; charset=utf-8"));
        assert!(!same("text/plain", "text/html"));
        assert_eq!(kind("Application/JSON; charset=utf-8"), Kind::Json);
        assert_eq!(kind("TEXT/csv"), Kind::Text);
        assert_eq!(kind("application/ndjson"), Kind::Binary);
        assert_eq!(kind("textual/plain"), Kind::Binary);
    }

    #[test]
    fn malformed_types_are_refused() {
        for bad in
            ["", "text", "/plain", "text/", "te xt/plain", "text/pl ain", "text/a/b", "text/plain\r\nX: y"]
        {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(parse(&[b't', b'/', 0xff]), None);
        assert_eq!(parse(format!("text/{}", "x".repeat(251)).as_bytes()), None);
        assert_eq!(parse(b"multipart/mixed; boundary=\"a b\""), Some("multipart/mixed; boundary=\"a b\""));
    }

    proptest! {
        #[test]
        fn what_parses_is_safe_in_a_header(value in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(media) = parse(&value) {
                prop_assert!(media.contains('/') && !media.contains(['\r', '\n', '\0']));
            }
        }

        #[test]
        fn any_text_has_a_kind(text in ".*") {
            prop_assert!(same(&text, &text));
            prop_assert_eq!(kind(&text), kind(&text.to_ascii_uppercase()));
        }
    }
}
