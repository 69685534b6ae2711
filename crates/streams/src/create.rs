//! `PUT`: create a stream or a fork of one, or make sure that it exists as asked (PROTOCOL 5.1, 4.2).

use crate::access::{FoundStream, Missing};
use crate::append::payload;
use crate::condition::Conditions;
use crate::fork::{self, ForkHalt};
use crate::headers::{Headers, asks_to_close, single};
use crate::problem::Problem;
use crate::retain::Retain;
use crate::store::{Commit, Config, Fork, Lifetime, RETAIN_NOTE, Store, StoreError};
use crate::{ATTEMPTS_MAX, Streams};
use std::borrow::Cow;
use thalweg_wire::decimal::{self, SAFE_INTEGER_MAX};
use thalweg_wire::exchange::{Answer, Now, Request, Response};
use thalweg_wire::field::Name;
use thalweg_wire::{media, path, rfc3339};

/// PROTOCOL 5.1: the content type of a stream whose creator names none.
const CONTENT_TYPE_DEFAULT: &str = "application/octet-stream";

/// What a creator asks for. What is left out is the default of a new stream, and the source's of a fork.
struct CreateRequest<'a> {
    content_type: Option<&'a str>,
    lifetime: Option<Lifetime>,
    closed: bool,
    retain: Retain,
    fork: Option<fork::ForkRequest>,
    conditions: Conditions<'a>,
}

/// What a new stream begins with. A body of JSON is parsed once, however often what is to be created is
/// planned anew.
struct Content<'a> {
    body: &'a [u8],
    joined: Option<Cow<'a, [u8]>>,
}

impl Content<'_> {
    /// As a stream of such a configuration keeps it. PROTOCOL 9.1.3: an empty array creates an empty stream.
    fn kept_by(&mut self, config: &Config) -> Result<&[u8], Problem> {
        if self.body.is_empty() || media::kind(&config.content_type) != media::Kind::Json {
            return Ok(self.body);
        }
        if self.joined.is_none() {
            self.joined = Some(payload(config, self.body)?.1);
        }
        Ok(self.joined.as_deref().unwrap_or_default())
    }
}

/// What is to be created.
struct Plan<T> {
    config: Config,
    fork: Option<Fork<T>>,
}

impl<S: Store> Streams<S> {
    /// 201 for a new stream, 200 for one that is as asked, 409 for one that is not.
    pub(crate) fn create(&self, name: &str, request: &Request<'_>, now: Now) -> Answer<S::Stream> {
        let asked = match CreateRequest::parse(request) {
            Ok(asked) => asked,
            Err(problem) => return Answer::Respond(problem.respond()),
        };
        let mut content = Content { body: request.body, joined: None };
        for _ in 0..ATTEMPTS_MAX {
            match self.find_staged(name, now) {
                Ok(found) => return self.confirm(&found, &asked, now),
                // PROTOCOL 4.2: the name of a soft-deleted stream cannot be taken.
                Err(missing) if missing.retained => {
                    let detail = "the stream was deleted and keeps its name until its forks are gone";
                    let problem = Problem::new(409, "stream-deleted", "path", detail);
                    return Self::answer_once(missing.settled, problem.respond());
                }
                // The name is not free before the store takes writes again.
                Err(Missing { undeleted: Some(error), .. }) => {
                    return Answer::Respond(Problem::from(&error).respond());
                }
                // Before anything is planned, read or written for it.
                Err(missing) if self.is_full() => {
                    return Self::answer_once(missing.settled, Problem::too_many().respond());
                }
                Err(missing) => {
                    let plan = match self.plan(&asked, now) {
                        Ok(plan) => plan,
                        Err(ForkHalt::Moved) => continue,
                        Err(ForkHalt::Cold(work)) => return Answer::Cold(work),
                        Err(ForkHalt::Refused(settled, problem)) => {
                            return Self::answer_once(settled, problem.respond());
                        }
                    };
                    let payload = match content.kept_by(&plan.config) {
                        Ok(payload) => payload,
                        Err(problem) => return Answer::Respond(problem.respond()),
                    };
                    if let Some(problem) = asked.conditions.refuse_create() {
                        return Self::answer_once(missing.settled, problem.respond());
                    }
                    if let Some(answer) = self.create_new(name, &plan, &asked, request, payload, now) {
                        return answer;
                    }
                }
            }
        }
        Answer::Respond(Problem::contended().respond())
    }

    /// What a request comes to if no stream of that name exists.
    fn plan(&self, asked: &CreateRequest<'_>, now: Now) -> Result<Plan<S::Stream>, ForkHalt> {
        let Some(fork) = &asked.fork else {
            let content_type = asked.content_type.unwrap_or(CONTENT_TYPE_DEFAULT).into();
            let lifetime = asked.lifetime.unwrap_or(Lifetime::Unlimited);
            return Ok(Plan { config: Config { content_type, lifetime }, fork: None });
        };
        let (source, fork) = self.branch(fork, now)?;
        // PROTOCOL 4.2: the source's content type, whether it is named or not; any other is 409.
        if asked.content_type.is_some_and(|named| !media::same(named, &source.config.content_type)) {
            let detail = format!("the source's content type is {}", source.config.content_type);
            let problem = Problem::new(409, "content-type-mismatch", Name::ContentType, detail);
            return Err(ForkHalt::Refused(self.store.ticket(&source.stream), problem));
        }
        // PROTOCOL 4.2, table: what the fork asks for, else what the source has.
        let lifetime = asked.lifetime.unwrap_or(source.config.lifetime);
        Ok(Plan { config: Config { lifetime, ..source.config }, fork: Some(fork) })
    }

    /// Creates the stream; `None` if another creator was faster, or the fork's source has gone meanwhile.
    fn create_new(
        &self,
        name: &str,
        plan: &Plan<S::Stream>,
        asked: &CreateRequest<'_>,
        request: &Request<'_>,
        payload: &[u8],
        now: Now,
    ) -> Option<Answer<S::Stream>> {
        let suffix = if payload.is_empty() { b"" } else { suffix(&plan.config) };
        // PROTOCOL 5.1: created closed, the body is the complete and final content; one commit does both.
        let (time_us, closed, retain) = (now.time_us, asked.closed, asked.retain.note());
        let note = retain.as_ref().map(|value| (RETAIN_NOTE, &value[..]));
        let notes = note.as_slice();
        let first = Commit { payload, suffix, close: closed, time_us, notes, ..Commit::default() };
        match self.store.create(name.as_bytes(), &plan.config, plan.fork.as_ref(), &first) {
            Ok((stream, receipt)) => {
                if let Some(subscriptions) = &self.subscriptions {
                    subscriptions.created(name);
                }
                let settled = self.store.ticket(&stream).map(|ticket| ticket.max(receipt.ticket));
                self.renew(&stream, plan.config.lifetime, now);
                let next = self.token_of(&stream, receipt.next);
                let mut headers = Headers::new();
                location(&mut headers, request);
                // PROTOCOL 4.2: a fork looks like any other stream.
                headers.line(Name::ContentType, plan.config.content_type.as_bytes());
                headers.next_offset(next).closed(closed);
                Some(Self::answer_once(settled, headers.respond_empty(201)))
            }
            Err(StoreError::Exists | StoreError::SourceGone | StoreError::Purged) => None,
            Err(error) => Some(Answer::Respond(Problem::from(&error).respond())),
        }
    }

    /// The answer when the stream exists. Its data is left alone, whatever body came.
    fn confirm(&self, found: &FoundStream<S>, asked: &CreateRequest<'_>, now: Now) -> Answer<S::Stream> {
        let refusal = self.mismatch(found, asked).or_else(|| asked.conditions.refuse_write(found));
        let response = match refusal {
            Some(problem) => problem.respond(),
            None => {
                self.renew(&found.stream, found.config.lifetime, now);
                self.exists(found)
            }
        };
        self.answer_settled(&found.stream, response)
    }

    /// PROTOCOL 5.1, 4.2: an existing stream matches in origin, content type, lifetime and closure, or it is
    /// a conflict.
    fn mismatch(&self, found: &FoundStream<S>, asked: &CreateRequest<'_>) -> Option<Problem> {
        let conflict = |field, detail| Some(Problem::new(409, "config-mismatch", field, detail));
        let fork = self.store.fork(&found.stream);
        if let Some(field) = self.branch_mismatch(fork.as_ref(), asked.fork.as_ref()) {
            return conflict(
                field,
                "the stream exists, and differs in whether, from what or where it was forked",
            );
        }
        let source = fork.map(|fork| self.store.config(&fork.source));
        let (content_type, lifetime) = match &source {
            Some(source) => (&*source.content_type, source.lifetime),
            None => (CONTENT_TYPE_DEFAULT, Lifetime::Unlimited),
        };
        if !media::same(asked.content_type.unwrap_or(content_type), &found.config.content_type) {
            return conflict(
                Name::ContentType,
                "the stream exists with another content type; HEAD tells which",
            );
        }
        let lifetime_asked = asked.lifetime.unwrap_or(lifetime);
        if lifetime_asked != found.config.lifetime {
            let until = |lifetime| matches!(lifetime, Lifetime::Until { .. });
            let sliding = matches!(lifetime_asked, Lifetime::Sliding { .. });
            let absolute = until(lifetime_asked) || !sliding && until(found.config.lifetime);
            let field = if absolute { Name::StreamExpiresAt } else { Name::StreamTtl };
            return conflict(field, "the stream exists with another lifetime; HEAD tells which");
        }
        if let Some(field) = Retain::of(&self.store.notes(&found.stream)).mismatch(asked.retain) {
            return conflict(field, "the stream exists and retains another amount; HEAD tells which");
        }
        if asked.closed != found.state.closed {
            return conflict(
                Name::StreamClosed,
                "the stream exists, and is closed where the request leaves it open, or the other way round",
            );
        }
        None
    }

    fn exists(&self, found: &FoundStream<S>) -> Response {
        let mut headers = Headers::new();
        headers.line(Name::ContentType, found.config.content_type.as_bytes());
        headers.next_offset(self.tail(found)).closed(found.state.closed);
        headers.respond_empty(200)
    }
}

impl<'a> CreateRequest<'a> {
    fn parse(request: &Request<'a>) -> Result<Self, Problem> {
        let content_type = match single(request, Name::ContentType)? {
            None | Some(b"") => None,
            Some(value) => Some(media::parse(value).ok_or_else(malformed_media)?),
        };
        let (lifetime, closed) = (lifetime(request)?, asks_to_close(request));
        let retain = Retain::parse(request)?;
        let (fork, conditions) = (fork::ForkRequest::parse(request)?, Conditions::of(request));
        Ok(Self { content_type, lifetime, closed, retain, fork, conditions })
    }
}

/// The refusal of a content type that is none.
pub(crate) fn malformed_media() -> Problem {
    Problem::new(
        400,
        "content-type-malformed",
        Name::ContentType,
        "it has to be a media type such as text/plain or application/json, of at most 255 printable bytes",
    )
}

/// What stands behind each message of a stream in the store: JSON messages are kept joined by commas.
pub(crate) fn suffix(config: &Config) -> &'static [u8] {
    match media::kind(&config.content_type) {
        media::Kind::Json => b",",
        media::Kind::Text | media::Kind::Binary => b"",
    }
}

fn lifetime(request: &Request<'_>) -> Result<Option<Lifetime>, Problem> {
    match (single(request, Name::StreamTtl)?, single(request, Name::StreamExpiresAt)?) {
        (None, None) => Ok(None),
        // PROTOCOL 5.1: supplying both is refused.
        (Some(_), Some(_)) => Err(Problem::new(
            400,
            "lifetime-conflict",
            Name::StreamExpiresAt,
            "send Stream-TTL or Stream-Expires-At, not both",
        )),
        // PROTOCOL 5.1: a non-negative integer without leading zeros, sign, point or exponent.
        (Some(ttl), None) => match decimal::parse(ttl, SAFE_INTEGER_MAX) {
            Some(ttl_s) => Ok(Some(Lifetime::Sliding { ttl_s })),
            None => Err(Problem::new(
                400,
                "ttl-malformed",
                Name::StreamTtl,
                "it has to be a number of seconds: a plain decimal integer of at most 2^53-1",
            )),
        },
        (None, Some(expires_at)) => match std::str::from_utf8(expires_at).ok().and_then(rfc3339::parse) {
            Some(expires_us) => Ok(Some(Lifetime::Until { expires_us })),
            None => Err(Problem::new(
                400,
                "expires-at-malformed",
                Name::StreamExpiresAt,
                "it has to be an RFC 3339 timestamp, for example 2030-01-31T12:00:00Z",
            )),
        },
    }
}

/// PROTOCOL 5.1: `Location` equal to the stream's URL; without a usable `Host`, its path.
fn location(headers: &mut Headers, request: &Request<'_>) {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_~:[]".contains(byte);
    let host = request.field(Name::Host).filter(|host| !host.is_empty() && host.iter().all(plain));
    let (scheme, path) = (request.scheme().as_bytes(), path::as_url(request.path));
    match host {
        Some(host) => {
            let url: smallvec::SmallVec<[u8; 256]> =
                [scheme, b"://", host, path.as_bytes()].into_iter().flatten().copied().collect();
            headers.line("Location", &url);
        }
        None => {
            headers.line("Location", path.as_bytes());
        }
    }
}
