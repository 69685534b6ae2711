//! `OPTIONS`: what a browser asks before it sends anything from another origin.

use crate::headers::Headers;
use thalweg_wire::exchange::Response;

/// The methods a stream understands.
pub(crate) const ALLOW: &[u8] = b"Allow: GET, HEAD, PUT, POST, DELETE, OPTIONS\r\n";

/// The answer to a preflight: every method and every header of the protocol, `If-None-Match` among them.
pub(crate) fn preflight() -> Response {
    let mut headers = Headers::new();
    headers.constant(ALLOW);
    headers.constant(b"Access-Control-Allow-Methods: GET, HEAD, PUT, POST, DELETE, OPTIONS\r\n");
    headers.constant(
        b"Access-Control-Allow-Headers: Authorization, Content-Type, If-None-Match, Stream-TTL, \
          Stream-Expires-At, Stream-Seq, Stream-Closed, Stream-Forked-From, Stream-Fork-Offset, \
          Stream-Fork-Sub-Offset, Stream-Retain-Seconds, \
          Stream-Retain-Bytes, Producer-Id, Producer-Epoch, Producer-Seq\r\n",
    );
    headers.constant(b"Access-Control-Max-Age: 86400\r\n");
    headers.respond_empty(204)
}
