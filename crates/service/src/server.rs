//! The server: a reactor, and the calls of its clients.
//!
//! Three ways to do the work, over one engine: [`Server::run`] calls a function that answers before the next
//! request, [`Server::serve`] calls a [`Handler`] that may answer later and from any thread, and
//! [`Server::turn`] with [`Server::next`] keep what came until it is asked for, for a program with a loop of
//! its own.
//!
//! The parts: `engine` is the server's state, and `turn` acts on what a turn of its reactor brought, which
//! `collector` noted; `connection` is all that concerns one client, `calls` what other threads touch of a
//! call; `drain` ends it all. `handler`, `options` and `statistics` are what a program sees.
//!
//! *Ownership*: everything belongs to the thread that runs the server. Replies and stoppers may go anywhere.
//!
//! *Invariants*: every request that was handed out is answered exactly once, by its reply or by that being
//! dropped; everything has a bound, and at a bound a connection is not read from, never dropped; a client
//! that does not read, or sends half a frame, holds up nobody but itself. Checked by `tests/`.

mod calls;
mod collector;
mod connection;
mod drain;
mod engine;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod handler;
mod options;
mod statistics;
mod turn;

pub use self::calls::reply::Reply;
pub use self::handler::{ClientId, Handler, Incoming, Request};
pub use self::options::ServerOptions;
pub use self::statistics::Statistics;

pub(crate) use self::calls::answers::{Answers, Batch, Place, Taker};
pub(crate) use self::calls::call::{Call, Calls};
pub(crate) use self::calls::framing::Framing;
pub(crate) use self::calls::inline::handle;

use self::collector::Collector;
use self::engine::Engine;
use self::handler::Serial;
use self::turn::ServerTurn;
use crate::Error;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use thalweg_reactor::{Config, Handle, Reactor, Wait};
use thalweg_transport::Endpoint;
use thalweg_wire::fault::Fault;

/// Ready descriptors that one turn takes.
const TURN_MAX: usize = 256;

/// A server of one service.
///
/// ```
/// use thalweg_service::{Endpoint, Server, ServerOptions};
/// let directory = tempfile::tempdir().unwrap();
/// let endpoint = Endpoint::try_from(directory.path().join("echo.sock")).unwrap();
/// let mut server = Server::bind(&[endpoint], ServerOptions::default()).unwrap();
/// let stopper = server.stopper();
/// std::thread::spawn(move || stopper.stop());
/// server.run(|request, response| response.extend_from_slice(request)).unwrap();
/// ```
pub struct Server {
    reactor: Reactor<Collector>,
    engine: Engine,
    /// What came and was not asked for yet.
    queue: VecDeque<Incoming>,
    /// A foreign loop was not told yet when to come again.
    owes_leave: bool,
    is_stopped: bool,
}

/// Stops a server, from any thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    handle: Handle<Infallible>,
}

impl Stopper {
    /// Asks the server to end: it takes nothing new, and its run returns when everything that was begun is
    /// answered. Any number of times.
    pub fn stop(&self) {
        self.handle.stop();
    }
}

/// Calls a server's handler on its reactor's thread, from any other. Outlives the server harmlessly.
#[derive(Clone, Debug)]
pub struct Notifier {
    answers: Arc<Answers>,
}

impl Notifier {
    /// Has [`Handler::notified`] called in the next turn, once however often this is called before.
    pub fn notify(&self) {
        self.answers.notify();
    }

    pub(crate) const fn new(answers: Arc<Answers>) -> Self {
        Self { answers }
    }
}

impl Server {
    /// Listens. A path that a dead server left behind is taken over, a live one's never. Clients may connect
    /// from here on; they are served once the server runs.
    ///
    /// # Errors
    /// [`Fault::AddressInUse`], [`Fault::PermissionDenied`], [`Fault::BadArgument`] without an endpoint, with
    /// standard input and output twice, or with an option that cannot be right, [`Fault::System`].
    pub fn bind(endpoints: &[Endpoint], options: ServerOptions) -> Result<Self, Error> {
        if endpoints.is_empty() {
            return Err(Error::new(Fault::BadArgument, "a server needs an endpoint"));
        }
        if endpoints.iter().filter(|endpoint| **endpoint == Endpoint::Stdio).count() > 1 {
            let detail = "standard input and output lead to one client: give - once";
            return Err(Error::new(Fault::BadArgument, detail));
        }
        if options.in_flight_max == 0 || options.clients_max == 0 || options.stream_credit == 0 {
            return Err(Error::new(Fault::BadArgument, "a bound of a server is 0: nothing could be served"));
        }
        // Beside the clients there is one entry for each endpoint: its listener, or standard output.
        let beside = u32::try_from(endpoints.len()).unwrap_or(u32::MAX);
        let places = options.clients_max.saturating_add(beside);
        let (spin, spin_for_peers) = (options.spin, options.spin);
        let config =
            Config { entries_max: places, spin, spin_on_one: true, spin_for_peers, ..Config::default() };
        let mut reactor = Reactor::new(config, |_| Ok::<_, io::Error>(Collector::default()))?;
        let answers = Arc::new(Answers::new(Taker::Server(reactor.handle()), &options.error_tag));
        let mut engine = Engine::new(options, answers);
        for endpoint in endpoints {
            match endpoint {
                Endpoint::Socket(path) => engine.listen_at(reactor.core(), path, false)?,
                Endpoint::Shared(path) => engine.listen_at(reactor.core(), path, true)?,
                Endpoint::Stdio => engine.take_standard_streams(reactor.core())?,
            }
        }
        Ok(Self { reactor, engine, queue: VecDeque::new(), owes_leave: false, is_stopped: false })
    }

    /// Serves until it is stopped, one request after the other: `handler` appends the response to each. A
    /// handler that panics has abandoned its call.
    ///
    /// # Errors
    /// Only for a broken epoll instance.
    pub fn run(&mut self, handler: impl FnMut(&[u8], &mut Vec<u8>)) -> Result<(), Error> {
        self.serve(Serial(handler))
    }

    /// Serves until it is stopped: `handler` answers at once, or later from any thread. Returns when every
    /// reply was answered or dropped, so nobody uses the server any more.
    ///
    /// # Errors
    /// Only for a broken epoll instance.
    pub fn serve(&mut self, mut handler: impl Handler) -> Result<(), Error> {
        let mut wait = Wait::Block;
        while !self.is_stopped {
            self.cycle(wait, &mut handler)?;
            // What is ready is looked for behind each piece of work, and waited for once there is none left.
            let has_helped = self.reactor.core().alone() && help(&mut handler);
            let next = due(&mut handler).map_or(Wait::Block, Wait::Until);
            wait = if has_helped { Wait::Until(Instant::now()) } else { next };
        }
        Ok(())
    }

    /// What stops this server.
    pub fn stopper(&self) -> Stopper {
        Stopper { handle: self.reactor.handle() }
    }

    /// Has this server's handler notified, from other threads.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.engine.answers))
    }

    /// To be watched for reading by a foreign loop, which calls [`Server::turn`] with [`Wait::Poll`] whenever
    /// it is readable, and once to begin with.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.reactor.descriptor()
    }

    /// One turn: sends what was answered, and takes in what came, to be asked for with [`Server::next`] until
    /// that says that there is no more: only then is the descriptor readable again when there is. Returns how
    /// many things happened.
    ///
    /// # Errors
    /// Only for a broken epoll instance.
    pub fn turn(&mut self, wait: Wait) -> Result<usize, Error> {
        let mut queue = std::mem::take(&mut self.queue);
        let outcome = self.cycle(wait, &mut queue);
        self.queue = queue;
        let count = outcome?;
        self.owes_leave = wait == Wait::Poll;
        if self.queue.is_empty() {
            self.leave()?;
        }
        Ok(count)
    }

    /// How many requests a turn took in that were not asked for yet. Asking for no more than these sends
    /// nothing: a caller that wants to answer some of them first, and have the answers leave together, asks
    /// for the one beyond them afterwards.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// The next request. When there is none, what was answered since the turn is sent, which may be the end
    /// of a server that was stopped: one more turn is due then.
    #[allow(clippy::should_implement_trait, reason = "a server is no iterator: more may come")]
    pub fn next(&mut self) -> Option<Incoming> {
        loop {
            while let Some(incoming) = self.queue.pop_front() {
                // One that was cancelled meanwhile is dropped, which answers it.
                if !incoming.reply.is_cancelled() {
                    return Some(incoming);
                }
            }
            if !self.owes_leave {
                return None;
            }
            self.reactor.hear();
            let (core, collector) = self.reactor.parts();
            let (engine, handler) = (&mut self.engine, &mut self.queue);
            let mut turn = ServerTurn { engine, core, collector, handler };
            turn.act();
            let has_drained = turn.has_drained();
            if has_drained && !self.is_stopped {
                // Nothing is left that could wake a foreign loop, which may ask behind turns only.
                core.handle().nudge();
            }
            self.is_stopped = has_drained;
            if self.queue.is_empty() {
                // A timer that cannot be had is tried for again in the next turn.
                let _ = self.leave();
                return None;
            }
        }
    }

    /// Whether it was stopped, and everything that was begun is answered.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// What it has done so far.
    pub fn statistics(&self) -> Statistics {
        Statistics { waits: self.reactor.waits(), ..self.engine.statistics }
    }

    fn cycle<H: Handler>(&mut self, wait: Wait, handler: &mut H) -> Result<usize, Error> {
        let count = self.reactor.gather(TURN_MAX, wait)?;
        let (core, collector) = self.reactor.parts();
        let mut turn = ServerTurn { engine: &mut self.engine, core, collector, handler };
        let heard = turn.act();
        if turn.core.take_stop() {
            turn.begin_to_drain();
        }
        self.is_stopped = turn.has_drained();
        Ok(count + heard)
    }

    fn leave(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.owes_leave) {
            self.reactor.leave()?;
        }
        Ok(())
    }
}

/// Asks a handler to help. One that panics has done no work that would go on: the reply that it dropped is an
/// answer, which wakes the reactor, and one that panics each time keeps no processor busy.
fn help(handler: &mut impl Handler) -> bool {
    catch_unwind(AssertUnwindSafe(|| handler.help())).unwrap_or(false)
}

/// Has a handler do what is due; when more is, if at all. One that panics is not asked when.
pub(crate) fn due<H: Handler + ?Sized>(handler: &mut H) -> Option<Instant> {
    let at = handler.due_at()?;
    if at > Instant::now() {
        return Some(at);
    }
    catch_unwind(AssertUnwindSafe(|| {
        handler.due();
        handler.due_at()
    }))
    .ok()?
}

impl Drop for Server {
    fn drop(&mut self) {
        self.engine.answers.close();
        let (core, collector) = self.reactor.parts();
        self.engine.leave_clients(core, collector);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Server").field("statistics", &self.statistics()).finish_non_exhaustive()
    }
}
