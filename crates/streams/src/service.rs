//! The service: paths and methods to verbs, and subscriptions to live reads.

use crate::Streams;
use crate::headers::Headers;
use crate::options::{METHODS, READS, preflight};
use crate::problem::Problem;
use crate::store::Store;
use crate::subscriptions;
use smallvec::smallvec;
use thalweg_wire::exchange::{
    Advance, Announced, Answer, Live, Method, Now, Refusal, Request, Response, Service, Weight,
};
use thalweg_wire::field::Name;
use thalweg_wire::path::{self, HEALTH, LIST, RESERVED, STREAMS};
use thalweg_wire::piece::Piece;

/// Ours: which streams there are, and what the store holds.
const STATS: &str = "/v1/stats";
const CONTROL: &str = "__ds/";
/// PROTOCOL 6.5, as `CONTROL` has it.
const JWKS: &str = "__ds/jwks.json";

impl<S: Store> Service for Streams<S> {
    type Topic = S::Stream;

    /// What is read or written of streams, or lists them, weighs what its method says. Everything else here
    /// is an answer of a few lines.
    fn weight(&self, head: &Request<'_>) -> Weight {
        match head.path.strip_prefix(STREAMS) {
            Some(JWKS) if head.method == Method::Get => Weight::Small,
            Some(_) => Weight::of(head.method),
            None if head.path == LIST => Weight::of(head.method),
            None => Weight::Small,
        }
    }

    /// What is sent by POST to a stream, and not what is asked of subscriptions, whose claims and
    /// acknowledgements are no records.
    fn appends(&self, head: &Request<'_>) -> bool {
        let is_stream = |path: &str| !path.starts_with(CONTROL);
        head.method == Method::Post && head.path.strip_prefix(STREAMS).is_some_and(is_stream)
    }

    fn call(&mut self, request: &Request<'_>, now: Now) -> Answer<S::Stream> {
        if request.method == Method::Options {
            return Answer::Respond(preflight(methods(request.path)));
        }
        if let Some(refused) = packed(request) {
            return Answer::Respond(refused);
        }
        let Some(encoded) = request.path.strip_prefix(STREAMS) else {
            let reads = matches!(request.method, Method::Get | Method::Head);
            return match request.path {
                LIST if reads => self.list(request, now),
                STATS if reads => Answer::Respond(self.stats()),
                HEALTH if reads => Answer::Respond(health(self.store.has_failed())),
                _ => Answer::Respond(elsewhere(request)),
            };
        };
        // PROTOCOL 6: the reserved prefix is routed before anything is taken for a stream.
        if let Some(rest) = encoded.strip_prefix(CONTROL) {
            return self.control(rest, request, now);
        }
        let name = match path::stream_name(encoded) {
            Ok(name) => name,
            Err(error) => {
                return Answer::Respond(Problem::new(400, error.code(), "path", error.to_string()).respond());
            }
        };
        if name.split('/').next() == Some(RESERVED) {
            let detail = "no stream's name begins with __ds; subscriptions live at __ds/subscriptions/<id>";
            return Answer::Respond(Problem::new(404, "name-reserved", "path", detail).respond());
        }
        let writes = matches!(request.method, Method::Put | Method::Post | Method::Delete);
        if writes && self.options.is_read_only(&name) {
            let detail = "this stream is written by a service of the server, and can only be read here";
            return Answer::Respond(Problem::new(403, "stream-read-only", "path", detail).respond());
        }
        match request.method {
            Method::Get => self.read(&name, request, now),
            Method::Head => self.head(&name, request, now),
            Method::Put => self.create(&name, request, now),
            Method::Post => self.append(&name, request, now),
            Method::Delete => self.delete(&name, request, now),
            Method::Options | Method::Other => Answer::Respond(method_not_allowed(METHODS)),
        }
    }

    fn admit(&mut self, head: &Request<'_>, now: Now) -> Option<Response> {
        packed(head).or_else(|| self.refuse_create(head, now))
    }

    fn writes(&self) -> u64 {
        self.store.writes()
    }

    fn turn_ended(&mut self) {
        self.store.turn_ended();
    }

    fn failed(&mut self, _now: Now) -> Response {
        let detail = "the store failed before the request was known to be durable, so it may or may not last: once the server has been restarted, read the stream before sending it again";
        Problem::new(500, "outcome-unknown", "store", detail).respond()
    }

    fn watch(&mut self, topic: &S::Stream) {
        self.store.watch(topic);
    }

    fn unwatch(&mut self, topic: &S::Stream) {
        self.store.unwatch(topic);
    }

    fn acknowledge(&mut self, topic: &S::Stream) {
        self.store.acknowledge(topic);
    }

    fn advance(&mut self, topic: &S::Stream, live: &Live, now: Now) -> Advance {
        self.step(topic, live, now)
    }

    fn deadline(&mut self, topic: &S::Stream, live: &Live, now: Now) -> Response {
        self.poll_ended(topic, live, now)
    }

    fn refuse(&mut self, refusal: &Refusal, _announced: Announced<'_>, _now: Now) -> Response {
        Problem::new(refusal.status, refusal.code, refusal.field, refusal.detail).respond()
    }
}

/// RFC 9110 15.5.16: a body that comes packed is not what would be kept, and told apart from one of the wrong
/// type.
fn packed(request: &Request<'_>) -> Option<Response> {
    let carries = matches!(request.method, Method::Put | Method::Post);
    request.coding().filter(|_| carries).map(|_| {
        let detail = "bodies are not decoded: send the body without a content coding such as gzip";
        Problem::new(415, "content-encoding", Name::ContentEncoding, detail).respond_with(|headers| {
            headers.constant(b"Accept-Encoding: identity\r\n");
        })
    })
}

/// 503 once the store has failed: it stays so until the server is started again, which watchers can see to.
fn health(has_failed: bool) -> Response {
    if has_failed {
        let detail = "a write or a sync failed: nothing is written until the server is started again";
        return Problem::new(503, "store-poisoned", "store", detail).respond();
    }
    let mut headers = Headers::new();
    headers.constant(b"Content-Type: application/json\r\nCache-Control: no-store\r\n");
    headers.respond(200, smallvec![Piece::from(&b"{\"status\":\"ok\"}"[..])])
}

/// The methods that what a path names understands.
fn methods(path: &str) -> &'static str {
    if [HEALTH, LIST, STATS].contains(&path) {
        return READS;
    }
    let control = path.strip_prefix(STREAMS).and_then(|path| path.strip_prefix(CONTROL));
    control.and_then(subscriptions::methods).unwrap_or(METHODS)
}

/// Paths that name no stream, and methods that the other resources do not know.
fn elsewhere(request: &Request<'_>) -> Response {
    if [HEALTH, LIST, STATS].contains(&request.path) {
        return method_not_allowed(READS);
    }
    let detail = "streams live at /v1/stream/<name>";
    Problem::new(404, "path-unknown", "path", detail).respond()
}

fn method_not_allowed(allow: &str) -> Response {
    let detail = "this path does not take that method; Allow lists those that it takes";
    Problem::new(405, "method-not-allowed", "method", detail).respond_with(|headers| {
        headers.line("Allow", allow.as_bytes());
    })
}
