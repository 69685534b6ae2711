//! Places in a stream, as a command line names them: each flag says which it takes, and refuses any other
//! before a server is asked.

use thalweg_wire::rfc3339;
use thalweg_wire::token::Token;

/// What `--from` takes.
pub(super) const FROM: &str = "expected an offset that append, read or head printed, `beginning`, `now`, or a time (RFC 3339: 2030-01-01T00:00:00Z)";
/// PROTOCOL 8: an offset has fewer characters than that.
const OFFSET_BYTES: usize = 256;
/// What the protocol calls the beginning.
const BEGINNING: &str = "-1";

/// `--from`: an offset, `beginning`, `now` or a time; as a query has it. Another server's offsets need not
/// look like ours: the server says whether it gave one out.
pub(super) fn from(text: &str) -> Result<String, String> {
    match text {
        "beginning" => Ok(BEGINNING.to_owned()),
        // What other flags take, and no server's offset.
        "tail" => Err(FROM.to_owned()),
        offset_or_time if is_opaque(offset_or_time) || is_time(offset_or_time) => {
            Ok(offset_or_time.to_owned())
        }
        _ => Err(FROM.to_owned()),
    }
}

/// `--until`: an offset, a time, or `tail`.
pub(super) fn until(text: &str) -> Result<String, String> {
    if text == "tail" || is_time(text) || is_offset(text) {
        return Ok(text.to_owned());
    }
    Err("expected an offset that append, read or head printed, a time (RFC 3339: 2030-01-01T00:00:00Z), or `tail`".to_owned())
}

/// `--at`: an offset or `beginning`; as a header has it.
pub(super) fn at(text: &str) -> Result<String, String> {
    match text {
        "beginning" | BEGINNING => Ok(BEGINNING.to_owned()),
        offset if is_offset(offset) => Ok(offset.to_owned()),
        _ => Err("expected an offset that append, read or head printed, or `beginning`".to_owned()),
    }
}

pub(super) fn is_time(text: &str) -> bool {
    rfc3339::parse(text).is_some()
}

/// PROTOCOL 8: how any server's offset may look.
fn is_opaque(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b",&=?/".contains(&byte);
    (1..OFFSET_BYTES).contains(&text.len()) && text.bytes().all(plain)
}

/// An offset of ours.
fn is_offset(text: &str) -> bool {
    Token::parse(text.as_bytes()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_takes_what_it_says_and_nothing_else() {
        let (offset, time) = ("0000000000000001_00000000000000ff", "2030-01-01T00:00:00Z");
        for (text, of_from, of_until, of_at) in [
            (offset, Some(offset), Some(offset), Some(offset)),
            (time, Some(time), Some(time), None),
            ("beginning", Some("-1"), None, Some("-1")),
            ("-1", Some("-1"), None, Some("-1")),
            ("now", Some("now"), None, None),
            ("tail", None, Some("tail"), None),
            ("01JDXV7S2M", Some("01JDXV7S2M"), None, None),
            ("1_ff", Some("1_ff"), None, None),
            ("", None, None, None),
            ("a/b", None, None, None),
            ("1 2", None, None, None),
        ] {
            let taken = [from(text), until(text), at(text)].map(Result::ok);
            assert_eq!(taken, [of_from, of_until, of_at].map(|text| text.map(str::to_owned)), "{text:?}");
        }
    }
}
