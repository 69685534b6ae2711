//! The vocabulary of an HTTP exchange: what a connection hands to a service and what it gets back.
//!
//! Pure data, no I/O: `http` executes these words, `streams` speaks them, and neither sees the other.
//! A service is called on the reactor's thread with a whole request and must not block. It answers at
//! once, or names a ticket after which its answer may leave, or turns the request into a live tail.

use crate::field::{Field, Name};
use crate::lines::Lines;
use crate::piece::Piece;
use bytes::Bytes;
use smallvec::SmallVec;

/// The time and a little entropy, handed in so that every rule is a plain function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Microseconds since the Unix epoch.
    pub time_us: u64,
    /// A fresh random word, for jitter only.
    pub entropy: u64,
}

/// The methods the parser knows; anything else is [`Method::Other`] and answered 405 or 501.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `PUT`
    Put,
    /// `POST`
    Post,
    /// `DELETE`
    Delete,
    /// `OPTIONS`
    Options,
    /// Any other token.
    Other,
}

/// A whole request. Borrowed from the connection's buffer for the length of one call.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Method.
    pub method: Method,
    /// Path of the target, still percent-encoded, beginning with `/`.
    pub path: &'a str,
    /// Query of the target without its `?`; `None` when there is no `?`.
    pub query: Option<&'a str>,
    /// The header fields that some layer reads, in order of arrival.
    pub fields: &'a [Field<'a>],
    /// The whole body, transfer coding removed.
    pub body: &'a [u8],
    /// The connection it came by is sealed (TLS).
    pub secure: bool,
}

impl<'a> Request<'a> {
    /// A field that is there more than once and [may not be](Name::is_single).
    pub fn repeated(&self) -> Option<Name> {
        let mut seen = 0_u32;
        self.fields.iter().map(|field| field.name).filter(|name| name.is_single()).find(|name| {
            let bit = 1 << *name as u8;
            let again = seen & bit != 0;
            seen |= bit;
            again
        })
    }

    /// The first field of that name.
    pub fn field(&self, name: Name) -> Option<&'a [u8]> {
        self.values(name).next()
    }

    /// What the body is packed in, if anything: the first content coding beside `identity`, which is none
    /// (RFC 9110 8.4).
    pub fn coding(&self) -> Option<&'a [u8]> {
        let codings = self.values(Name::ContentEncoding).flat_map(|value| value.split(|byte| *byte == b','));
        let mut codings = codings.map(<[u8]>::trim_ascii);
        codings.find(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
    }

    /// All fields of that name.
    pub fn values(&self, name: Name) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.fields.iter().filter(move |field| field.name == name).map(|field| field.value)
    }

    /// The scheme of the URL that was asked for: `https` if the connection is sealed, or if whatever stands
    /// in front says that the one to it was.
    pub fn scheme(&self) -> &'static str {
        let forwarded = self.field(Name::XForwardedProto);
        let secure = self.secure || forwarded.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"));
        if secure { "https" } else { "http" }
    }
}

/// What a request takes of a server, as far as its head says: which bound it is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weight {
    /// Next to nothing: it is answered whatever is full, so that an operator can look at a server that has
    /// too much to do.
    Small,
    /// An answer of any size, which may lie unsent.
    Read,
    /// A change, which may wait for the store.
    Write,
}

impl Weight {
    /// What requests of that method weigh where nothing more is known: bodies of answers make reads heavy,
    /// and `HEAD` and `OPTIONS` have none.
    pub const fn of(method: Method) -> Self {
        match method {
            Method::Head | Method::Options => Self::Small,
            Method::Get => Self::Read,
            Method::Put | Method::Post | Method::Delete | Method::Other => Self::Write,
        }
    }
}

/// A response body: pieces sent one after the other, never joined by a copy. Nearly all have one, so that
/// there is room for one in the response, which is moved a few times before it leaves.
pub type Pieces = SmallVec<[Piece; 1]>;

/// A response, complete but for what only the connection knows (`Connection`, `Content-Length`, `Date`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Header lines, each `Name: value\r\n`, already encoded.
    pub fields: Lines,
    /// Body pieces. Ignored on the wire for HEAD, 204 and 304.
    pub body: Pieces,
}

impl Response {
    /// Bytes of the body.
    pub fn body_bytes(&self) -> usize {
        self.body.iter().map(|piece| piece.len()).sum()
    }
}

/// How a live subscriber wants to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One answer as soon as there is something, or 204 at the deadline.
    LongPoll,
    /// A stream of events until the lifetime ends.
    Sse,
}

/// A live subscriber's position, small enough to live in a connection's slab entry. Two subscribers of
/// one topic whose `Live` values are equal are sent the same bytes, encoded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Live {
    /// Long-poll or SSE.
    pub mode: Mode,
    /// The service's own small encoding (JSON, text, base64 …); `http` carries it, without [`Live::UNOPENED`]
    /// once `opened`.
    pub flavour: u8,
    /// SSE: at least one event has been sent, so nothing new means nothing to send.
    pub opened: bool,
    /// Offset in the topic that the subscriber is to be served from.
    pub offset: u64,
    /// The cursor the client sent, 0 when none.
    pub cursor: u64,
}

impl Live {
    /// Of a flavour, what matters until something was sent: those who stand alike afterwards are alike,
    /// however they began.
    pub const UNOPENED: u8 = 1 << 7;
}

/// Work that may wait for a disk, for a thread that may.
pub struct Work(pub Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Work {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Work")
    }
}

/// What a service makes of a request.
#[derive(Debug)]
pub enum Answer<T> {
    /// Send this.
    Respond(Response),
    /// Send this once the store reports every ticket up to the given one complete; should the store
    /// fail first, [`Service::failed`] says what is sent instead.
    After(u64, Response),
    /// What the answer needs is not in memory: once this is done elsewhere, call again with the same request.
    Cold(Work),
    /// The answer comes later, under this name, which none of the service's that is awaited has: see
    /// [`Service::look`].
    Later(u64),
    /// Subscribe the connection. `head` is the response head to send before the first event (SSE only:
    /// `http` adds chunked framing); then [`Service::advance`] is asked at once.
    Live {
        /// Identity of the topic, equal for equal topics.
        topic_id: u64,
        /// The topic itself, kept once per reactor while it has subscribers.
        topic: T,
        /// Where the subscriber stands.
        live: Live,
        /// SSE: status and fields of the response that the events are the body of. Long-poll: unused.
        head: Response,
        /// How long at most until the connection has to ask again, where that is for the service to say.
        lasts_ms: Option<u32>,
    },
}

/// What a live subscriber is to be sent now.
#[derive(Debug)]
pub enum Advance {
    /// Nothing yet.
    Wait,
    /// What comes next is not in memory: once this is done elsewhere, ask again.
    Cold(Work),
    /// SSE: these events; the subscriber then stands at `next`. With `end` the response ends cleanly.
    Events {
        /// Encoded events, data and control paired.
        bytes: Bytes,
        /// Offset after them.
        next: u64,
        /// No more events will ever follow on this response.
        end: bool,
    },
    /// Long-poll: the response, which ends the subscription.
    Respond(Response),
}

/// What an HTTP listener serves. One value per reactor, called on its thread only.
pub trait Service {
    /// What subscribers gather around.
    type Topic: Clone;

    /// A whole request arrived.
    fn call(&mut self, request: &Request<'_>, now: Now) -> Answer<Self::Topic>;

    /// What a request weighs, by its head alone: asked of every request before anything else is, so it
    /// allocates nothing and looks nothing up.
    fn weight(&self, head: &Request<'_>) -> Weight {
        Weight::of(head.method)
    }

    /// Whether a request is counted as one that appends, once it was carried out: asked by its head alone,
    /// like its weight.
    fn appends(&self, head: &Request<'_>) -> bool {
        head.method == Method::Post
    }

    /// The head of a request arrived, and more of its body than the head came with is still to come: the
    /// answer that spares it the way, if there is one. It is asked about once more, and decides for good, in
    /// [`Service::call`].
    fn admit(&mut self, _head: &Request<'_>, _now: Now) -> Option<Response> {
        None
    }

    /// Said before each call: nothing else of this turn waits, so what is done at once delays no other
    /// request.
    fn alone(&mut self, alone: bool) {
        let _ = alone;
    }

    /// Time went by, or something happened elsewhere: hands over the answers, each by its name, that were to
    /// come [later](Answer::Later). Returns after how many milliseconds to be asked again at the latest, if
    /// at all.
    fn look(&mut self, now: Now, each: &mut dyn FnMut(u64, Response)) -> Option<u32> {
        let _ = (now, each);
        None
    }

    /// A number that grows with every write, through any reactor: while it grows, large reads make way for
    /// writes.
    fn writes(&self) -> u64 {
        0
    }

    /// Everything that came in this turn of the reactor was handled: what was begun in it is to go on by
    /// itself.
    fn turn_ended(&mut self) {}

    /// The client that waited for the answer of this name is gone.
    fn gone(&mut self, later: u64) {
        let _ = later;
    }

    /// The answer in place of an [`Answer::After`] whose ticket failed: the outcome is unknown.
    fn failed(&mut self, now: Now) -> Response;

    /// The same, beside the answer that it replaces: a layer that added lines to that answer, by its request,
    /// adds them to this one.
    fn failed_instead_of(&mut self, answer: &Response, now: Now) -> Response {
        let _ = answer;
        self.failed(now)
    }

    /// The topic got its first subscriber on this reactor: movements must be announced from now on.
    fn watch(&mut self, topic: &Self::Topic);

    /// The topic lost its last subscriber on this reactor.
    fn unwatch(&mut self, topic: &Self::Topic);

    /// The topic's announcement was taken up; the next movement must announce it anew.
    fn acknowledge(&mut self, topic: &Self::Topic);

    /// What a subscriber at `live` is to be sent now.
    fn advance(&mut self, topic: &Self::Topic, live: &Live, now: Now) -> Advance;

    /// A long-poll came to its deadline with nothing to send.
    fn deadline(&mut self, topic: &Self::Topic, live: &Live, now: Now) -> Response;

    /// A refusal by the connection itself (parse error, limit), in the service's error format, of what is
    /// known so far.
    fn refuse(&mut self, refusal: &Refusal, announced: Announced<'_>, now: Now) -> Response;
}

/// What is known of a request that is refused before any service answers it, or in place of the answer. It is
/// for choosing how to refuse, never for doing anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announced<'a> {
    /// What was asked for, if anything of it came; of a head that is none it may be no path, or the beginning
    /// of one.
    pub path: Option<&'a str>,
    /// The page that asks, as its browser says, if that came whole and once.
    pub origin: Option<&'a [u8]>,
    /// The subscription that the request came to already.
    pub live: Option<Live>,
}

impl<'a> Announced<'a> {
    /// All that a request says of itself.
    pub fn of(request: &Request<'a>) -> Announced<'a> {
        Announced { path: Some(request.path), origin: request.field(Name::Origin), live: None }
    }
}

/// Why a connection refuses a request before any service sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// Stable machine-readable word, for example `header-block-too-large`.
    pub code: &'static str,
    /// The field, line or limit at fault, for example `Content-Length`.
    pub field: &'static str,
    /// One sentence: the rule that was broken and what to do.
    pub detail: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_front_may_raise_the_scheme_and_never_lowers_it() {
        let scheme = |secure, forwarded: Option<&'static str>| {
            let field = forwarded.map(|value| Field { name: Name::XForwardedProto, value: value.as_bytes() });
            let fields = field.as_slice();
            Request { method: Method::Get, path: "/", query: None, fields, body: b"", secure }.scheme()
        };
        assert_eq!([scheme(false, None), scheme(true, None)], ["http", "https"]);
        assert_eq!([scheme(false, Some("HTTPS")), scheme(true, Some("http"))], ["https", "https"]);
        assert_eq!([scheme(false, Some("http")), scheme(false, Some("httpsx"))], ["http", "http"]);
    }

    #[test]
    fn what_has_one_value_is_there_once_and_a_list_as_often_as_it_likes() {
        let repeated = |names: &[Name]| {
            let fields: Vec<_> = names.iter().map(|name| Field { name: *name, value: b"a" }).collect();
            let fields = fields.as_slice();
            Request { method: Method::Get, path: "/", query: None, fields, body: b"", secure: false }
                .repeated()
        };
        let (list, another) = (Name::IfNoneMatch, Name::Connection);
        for single in [Name::ContentType, Name::StreamForkSubOffset, Name::Origin] {
            let other = if single == Name::Origin { Name::StreamTtl } else { Name::Origin };
            assert_eq!(repeated(&[list, single, list, other, single, other]), Some(single));
            assert_eq!(repeated(&[list, single, list, other, another, another]), None);
        }
    }
}
