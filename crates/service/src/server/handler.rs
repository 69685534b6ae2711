//! What a server hands to the code that does the work, and the three forms that this code may have.

use crate::server::calls::reply::Reply;
use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;
use thalweg_reactor::Key;

/// Names a client for as long as it is connected; never given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(u64);

impl ClientId {
    pub(crate) fn of(key: Key) -> Self {
        Self(key.token())
    }

    /// As a number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A request, borrowed while its handler is called.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The request's frame, in the connection's own buffer.
    pub frame: &'a [u8],
    /// The client that asked.
    pub client: ClientId,
    /// The client's number for the call. No other call of the client has it while this one lasts; a client of
    /// this crate never uses it again, and none may whose handler takes back what the answer of a call names
    /// that is given up: a later call of that number may be refused before it comes here, and its cancel then
    /// seems to be this one's. On a plain connection, where calls have no numbers, it is the server's own.
    pub call: u64,
    /// The deadline: from then on the answer is not wanted any more.
    pub deadline: Option<Instant>,
    /// Nothing else waits or is in flight, and no other client asked within the last millisecond: to answer
    /// at once delays no other call, and to hand it to another thread would only cost time.
    pub alone: bool,
}

/// Does the work, on the reactor's thread: answer at once, or hand the reply to the thread that will. Must
/// not block. A panic in any of these ends what panicked and nothing else: a request whose handler panicked
/// is [`Abandoned`](thalweg_wire::fault::Fault::Abandoned) unless it was answered before.
pub trait Handler {
    /// A request came.
    fn request(&mut self, request: Request<'_>, reply: Reply);

    /// [`Notifier::notify`](crate::Notifier::notify) was called since the last turn: for handlers that get
    /// news from other threads and deal with it on the reactor's.
    fn notified(&mut self) {}

    /// Every request that came was handed over, and the reactor would sleep: the handler may do a piece of
    /// work that waits for one of its threads. It should take a fraction of a millisecond, because clients
    /// wait for its end. Returns whether it did any: then it is called again, after the requests that came
    /// meanwhile; one that panics is called again once something has come. Only
    /// [`Server::serve`](crate::Server::serve) calls it.
    fn help(&mut self) -> bool {
        false
    }

    /// When [`Handler::due`] is next to be called, if at all: for handlers with something to do that nobody
    /// asks for. Asked in each turn.
    fn due_at(&self) -> Option<Instant> {
        None
    }

    /// The time that [`Handler::due_at`] told of has come. One that panics is called again once something has
    /// come. [`Server::serve`](crate::Server::serve) calls it in time, and a [`Local`](crate::Local) in the
    /// first of its turns behind that.
    fn due(&mut self) {}

    /// A client has given a call up: it cancelled it, or its deadline passed. If the call is in flight,
    /// [`Reply::is_cancelled`] holds already. If it has ended, its client may not have read the answer: an
    /// answer and a cancel may pass each other on their way. For handlers whose answers name resources that
    /// they keep.
    ///
    /// It is told before any request that the client sent later. It may be told more than once, and of a call
    /// that was refused before it reached the handler. A plain connection has no cancels. From a
    /// [`Local`](crate::Local) it comes only of calls whose end its owner has not been handed.
    fn given_up(&mut self, client: ClientId, call: u64) {
        let _ = (client, call);
    }

    /// A client is gone that did not read all of its answers, or left before they were given: for handlers
    /// whose answers name resources that they keep. Over standard output this cannot be known.
    fn undelivered(&mut self, client: ClientId) {
        let _ = client;
    }
}

impl<F: FnMut(Request<'_>, Reply)> Handler for F {
    fn request(&mut self, request: Request<'_>, reply: Reply) {
        self(request, reply);
    }
}

/// A request that was taken in, for programs that ask for the next one instead of being called.
#[derive(Debug)]
pub struct Incoming {
    /// The client that asked.
    pub client: ClientId,
    /// The request's frame.
    pub request: Vec<u8>,
    /// Answers it.
    pub reply: Reply,
    /// The deadline: from then on the answer is not wanted any more.
    pub deadline: Option<Instant>,
    /// As [`Request::alone`] was.
    pub alone: bool,
}

/// Keeps requests until they are asked for.
impl Handler for VecDeque<Incoming> {
    fn request(&mut self, request: Request<'_>, reply: Reply) {
        let Request { frame, client, deadline, alone, .. } = request;
        self.push_back(Incoming { client, request: frame.to_vec(), reply, deadline, alone });
    }
}

/// Answers each request before the next.
pub(crate) struct Serial<F>(pub(crate) F);

impl<F: FnMut(&[u8], &mut Vec<u8>)> Handler for Serial<F> {
    fn request(&mut self, request: Request<'_>, reply: Reply) {
        reply.end_with(|response| (self.0)(request.frame, response));
    }
}
