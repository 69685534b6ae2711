//! The log's commands in the words of an exchange, and an exchange's answer as the frame that ends a call.
//!
//! The rules of streams are the same for every client, so a command becomes the request that HTTP would
//! bring, and what comes of it is read from the same lines: `streams` does not know the difference, and there
//! is no second set of rules.

use super::generated::types::{
    LogAppendResponse, LogCreateResponse, LogForkResponse, LogHeadResponse, LogReadResponse,
    LogRemoveResponse, LogRequest, LogTailItem, LogTailResponse, Producer,
};
use std::borrow::Cow;
use thalweg_wire::exchange::{Method, Request, Response};
use thalweg_wire::field::{Field, Name};
use thalweg_wire::messagepack::{Message, response_frame};
use thalweg_wire::path::{RESERVED, encode, of_stream};
use thalweg_wire::service::error_frame;

pub(super) const ERROR_TAG: &str = "LogErrorResponse";
const MISSING: &str = "no stream of that name exists; make it with Create";

/// A command, whose answer looks one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    Append,
    Read,
    Tail,
    Head,
    Fork,
    Remove,
}

/// What HTTP would ask.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) kind: Kind,
    method: Method,
    path: String,
    query: Option<String>,
    fields: Vec<(Name, Cow<'a, str>)>,
    body: &'a [u8],
}

impl<'a> Ask<'a> {
    /// What a command comes to.
    pub(super) fn of(request: &'a LogRequest<'_>) -> Self {
        match request {
            LogRequest::Create(create) => {
                let mut ask = Self::new(Kind::Create, Method::Put, path_of(&create.name));
                ask.optional(Name::ContentType, create.content_type.as_deref());
                if let Some(lifetime) = &create.lifetime {
                    ask.lifetime(lifetime.idle_seconds, lifetime.expires_at.as_deref());
                }
                ask.closed(create.closed);
                ask.body = create.data.as_deref().unwrap_or_default();
                ask
            }
            LogRequest::Append(append) => {
                let mut ask = Self::new(Kind::Append, Method::Post, path_of(&append.name));
                ask.optional(Name::ContentType, append.content_type.as_deref());
                ask.closed(append.close);
                if let Some(producer) = &append.producer {
                    ask.producer(producer);
                }
                ask.body = &append.data;
                ask
            }
            LogRequest::Read(read) => {
                Self::new(Kind::Read, Method::Get, path_of(&read.name)).from(read.offset.as_deref(), "")
            }
            LogRequest::Tail(tail) => Self::new(Kind::Tail, Method::Get, path_of(&tail.name))
                .from(tail.offset.as_deref(), "&live=sse"),
            LogRequest::Head(head) => Self::new(Kind::Head, Method::Head, path_of(&head.name)),
            LogRequest::Fork(fork) => {
                let mut ask = Self::new(Kind::Fork, Method::Put, path_of(&fork.name));
                ask.fields.push((Name::StreamForkedFrom, path_of(&fork.source).into()));
                ask.optional(Name::StreamForkOffset, fork.at.as_deref());
                if fork.past > 0 {
                    ask.fields.push((Name::StreamForkSubOffset, fork.past.to_string().into()));
                }
                if let Some(lifetime) = &fork.lifetime {
                    ask.lifetime(lifetime.idle_seconds, lifetime.expires_at.as_deref());
                }
                ask
            }
            LogRequest::Remove(remove) => Self::new(Kind::Remove, Method::Delete, path_of(&remove.name)),
        }
    }

    /// What is known of the same stream.
    pub(super) fn head(&self) -> Ask<'static> {
        Ask::new(Kind::Head, Method::Head, self.path.clone())
    }

    /// Whether the content type is left to the stream's own.
    pub(super) fn lacks_content_type(&self) -> bool {
        self.kind == Kind::Append
            && !self.body.is_empty()
            && !self.fields.iter().any(|(name, _)| *name == Name::ContentType)
    }

    /// Names the content type.
    pub(super) fn name_content_type(&mut self, content_type: String) {
        self.fields.push((Name::ContentType, content_type.into()));
    }

    /// Calls `with` with the request.
    pub(super) fn request<R>(&self, with: impl FnOnce(&Request<'_>) -> R) -> R {
        let fields: Vec<Field<'_>> =
            self.fields.iter().map(|(name, value)| Field { name: *name, value: value.as_bytes() }).collect();
        with(&Request {
            method: self.method,
            path: &self.path,
            query: self.query.as_deref(),
            fields: &fields,
            body: self.body,
            secure: false,
        })
    }

    fn new(kind: Kind, method: Method, path: String) -> Self {
        Self { kind, method, path, query: None, fields: Vec::new(), body: b"" }
    }

    fn from(mut self, offset: Option<&str>, live: &str) -> Self {
        self.query = Some(format!("offset={}{live}", encode(offset.unwrap_or("-1"))));
        self
    }

    fn optional(&mut self, name: Name, value: Option<&'a str>) {
        self.fields.extend(value.map(|value| (name, value.into())));
    }

    fn lifetime(&mut self, idle_seconds: Option<u64>, expires_at: Option<&'a str>) {
        self.fields.extend(idle_seconds.map(|seconds| (Name::StreamTtl, seconds.to_string().into())));
        self.optional(Name::StreamExpiresAt, expires_at);
    }

    fn closed(&mut self, closed: bool) {
        if closed {
            self.fields.push((Name::StreamClosed, "true".into()));
        }
    }

    fn producer(&mut self, producer: &'a Producer<'_>) {
        self.fields.push((Name::ProducerId, (&*producer.id).into()));
        self.fields.push((Name::ProducerEpoch, producer.epoch.to_string().into()));
        self.fields.push((Name::ProducerSeq, producer.sequence.to_string().into()));
    }
}

/// The path of a stream. A name may not lead to what else HTTP serves beneath it: PROTOCOL 6 routes its
/// reserved prefix as it is written, so an escaped one is a name like any other, and refused as one that no
/// stream has.
fn path_of(name: &str) -> String {
    let path = of_stream(name);
    if name.split('/').next() == Some(RESERVED) { path.replacen('_', "%5F", 1) } else { path }
}

/// The value of a line of a response.
pub(super) fn line<'r>(response: &'r Response, name: &str) -> Option<&'r str> {
    let lines = std::str::from_utf8(&response.fields).ok()?;
    lines.split("\r\n").find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// Whether the stream is closed, and ends where the response does.
pub(super) fn is_closed(response: &Response) -> bool {
    line(response, "Stream-Closed") == Some("true")
}

/// Where the response ends.
pub(super) fn next(response: &Response) -> &str {
    line(response, "Stream-Next-Offset").unwrap_or_default()
}

/// The frame that ends a call.
pub(super) fn end(kind: Kind, response: &Response) -> Vec<u8> {
    if response.status >= 400 {
        return error_frame(ERROR_TAG, &refusal(response));
    }
    let (next, closed) = (next(response).into(), is_closed(response));
    match kind {
        Kind::Create => frame(&LogCreateResponse { created: response.status == 201, next }),
        Kind::Append => {
            // PROTOCOL 5.2.1: a producer's append is 200, and 204 when it had been appended before.
            let duplicate = response.status == 204 && line(response, "Producer-Seq").is_some();
            frame(&LogAppendResponse { next, duplicate, closed })
        }
        Kind::Read => {
            let up_to_date = line(response, "Stream-Up-To-Date") == Some("true");
            frame(&LogReadResponse { data: data(response), next, up_to_date, closed })
        }
        Kind::Tail => frame(&LogTailResponse { next }),
        Kind::Head => {
            let content_type = line(response, "Content-Type").unwrap_or_default().into();
            frame(&LogHeadResponse { content_type, next, closed })
        }
        Kind::Fork => frame(&LogForkResponse { created: response.status == 201, next }),
        Kind::Remove => frame(&LogRemoveResponse {}),
    }
}

/// The frame of what a tail brings next.
pub(super) fn item(response: &Response) -> Vec<u8> {
    frame(&LogTailItem { data: data(response), next: next(response).into() })
}

fn frame<'m, M: Message<'m>>(message: &M) -> Vec<u8> {
    let mut out = Vec::new();
    response_frame(message, &mut out);
    out
}

fn data(response: &Response) -> Cow<'_, [u8]> {
    match &response.body[..] {
        [only] => Cow::Borrowed(only),
        pieces => Cow::Owned(pieces.concat()),
    }
}

/// A refusal in one line: status, rule, and what to do.
fn refusal(response: &Response) -> String {
    let body: serde_json::Value = serde_json::from_slice(&data(response)).unwrap_or_default();
    let text = |name: &str| body.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    let (rule, detail) = (text("rule"), text("detail"));
    // Said in the verbs of HTTP, which who calls a service does not speak.
    let detail = if rule == "stream-missing" { MISSING } else { &*detail };
    format!("{} {rule}: {detail}", response.status)
}
