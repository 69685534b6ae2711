//! Request heads: found, parsed by `httparse`, and judged by the framing rules of RFC 9112.
//!
//! [`HeadParser`] remembers how far it looked for the end of the head, so a head that dribbles in is
//! scanned once; its first line is judged as it comes, to refuse garbage early, and the rest when whole.

use super::minor::NewerLine;
use super::persistence::Persistence;
use crate::exchange::{Method, Refusal};
use crate::field::{Field, Name};
use memchr::memchr;
use smallvec::SmallVec;
use std::mem::MaybeUninit;

/// Header fields of one head; beyond this many that some layer reads they spill to the heap.
pub type Fields<'a> = SmallVec<[Field<'a>; 8]>;

/// Most header fields that are parsed at all, whatever [`Limits`] says.
const FIELDS_CAP: usize = 128;

/// Bounds of a request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the head in all, request line and final blank line included.
    pub head_bytes_max: usize,
    /// Bytes of the request line.
    pub line_bytes_max: usize,
    /// Header fields; never above 128.
    pub fields_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head_bytes_max: 16 * 1024, line_bytes_max: 8 * 1024, fields_max: 64 }
    }
}

/// How a message's body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// This many bytes; 0 when the head announces no body.
    Known(u64),
    /// Chunks until the last one.
    Chunked,
}

/// A request head, borrowed from the bytes it was parsed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// Method.
    pub method: Method,
    /// Path of the target, still percent-encoded, beginning with `/`.
    pub path: &'a str,
    /// Query of the target without its `?`.
    pub query: Option<&'a str>,
    /// Minor version: 0 or 1; a newer one is read as 1 (RFC 9110 2.5).
    pub minor_version: u8,
    /// The header fields that some layer reads, in order of arrival; `Host` says what the target does, where
    /// that names an authority.
    pub fields: Fields<'a>,
    /// Where the body begins.
    pub bytes: usize,
    /// How the body is delimited.
    pub body: BodyLength,
    /// The peer wants to go on using the connection.
    pub keep_alive: bool,
    /// The peer waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
}

/// Finds and parses one request head after the other. Small and `Copy`: it keeps positions, no bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadParser {
    /// Bytes in which no head ends.
    scanned: usize,
}

impl HeadParser {
    /// Looks for a whole head at the beginning of `bytes`; `Ok(None)` asks for more of them. The same
    /// bytes must be passed again, with more behind them, until a head or a refusal comes out. The
    /// parser then starts over with the next head.
    ///
    /// # Errors
    /// A [`Refusal`] (400, 414, 417, 431, 501 or 505) that names the field and the rule. What follows on
    /// the connection can no longer be told apart, so it has to be closed.
    pub fn parse<'a>(&mut self, bytes: &'a [u8], limits: &Limits) -> Result<Option<Head<'a>>, Refusal> {
        let line_judged = self.scanned > 0;
        let outcome = match self.find_end(bytes, limits) {
            Ok(Some(_)) => parse_whole(bytes, limits),
            Ok(None) if !line_judged => parse_whole(first_line(bytes), limits),
            Ok(None) => Ok(None),
            Err(refusal) => Err(refusal),
        };
        if !matches!(outcome, Ok(None)) {
            self.scanned = 0;
        }
        outcome
    }

    /// The end of the head, if it is there: a blank line that is not the first.
    fn find_end(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Refusal> {
        let start = leading_blank_lines(bytes);
        let mut line = self.scanned.max(start);
        while let Some(length) = memchr(b'\n', &bytes[line..]) {
            let end = line + length;
            if end == line || bytes[end - 1] != b'\r' {
                return Err(BARE_LINE_FEED);
            }
            if end == line + 1 {
                let whole = if line > start { Ok(Some(end + 1)) } else { Err(LINE_MALFORMED) };
                return within(end + 1 - start, limits).and(whole);
            }
            if line == start && length - 1 > limits.line_bytes_max {
                return Err(LINE_TOO_LONG);
            }
            line = end + 1;
            self.scanned = line;
        }
        let begun = &bytes[start..];
        if line == start && begun.strip_suffix(b"\r").unwrap_or(begun).len() > limits.line_bytes_max {
            return Err(LINE_TOO_LONG);
        }
        within(bytes.len() - start, limits).map(|()| None)
    }
}

fn within(head_bytes: usize, limits: &Limits) -> Result<(), Refusal> {
    if head_bytes > limits.head_bytes_max { Err(HEAD_TOO_LARGE) } else { Ok(()) }
}

/// RFC 9112 2.2: empty lines before a request line are skipped. Two are: more is no honest client.
fn leading_blank_lines(bytes: &[u8]) -> usize {
    let mut start = 0;
    while start < 4 && bytes[start..].starts_with(b"\r\n") {
        start += 2;
    }
    start
}

/// The request line with its end, or as much of it as there is.
fn first_line(bytes: &[u8]) -> &[u8] {
    let start = leading_blank_lines(bytes);
    memchr(b'\n', &bytes[start..]).map_or(bytes, |end| &bytes[..=start + end])
}

fn parse_whole<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<Head<'a>>, Refusal> {
    let start = leading_blank_lines(bytes);
    let mut space = [const { MaybeUninit::<httparse::Header<'a>>::uninit() }; FIELDS_CAP];
    let room = limits.fields_max.min(FIELDS_CAP);
    let mut parsed = httparse::Request::new(&mut []);
    let length = match parsed.parse_with_uninit_headers(&bytes[start..], &mut space[..room]) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::Version) => return parse_newer(bytes, start, room),
        Err(error) => return Err(syntax_refusal(error)),
    };
    let line = RequestLine {
        method: parsed.method.unwrap_or_default(),
        target: parsed.path.unwrap_or_default(),
        minor_version: parsed.version.unwrap_or(1),
    };
    line.head(parsed.headers, start + length).map(Some)
}

/// A head whose line says a minor version above ours, or another version.
#[cold]
fn parse_newer(bytes: &[u8], start: usize, room: usize) -> Result<Option<Head<'_>>, Refusal> {
    let message = &bytes[start..];
    let version_at = memchr::memchr_iter(b' ', message).nth(1).map_or(message.len(), |space| space + 1);
    let line = NewerLine::of(message, version_at).ok_or(VERSION_UNKNOWN)?;
    httparse::Request::new(&mut []).parse(&line.as_ours).map_err(syntax_refusal)?;
    if !line.whole {
        return Ok(None);
    }
    // The line is sound: a method, a target and a version, with one space between them.
    let text = std::str::from_utf8(&message[..version_at - 1]).map_err(|_| BAD_TARGET)?;
    let (method, target) = text.split_once(' ').ok_or(LINE_MALFORMED)?;
    let fields_at = line.as_ours.len();
    let mut space = [httparse::EMPTY_HEADER; FIELDS_CAP];
    match httparse::parse_headers(&message[fields_at..], &mut space[..room]) {
        Ok(httparse::Status::Complete((length, headers))) => {
            let line = RequestLine { method, target, minor_version: 1 };
            line.head(headers, start + fields_at + length).map(Some)
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(error) => Err(syntax_refusal(error)),
    }
}

/// A request line, taken apart.
struct RequestLine<'a> {
    method: &'a str,
    target: &'a str,
    minor_version: u8,
}

impl<'a> RequestLine<'a> {
    /// The head that it is the first line of, which takes so many bytes.
    fn head(self, headers: &[httparse::Header<'a>], bytes: usize) -> Result<Head<'a>, Refusal> {
        let mut fields: Fields<'a> =
            headers.iter().filter_map(|header| Field::of(header.name, trim_end(header.value))).collect();
        let method = method(self.method);
        let Target { authority, path, query } = split_target(method, self.target)?;
        let framing = judge(&fields, self.minor_version)?;
        if let Some(authority) = authority {
            name_host(&mut fields, authority);
        }
        Ok(Head {
            method,
            path,
            query,
            minor_version: self.minor_version,
            fields,
            bytes,
            body: framing.body,
            keep_alive: framing.keep_alive,
            expects_continue: framing.expects_continue,
        })
    }
}

fn trim_end(value: &[u8]) -> &[u8] {
    let mut end = value.len();
    while end > 0 && matches!(value[end - 1], b' ' | b'\t') {
        end -= 1;
    }
    &value[..end]
}

fn method(token: &str) -> Method {
    match token {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "PUT" => Method::Put,
        "POST" => Method::Post,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        _ => Method::Other,
    }
}

/// A request target, taken apart.
struct Target<'a> {
    /// The authority that it names; `None` in origin form.
    authority: Option<&'a str>,
    path: &'a str,
    query: Option<&'a str>,
}

/// RFC 9112 3.2: origin form, absolute form, and `*` for OPTIONS.
fn split_target(method: Method, target: &str) -> Result<Target<'_>, Refusal> {
    if target.bytes().any(|b| b == b'#' || !b.is_ascii_graphic()) {
        return Err(BAD_TARGET);
    }
    if target == "*" && method == Method::Options {
        return Ok(Target { authority: None, path: "/", query: None });
    }
    let (authority, origin) = if target.starts_with('/') { (None, target) } else { split_authority(target)? };
    let (path, query) = match memchr(b'?', origin.as_bytes()) {
        Some(at) => (&origin[..at], Some(&origin[at + 1..])),
        None => (origin, None),
    };
    Ok(Target { authority, path: if path.is_empty() { "/" } else { path }, query })
}

/// RFC 9112 3.2.2: a server takes the absolute form of its own URLs, which over TLS begin with `https`. RFC
/// 9110 4.2: a URL names a host, and user information in front of it only deceives readers.
fn split_authority(target: &str) -> Result<(Option<&str>, &str), Refusal> {
    let (scheme, rest) = target.split_once("://").ok_or(BAD_TARGET)?;
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(BAD_TARGET);
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, origin) = rest.split_at(end);
    if authority.is_empty() || authority.starts_with(':') || !host_is_sane(authority.as_bytes()) {
        return Err(BAD_TARGET);
    }
    Ok((Some(authority), origin))
}

/// RFC 9112 3.2.2: the authority of the target counts, and not what `Host` said.
fn name_host<'a>(fields: &mut Fields<'a>, authority: &'a str) {
    let value = authority.as_bytes();
    match fields.iter_mut().find(|field| field.name == Name::Host) {
        Some(host) => host.value = value,
        // HTTP/1.0 has none.
        None => fields.push(Field { name: Name::Host, value }),
    }
}

struct FramingVerdict {
    body: BodyLength,
    keep_alive: bool,
    expects_continue: bool,
}

/// What the fields say about the message's end and the connection's, with everything that two readers
/// could read differently refused.
fn judge(fields: &[Field<'_>], minor_version: u8) -> Result<FramingVerdict, Refusal> {
    let mut length = None;
    let mut chunked = false;
    let mut hosts = 0;
    let mut persistence = Persistence::default();
    let mut expects_continue = false;
    for field in fields {
        match field.name {
            // RFC 9112 6.3, rule 5: more than one value is unrecoverable. Equal ones are refused too.
            Name::ContentLength => {
                let announced = parse_length(field.value)?;
                if length.replace(announced).is_some() {
                    return Err(LENGTH_REPEATED);
                }
            }
            // RFC 9112 6.1: a coding we do not implement is 501; `chunked` twice is malformed.
            Name::TransferEncoding => {
                if !field.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(CODING_UNKNOWN);
                }
                if std::mem::replace(&mut chunked, true) {
                    return Err(CODING_REPEATED);
                }
            }
            Name::Host => {
                hosts += 1;
                if !host_is_sane(field.value) {
                    return Err(HOST_MALFORMED);
                }
            }
            Name::Connection => persistence.note(field.value),
            Name::Expect => {
                if !field.value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(EXPECTATION_UNKNOWN);
                }
                // RFC 9110 10.1.1: ignored from an HTTP/1.0 client.
                expects_continue = minor_version >= 1;
            }
            _ => {}
        }
    }
    // RFC 9112 3.2: exactly one Host in HTTP/1.1, never two.
    if hosts > 1 || (hosts == 0 && minor_version >= 1) {
        return Err(HOST_COUNT);
    }
    // RFC 9112 6.1: both framings, or a coding from HTTP/1.0, are how requests are smuggled.
    if chunked && length.is_some() {
        return Err(FRAMING_TWICE);
    }
    if chunked && minor_version == 0 {
        return Err(CODING_IN_1_0);
    }
    let body = if chunked { BodyLength::Chunked } else { BodyLength::Known(length.unwrap_or(0)) };
    let expects_continue = expects_continue && body != BodyLength::Known(0);
    let keep_alive = persistence.keeps_alive(minor_version == 0);
    Ok(FramingVerdict { body, keep_alive, expects_continue })
}

/// Digits only: no sign, no blank, no list; at most what a u64 holds.
pub(super) fn parse_length(value: &[u8]) -> Result<u64, Refusal> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(LENGTH_MALFORMED);
    }
    value
        .iter()
        .try_fold(0u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        .ok_or(LENGTH_MALFORMED)
}

/// Host may be empty (RFC 9110 7.2) but holds no delimiter that would let it carry a path or a list.
fn host_is_sane(value: &[u8]) -> bool {
    value.len() <= 512
        && value
            .iter()
            .all(|b| b.is_ascii_graphic() && !matches!(b, b'/' | b'?' | b'#' | b'@' | b',' | b'\\'))
}

fn syntax_refusal(error: httparse::Error) -> Refusal {
    match error {
        httparse::Error::TooManyHeaders => TOO_MANY_FIELDS,
        httparse::Error::Version => VERSION_UNKNOWN,
        httparse::Error::HeaderName => FIELD_NAME_MALFORMED,
        httparse::Error::HeaderValue => FIELD_VALUE_MALFORMED,
        _ => LINE_MALFORMED,
    }
}

const fn refusal(status: u16, code: &'static str, field: &'static str, detail: &'static str) -> Refusal {
    Refusal { status, code, field, detail }
}

const BARE_LINE_FEED: Refusal =
    refusal(400, "bare-line-feed", "request head", "Every line of a request head ends with CR and LF.");
const LINE_TOO_LONG: Refusal = refusal(
    414,
    "request-line-too-long",
    "request line",
    "The request line is too long; shorten the target.",
);
const HEAD_TOO_LARGE: Refusal = refusal(
    431,
    "header-block-too-large",
    "header block",
    "The request head is larger than the limit; send fewer or shorter header fields.",
);
const TOO_MANY_FIELDS: Refusal = refusal(
    431,
    "too-many-header-fields",
    "header block",
    "The request has more header fields than the limit; send fewer.",
);
const LINE_MALFORMED: Refusal = refusal(
    400,
    "request-line-malformed",
    "request line",
    "A request begins with a method, a target and HTTP/1.1, separated by single spaces.",
);
const VERSION_UNKNOWN: Refusal = refusal(
    505,
    "http-version-unsupported",
    "request line",
    "What follows the target is not a version HTTP/1.x, which is all that this server speaks; a space in the target is written %20.",
);
const FIELD_NAME_MALFORMED: Refusal = refusal(
    400,
    "header-name-malformed",
    "header block",
    "A header line is a name, a colon right behind it, and a value; lines may not be folded.",
);
const FIELD_VALUE_MALFORMED: Refusal = refusal(
    400,
    "header-value-malformed",
    "header block",
    "A header value holds no control characters but the horizontal tab.",
);
const BAD_TARGET: Refusal = refusal(
    400,
    "target-malformed",
    "request target",
    "The target is a path beginning with `/` or an absolute http or https URL, percent-encoded, without user name or fragment.",
);
const LENGTH_MALFORMED: Refusal = refusal(
    400,
    "content-length-malformed",
    "Content-Length",
    "Content-Length is one decimal number of bytes, digits only.",
);
const LENGTH_REPEATED: Refusal =
    refusal(400, "content-length-repeated", "Content-Length", "Content-Length is sent once.");
const FRAMING_TWICE: Refusal = refusal(
    400,
    "body-framed-twice",
    "Transfer-Encoding",
    "A request carries Content-Length or Transfer-Encoding, never both.",
);
const CODING_UNKNOWN: Refusal = refusal(
    501,
    "transfer-coding-unsupported",
    "Transfer-Encoding",
    "The only transfer coding understood here is `chunked`.",
);
const CODING_REPEATED: Refusal =
    refusal(400, "transfer-coding-repeated", "Transfer-Encoding", "Transfer-Encoding is sent once.");
const CODING_IN_1_0: Refusal =
    refusal(400, "transfer-coding-in-http-1.0", "Transfer-Encoding", "HTTP/1.0 has no Transfer-Encoding.");
const HOST_COUNT: Refusal =
    refusal(400, "host-count", "Host", "An HTTP/1.1 request carries exactly one Host field.");
const HOST_MALFORMED: Refusal =
    refusal(400, "host-malformed", "Host", "Host is a name or an address with an optional port.");
const EXPECTATION_UNKNOWN: Refusal =
    refusal(417, "expectation-unknown", "Expect", "The only expectation understood here is `100-continue`.");

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
