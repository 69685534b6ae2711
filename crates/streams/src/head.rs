//! `HEAD`: a stream's metadata (PROTOCOL 5.5). Not a read: it renews nothing (PROTOCOL 5.1).

use crate::Streams;
use crate::condition::{Conditions, Verdict, changed};
use crate::headers::Headers;
use crate::retain::Retain;
use crate::store::{Lifetime, Store};
use thalweg_wire::exchange::{Answer, Now, Request};
use thalweg_wire::field::Name;
use thalweg_wire::rfc3339;

const DAMAGED: &[u8] = b"Stream-Damaged: true\r\n";

impl<S: Store> Streams<S> {
    /// 200 with the visible tail, closure and lifetime; 304 with the same where the client has what there is.
    pub(crate) fn head(&self, name: &str, request: &Request<'_>, now: Now) -> Answer<S::Stream> {
        let found = match self.find_visible(name, now) {
            Ok(found) => found,
            Err(missing) => return Self::answer_missing(missing),
        };
        let status = match Conditions::of(request).judge_whole(&found) {
            Verdict::Proceed => 200,
            Verdict::Has => 304,
            Verdict::Failed => return Answer::Respond(changed().respond()),
        };
        let mut headers = Headers::new();
        headers.line(Name::ContentType, found.config.content_type.as_bytes());
        headers.next_offset(self.tail(&found)).closed(found.state.closed);
        match found.config.lifetime {
            Lifetime::Unlimited => {}
            // PROTOCOL 5.5: the window, not what is left of it.
            Lifetime::Sliding { ttl_s } => {
                headers.integer(Name::StreamTtl, ttl_s);
            }
            Lifetime::Until { expires_us } => {
                if let Some(expires_at) = rfc3339::format(expires_us) {
                    headers.line(Name::StreamExpiresAt, expires_at.as_bytes());
                }
            }
        }
        Retain::of(&self.store.notes(&found.stream)).lines(&mut headers);
        // Ours. What else is said is what is known of it.
        if self.store.is_damaged(&found.stream) {
            headers.constant(DAMAGED);
        }
        // PROTOCOL 5.5, 12.7: tail and closure are never served from a cache.
        headers.constant(b"Cache-Control: no-store\r\n");
        Answer::Respond(headers.respond_empty(status))
    }
}
