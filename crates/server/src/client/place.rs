//! Places in a stream, as a command line names them: each flag says which it takes, and refuses any other before a server is asked.

use thalweg_wire::rfc3339;
use thalweg_wire::token::Token;

/// What the protocol calls the beginning.
const BEGINNING: &str = "-1";

/// `--from`: an offset, `beginning`, `now` or a time; as a query has it.
pub(super) fn from(text: &str) -> Result<String, String> {
    match text {
        "now" => Ok(text.to_owned()),
        time if is_time(time) => Ok(time.to_owned()),
        _ => at(text).map_err(|_| {
            "expected an offset that append, read or head printed, `beginning`, `now`, or a time (RFC 3339: 2030-01-01T00:00:00Z)"
                .to_owned()
        }),
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
            ("yesterday", None, None, None),
            ("", None, None, None),
            ("1_ff", None, None, None),
        ] {
            let taken = [from(text), until(text), at(text)].map(Result::ok);
            assert_eq!(taken, [of_from, of_until, of_at].map(|text| text.map(str::to_owned)), "{text:?}");
        }
    }
}
