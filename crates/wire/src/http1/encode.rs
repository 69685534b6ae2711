//! Response heads and chunk framing, written into the caller's buffer.
//!
//! Only what the connection alone knows is added here: status line, `Content-Length` or
//! `Transfer-Encoding`, `Date`, `Connection`.

use time::OffsetDateTime;

/// Sent when a peer waits with its body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Ends the data of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";
/// Ends a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// An instant as HTTP writes it (IMF-fixdate, RFC 9110 5.6.7), to be encoded once a second.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Date {
    second: u64,
    text: [u8; 29],
}

impl std::fmt::Debug for Date {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&String::from_utf8_lossy(&self.text))
    }
}

impl Date {
    /// The date of an instant in microseconds since the epoch.
    pub fn at(time_us: u64) -> Self {
        let second = time_us / 1_000_000;
        let moment =
            OffsetDateTime::from_unix_timestamp(second.cast_signed()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
        let day_name = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
            [usize::from(moment.weekday().number_days_from_monday())];
        let month_name = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
            [usize::from(u8::from(moment.month())) - 1];
        text[..3].copy_from_slice(day_name.as_bytes());
        text[8..11].copy_from_slice(month_name.as_bytes());
        let year = moment.year().unsigned_abs();
        let hundreds = [(year / 100 % 100) as u8, (year % 100) as u8];
        let pairs = [
            (5, moment.day()),
            (12, hundreds[0]),
            (14, hundreds[1]),
            (17, moment.hour()),
            (20, moment.minute()),
            (23, moment.second()),
        ];
        for (at, value) in pairs {
            text[at] = b'0' + value / 10;
            text[at + 1] = b'0' + value % 10;
        }
        Self { second, text }
    }

    /// Encodes anew if `time_us` lies in another second.
    pub fn refresh(&mut self, time_us: u64) {
        if time_us / 1_000_000 != self.second {
            *self = Self::at(time_us);
        }
    }

    /// The 29 bytes on the wire.
    pub fn as_bytes(&self) -> &[u8; 29] {
        &self.text
    }
}

/// How the body of a response is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// This many bytes.
    Length(u64),
    /// Chunks, of a length that is not known yet.
    Chunked,
    /// Whatever comes until the connection closes: for HTTP/1.0 peers.
    UntilClose,
    /// No body and no word about one (204, 304, HEAD without a length).
    Absent,
}

/// What the connection adds to a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadPlan {
    /// How the body is delimited.
    pub framing: Framing,
    /// The connection closes after this response.
    pub close: bool,
    /// The peer speaks HTTP/1.0, where keeping a connection has to be said.
    pub legacy: bool,
}

/// Whether a status ever comes with a body (RFC 9110 6.4.1).
pub fn status_has_body(status: u16) -> bool {
    status >= 200 && status != 204 && status != 304
}

/// Appends a response head: status line, `fields` as they are (each a whole line), and what `plan` adds.
pub fn encode_head(out: &mut Vec<u8>, status: u16, fields: &[u8], plan: HeadPlan, date: &Date) {
    let mut digits = itoa::Buffer::new();
    if status == 200 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(digits.format(status).as_bytes());
        out.push(b' ');
        out.extend_from_slice(reason(status).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(fields);
    match plan.framing {
        Framing::Length(length) => {
            out.extend_from_slice(b"Content-Length: ");
            out.extend_from_slice(digits.format(length).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Framing::UntilClose | Framing::Absent => {}
    }
    if plan.close {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if plan.legacy {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    out.extend_from_slice(b"Date: ");
    out.extend_from_slice(date.as_bytes());
    out.extend_from_slice(b"\r\n\r\n");
}

/// The size line in front of a chunk's data.
#[derive(Clone, Copy, Debug)]
pub struct ChunkHead {
    text: [u8; 18],
    start: usize,
}

impl ChunkHead {
    /// The bytes on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text[self.start..]
    }
}

/// The size line of a chunk of `length` bytes. `length` must not be 0: that would end the body.
pub fn chunk_head(length: usize) -> ChunkHead {
    debug_assert!(length > 0, "a chunk of no bytes ends the body");
    let mut text = [b'0'; 18];
    text[16..].copy_from_slice(b"\r\n");
    let mut start = 16;
    let mut rest = length;
    while rest > 0 {
        start -= 1;
        text[start] = b"0123456789abcdef"[rest & 15];
        rest >>= 4;
    }
    ChunkHead { text, start }
}

/// The reason phrase of a status; empty for one we never send.
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn date_text(time_us: u64) -> String {
        String::from_utf8(Date::at(time_us).as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn dates_are_imf_fixdates() {
        assert_eq!(date_text(784_111_777_000_000), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date_text(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(date_text(1_709_208_000_999_999), "Thu, 29 Feb 2024 12:00:00 GMT");
        let mut date = Date::at(0);
        date.refresh(999_999);
        assert_eq!(date, Date::at(0));
        date.refresh(1_000_000);
        assert_eq!(date, Date::at(1_000_000));
    }

    fn head(status: u16, framing: Framing, close: bool, legacy: bool) -> String {
        let mut out = Vec::new();
        encode_head(&mut out, status, b"X-A: b\r\n", HeadPlan { framing, close, legacy }, &Date::at(0));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn heads_say_how_the_body_and_the_connection_end() {
        let date = "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";
        assert_eq!(
            head(200, Framing::Length(17), false, false),
            format!("HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 17\r\n{date}")
        );
        assert_eq!(
            head(200, Framing::Chunked, true, false),
            format!("HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n{date}")
        );
        assert_eq!(
            head(204, Framing::Absent, false, true),
            format!("HTTP/1.1 204 No Content\r\nX-A: b\r\nConnection: keep-alive\r\n{date}")
        );
        assert_eq!(
            head(200, Framing::UntilClose, true, true),
            format!("HTTP/1.1 200 OK\r\nX-A: b\r\nConnection: close\r\n{date}")
        );
    }

    #[test]
    fn only_some_statuses_have_bodies() {
        assert!([200, 201, 404, 503].into_iter().all(status_has_body));
        assert!(![100, 204, 304].into_iter().any(status_has_body));
    }

    proptest! {
        #[test]
        fn chunk_heads_are_what_the_decoder_reads(length in 1usize..) {
            let expected = format!("{length:x}\r\n");
            let encoded = chunk_head(length);
            prop_assert_eq!(encoded.as_bytes(), expected.as_bytes());
        }

        #[test]
        fn dates_agree_with_a_calendar(second in 0u64..4_102_444_800) {
            let text = date_text(second * 1_000_000);
            let moment = OffsetDateTime::from_unix_timestamp(second.cast_signed()).unwrap();
            prop_assert_eq!(
                &text[5..],
                &format!(
                    "{:02} {} {:04} {:02}:{:02}:{:02} GMT",
                    moment.day(), &moment.month().to_string()[..3], moment.year(),
                    moment.hour(), moment.minute(), moment.second()
                )
            );
            prop_assert_eq!(&text[..3], &moment.weekday().to_string()[..3]);
        }
    }
}
