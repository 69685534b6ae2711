//! Header lines: one buffer per response, written in place; and header fields as the rules read them.

use crate::problem::Problem;
use thalweg_wire::exchange::{Pieces, Request, Response};
use thalweg_wire::field::Name;
use thalweg_wire::lines::Lines;
use thalweg_wire::token::Token;

/// On every response. PROTOCOL 12.7: no sniffing, and embedding stated. Which pages may read it is for the
/// server around this service to say (CORS).
const COMMON: &[u8] = b"X-Content-Type-Options: nosniff\r\n\
    Cross-Origin-Resource-Policy: cross-origin\r\n";

/// The header lines of a response being built.
pub(crate) struct Headers(Lines);

impl Headers {
    /// The lines every response has.
    pub(crate) fn new() -> Self {
        Self(Lines::from(COMMON))
    }

    /// Appends a whole constant line, `Name: value\r\n`.
    pub(crate) fn constant(&mut self, line: &'static [u8]) -> &mut Self {
        debug_assert!(line.ends_with(b"\r\n"), "a line ends in CRLF");
        self.0.push(line);
        self
    }

    /// Appends a line. What could end the line early cannot come here: values are ours or were parsed.
    pub(crate) fn line(&mut self, name: impl Into<&'static str>, value: &[u8]) -> &mut Self {
        debug_assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "a value is one line");
        self.0.push(name.into().as_bytes());
        self.0.push(b": ");
        self.0.push(value);
        self.0.push(b"\r\n");
        self
    }

    /// Appends a line with a decimal integer.
    pub(crate) fn integer(&mut self, name: impl Into<&'static str>, value: u64) -> &mut Self {
        self.line(name, itoa::Buffer::new().format(value).as_bytes())
    }

    /// Appends `Stream-Next-Offset`.
    pub(crate) fn next_offset(&mut self, next: Token) -> &mut Self {
        self.line("Stream-Next-Offset", &next.encode())
    }

    /// Appends `Stream-Closed: true`, if `closed`.
    pub(crate) fn closed(&mut self, closed: bool) -> &mut Self {
        if closed { self.constant(b"Stream-Closed: true\r\n") } else { self }
    }

    /// Appends `Stream-Up-To-Date: true`, if `up_to_date`.
    pub(crate) fn up_to_date(&mut self, up_to_date: bool) -> &mut Self {
        if up_to_date { self.constant(b"Stream-Up-To-Date: true\r\n") } else { self }
    }

    /// The response with these lines.
    pub(crate) fn respond(self, status: u16, body: Pieces) -> Response {
        Response { status, fields: self.0, body }
    }

    /// The response with these lines and no body.
    pub(crate) fn respond_empty(self, status: u16) -> Response {
        self.respond(status, Pieces::new())
    }
}

/// The value of a field that may appear once only. A connection lets none through that appears twice
/// ([`Request::repeated`]); this is for callers without one.
pub(crate) fn single<'a>(request: &Request<'a>, name: Name) -> Result<Option<&'a [u8]>, Problem> {
    let mut values = request.values(name);
    let value = values.next();
    if values.next().is_some() {
        return Err(Problem::new(400, "header-duplicate", name, "this header may appear only once"));
    }
    Ok(value)
}

/// Whether the request asks for closure. PROTOCOL 4.1: only `true` in any case counts, anything else is as
/// absent.
pub(crate) fn asks_to_close(request: &Request<'_>) -> bool {
    request.field(Name::StreamClosed).is_some_and(|value| value.eq_ignore_ascii_case(b"true"))
}
