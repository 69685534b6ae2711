//! Response heads as a client reads them.

use super::head::BodyLength;
use super::minor::NewerLine;
use super::persistence::Persistence;
use smallvec::SmallVec;
use std::mem::MaybeUninit;

/// Most header fields of a response.
const FIELDS_CAP: usize = 96;
/// Bytes of a response head.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// A field of a response, as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseField<'a> {
    /// Its name, in the sender's case.
    pub name: &'a str,
    /// Its value, trimmed of outer blanks.
    pub value: &'a [u8],
}

/// A response head, borrowed from the bytes it was parsed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// Status code.
    pub status: u16,
    /// Header fields in order of arrival.
    pub fields: SmallVec<[ResponseField<'a>; 24]>,
    /// Where the body begins.
    pub bytes: usize,
    /// How the body is delimited; `None`: by the end of the connection.
    pub body: Option<BodyLength>,
    /// The connection can be used again after the body.
    pub keep_alive: bool,
}

impl<'a> ResponseHead<'a> {
    /// Whether it is an interim response (1xx), with the answer still to come. A server that switches
    /// protocols (101) has given its last answer.
    pub fn is_between(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// The first field of that name, in whatever case it was sent.
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.fields.iter().find(|f| f.name.eq_ignore_ascii_case(name)).map(|f| f.value)
    }
}

/// Why a response cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// It is not HTTP/1.x, or its fields are broken.
    #[error("the server's answer is not HTTP/1.1")]
    Malformed,
    /// The head is larger than a client takes.
    #[error("the server's response head is larger than {HEAD_BYTES_MAX} bytes")]
    TooLarge,
    /// `Content-Length` and `Transfer-Encoding` contradict each other or are unknown.
    #[error("the server's response does not say how its body ends")]
    Framing,
}

/// Parses the response head at the beginning of `bytes`; `Ok(None)` asks for more of them. `to_head` says
/// that the request was HEAD, whose response has no body whatever its fields say.
///
/// # Errors
/// The server's answer breaks HTTP; see [`ResponseError`].
pub fn parse_response(bytes: &[u8], to_head: bool) -> Result<Option<ResponseHead<'_>>, ResponseError> {
    let mut space = [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; FIELDS_CAP];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let length = match config.parse_response_with_uninit_headers(&mut parsed, bytes, &mut space) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return wait_for_more(bytes),
        Err(httparse::Error::Version) => return parse_newer(bytes, to_head),
        Err(_) => return Err(ResponseError::Malformed),
    };
    let status = parsed.code.ok_or(ResponseError::Malformed)?;
    head(parsed.headers, status, parsed.version == Some(0), length, to_head).map(Some)
}

/// A head that has not come whole.
fn wait_for_more<'a>(bytes: &[u8]) -> Result<Option<ResponseHead<'a>>, ResponseError> {
    if bytes.len() > HEAD_BYTES_MAX { Err(ResponseError::TooLarge) } else { Ok(None) }
}

/// A head whose line says a minor version above ours, or another version.
#[cold]
fn parse_newer(bytes: &[u8], to_head: bool) -> Result<Option<ResponseHead<'_>>, ResponseError> {
    // Blank lines in front are skipped, as `httparse` does.
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(0);
    let line = NewerLine::of(&bytes[start..], 0).ok_or(ResponseError::Malformed)?;
    let mut parsed = httparse::Response::new(&mut []);
    parsed.parse(&line.as_ours).map_err(|_| ResponseError::Malformed)?;
    if !line.whole {
        return wait_for_more(bytes);
    }
    let status = parsed.code.ok_or(ResponseError::Malformed)?;
    let fields_at = start + line.as_ours.len();
    let mut space = [httparse::EMPTY_HEADER; FIELDS_CAP];
    match httparse::parse_headers(&bytes[fields_at..], &mut space) {
        Ok(httparse::Status::Complete((length, headers))) => {
            head(headers, status, false, fields_at + length, to_head).map(Some)
        }
        Ok(httparse::Status::Partial) => wait_for_more(bytes),
        Err(_) => Err(ResponseError::Malformed),
    }
}

/// What a head of so many `bytes` says.
fn head<'a>(
    headers: &[httparse::Header<'a>],
    status: u16,
    legacy: bool,
    bytes: usize,
    to_head: bool,
) -> Result<ResponseHead<'a>, ResponseError> {
    let fields: SmallVec<_> = headers.iter().map(field).collect();
    let (body, keep_alive) = framing(&fields, status, legacy, to_head)?;
    Ok(ResponseHead { status, fields, bytes, body, keep_alive })
}

fn field<'a>(header: &httparse::Header<'a>) -> ResponseField<'a> {
    ResponseField { name: header.name, value: header.value.trim_ascii_end() }
}

fn framing(
    fields: &[ResponseField<'_>],
    status: u16,
    legacy: bool,
    to_head: bool,
) -> Result<(Option<BodyLength>, bool), ResponseError> {
    let mut length = None;
    let mut chunked = false;
    let mut persistence = Persistence::default();
    for field in fields {
        if field.name.eq_ignore_ascii_case("content-length") {
            let value = super::head::parse_length(field.value).map_err(|_| ResponseError::Framing)?;
            if length.replace(value).is_some_and(|before| before != value) {
                return Err(ResponseError::Framing);
            }
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            if !field.value.eq_ignore_ascii_case(b"chunked") {
                return Err(ResponseError::Framing);
            }
            chunked = true;
        } else if field.name.eq_ignore_ascii_case("connection") {
            persistence.note(field.value);
        }
    }
    let keep_alive = persistence.keeps_alive(legacy);
    if to_head || !super::encode::status_has_body(status) {
        return Ok((Some(BodyLength::Known(0)), keep_alive));
    }
    match (chunked, length) {
        (true, Some(_)) => Err(ResponseError::Framing),
        (true, None) => Ok((Some(BodyLength::Chunked), keep_alive)),
        (false, Some(length)) => Ok((Some(BodyLength::Known(length)), keep_alive)),
        (false, None) => Ok((None, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bodies_are_delimited_as_the_head_says() {
        let cases: [(&str, bool, Option<BodyLength>, bool); 10] = [
            ("HTTP/1.2 200 OK\r\nContent-Length: 3\r\n\r\nabc", false, Some(BodyLength::Known(3)), true),
            ("\r\nHTTP/1.9 200\r\n\r\n", false, None, false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", false, Some(BodyLength::Known(3)), true),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, Some(BodyLength::Chunked), true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", true, Some(BodyLength::Known(0)), true),
            ("HTTP/1.1 204 No Content\r\n\r\n", false, Some(BodyLength::Known(0)), true),
            ("HTTP/1.1 200 OK\r\n\r\n", false, None, false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", false, Some(BodyLength::Known(1)), false),
            (
                "HTTP/1.0 200 OK\r\nConnection: close, keep-alive\r\nContent-Length: 0\r\n\r\n",
                false,
                Some(BodyLength::Known(0)),
                false,
            ),
            (
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                false,
                Some(BodyLength::Known(0)),
                false,
            ),
        ];
        for (text, to_head, body, keep_alive) in cases {
            let head = parse_response(text.as_bytes(), to_head).unwrap().unwrap();
            assert_eq!((head.body, head.keep_alive), (body, keep_alive), "{text}");
        }
    }

    #[test]
    fn contradictions_are_errors() {
        for (text, error) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", ResponseError::Framing),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
                ResponseError::Framing,
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", ResponseError::Framing),
            ("SSH-2.0-OpenSSH_9\r\n", ResponseError::Malformed),
            ("HTTP/2.0 200 OK\r\n\r\n", ResponseError::Malformed),
            ("HTTP/1.22 200 OK\r\n\r\n", ResponseError::Malformed),
            ("HTTP/1.2 200 OK\r\nA b\r\n\r\n", ResponseError::Malformed),
        ] {
            assert_eq!(parse_response(text.as_bytes(), false), Err(error), "{text}");
        }
        for begin in ["HTTP/1.1 200 OK\r\nA: ", "HTTP/1.2 200 OK\r\nA: ", "HTTP/1.2 200 "] {
            let endless = [begin.as_bytes().to_vec(), vec![b'a'; HEAD_BYTES_MAX]].concat();
            assert_eq!(parse_response(&endless, false), Err(ResponseError::TooLarge), "{begin}");
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let text = [b"HTTP/1.1 200 OK\r\n".to_vec(), bytes.clone()].concat();
            for cut in 0..text.len() {
                // A prefix is never whole with another meaning than the whole has.
                if let Ok(Some(head)) = parse_response(&text[..cut], false) {
                    prop_assert_eq!(parse_response(&text, false), Ok(Some(head)));
                }
            }
            let _ = parse_response(&bytes, false);
            // RFC 9110 2.5: a minor version above ours is read as ours.
            let newer = [b"HTTP/1.7".as_slice(), &text[8..]].concat();
            prop_assert_eq!(parse_response(&newer, false), parse_response(&text, false));
        }
    }
}
