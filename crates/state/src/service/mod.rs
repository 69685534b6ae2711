//! The state as a service: `schemas/state.jsonc`, over whatever a [`Server`](thalweg_service::Server) listens
//! at.
//!
//! Owns: which calls may run at the same time (`order`), sessions by their tokens (`sessions`), and answers
//! that wait for the disk (`durability_queue`). Short calls are done on the reactor's thread that received
//! them, without an avoidable allocation. Long ones go to a few worker threads, which never wait for
//! anything. Never knows: what carries a call, or what a state is made of.
//!
//! # Order
//!
//! | | |
//! |---|---|
//! | a committed read | beside everything |
//! | a pending read | sees every write that came before it on its fork, and none that came later |
//! | a read of two places | the same at either, as of when it came |
//! | a fork of a past state | after the writes that came before it; of later calls only a drop waits for it |
//! | a write | alone on its fork, in the order in which writes came; answered when it is durable |
//! | calls of one session | one after the other; those that read or write the fork also in the fork's order |
//!
//! # Invariants
//!
//! 1. *Every call is answered once*, and a refusal has changed nothing, unless it says that this is not
//!    known.
//! 2. *An acknowledged write is durable*, and a client that hears of it sees it.
//! 3. *Nobody waits on a thread*: neither reactor nor pool waits for a disk, a lock that is held for long, or
//!    a session.
//! 4. *A call that waits has its memory reserved* (`pending_call`): one for which there is none is refused,
//!    with nothing done.
//!
//! *Checked by* `tests/`: each refusal, and random histories of many clients against a serial model.

mod answer;
mod calls;
mod durability_queue;
mod fork_calls;
mod imaging;
mod order;
mod page;
mod page_cache;
mod pending_call;
mod queue;
mod reads;
mod refusal;
mod room;
mod session_calls;
mod sessions;
mod workers;
mod writes;

pub use answer::ERROR_TAG;
pub use imaging::ImageNews;

use crate::durable::DurabilityListener;
use crate::error::Error;
use crate::memory_budget::MemoryBudget;
use crate::state::{Options, State};
use answer::Answer;
use durability_queue::DurabilityQueue;
use imaging::Imaging;
use order::{ALONE, BUSY, Turns};
use page_cache::PageCache;
use parking_lot::Mutex;
use pending_call::PendingCall;
use refusal::Refusal;
use sessions::Sessions;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;
use thalweg_log::{Position, Receipt, Store, now};
use thalweg_service::{Executor, Handler, Reply, Request, Scheduler};
use thalweg_wire::fault::Fault;
use thalweg_wire::messagepack::{DecodeError, DecodeErrorKind};
use workers::{LazyPool, Workers};

/// Options of a [`Service`].
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Threads for long work, beside the one that serves: together one for each processor that the program
    /// may use. Work that takes time in proportion to the state has one thread more, and the roots that
    /// batches expect another.
    pub threads: usize,
    /// Sessions that may be open.
    pub sessions_max: usize,
    /// The most bytes that all calls may hold that wait for their turn or for a thread. A call for which
    /// there is no room is refused with [`Fault::Overloaded`], and not carried out.
    pub waiting_bytes_max: usize,
    /// Options of the state.
    pub state: Options,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.saturating_sub(1).max(1);
        let state = Options::default();
        Self { threads, sessions_max: 4_096, waiting_bytes_max: 128 << 20, state }
    }
}

/// Serves a state. Clones share it: each reactor has one.
///
/// ```
/// use thalweg_log::Store;
/// use thalweg_service::{Endpoint, Server, ServerOptions};
/// use thalweg_state::{SCHEMA_HASH, Service, ServiceOptions, ERROR_TAG};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// let store = Store::memory(thalweg_log::Options::default())?;
/// let options =
///     ServerOptions { schema: SCHEMA_HASH, error_tag: ERROR_TAG.into(), ..ServerOptions::default() };
/// let endpoint = Endpoint::Socket(directory.path().join("state.sock"));
/// let mut server = Server::bind(&[endpoint], options)?;
/// # server.stopper().stop();
/// server.serve(Service::new(&store, "state", ServiceOptions::default()))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Service {
    core: Arc<Core>,
}

struct Core {
    store: Store,
    name: String,
    options: Options,
    state: OnceLock<State>,
    /// Locked while the state is opened. It has the error for which opening is not tried again.
    opening: Mutex<Option<Arc<Error>>>,
    sessions: Sessions,
    page_cache: PageCache,
    imaging: Imaging,
    workers: Arc<Workers>,
    /// For work in proportion to the state.
    apart: LazyPool,
    /// For such work while a fork or a session waits for it.
    roots: LazyPool,
    turns: Turns,
    /// The memory of calls that wait.
    memory: Arc<MemoryBudget>,
    waiting: Arc<DurabilityQueue>,
}

impl Service {
    /// Serves the state of that name: opened now if there is one, made by the first call otherwise. One that
    /// cannot be opened refuses every call, and says why; where the log took nothing, each call tries again.
    pub fn new(store: &Store, name: &str, options: ServiceOptions) -> Self {
        let workers = Arc::new(Workers::new(options.threads));
        let core = Core {
            store: store.clone(),
            name: name.to_owned(),
            options: options.state,
            state: OnceLock::new(),
            opening: Mutex::default(),
            sessions: Sessions::new(options.sessions_max),
            page_cache: PageCache::default(),
            imaging: Imaging::default(),
            turns: Scheduler::new(Arc::clone(&workers)),
            memory: MemoryBudget::new(options.waiting_bytes_max),
            workers,
            apart: LazyPool::new(1),
            roots: LazyPool::new(1),
            waiting: Arc::default(),
        };
        if State::exists(store, name) {
            // The error is kept, and refuses the calls.
            let _ = core.state();
        }
        Self { core: Arc::new(core) }
    }

    /// Whether there is a state of that name already.
    pub fn exists(store: &Store, name: &str) -> bool {
        State::exists(store, name)
    }

    /// The names of the logs that a state of that name keeps; those that end with a slash are beginnings of
    /// names. Only the state may write to them.
    pub fn logs(name: &str) -> [String; 3] {
        [format!("{name}/main"), format!("{name}/forks/"), format!("{name}/images/")]
    }

    /// The state, for use in the same process.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn state(&self) -> Result<State, Arc<Error>> {
        self.core.state().cloned()
    }

    /// Ends sessions whose lease is over, and has images written that are due. Calls do both in passing; this
    /// is for a service without calls. Also drops the kept sources of pages, which otherwise stay until
    /// others replace them.
    pub fn keep_house(&self) {
        self.core.sessions.sweep();
        self.core.page_cache.sweep(Instant::now());
        match self.core.state.get() {
            Some(state) if state.is_due() => self.core.maintain(),
            // For example, the fork whose image could not be written is gone.
            _ => self.core.imaging.came_to(Ok(0), Instant::now()),
        }
    }

    /// The outcome of writing images, if it changed since the last call: for the program's log.
    pub fn image_news(&self) -> Option<ImageNews> {
        self.core.imaging.news()
    }

    /// How many sessions are open.
    pub fn sessions(&self) -> usize {
        self.core.sessions.count()
    }

    /// Bytes that they hold beside their snapshots.
    pub fn sessions_bytes(&self) -> usize {
        self.core.state.get().map_or(0, State::sessions_bytes)
    }

    /// Bytes that calls hold which wait for their turn or for a thread.
    pub fn waiting_bytes(&self) -> usize {
        self.core.memory.held()
    }

    /// Answers a request, now or later; `alone` says that the reactor has no other work.
    pub fn call(&self, frame: &[u8], alone: bool, reply: Reply) {
        let budget = if alone || self.core.workers.are_full() { ALONE } else { BUSY };
        let (outcome, bytes) = self.core.begin(frame, budget);
        self.core.settle(outcome, budget, PendingCall::new(bytes, reply));
    }
}

impl Handler for Service {
    fn request(&mut self, request: Request<'_>, reply: Reply) {
        self.call(request.frame, request.alone, reply);
    }

    fn help(&mut self) -> bool {
        self.core.help()
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Service").field("name", &self.core.name).finish_non_exhaustive()
    }
}

impl Core {
    fn state(&self) -> Result<&State, Arc<Error>> {
        if let Some(state) = self.state.get() {
            return Ok(state);
        }
        let mut opening = self.opening.lock();
        if let Some(error) = &*opening {
            return Err(Arc::clone(error));
        }
        match State::open(&self.store, &self.name, self.options.clone()) {
            Ok(state) => Ok(self.state.get_or_init(|| {
                let waiting: Weak<dyn DurabilityListener> = Arc::<DurabilityQueue>::downgrade(&self.waiting);
                state.listen(waiting);
                state
            })),
            // Another state may be closed before the next call, and a disk has room again.
            Err(error @ (Error::Crowded | Error::Commit(_))) => Err(Arc::new(error)),
            Err(error) => Err(Arc::clone(opening.insert(Arc::new(error)))),
        }
    }

    /// The state, for a call.
    fn open(&self) -> Result<&State, Refusal> {
        self.state().map_err(Refusal::Closed)
    }

    /// Checks whether an image is due, when a receipt takes a fork's log past a multiple of `image_bytes`.
    fn grown(self: &Arc<Self>, receipt: Receipt) {
        let every = self.options.image_bytes.max(1);
        if receipt.first / every != receipt.next / every {
            self.maintain();
        }
    }

    /// Has images written that are due, unless it is too early after a failure.
    fn maintain(self: &Arc<Self>) {
        if self.imaging.rests(Instant::now()) {
            return;
        }
        let core = Arc::clone(self);
        let job = move || {
            // Another job may have tried meanwhile, and failed.
            if let Some(state) = core.state.get()
                && !core.imaging.rests(Instant::now())
            {
                core.imaging.came_to(state.maintain(now()), Instant::now());
            }
        };
        self.apart.execute(Box::new(job));
    }

    fn give(&self, ticket: Position, answer: Answer, reply: Reply) {
        match self.state.get() {
            Some(state) => self.waiting.give(state, ticket, answer, reply),
            None => answer.give(reply),
        }
    }
}

fn fault_of(error: &DecodeError) -> Fault {
    if error.kind == DecodeErrorKind::UnknownMessage { Fault::UnknownCommand } else { Fault::BadRequest }
}

#[cfg(test)]
mod tests;
