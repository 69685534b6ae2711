//! The rules of Durable Streams. Owns what each verb means over a [`store::Store`]: one file per verb, every
//! rule cited beside the line that keeps it. Never knows sockets, files or threads; time and entropy are
//! handed in.
//!
//! Writers are judged by the staged view and readers by the visible one, so what a reader sees is durable;
//! an answer decided on staged state that is not durable yet leaves only when it is ([`Answer::After`]). A
//! refusal is problem+json that names field and rule, and writes nothing. Expiry is judged on every access
//! and turned into a delete by the verb that finds it. Checked by the tests here over a plain model store,
//! and by the official conformance suite over the real one.
//!
//! | | |
//! |---|---|
//! | requests | `service` hands each to its verb: `create`, `append`, `read` and `live`, `head`, `delete`, `list`, `options`, `stats` |
//! | rules that several verbs share | `access` finds a stream, or expires it by `expiry`; `condition`, `producer`, `fork` with `message_ends`, `retain`, `span`, `capacity` |
//! | what answers say | `headers`, `problem`; to caches, `cache` and `cursor` |
//! | the engine | [`store`] is the seam, [`embedded`] the log behind it |
//! | workers that are woken | [`subscriptions`], with a map of its own |
//!
//! Scopes the protocol leaves open: `Stream-Seq` is kept per stream, for all writers together (PROTOCOL
//! 5.2); supplying both `Stream-TTL` and `Stream-Expires-At` is refused (PROTOCOL 5.1); producer state lives
//! as long as its stream and is committed with the data it vouches for (PROTOCOL 5.2.1).
#![forbid(unsafe_code)]

mod access;
mod append;
mod cache;
mod capacity;
mod condition;
mod create;
mod cursor;
mod delete;
pub mod embedded;
mod expiry;
mod fork;
mod head;
mod headers;
mod list;
mod live;
mod message_ends;
mod options;
mod problem;
mod producer;
mod read;
mod retain;
mod service;
mod span;
mod stats;
pub mod store;
pub mod subscriptions;

#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(any(test, fuzzing))]
#[allow(clippy::unwrap_used, clippy::expect_used, reason = "a model for tests and the fuzzer")]
#[cfg_attr(fuzzing, allow(dead_code, reason = "tests move time and durability by hand, the fuzzer does not"))]
mod model;
#[cfg(test)]
mod tests;

use problem::Problem;
use std::sync::Arc;
use store::{Store, StoreError};
use subscriptions::Subscriptions;
use thalweg_wire::exchange::{Answer, Response};

/// How often a decision is taken anew because others kept committing first.
const ATTEMPTS_MAX: usize = 1_000;

/// Who may keep copies of what is read (PROTOCOL 10.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Shared caches may: streams hold nothing about one user.
    Public,
    /// Only the reader's own cache may.
    Private,
}

/// Whose webhooks may go to this very machine, as `http://localhost` and `http://127.0.0.x` (PROTOCOL 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loopback {
    /// None.
    Never,
    /// Those of programs. A page in a browser, which says its `Origin`, could otherwise have the server send
    /// what the browser refuses to send for it: JSON to a path of its choice, at any port of the user's
    /// machine.
    OfPrograms,
    /// Those of programs and of all pages that get as far as the rules of streams: other pages were refused
    /// before.
    OfPagesToo,
}

/// What an operator may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// About how many bytes one catch-up or long-poll response carries at most.
    pub catch_up_bytes_max: usize,
    /// About how many payload bytes one data event carries at most.
    pub event_bytes_max: usize,
    /// Who may cache reads.
    pub sharing: Sharing,
    /// Streams that a service of the server writes: names, and beginnings of names, which end with a slash.
    pub read_only: Vec<String>,
    /// Streams there may be, the server's own and those retained for forks included: one more is refused. A
    /// few more there may be where several reactors create at the same moment.
    pub streams_max: u64,
    /// Whose webhooks may go to this very machine.
    pub webhooks_loopback: Loopback,
}

impl Options {
    /// Whether any webhook may go to this very machine.
    pub(crate) fn allows_loopback(&self) -> bool {
        self.webhooks_loopback != Loopback::Never
    }

    /// Whether a service of the server writes the stream of that name.
    pub(crate) fn is_read_only(&self, name: &str) -> bool {
        let is = |kept: &String| if kept.ends_with('/') { name.starts_with(&**kept) } else { name == kept };
        self.read_only.iter().any(is)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            catch_up_bytes_max: 1 << 20,
            event_bytes_max: 256 << 10,
            sharing: Sharing::Public,
            read_only: Vec::new(),
            streams_max: u64::MAX,
            webhooks_loopback: Loopback::Never,
        }
    }
}

/// The Durable Streams service over one store. One value per reactor; clones share the store.
#[derive(Clone)]
pub struct Streams<S: Store> {
    store: S,
    /// What `__ds` serves; without it nothing is there.
    subscriptions: Option<Arc<Subscriptions<S>>>,
    options: Arc<Options>,
    /// Message ends in records that are too large to be read by a reactor.
    message_ends: message_ends::MessageEnds,
}

impl<S: Store> Streams<S> {
    /// The service over `store`.
    pub fn new(store: S, options: Options) -> Self {
        Self {
            store,
            subscriptions: None,
            options: Arc::new(options),
            message_ends: message_ends::MessageEnds::default(),
        }
    }

    /// Serves these subscriptions under `__ds` (PROTOCOL 6), and tells them of new streams.
    #[must_use]
    pub fn with_subscriptions(self, subscriptions: Arc<Subscriptions<S>>) -> Self {
        Self { subscriptions: Some(subscriptions), ..self }
    }

    /// The answer decided on what `ticket` stands for: at once if that is durable, else when it is.
    fn answer_after(ticket: u64, response: Response) -> Answer<S::Stream> {
        if ticket == 0 { Answer::Respond(response) } else { Answer::After(ticket, response) }
    }

    /// The same, or why the store cannot say when that is.
    fn answer_once(settled: Result<u64, StoreError>, response: Response) -> Answer<S::Stream> {
        match settled {
            Ok(ticket) => Self::answer_after(ticket, response),
            Err(error) => Answer::Respond(Problem::from(&error).respond()),
        }
    }

    /// The answer of every verb but PUT where there is no stream.
    fn answer_missing(missing: access::Missing) -> Answer<S::Stream> {
        let response = missing.problem().respond();
        Self::answer_once(missing.settled, response)
    }

    /// The answer decided on everything staged on `stream` so far.
    fn answer_settled(&self, stream: &S::Stream, response: Response) -> Answer<S::Stream> {
        Self::answer_once(self.store.ticket(stream), response)
    }
}
