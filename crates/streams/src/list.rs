//! `GET /v1/streams`: which streams there are, page by page. An extension of ours, outside the protocol's
//! paths.
//!
//! A page costs what it holds, however many streams there are: the store gives at most `limit` names in
//! order, and the last one looked at is where the next page begins. A stream whose time is over is left out
//! and left alone; being listed is no access. Names that begin with NUL are the server's own and never shown.

use crate::Streams;
use crate::expiry::is_expired;
use crate::headers::Headers;
use crate::problem::Problem;
use crate::store::{Lifetime, Page, Store};
use serde::Serialize;
use smallvec::smallvec;
use thalweg_wire::exchange::{Answer, Now, Request};
use thalweg_wire::{decimal, query, rfc3339};

/// Streams of a page unless the request says otherwise.
const LIMIT_DEFAULT: u64 = 100;
/// Streams of a page at most.
const LIMIT_MAX: u64 = 1_000;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listing<'a> {
    streams: &'a [Entry],
    /// What to send as `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    name: String,
    /// Which of the streams that had the name, or will: another once it was deleted and made again.
    incarnation: String,
    content_type: String,
    next_offset: String,
    /// Ever appended, what it inherited as a fork included.
    bytes: u64,
    /// Of those, what can still be read.
    kept_bytes: u64,
    closed: bool,
    /// Known not to read as it was written.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    damaged: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

impl<S: Store> Streams<S> {
    /// 200 with a page of streams, ordered by their names as bytes.
    pub(crate) fn list(&self, request: &Request<'_>, now: Now) -> Answer<S::Stream> {
        let known = query::values(request.query.unwrap_or_default(), ["prefix", "after", "limit"]);
        let [prefix, after, limit] = match known {
            Ok(values) => values,
            Err(error) => {
                let problem = Problem::new(400, error.code(), error.key(), error.to_string());
                return Answer::Respond(problem.respond());
            }
        };
        let limit = match limit {
            None => Some(LIMIT_DEFAULT),
            Some(text) => decimal::parse(text.as_bytes(), LIMIT_MAX).filter(|limit| *limit > 0),
        };
        let Some(limit) = limit else {
            let problem =
                Problem::new(400, "list-limit", "limit", "limit has to be an integer from 1 to 1000");
            return Answer::Respond(problem.respond());
        };
        let (prefix, after) = (prefix.unwrap_or_default(), after.unwrap_or_default());
        // NUL sorts first: beginning behind it skips every name of the server's own.
        let after = if *after < *"\u{1}" { "\u{1}" } else { &after };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        match self.store.page(prefix.as_bytes(), after.as_bytes(), limit) {
            Page::Cold(work) => Answer::Cold(work),
            Page::Streams(found) => Answer::Respond(self.listed(found, limit, now)),
        }
    }

    fn listed(
        &self,
        found: Vec<(Box<[u8]>, S::Stream)>,
        limit: usize,
        now: Now,
    ) -> thalweg_wire::exchange::Response {
        let last = found.last().filter(|_| found.len() == limit).map(|(name, _)| text(name));
        let entries: Vec<Entry> =
            found.into_iter().filter_map(|(name, stream)| self.entry(&name, stream, now)).collect();
        let listing = Listing { streams: &entries, next: last.as_deref() };
        let mut headers = Headers::new();
        headers.constant(b"Content-Type: application/json\r\nCache-Control: no-store\r\n");
        // Strings and integers written to memory: cannot fail.
        headers.respond(200, smallvec![serde_json::to_vec(&listing).unwrap_or_default().into()])
    }

    fn entry(&self, name: &[u8], stream: S::Stream, now: Now) -> Option<Entry> {
        if name.first() == Some(&0) {
            return None;
        }
        let state = self.store.visible(&stream)?;
        let config = self.store.config(&stream);
        if is_expired(config.lifetime, self.store.accessed(&stream), now.time_us) {
            return None;
        }
        let (ttl_s, expires_at) = match config.lifetime {
            Lifetime::Unlimited => (None, None),
            Lifetime::Sliding { ttl_s } => (Some(ttl_s), None),
            Lifetime::Until { expires_us } => (None, rfc3339::format(expires_us)),
        };
        let (bytes, kept_bytes) = (state.tail, state.tail.saturating_sub(state.first));
        let (closed, content_type) = (state.closed, config.content_type.to_string());
        let damaged = self.store.is_damaged(&stream);
        let incarnation = format!("{:016x}", self.store.incarnation(&stream));
        let found = self.found(stream, state, config);
        let next_offset = text(&self.tail(&found).encode());
        let name = text(name);
        Some(Entry {
            name,
            incarnation,
            content_type,
            next_offset,
            bytes,
            kept_bytes,
            closed,
            damaged,
            ttl_s,
            expires_at,
        })
    }
}

/// Names are UTF-8, checked when they came, and tokens are ASCII.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
