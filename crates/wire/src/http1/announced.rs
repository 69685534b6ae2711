//! What a head that was not taken, or has not come whole, was about to ask for.

use crate::exchange::Announced;

/// What a head says of itself as far as it came, which may be none that [`HeadParser`](super::HeadParser)
/// takes. Of a sound one it is what the parser gives.
pub fn announced(bytes: &[u8]) -> Announced<'_> {
    Announced { path: path(bytes), origin: origin(bytes), live: None }
}

/// The path in the first line of a request, as far as it came; `None` where nothing of a target did.
fn path(bytes: &[u8]) -> Option<&str> {
    let line = bytes.trim_ascii_start().split(|byte| matches!(byte, b'\r' | b'\n')).next()?;
    let target = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).nth(1)?;
    let target = target.utf8_chunks().next()?.valid();
    // RFC 9112 3.2.2: the absolute form names an authority first.
    let origin = match target.split_once("://") {
        Some((_, rest)) if !target.starts_with('/') => {
            rest.find(['/', '?', '#']).map_or("/", |authority_end| &rest[authority_end..])
        }
        _ => target,
    };
    origin.split(['?', '#']).next().map(|path| if path.is_empty() { "/" } else { path })
}

/// The value of the one `Origin` field whose line came whole; `None` without one, and where there are
/// several.
fn origin(bytes: &[u8]) -> Option<&[u8]> {
    // The first line is none of a field, and what follows the last line end is none yet.
    let lines = bytes.trim_ascii_start().split_inclusive(|byte| *byte == b'\n').skip(1);
    let whole =
        lines.map_while(|line| line.strip_suffix(b"\n")).map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let fields = whole.take_while(|line| !line.is_empty()).filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        line[..colon].eq_ignore_ascii_case(b"origin").then(|| line[colon + 1..].trim_ascii())
    });
    let mut origins = fields.take(2);
    match (origins.next(), origins.next()) {
        (Some(origin), None) => Some(origin),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::{HeadParser, Limits};
    use proptest::prelude::*;

    #[test]
    fn a_head_that_is_refused_says_where_it_went() {
        for (head, path) in [
            ("", None),
            ("POST", None),
            ("POST ", None),
            ("POST /rpc", Some("/rpc")),
            ("\r\nPOST /rpc/log HTTP/1.1\r\nHost: a b\r\n", Some("/rpc/log")),
            ("POST /rpc/log?a HTTP/9.9", Some("/rpc/log")),
            ("POST /rpc/log#a HTTP/1.1", Some("/rpc/log")),
            ("POST http://h:1/rpc/log?b HTTP/1.1", Some("/rpc/log")),
            ("POST http://h", Some("/")),
            ("POST /a://rpc HTTP/1.1", Some("/a://rpc")),
            ("POST\n/rpc/log HTTP/1.1", None),
        ] {
            assert_eq!(super::path(head.as_bytes()), path, "{head:?}");
        }
        assert_eq!(path(b"POST /rpc/\xff HTTP/1.1"), Some("/rpc/"));
        assert_eq!(path(b"POST  /rpc/log HTTP/1.1"), Some("/rpc/log"));
    }

    #[test]
    fn a_page_is_named_by_the_one_origin_whose_line_came_whole() {
        let begin = "GET /a HTTP/1.1\r\nHost: h\r\n";
        for (rest, wanted) in [
            ("Origin: https://a\r\n", Some("https://a")),
            ("origin:https://a \r\nX", Some("https://a")),
            ("X: \u{ff}\nOrigin: https://a\n", Some("https://a")),
            ("", None),
            ("Origin: https://a", None),
            ("Origin: https://a\r", None),
            ("Origin: https://a\r\nOrigin: https://b\r\n", None),
            (" Origin: https://a\r\n", None),
            ("Original: https://a\r\n", None),
            ("\r\nOrigin: https://a\r\n", None),
        ] {
            let head = format!("{begin}{rest}");
            assert_eq!(announced(head.as_bytes()).origin, wanted.map(str::as_bytes), "{rest:?}");
        }
        assert_eq!(announced(b"Origin: https://a\r\n").origin, None, "the first line asks");
    }

    proptest! {
        #[test]
        fn it_is_the_path_of_a_head_that_is_taken(target in "(https?://h)?[/?:a-c%]{0,12}", any in any::<Vec<u8>>()) {
            let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
            if let Ok(Some(head)) = HeadParser::default().parse(text.as_bytes(), &Limits::default()) {
                prop_assert_eq!(path(text.as_bytes()), Some(head.path));
            }
            announced(&any);
        }
    }
}
