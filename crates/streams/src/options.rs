//! `OPTIONS`: what a browser asks before it sends anything from another origin.

use crate::headers::Headers;
use thalweg_wire::exchange::Response;

/// The methods a stream understands.
pub(crate) const ALLOW: &[u8] = b"Allow: GET, HEAD, PUT, POST, DELETE, OPTIONS\r\n";

/// The methods of a page that is only read.
pub(crate) const ALLOW_READS: &[u8] = b"Allow: GET, HEAD, OPTIONS\r\n";

/// The answer to a preflight: every method of what it is about and every header of the protocol. Among those
/// are `If-None-Match`, and `Last-Event-ID`, which a page that reads events with a token has to send itself.
pub(crate) fn preflight(is_only_read: bool) -> Response {
    let mut headers = Headers::new();
    if is_only_read {
        headers.constant(ALLOW_READS);
        headers.constant(b"Access-Control-Allow-Methods: GET, HEAD, OPTIONS\r\n");
    } else {
        headers.constant(ALLOW);
        headers.constant(b"Access-Control-Allow-Methods: GET, HEAD, PUT, POST, DELETE, OPTIONS\r\n");
    }
    headers.constant(
        b"Access-Control-Allow-Headers: Authorization, Content-Type, If-Match, If-None-Match, Last-Event-ID, \
          Stream-TTL, Stream-Expires-At, Stream-Seq, Stream-Closed, Stream-Forked-From, Stream-Fork-Offset, \
          Stream-Fork-Sub-Offset, Stream-Retain-Seconds, \
          Stream-Retain-Bytes, Producer-Id, Producer-Epoch, Producer-Seq\r\n",
    );
    headers.constant(b"Access-Control-Max-Age: 86400\r\n");
    headers.respond_empty(204)
}
