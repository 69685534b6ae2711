//! `OPTIONS`: what a browser asks before it sends anything from another origin.

use crate::headers::Headers;
use thalweg_wire::exchange::Response;

/// The methods a stream understands.
pub(crate) const METHODS: &str = "GET, HEAD, PUT, POST, DELETE, OPTIONS";

/// The methods of a page that is only read.
pub(crate) const READS: &str = "GET, HEAD, OPTIONS";

/// The answer to a preflight: every method of what it is about and every header of the protocol. Among those
/// are `If-None-Match`, and `Last-Event-ID`, which a page that reads events with a token has to send itself.
pub(crate) fn preflight(methods: &str) -> Response {
    let mut headers = Headers::new();
    headers.line("Allow", methods.as_bytes());
    headers.line("Access-Control-Allow-Methods", methods.as_bytes());
    headers.constant(
        b"Access-Control-Allow-Headers: Authorization, Content-Type, If-Match, If-None-Match, Last-Event-ID, \
          Stream-TTL, Stream-Expires-At, Stream-Seq, Stream-Closed, Stream-Forked-From, Stream-Fork-Offset, \
          Stream-Fork-Sub-Offset, Stream-Retain-Seconds, \
          Stream-Retain-Bytes, Producer-Id, Producer-Epoch, Producer-Seq\r\n",
    );
    headers.constant(b"Access-Control-Max-Age: 86400\r\n");
    headers.respond_empty(204)
}
