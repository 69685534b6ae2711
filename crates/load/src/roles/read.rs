//! The reader that catches up: reads a stream from its beginning until it is up to date, and begins again.

use super::{Next, Role};
use crate::counts::Counts;
use crate::driver::Shared;
use crate::target::Body;
use thalweg_sys::clock::monotonic_ns;
use thalweg_wire::http1::ResponseHead;

/// The role.
pub(crate) struct Read {
    stream: u64,
    /// What the stream holds.
    stream_bytes: u64,
    read_bytes: u64,
    /// Where to go on; `None` at the beginning.
    offset: Option<String>,
    begun_ns: u64,
    up_to_date: bool,
    refused: bool,
}

impl Read {
    pub(crate) fn new(stream: u64, stream_bytes: u64) -> Self {
        Self {
            stream,
            stream_bytes,
            read_bytes: 0,
            offset: None,
            begun_ns: 0,
            up_to_date: false,
            refused: false,
        }
    }
}

impl Role for Read {
    fn name(&self) -> &'static str {
        "read"
    }

    fn stream(&self) -> u64 {
        self.stream
    }

    fn next(&mut self, shared: &mut Shared, out: &mut Vec<u8>) -> Next {
        if self.offset.is_none() {
            self.begun_ns = monotonic_ns();
            self.read_bytes = 0;
        }
        let query = format!("?offset={}", self.offset.as_deref().unwrap_or("-1"));
        shared.target.request(out, "GET", self.stream, &query, &Body::None);
        Next::Sent
    }

    fn head(&mut self, shared: &mut Shared, head: &ResponseHead<'_>) {
        let next = head.field("Stream-Next-Offset").map(|text| String::from_utf8_lossy(text).into_owned());
        self.up_to_date = head.field("Stream-Up-To-Date").is_some() || next.is_none() || next == self.offset;
        self.refused = head.status != 200;
        if self.refused {
            self.up_to_date = true;
            shared.refused(self.name(), self.stream, head);
        }
        self.offset = next;
    }

    fn body(&mut self, _: &mut Shared, bytes: &[u8]) {
        self.read_bytes += bytes.len() as u64;
    }

    fn answered(&mut self, shared: &mut Shared) {
        if self.up_to_date {
            self.offset = None;
            let (read, wanted) = (self.read_bytes, self.stream_bytes);
            if self.refused {
                // Counted when it was.
            } else if read == wanted {
                shared.counts.done(monotonic_ns() - self.begun_ns);
            } else {
                shared.counts.fail(|| format!("read: {read} bytes of {wanted}"));
            }
        }
    }

    fn unanswered(&self, now_ns: u64, counts: &mut Counts) {
        counts.unanswered(now_ns.saturating_sub(self.begun_ns), 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::tests::target;

    #[test]
    fn a_refused_read_is_one_failure() {
        let mut shared = Shared::new(target());
        let mut role = Read::new(0, 1 << 20);
        assert_eq!(role.next(&mut shared, &mut Vec::new()), Next::Sent);
        let text = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
        role.head(&mut shared, &thalweg_wire::http1::parse_response(text, false).unwrap().unwrap());
        role.answered(&mut shared);
        assert_eq!(shared.counts.failed, 1);
        // The next one is from the beginning, and may succeed.
        assert_eq!(role.next(&mut shared, &mut Vec::new()), Next::Sent);
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nStream-Up-To-Date: true\r\n\r\n";
        role.head(&mut shared, &thalweg_wire::http1::parse_response(text, false).unwrap().unwrap());
        role.body(&mut shared, b"short");
        role.answered(&mut shared);
        assert_eq!(shared.counts.failed, 2, "what comes short is one, too");
    }
}
