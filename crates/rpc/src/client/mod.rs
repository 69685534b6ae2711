//! The client: calls over connections that are kept.
//!
//! *Ownership*: a [`Client`] owns its connections and no thread. It can be waited for, or stand in a foreign
//! loop: it shows a descriptor and takes turns. One exchange goes over a connection at a time, so an answer
//! is never behind another's.
//!
//! *Who closes*: this end, by a reset, once nothing is owed: neither end is left with an address that it
//! cannot use again for a minute, however many connections come and go.
//!
//! *Invariants*: every exchange ends once; an answer is taken only with the ids that were asked; after
//! anything that is not to be expected of a server its connection is closed; nothing is sent twice unless no
//! byte of it had left, or its caller said that twice is as good as once. Checked by `tests/client.rs`,
//! against servers that misbehave.

mod answer;
mod bearer;
#[cfg(feature = "schema")]
mod carrier;
mod connection;
mod dialing;
mod error;
mod exchange;
mod options;
mod pool;
mod target;
mod targets;

pub use answer::{Answers, Completion};
pub use bearer::Bearer;
#[cfg(feature = "schema")]
pub use carrier::Carrier;
pub use error::{Error, RemoteError};
pub use options::{Ask, Options, Statistics};
pub use target::Target;

use pool::Pool;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use thalweg_service::{CallId, Error as Failure, Wait};
use thalweg_wire::fault::Fault;
use thalweg_wire::hex::Hex;

/// Calls services by JSON-RPC.
///
/// See [`crate::Server`] for a whole round trip.
#[derive(Debug)]
pub struct Client {
    pool: Pool,
    /// Where calls go that do not say.
    target: Target,
    /// What was answered last.
    last: Answers,
}

impl Client {
    /// A client of the service at a URL, `http://host:port/rpc/name`. Connects with the first call.
    ///
    /// # Errors
    /// [`Fault::BadArgument`] for a URL that is none, or an option that cannot be right; [`Fault::NoServer`]
    /// for a host that cannot be resolved.
    pub fn new(url: &str, options: Options) -> Result<Self, Failure> {
        let mut pool = Pool::new(options.checked()?);
        let target = pool.target(url)?;
        Ok(Self { pool, target, last: Answers::default() })
    }

    /// Another service, or the same at another address, over the same connections. At most
    /// [`Options::targets_max`] are kept: a caller that keeps calling new ones names each before its call.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn target(&mut self, url: &str) -> Result<Target, Failure> {
        self.pool.target(url)
    }

    /// Makes one call and waits for its result, as JSON. `params` is a JSON array or object, or empty.
    ///
    /// # Errors
    /// [`Error::Remote`]: the server answered with an error. [`Error::Failed`]: there was no answer.
    pub fn call(&mut self, method: &str, params: &str) -> Result<&str, Error> {
        self.ask(&Ask::one(method, params))?.one()
    }

    /// Has something done that has no answer; waits until the server has it.
    ///
    /// # Errors
    /// The server did not take it: with [`Fault::BadRequest`] and its words where it says that this is no
    /// request.
    pub fn notify(&mut self, method: &str, params: &str) -> Result<(), Error> {
        self.ask(&Ask { notifies: true, ..Ask::one(method, params) }).map(drop)
    }

    /// Makes calls together and waits for all of their answers, which come in the order of the calls.
    ///
    /// # Errors
    /// There was no answer; what came of each call is for [`Answers`] to say.
    pub fn batch(&mut self, calls: &[(&str, &str)]) -> Result<&Answers, Error> {
        self.ask(&Ask { calls, is_batch: true, ..Ask::default() })
    }

    /// Asks the server whether its service was made from the schema with this hash, as generated code has it.
    ///
    /// # Errors
    /// [`Fault::SchemaMismatch`]: it was not. Otherwise as [`Client::call`].
    pub fn expect_schema(&mut self, hash: &[u8; 32]) -> Result<(), Error> {
        let hash = Hex(hash).to_string();
        let version = self.call("rpc.version", "")?;
        if error::member(version, "schema").is_some_and(|schema| schema == hash) {
            return Ok(());
        }
        let what = format!("the server is {version}, and {hash} is expected");
        Err(Failure::new(Fault::SchemaMismatch, what).into())
    }

    /// Makes calls as they are asked for, and waits for what comes of them.
    ///
    /// # Errors
    /// There was no answer.
    pub fn ask(&mut self, ask: &Ask<'_>) -> Result<&Answers, Error> {
        self.pool.give_room(std::mem::take(&mut self.last).into_room());
        let name = self.pool.begin(self.target, ask)?;
        self.last = loop {
            // Nobody else has taken what came of it.
            if let Some(outcome) = self.pool.listen(name) {
                break outcome?;
            }
        };
        Ok(&self.last)
    }

    /// Begins calls; what comes of them is said by [`Client::next`], under their name. They leave with the
    /// next turn.
    ///
    /// # Errors
    /// [`Fault::Overloaded`], [`Fault::BadArgument`]: nothing was begun.
    pub fn begin(&mut self, ask: &Ask<'_>) -> Result<CallId, Failure> {
        self.pool.begin(self.target, ask)
    }

    /// Waits for what comes of calls that were begun. What comes of others meanwhile is kept for them.
    ///
    /// # Errors
    /// There was no answer; [`Fault::BadArgument`]: nothing of that name was begun, or what came of it was
    /// taken.
    pub fn wait(&mut self, call: CallId) -> Result<Answers, Failure> {
        loop {
            if let Some(answers) = self.listen(call)? {
                return Ok(answers);
            }
        }
    }

    /// A step of such a wait, for a caller that has to do something else in between: `None` when the step is
    /// to be taken again, as after a signal.
    ///
    /// # Errors
    /// As [`Client::wait`].
    pub fn listen(&mut self, call: CallId) -> Result<Option<Answers>, Failure> {
        if !self.knows(call) {
            return Err(Failure::new(Fault::BadArgument, "no such call is under way"));
        }
        self.pool.listen(call).transpose()
    }

    /// Gives these calls up. Their connection is closed, by which a server may notice.
    pub fn cancel(&mut self, call: CallId) {
        self.pool.cancel(call);
    }

    /// One turn: writes what was begun, waits as it may for something to come, and reads it. How many
    /// outcomes [`Client::next`] has; where it has one already nothing is waited for.
    ///
    /// # Errors
    /// The operating system failed.
    pub fn turn(&mut self, wait: Wait) -> Result<usize, Failure> {
        let until = match wait {
            _ if self.pool.outcomes() > 0 => Some(Instant::now()),
            Wait::Poll => Some(Instant::now()),
            Wait::Until(until) => Some(until),
            Wait::Block => None,
        };
        self.pool.turn(until)?;
        Ok(self.pool.outcomes())
    }

    /// What came of calls that were begun; `None` until another turn.
    #[allow(clippy::should_implement_trait, reason = "a client is no iterator: more may come")]
    pub fn next(&mut self) -> Option<Completion> {
        self.pool.next()
    }

    /// For a foreign loop: readable whenever a turn with [`Wait::Poll`] has something to do. One such turn
    /// comes first, and one after each round of calls.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Failure> {
        self.pool.descriptor()
    }

    /// Whether calls are under way, or what came of them is still to be taken.
    pub fn knows(&self, call: CallId) -> bool {
        self.pool.knows(call)
    }

    /// Exchanges that have not ended.
    pub fn in_flight(&self) -> usize {
        self.pool.in_flight()
    }

    /// What it has done so far.
    pub fn statistics(&self) -> Statistics {
        self.pool.statistics()
    }

    /// Closes every connection. What is in flight fails; further calls connect anew.
    pub fn close(&mut self) {
        self.pool.close(&Failure::new(Fault::Closed, "this client was closed"));
    }
}

/// What is left until then; `None` for no limit.
fn left(until: Option<Instant>) -> Option<Duration> {
    until.map(|until| until.saturating_duration_since(Instant::now()))
}
