//! `PUT`: create a stream, or make sure that it exists as asked (PROTOCOL 5.1).

use crate::access::{Found, Missing};
use crate::append::payload;
use crate::headers::{Headers, asks_to_close, is_named, single};
use crate::problem::Problem;
use crate::store::{Commit, Config, Lifetime, Store, StoreError};
use crate::{ATTEMPTS_MAX, Streams};
use std::borrow::Cow;
use thalweg_wire::decimal::{self, SAFE_INTEGER_MAX};
use thalweg_wire::exchange::{Answer, Now, Request, Response};
use thalweg_wire::{media, rfc3339};

/// PROTOCOL 5.1: the content type of a stream whose creator names none.
const CONTENT_TYPE_DEFAULT: &str = "application/octet-stream";

const FORK_FIELDS: [&str; 3] = ["Stream-Forked-From", "Stream-Fork-Offset", "Stream-Fork-Sub-Offset"];

/// What a creator asks for.
struct Wish {
    config: Config,
    closed: bool,
}

impl<S: Store> Streams<S> {
    /// 201 for a new stream, 200 for one that is as asked, 409 for one that is not.
    pub(crate) fn create(&self, name: &str, request: &Request<'_>, now: Now) -> Answer<S::Stream> {
        let wish = match Wish::parse(request) {
            Ok(wish) => wish,
            Err(problem) => return Answer::Respond(problem.respond()),
        };
        for _ in 0..ATTEMPTS_MAX {
            match self.find_staged(name, now) {
                Ok(found) => return self.confirm(&found, &wish, now),
                Err(Missing { .. }) => {
                    if let Some(answer) = self.create_new(name, &wish, request, now) {
                        return answer;
                    }
                }
            }
        }
        Answer::Respond(Problem::contended().respond())
    }

    /// Creates the stream; `None` if somebody else was faster.
    fn create_new(
        &self,
        name: &str,
        wish: &Wish,
        request: &Request<'_>,
        now: Now,
    ) -> Option<Answer<S::Stream>> {
        let content = match content(&wish.config, request.body) {
            Ok(content) => content,
            Err(problem) => return Some(Answer::Respond(problem.respond())),
        };
        let suffix = if content.is_empty() { b"" } else { suffix(&wish.config) };
        // PROTOCOL 5.1: created closed, the body is the complete and final content; one commit does both.
        let time_us = now.time_us;
        let first = Commit { payload: &content, suffix, close: wish.closed, time_us, ..Commit::default() };
        match self.store.create(name.as_bytes(), &wish.config, &first) {
            Ok((stream, receipt)) => {
                let ticket = receipt.ticket.max(self.store.ticket(&stream));
                self.renew(&stream, wish.config.lifetime, now);
                let incarnation = self.store.incarnation(&stream);
                let mut headers = Headers::new();
                location(&mut headers, request);
                headers.line("Content-Type", wish.config.content_type.as_bytes());
                headers.next_offset(thalweg_wire::token::Token { incarnation, offset: receipt.next });
                headers.closed(wish.closed);
                Some(Self::answer_after(ticket, headers.respond_empty(201)))
            }
            Err(StoreError::Exists) => None,
            Err(error) => Some(Answer::Respond(Problem::from(&error).respond())),
        }
    }

    /// The answer when the stream exists. Its data is left alone, whatever body came.
    fn confirm(&self, found: &Found<S>, wish: &Wish, now: Now) -> Answer<S::Stream> {
        let response = match wish.mismatch(&found.config, found.state.closed) {
            Some(problem) => problem.respond(),
            None => {
                self.renew(&found.stream, found.config.lifetime, now);
                self.exists(found)
            }
        };
        self.answer_settled(&found.stream, response)
    }

    fn exists(&self, found: &Found<S>) -> Response {
        let mut headers = Headers::new();
        headers.line("Content-Type", found.config.content_type.as_bytes());
        headers.next_offset(found.tail()).closed(found.state.closed);
        headers.respond_empty(200)
    }
}

impl Wish {
    fn parse(request: &Request<'_>) -> Result<Self, Problem> {
        if let Some(name) =
            FORK_FIELDS.into_iter().find(|name| request.fields.iter().any(|field| is_named(field, name)))
        {
            let detail = "this server does not fork streams yet; create one without the header";
            return Err(Problem::new(501, "fork-unsupported", name, detail));
        }
        let content_type = match single(request, "Content-Type")? {
            None | Some(b"") => CONTENT_TYPE_DEFAULT,
            Some(value) => media::parse(value).ok_or_else(malformed_media)?,
        };
        let config = Config { content_type: content_type.into(), lifetime: lifetime(request)? };
        Ok(Self { config, closed: asks_to_close(request) })
    }

    /// PROTOCOL 5.1: an existing stream matches in content type, lifetime and closure, or it is a conflict.
    fn mismatch(&self, config: &Config, closed: bool) -> Option<Problem> {
        let (field, detail) = if !media::same(&self.config.content_type, &config.content_type) {
            ("Content-Type", "the stream exists with another content type")
        } else if self.config.lifetime != config.lifetime {
            let field = match self.config.lifetime {
                Lifetime::Until { .. } => "Stream-Expires-At",
                Lifetime::Sliding { .. } => "Stream-TTL",
                Lifetime::Unlimited if matches!(config.lifetime, Lifetime::Until { .. }) => {
                    "Stream-Expires-At"
                }
                Lifetime::Unlimited => "Stream-TTL",
            };
            (field, "the stream exists with another lifetime")
        } else if self.closed != closed {
            ("Stream-Closed", "the stream exists and differs in being closed")
        } else {
            return None;
        };
        Some(Problem::new(409, "config-mismatch", field, detail))
    }
}

/// The refusal of a content type that is none.
pub(crate) fn malformed_media() -> Problem {
    Problem::new(400, "content-type-malformed", "Content-Type", "type/subtype of at most 255 printable bytes")
}

/// What stands behind each message of a stream in the store: JSON messages are kept joined by commas.
pub(crate) fn suffix(config: &Config) -> &'static [u8] {
    match media::kind(&config.content_type) {
        media::Kind::Json => b",",
        media::Kind::Text | media::Kind::Binary => b"",
    }
}

fn content<'a>(config: &Config, body: &'a [u8]) -> Result<Cow<'a, [u8]>, Problem> {
    if body.is_empty() {
        return Ok(Cow::Borrowed(body));
    }
    // PROTOCOL 9.1.3: an empty array creates an empty stream.
    payload(config, body).map(|(_, content)| content)
}

fn lifetime(request: &Request<'_>) -> Result<Lifetime, Problem> {
    match (single(request, "Stream-TTL")?, single(request, "Stream-Expires-At")?) {
        (None, None) => Ok(Lifetime::Unlimited),
        // PROTOCOL 5.1: supplying both is refused.
        (Some(_), Some(_)) => Err(Problem::new(
            400,
            "lifetime-conflict",
            "Stream-Expires-At",
            "Stream-TTL and Stream-Expires-At exclude each other",
        )),
        // PROTOCOL 5.1: a non-negative integer without leading zeros, sign, point or exponent.
        (Some(ttl), None) => match decimal::parse(ttl, SAFE_INTEGER_MAX) {
            Some(ttl_s) => Ok(Lifetime::Sliding { ttl_s }),
            None => Err(Problem::new(
                400,
                "ttl-malformed",
                "Stream-TTL",
                "seconds as a plain decimal integer of at most 2^53-1",
            )),
        },
        (None, Some(expires_at)) => match std::str::from_utf8(expires_at).ok().and_then(rfc3339::parse) {
            Some(expires_us) => Ok(Lifetime::Until { expires_us }),
            None => Err(Problem::new(
                400,
                "expires-at-malformed",
                "Stream-Expires-At",
                "an RFC 3339 timestamp, for example 2030-01-31T12:00:00Z",
            )),
        },
    }
}

/// PROTOCOL 5.1: `Location` equal to the stream's URL; without a usable `Host`, its path.
fn location(headers: &mut Headers, request: &Request<'_>) {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_~:[]".contains(byte);
    let host = request.field("Host").filter(|host| !host.is_empty() && host.iter().all(plain));
    let secure =
        request.field("X-Forwarded-Proto").is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"));
    let scheme: &[u8] = if secure { b"https://" } else { b"http://" };
    let path = request.path.as_bytes();
    match host {
        Some(host) => {
            let url: smallvec::SmallVec<[u8; 256]> =
                [scheme, host, path].into_iter().flatten().copied().collect();
            headers.line("Location", &url);
        }
        None => {
            headers.line("Location", path);
        }
    }
}
