//! The rules as calls of a function, over the model store.

mod append;
mod capacity;
mod conditions;
mod create;
mod forest;
mod fork;
mod lifetime;
mod list;
mod live;
mod purged;
mod random;
mod read;
mod refusals;
mod retain;
mod settled;
mod span;

use crate::model::Model;
use crate::store::Store as _;
use crate::{Options, Streams};
use thalweg_wire::exchange::{Advance, Answer, Live, Method, Now, Request, Response, Service};
use thalweg_wire::field::Field;

/// 2026-01-01T00:00:00Z.
const START_US: u64 = 1_767_225_600_000_000;
const SECOND_US: u64 = 1_000_000;

/// A service, its store, and a clock that tests move.
struct World {
    streams: Streams<Model>,
    model: Model,
    now: Now,
}

/// A response, taken apart and checked for what every response keeps.
#[derive(Debug)]
struct Reply {
    status: u16,
    fields: Vec<(String, String)>,
    body: String,
    /// The ticket the answer waited for; 0 = none.
    ticket: u64,
}

/// A subscription.
struct Tail {
    topic: usize,
    live: Live,
    head: Response,
}

impl World {
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        let model = Model::default();
        let now = Now { time_us: START_US, entropy: 7 };
        Self { streams: Streams::new(model.clone(), options), model, now }
    }

    fn sleep_ms(&mut self, ms: u64) {
        self.now.time_us += ms * 1_000;
    }

    fn answer(
        &mut self,
        method: Method,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Answer<usize> {
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let fields: Vec<Field<'_>> =
            fields.iter().filter_map(|(name, value)| Field::of(name, value.as_bytes())).collect();
        let request = Request { method, path, query, fields: &fields, body, secure: false };
        self.streams.call(&request, self.now)
    }

    fn call(
        &mut self,
        method: Method,
        target: &str,
        fields: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Reply {
        let writes = self.model.writes();
        let reply = match self.answer(method, target, fields, body.as_ref()) {
            Answer::Respond(response) => Reply::new(response, 0),
            Answer::After(ticket, response) => {
                assert!(ticket > 0, "a ticket of 0 is no wait");
                Reply::new(response, ticket)
            }
            Answer::Live { .. } => panic!("{target} went live"),
            Answer::Later(_) | Answer::Cold(_) => panic!("{target} found its bytes cold"),
        };
        // Every refusal writes nothing; the delete of an expired stream is not the request's doing.
        if reply.status >= 400 && !["stream-missing", "stream-deleted"].contains(&&*reply.rule()) {
            assert_eq!(self.model.writes(), writes, "a refused {method:?} {target} wrote");
        }
        reply
    }

    fn put(&mut self, name: &str, media: &str, body: &str) -> Reply {
        self.call(Method::Put, &path(name), &[("Content-Type", media), ("Host", "h:1")], body)
    }

    fn post(&mut self, name: &str, media: &str, body: &str) -> Reply {
        self.call(Method::Post, &path(name), &[("Content-Type", media)], body)
    }

    fn close(&mut self, name: &str) -> Reply {
        self.call(Method::Post, &path(name), &[("stream-closed", "TRUE")], "")
    }

    fn get(&mut self, name: &str, query: &str) -> Reply {
        self.call(Method::Get, &(path(name) + query), &[], "")
    }

    fn head(&mut self, name: &str) -> Reply {
        self.call(Method::Head, &path(name), &[], "")
    }

    fn tail(&mut self, name: &str, query: &str) -> Tail {
        match self.answer(Method::Get, &(path(name) + query), &[], b"") {
            Answer::Live { topic_id, topic, live, head, .. } => {
                assert_eq!(topic_id, topic as u64 + 1, "a topic is an incarnation");
                Tail { topic, live, head }
            }
            other => panic!("{query} did not go live: {other:?}"),
        }
    }

    fn advance(&mut self, tail: &Tail) -> Advance {
        self.streams.advance(&tail.topic, &tail.live, self.now)
    }

    /// The events due now, or `None`; the subscriber moves on as the connection would move it.
    fn events(&mut self, tail: &mut Tail) -> Option<(String, bool)> {
        match self.advance(tail) {
            Advance::Wait | Advance::Cold(_) => None,
            Advance::Events { bytes, next, end } => {
                tail.live.offset = next;
                tail.live.opened = true;
                let text = String::from_utf8(bytes.to_vec()).unwrap();
                if text.is_empty() {
                    return Some((text, end));
                }
                // Whatever is sent at once says first where to go on behind it.
                let owner = self.model.owner(&tail.topic, next);
                let id = format!("id:{owner:016x}_{next:016x}\n");
                let rest = text.strip_prefix(&id).unwrap_or_else(|| panic!("{text:?} without {id:?}"));
                Some((rest.to_owned(), end))
            }
            Advance::Respond(response) => panic!("events answered {response:?}"),
        }
    }

    /// The answer due now to a long-poll, or `None`.
    fn polled(&mut self, tail: &Tail) -> Option<Reply> {
        match self.advance(tail) {
            Advance::Wait | Advance::Cold(_) => None,
            Advance::Respond(response) => Some(Reply::new(response, 0)),
            Advance::Events { .. } => panic!("a long-poll got events"),
        }
    }
}

impl Reply {
    fn new(response: Response, ticket: u64) -> Self {
        let text = String::from_utf8(response.fields.to_vec()).unwrap();
        assert!(text.ends_with("\r\n") && !text.contains("\r\n\r\n"), "{text:?}");
        let fields: Vec<(String, String)> = text
            .trim_end()
            .split("\r\n")
            .map(|line| {
                line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned())).unwrap()
            })
            .collect();
        let body = String::from_utf8(response.body.concat()).unwrap();
        let reply = Self { status: response.status, fields, body, ticket };
        // PROTOCOL 12.7, on all responses; and readable from any page.
        assert_eq!(reply.field("x-content-type-options"), "nosniff");
        assert_eq!(reply.field("cross-origin-resource-policy"), "cross-origin");
        // Which pages may read it is not for the rules to say.
        assert!(!reply.fields.iter().any(|(name, _)| name == "access-control-allow-origin"));
        for (name, _) in &reply.fields {
            assert_eq!(reply.fields.iter().filter(|(other, _)| other == name).count(), 1, "{name} twice");
        }
        if reply.status >= 400 {
            assert_eq!(reply.field("content-type"), "application/problem+json");
            assert_eq!(reply.problem()["status"].as_u64(), Some(reply.status.into()));
            assert!(!reply.problem()["detail"].as_str().unwrap().is_empty());
        }
        reply
    }

    /// A field's value, empty if the field is absent.
    fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value)
    }

    fn next(&self) -> &str {
        let next = self.field("stream-next-offset");
        assert_eq!(next.len(), 33, "{self:?}");
        next
    }

    fn is_closed(&self) -> bool {
        self.field("stream-closed") == "true"
    }

    fn is_up_to_date(&self) -> bool {
        self.field("stream-up-to-date") == "true"
    }

    fn problem(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn rule(&self) -> String {
        self.problem()["rule"].as_str().unwrap().to_owned()
    }

    /// Status, field and rule of a refusal.
    fn refusal(&self) -> (u16, String, String) {
        (self.status, self.problem()["field"].as_str().unwrap().to_owned(), self.rule())
    }
}

fn path(name: &str) -> String {
    format!("/v1/stream/{name}")
}
