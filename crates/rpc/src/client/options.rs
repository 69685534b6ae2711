//! What a client may be told, and what it tells.

use super::bearer::Bearer;
use super::target::Target;
use std::time::Duration;
use thalweg_service::Error as Failure;
use thalweg_wire::fault::Fault;

/// What a client allows itself.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long an answer is waited for, connecting included, where a call says nothing else. One that is
    /// there when the client looks is taken, even if its time is over by then.
    pub deadline: Option<Duration>,
    /// Connections to one host at once; further calls wait for one of them.
    pub connections_max: usize,
    /// Connections that are kept while nothing goes over them, of all hosts together.
    pub idle_max: usize,
    /// How long they are kept. Shorter than any server's patience, so that it is this end that closes.
    pub idle_for: Duration,
    /// Exchanges that have not ended; one more is [`Fault::Overloaded`].
    pub in_flight_max: usize,
    /// Services that were named beside the client's own. In favour of one more, the one goes that was not
    /// called for longest and has neither a connection nor a call that waits for one; its [`Target`] is
    /// [`Fault::BadArgument`] then.
    pub targets_max: usize,
    /// The longest answer.
    pub answer_bytes_max: usize,
    /// May look for some microseconds for an answer before it sleeps, as long as that finds any.
    pub spin: bool,
    /// What lets it in where a server has tokens. It goes with every request, wherever that goes.
    pub token: Option<Bearer>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            deadline: Some(Duration::from_secs(60)),
            connections_max: 8,
            idle_max: 2,
            idle_for: Duration::from_secs(30),
            in_flight_max: 1_024,
            targets_max: 1_024,
            answer_bytes_max: 64 << 20,
            spin: true,
            token: None,
        }
    }
}

impl Options {
    /// Refuses what can never be right.
    pub(crate) fn checked(self) -> Result<Self, Failure> {
        let bounds = [self.connections_max, self.in_flight_max, self.targets_max, self.answer_bytes_max];
        if bounds.contains(&0) {
            return Err(Failure::new(
                Fault::BadArgument,
                "a bound of a client is 0: nothing could be called",
            ));
        }
        Ok(self)
    }
}

/// What is asked, in one exchange.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// Methods and their parameters: a JSON array or object each, or empty.
    pub calls: &'a [(&'a str, &'a str)],
    /// One call that stands outside of `calls`.
    pub call: Option<(&'a str, &'a str)>,
    /// They go as an array, even if there is one.
    pub is_batch: bool,
    /// They have no answers.
    pub notifies: bool,
    /// Twice is as good as once: may be sent again when a connection ends before the answer comes.
    pub is_idempotent: bool,
    /// Another time than the client's.
    pub deadline: Option<Duration>,
    /// Another service than the client's.
    pub target: Option<Target>,
}

impl<'a> Ask<'a> {
    /// One call.
    pub fn one(method: &'a str, params: &'a str) -> Self {
        Self { call: Some((method, params)), ..Self::default() }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.call.into_iter().chain(self.calls.iter().copied())
    }
}

/// What a client has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Connections opened.
    pub opened: u64,
    /// Connections closed, by either side.
    pub closed: u64,
    /// Exchanges that went over a connection that had served another.
    pub reused: u64,
    /// Exchanges that waited for a connection to be free.
    pub waits: u64,
    /// Exchanges that were sent again.
    pub retried: u64,
    /// Connections that nothing goes over now.
    pub idle: usize,
    /// Connections in all, now.
    pub connections: usize,
}
