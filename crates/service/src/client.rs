//! A client: one connection, any number of calls in flight, no thread.
//!
//! | file | what it holds |
//! |---|---|
//! | this one, `options`, `peer` | what callers see |
//! | `drive` | joins the others, and alone decides when to wait |
//! | `session` | what is known of the calls, without a descriptor and without a clock |
//! | `dial` | how a connection comes about |
//! | `link`, `duplex` | how its bytes travel: through rings, a socket or two pipes |
//! | `watch` | what a foreign loop watches |
//!
//! Invariants, checked by `tests/client.rs`, `tests/client_connect.rs` and the tests of the parts:
//! - every call that [`Client::call`] accepted ends exactly once, whatever becomes of the connection;
//! - a call made and waited for on a socket costs one write and one read, and in shared memory no system call
//!   while both sides are up;
//! - nothing here waits but [`Client::wait`], [`Client::connect`] and a turn that may.

mod dial;
mod drive;
mod duplex;
mod link;
mod options;
mod peer;
mod session;
mod watch;

pub use options::{ClientOptions, Reconnect};
pub use peer::PeerProcess;

use crate::call::{CallId, CallOptions, Event, EventKind};
use crate::error::Error;
use dial::{Dialed, Dialer};
pub(crate) use duplex::Duplex;
use link::Link;
pub use session::BACKLOG_BYTES;
use session::{Bounds, Found, Session};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use thalweg_reactor::Wait;
use thalweg_sync::patience::WAKE_NS;
use thalweg_transport::{Endpoint, WriteOutcome};
use thalweg_wire::fault::Fault;
use watch::Watch;

/// Requests from this length on are written from where they lie, if nothing waits to be sent before them.
const DIRECT_BYTES: usize = 4 << 10;

/// Calls a service.
///
/// Calls are queued by [`Client::call`], leave together with the next [`Client::flush`], [`Client::turn`] or
/// [`Client::wait`], and what comes of them is taken one by one with [`Client::next`], or by name with
/// [`Client::wait`] and [`Client::take`]. A foreign loop watches [`Client::descriptor`] and takes turns.
///
/// ```
/// use thalweg_service::{CallOptions, Client, ClientOptions, Endpoint, Server, ServerOptions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// let endpoint = Endpoint::try_from(directory.path().join("echo.shm"))?;
/// let mut server = Server::bind(std::slice::from_ref(&endpoint), ServerOptions::default())?;
/// let stopper = server.stopper();
/// let serving = std::thread::spawn(move || server.run(|request, response| response.extend(request)));
///
/// let mut client = Client::connect(&endpoint, ClientOptions::default())?;
/// let one = client.call(b"one", CallOptions::default())?;
/// let two = client.call(b"two", CallOptions::default())?; // they leave together
/// assert_eq!(client.wait(two)?, b"two");
/// assert_eq!(client.wait(one)?, b"one");
///
/// stopper.stop();
/// serving.join().unwrap()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Client {
    options: ClientOptions,
    /// Where to connect anew; a connection that was handed over cannot be.
    endpoint: Option<Endpoint>,
    connection: Connection,
    session: Session,
    watch: Option<Watch>,
    /// The peer was told that this side sleeps, and rings when it has something.
    settled: bool,
}

#[derive(Debug)]
enum Connection {
    Up(Link),
    Dialing(Dialer),
    Down(Error),
}

impl Client {
    /// Connects, trying again within [`ClientOptions::connect_within`] while that may help.
    ///
    /// # Errors
    /// [`Fault::NoServer`], [`Fault::ConnectTimeout`], [`Fault::PermissionDenied`],
    /// [`Fault::NoSharedMemory`], [`Fault::SchemaMismatch`], [`Fault::VersionMismatch`],
    /// [`Fault::BadArgument`]; each with the path and what to do.
    pub fn connect(endpoint: &Endpoint, options: ClientOptions) -> Result<Self, Error> {
        let options = options.checked()?;
        let mut dialer = Dialer::new(endpoint, &options)?;
        loop {
            if let Some(dialed) = dialer.advance()? {
                return Ok(Self::up(Some(endpoint.clone()), options, dialed));
            }
            dialer.wait(None)?;
        }
    }

    /// Begins to connect; calls may be made at once and leave when the connection is there. They fail if it
    /// does not come about.
    ///
    /// # Errors
    /// [`Fault::BadArgument`].
    pub fn begin(endpoint: &Endpoint, options: ClientOptions) -> Result<Self, Error> {
        let options = options.checked()?;
        let connection = Connection::Dialing(Dialer::new(endpoint, &options)?);
        Ok(Self::with(Some(endpoint.clone()), options, connection))
    }

    /// Speaks over a connected socket, such as one of a pair. It never reconnects, whatever the options say.
    ///
    /// # Errors
    /// What the welcome says.
    pub fn over(socket: OwnedFd, options: ClientOptions) -> Result<Self, Error> {
        Self::over_duplex(Duplex::socket(socket), options)
    }

    /// As [`Client::over`], over two pipes, such as a child's standard output and input.
    ///
    /// # Errors
    /// [`Fault::System`] where they are no pipes; what the welcome says.
    pub fn over_pipes(input: &OwnedFd, output: &OwnedFd, options: ClientOptions) -> Result<Self, Error> {
        Self::over_duplex(Duplex::pipes(input.as_fd(), output.as_fd())?, options)
    }

    pub(crate) fn over_duplex(duplex: Duplex, options: ClientOptions) -> Result<Self, Error> {
        let options = options.checked()?;
        let mut dialer = Dialer::over(duplex, &options)?;
        loop {
            if let Some(dialed) = dialer.advance()? {
                return Ok(Self::up(None, options, dialed));
            }
            dialer.wait(None)?;
        }
    }

    /// The same, begun as by [`Client::begin`].
    pub(crate) fn begin_over(duplex: Duplex, options: ClientOptions) -> Result<Self, Error> {
        let options = options.checked()?;
        let connection = Connection::Dialing(Dialer::over(duplex, &options)?);
        Ok(Self::with(None, options, connection))
    }

    fn up(endpoint: Option<Endpoint>, options: ClientOptions, dialed: Dialed) -> Self {
        let mut client = Self::with(endpoint, options, Connection::Up(dialed.link));
        client.session.welcome(dialed.credit);
        client
    }

    fn with(endpoint: Option<Endpoint>, options: ClientOptions, connection: Connection) -> Self {
        let session = Session::new(Bounds {
            plain: options.plain,
            frame_bytes_max: options.frame_bytes_max,
            in_flight_max: options.in_flight_max,
            unsent_bytes_max: options.unsent_bytes_max,
        });
        Self { options, endpoint, connection, session, watch: None, settled: false }
    }

    /// Queues a request. It leaves with the next flush, turn or wait, at the latest.
    ///
    /// # Errors
    /// [`Fault::BadArgument`] for a credit of 0, [`Fault::FrameTooLarge`], [`Fault::Overloaded`],
    /// [`Fault::Draining`], or why there is no connection. Nothing was queued, and the client may be used as
    /// before.
    pub fn call(&mut self, request: &[u8], options: CallOptions) -> Result<CallId, Error> {
        if options.credit == Some(0) {
            return Err(Error::new(Fault::BadArgument, "credit is 0: give 1 item or more"));
        }
        self.session.admit(request)?;
        self.ensure_connection()?;
        let deadline = options.deadline.or(self.options.deadline);
        let (call, head) = self.session.begin(request.len(), deadline, &options);
        if let Some(at) = deadline.and_then(|deadline| Instant::now().checked_add(deadline)) {
            self.session.until(call, at);
        }
        let mut departed = 0;
        if request.len() >= DIRECT_BYTES
            && !self.session.has_unsent()
            && let Connection::Up(link) = &mut self.connection
        {
            match link.write(&[IoSlice::new(head.bytes()), IoSlice::new(request)]) {
                Ok(WriteOutcome::Bytes(count)) => departed = count,
                Ok(WriteOutcome::WouldBlock) => {}
                Err(error) => {
                    // The call began and ends as every other.
                    self.session.queue(call, &head, request, 0);
                    self.drain_and_lose(error);
                    return Ok(call);
                }
            }
        }
        self.session.queue(call, &head, request, departed);
        Ok(call)
    }

    /// Says that nobody waits for the answer any more. The call still ends: with its answer if that was
    /// faster, else with [`Fault::Cancelled`]. What such an answer names may be gone: a server may take it
    /// back.
    pub fn cancel(&mut self, call: CallId) {
        self.session.cancel(call);
    }

    /// Cancels the call and never says anything of it again.
    pub fn forget(&mut self, call: CallId) {
        self.session.forget(call);
    }

    /// Tells the server that nobody reads the answer that this client handed out of the call, as
    /// [`Client::cancel`] does of one that it still keeps: for a caller that keeps answers itself, of a
    /// service whose answers name resources. It leaves with the next flush, turn or wait, and does nothing
    /// once that server's connection has ended, or on a plain one, which has no cancels.
    ///
    /// ```
    /// use thalweg_service::{CallOptions, Client, ClientOptions, Endpoint, Server, ServerOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let endpoint = Endpoint::try_from(directory.path().join("echo.sock"))?;
    /// # let mut server = Server::bind(std::slice::from_ref(&endpoint), ServerOptions::default())?;
    /// # let stopper = server.stopper();
    /// # let serving = std::thread::spawn(move || server.run(|request, response| response.extend(request)));
    /// let mut client = Client::connect(&endpoint, ClientOptions::default())?;
    /// let call = client.call(b"a resource", CallOptions::default())?;
    /// let answer = client.wait(call)?.to_vec();
    /// // Whoever was to have it has gone meanwhile.
    /// drop(answer);
    /// client.leave_unread(call);
    /// client.flush()?; // the server's handler is told: `Handler::given_up`
    /// # stopper.stop();
    /// # serving.join().unwrap()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn leave_unread(&mut self, call: CallId) {
        self.session.leave_unread(call);
    }

    /// Lets a stream send `items` more items.
    pub fn grant(&mut self, call: CallId, items: u32) {
        self.session.grant(call, items);
    }

    /// Writes what is queued, as far as it can be now. A foreign loop is told of room for the rest, and again
    /// of what came and was not taken.
    ///
    /// # Errors
    /// Only those that the calls report too: they fail with a connection that ended.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.write_out();
        // What was read, or a connection that ended left behind, stands where no socket tells of it; and of
        // room none tells that was watched for answers alone.
        if self.session.is_ready() || self.session.has_unsent() { self.leave_watched() } else { Ok(()) }
    }

    /// Writes what is queued, waits as it may for something to come, and reads it: then [`Client::next`] has
    /// what came. How much happened; 0 when nothing did, after a signal or at the end of the wait, and never
    /// while something is there that was not taken, of whatever call. For that it does not wait either: a
    /// caller that takes what comes of one call uses [`Client::turn_for`].
    ///
    /// # Errors
    /// Nothing is in flight and there is no connection, so that nothing could come; the operating system
    /// failed.
    pub fn turn(&mut self, wait: Wait) -> Result<usize, Error> {
        let is_ready = self.session.is_ready();
        self.turn_unless(is_ready, wait)
    }

    /// As a turn, for a caller that takes what comes of one call: what came of others, and was not taken,
    /// does not end it.
    ///
    /// # Errors
    /// As of [`Client::turn`]; [`Fault::Overrun`] as of [`Client::wait_event`].
    pub fn turn_for(&mut self, call: CallId, wait: Wait) -> Result<usize, Error> {
        let is_ready = self.is_ready_for(call)?;
        self.turn_unless(is_ready, wait)
    }

    /// Whether a wait would look for a moment before it slept.
    pub fn listens(&self) -> bool {
        matches!(&self.connection, Connection::Up(link) if link.looks())
    }

    /// The first half of a turn that waits, of one call if one is named: writes what is queued and may look
    /// for a moment for what comes, but never sleeps. For a caller that checks something else before it
    /// sleeps, such as signals; the turn that waits then sleeps at once. How much happened.
    ///
    /// # Errors
    /// As of [`Client::turn`], or of [`Client::turn_for`].
    pub fn listen(&mut self, of: Option<CallId>) -> Result<usize, Error> {
        let is_ready = of.map_or(Ok(self.session.is_ready()), |call| self.is_ready_for(call))?;
        let moved = if is_ready { Ok(self.look_beside()) } else { self.advance_looking() };
        self.leave_watched()?;
        moved
    }

    fn turn_unless(&mut self, is_ready: bool, wait: Wait) -> Result<usize, Error> {
        let until = match wait {
            // A call that ended here, as by a cancel, is nothing that moved, and no descriptor tells of it.
            Wait::Poll => return self.look().map(|moved| moved.max(usize::from(is_ready))),
            Wait::Until(until) => Some(until),
            Wait::Block => None,
        };
        let moved = if is_ready { Ok(self.look_beside()) } else { self.advance(until) };
        self.leave_watched()?;
        moved
    }

    /// In place of a wait, where something is there to be taken: reads all the same, because the caller may
    /// take only what comes of a call whose answer is still to be read.
    fn look_beside(&mut self) -> usize {
        self.look_once().max(1)
    }

    /// As a turn that never waits, for a caller that takes another before it sleeps: may poll shared memory
    /// for a moment, and leaves nothing to be watched.
    pub(crate) fn attend(&mut self) -> Result<usize, Error> {
        let wants = !self.session.is_full() && !self.session.is_ready();
        if self.options.spin && self.is_shared() && self.session.in_flight() > 0 && wants {
            self.advance(Some(Instant::now() + Duration::from_nanos(WAKE_NS)))
        } else {
            self.look()
        }
    }

    /// While `holds` is set, turns that never wait read nothing and have no input watched: backpressure of a
    /// caller that keeps frames itself, [`BACKLOG_BYTES`] or more of them. The server's streams then wait as
    /// well. Requests still leave, and are watched for. Clearing it takes effect with the next turn.
    pub fn hold_back(&mut self, holds: bool) {
        self.session.hold_back(holds);
    }

    /// As a turn that never waits, and leaves nothing to be watched: the peer takes this side to be up, and
    /// rings for nothing. For a caller that polls again at once, and takes a turn before it stops polling.
    pub fn peek(&mut self) -> usize {
        self.look_once()
    }

    /// What came next, in order of arrival; `None` until another turn.
    #[allow(clippy::should_implement_trait, reason = "an event borrows from the receive buffer")]
    pub fn next(&mut self) -> Option<Event<'_>> {
        let found = match self.session.next() {
            Some(found) => found,
            None if self.lose_broken() => self.session.next()?,
            None => return None,
        };
        Some(self.event(found))
    }

    /// What came next of one call; `None` until another turn, or when there is no such call.
    pub fn take(&mut self, call: CallId) -> Option<Event<'_>> {
        let found = match self.session.take(call) {
            Some(found) => found,
            None if self.lose_broken() => self.session.take(call)?,
            None => return None,
        };
        Some(self.event(found))
    }

    /// Waits for the next frame of one call: its answer, or of a stream an item or the end, which their
    /// content tells apart. What comes of other calls meanwhile is kept for them.
    ///
    /// # Errors
    /// Why the call has no answer; [`Fault::BadArgument`] when there is no such call.
    pub fn wait(&mut self, call: CallId) -> Result<&[u8], Error> {
        let event = self.wait_event(call)?;
        match event.kind {
            EventKind::Item | EventKind::End => Ok(event.frame),
            EventKind::Failed(error) => Err(error),
        }
    }

    /// As [`Client::wait`], and tells an item from the end.
    ///
    /// # Errors
    /// [`Fault::BadArgument`] when there is no such call; [`Fault::Overrun`] when too many items of plain
    /// streams before it were not taken, and then the call is still in flight.
    pub fn wait_event(&mut self, call: CallId) -> Result<Event<'_>, Error> {
        let found = loop {
            if let Some(found) = self.session.take(call) {
                break found;
            }
            if self.lose_broken() {
                continue;
            }
            if !self.session.knows(call) {
                return Err(Error::new(Fault::BadArgument, "no such call is in flight"));
            }
            self.refuse_more_items()?;
            self.advance(None)?;
        };
        self.leave_watched()?;
        Ok(self.event(found))
    }

    /// Whether something came of one call. If not, a turn for it waits, and keeps what comes before.
    fn is_ready_for(&self, call: CallId) -> Result<bool, Error> {
        let is_ready = self.session.is_ready_for(call);
        if !is_ready {
            self.refuse_more_items()?;
        }
        Ok(is_ready)
    }

    /// A wait for one call keeps what comes before it, and of plain streams no more than a bound.
    fn refuse_more_items(&self) -> Result<(), Error> {
        if !self.session.is_choked() {
            return Ok(());
        }
        let detail = "items of streams before this call lie here that nobody took: take or forget those, and wait again";
        Err(Error::new(Fault::Overrun, detail))
    }

    /// Whether anything will come, or has come and was not taken, of a call.
    pub fn knows(&self, call: CallId) -> bool {
        self.session.knows(call)
    }

    /// The descriptor for a foreign loop: readable whenever a turn with [`Wait::Poll`] has something to do.
    /// One such turn comes first, and one after each round of calls; waiting in between is fine. The
    /// descriptor stays the same through reconnections.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Error> {
        if self.watch.is_none() {
            self.watch = Some(Watch::new()?);
            self.settle()?;
        }
        match &self.watch {
            Some(watch) => Ok(watch.descriptor()),
            None => Err(Error::new(Fault::System, "no descriptor to watch")),
        }
    }

    /// Whether something that is queued has not been written: there is no room for it yet, or no connection.
    pub fn has_unsent(&self) -> bool {
        self.session.has_unsent()
    }

    /// Bytes that are queued and not written yet.
    pub fn unsent_bytes(&self) -> usize {
        self.session.unsent_bytes()
    }

    /// Calls that have not ended.
    pub fn in_flight(&self) -> usize {
        self.session.in_flight()
    }

    /// Whether frames go through shared memory.
    pub fn is_shared(&self) -> bool {
        matches!(&self.connection, Connection::Up(link) if link.is_shared())
    }

    /// Whether there is a connection now.
    pub fn is_connected(&self) -> bool {
        matches!(self.connection, Connection::Up(_))
    }

    /// The process at the other end of the connection: the one that began to listen there.
    ///
    /// # Errors
    /// There is no connection, or one that says nothing of processes; that process ended, or is not to be
    /// seen from here.
    pub fn peer_process(&self) -> io::Result<PeerProcess> {
        let socket = match &self.connection {
            Connection::Up(link) => link.duplex().as_socket(),
            Connection::Dialing(_) | Connection::Down(_) => None,
        };
        PeerProcess::of(socket.ok_or(io::ErrorKind::NotConnected)?)
    }

    /// Why there is no connection and none is being made, if so.
    pub fn failure(&self) -> Option<&Error> {
        match &self.connection {
            Connection::Down(error) => Some(error),
            Connection::Up(_) | Connection::Dialing(_) => None,
        }
    }

    /// Items that each new stream may send before [`Client::grant`] lets more come; 0 where streams know no
    /// credit, and while there is no connection.
    pub fn credit(&self) -> u32 {
        self.session.credit()
    }

    /// The credit window of a call with these options: items that its stream may send before more are
    /// granted. For a call that was made without a connection it is known once there is one.
    pub(crate) fn window(&self, options: CallOptions) -> u32 {
        options.credit.unwrap_or(self.credit())
    }

    /// Ends the connection for good. Every call fails, and so does every further one.
    pub fn close(&mut self) {
        self.endpoint = None;
        self.lose(Error::new(Fault::Closed, "this client was closed"));
    }

    fn event(&self, found: Found) -> Event<'_> {
        let frame = self.session.frame(&found);
        Event { call: found.call, kind: found.kind, frame }
    }
}
