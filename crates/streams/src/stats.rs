//! `GET /v1/stats`: what the store holds, counted without visiting a stream. An extension of ours.

use crate::Streams;
use crate::headers::Headers;
use crate::store::Store;
use smallvec::smallvec;
use thalweg_wire::exchange::Response;

impl<S: Store> Streams<S> {
    /// 200 with [`crate::store::Stats`] as a JSON object.
    pub(crate) fn stats(&self) -> Response {
        let stats = self.store.stats();
        let mut headers = Headers::new();
        headers.constant(b"Content-Type: application/json\r\nCache-Control: no-store\r\n");
        // Words and integers written to memory: cannot fail.
        headers.respond(200, smallvec![serde_json::to_vec(&stats).unwrap_or_default().into()])
    }
}
