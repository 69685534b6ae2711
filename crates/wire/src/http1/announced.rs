//! What a head that was not taken, or has not come whole, was about to ask for.

/// The path in the first line of a request, as far as it came; `None` where nothing of a target did.
///
/// It is for choosing how to refuse, never for doing anything: the line may be none that [`HeadParser`](super::HeadParser)
/// takes, and the path be cut off. Of a sound line it is the path that the parser gives.
pub fn announced_path(bytes: &[u8]) -> Option<&str> {
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
            assert_eq!(announced_path(head.as_bytes()), path, "{head:?}");
        }
        assert_eq!(announced_path(b"POST /rpc/\xff HTTP/1.1"), Some("/rpc/"));
        assert_eq!(announced_path(b"POST  /rpc/log HTTP/1.1"), Some("/rpc/log"));
    }

    proptest! {
        #[test]
        fn it_is_the_path_of_a_head_that_is_taken(target in "(https?://h)?[/?:a-c%]{0,12}", any in any::<Vec<u8>>()) {
            let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
            if let Ok(Some(head)) = HeadParser::default().parse(text.as_bytes(), &Limits::default()) {
                prop_assert_eq!(announced_path(text.as_bytes()), Some(head.path));
            }
            announced_path(&any);
        }
    }
}
