//! Media types: whether one is well-formed, what it is the same as, and how it travels in events.
//!
//! Two types are the same when their essences (`type/subtype`) are, whatever case or parameters they carry.

use crate::tchar::is_tchar;

/// The longest media type accepted, bytes.
pub const MEDIA_BYTES_MAX: usize = 255;

/// What nearly everybody sends, which needs no looking at.
const USUAL: [&str; 3] = ["application/json", "application/octet-stream", "text/plain"];

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
    if media == USUAL[0] {
        return Kind::Json;
    }
    let media = skip_blanks(media.as_bytes());
    if has_essence(media, b"application/json") {
        Kind::Json
    } else if media.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"text/")) {
        Kind::Text
    } else {
        Kind::Binary
    }
}

/// Whether two media types are the same, parameters and case ignored.
pub fn same(left: &str, right: &str) -> bool {
    left == right || essence(left).eq_ignore_ascii_case(essence(right))
}

/// The media type in a field value, or `None` unless it is `type/subtype` with printable parameters. Every
/// append asks: each byte is looked at once at most.
pub fn parse(value: &[u8]) -> Option<&str> {
    if let Some(usual) = USUAL.into_iter().find(|usual| value == usual.as_bytes()) {
        return Some(usual);
    }
    if value.len() > MEDIA_BYTES_MAX {
        return None;
    }
    let minor = behind_token(skip_blanks(value))?.strip_prefix(b"/")?;
    let rest = skip_blanks(behind_token(minor)?);
    let is_sound = match rest {
        [] => true,
        [b';', parameters @ ..] => parameters.iter().all(|byte| CLASS[usize::from(*byte)] != Class::Control),
        _ => false,
    };
    is_sound.then(|| std::str::from_utf8(value).ok()).flatten()
}

/// What a media type may have where.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// In a token.
    Token,
    /// In parameters only.
    Printable,
    /// Nowhere.
    Control,
}

/// By byte.
const CLASS: [Class; 256] = {
    let (mut table, mut byte) = ([Class::Control; 256], 0);
    while byte < 256 {
        table[byte] = match byte as u8 {
            tchar if is_tchar(tchar) => Class::Token,
            b'\t' | b' '..=b'~' => Class::Printable,
            _ => Class::Control,
        };
        byte += 1;
    }
    table
};

/// What follows the token that bytes begin with, if there is one.
fn behind_token(bytes: &[u8]) -> Option<&[u8]> {
    let length = bytes.iter().take_while(|byte| CLASS[usize::from(**byte)] == Class::Token).count();
    bytes.get(length..).filter(|_| length > 0)
}

fn skip_blanks(bytes: &[u8]) -> &[u8] {
    let blanks = bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    bytes.get(blanks..).unwrap_or_default()
}

/// Whether a media type has that essence, in any case.
fn has_essence(media: &[u8], essence: &[u8]) -> bool {
    media.split_at_checked(essence.len()).is_some_and(|(start, rest)| {
        start.eq_ignore_ascii_case(essence) && matches!(skip_blanks(rest), [] | [b';', ..])
    })
}

fn essence(media: &str) -> &str {
    media.split(';').next().unwrap_or_default().trim_ascii()
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
        assert_eq!(kind(" application/json "), Kind::Json);
        assert_eq!(kind("application/json-patch"), Kind::Binary);
        assert_eq!(kind("application/jso"), Kind::Binary);
    }

    #[test]
    fn malformed_types_are_refused() {
        for bad in [
            "",
            "text",
            "/plain",
            "text/",
            "te xt/plain",
            "text/pl ain",
            "text /plain",
            "text/ plain",
            "text/a/b",
            "text/plain\r\nX: y",
            "text/plain;\0",
            "text/plain;\x7f",
            "text/plain; naïve",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(parse(&[b't', b'/', 0xff]), None);
        assert_eq!(parse(format!("text/{}", "x".repeat(251)).as_bytes()), None);
        for good in
            ["multipart/mixed; boundary=\"a b\"", " text/plain\t;a=b", "text/plain ", "a!#$%&'*+-.^_`|~/b;"]
        {
            assert_eq!(parse(good.as_bytes()), Some(good));
        }
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
