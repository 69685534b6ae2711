//! A connection as the virtual machine holds it: a client of a service, and the waiters for its answers.
//!
//! Owns: the client, under a lock that is held for a look and never for a wait. Any scheduler may come along:
//! a process that makes a call and looks a little for its answer (`nif`), and the connection's router, a
//! process that looks when the descriptor says so, or again and again while answers come faster than waking
//! it would take. Each look hands out the answers of all callers.
//!
//! Invariants, checked by the suites under `test/`:
//! - every call that was begun is told of exactly once, whatever becomes of the connection or of the
//!   process that looked;
//! - a process is watched once, however many streams it opens;
//! - the peer takes this side to be asleep, or a process here looks: the last one that stops says so, be it
//!   by a panic;
//! - a worker's keeper is told when calls were given up, until the worker can read of all of it: it may be
//!   amid one of them;
//! - the router is told when another process finds that the connection ended, and when there are callers to
//!   be tended;
//! - the lock is held for a number of calls that has a bound, or for those that end with one process or
//!   group, however many these are;
//! - nothing here waits.

mod bounds;
mod ends;
mod groups;
mod held;
mod lines;
mod look;
mod process;

use crate::atoms::atoms;
use crate::encode::INLINE_BYTES_MAX;
use crate::enif::{Pid, RawTerm};
use crate::generated::types::{PythonAttend, SCHEMA_HASH};
use crate::term::{Env, Letter};
use crate::waiter::{self, Delivery, Expect, Waiter};
pub(crate) use ends::Tended;
use groups::Group;
use held::Shelf;
pub(crate) use lines::Lines;
pub(crate) use look::look;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thalweg_reactor::Wait;
use thalweg_service::{CallId, CallOptions, Client, ClientOptions, Error, EventKind, PeerProcess, Reconnect};
use thalweg_transport::Endpoint;
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::SchemaHash;
use thalweg_wire::messagepack::request_frame;

/// How long a router goes on looking after the last answer: about what it costs to be woken instead.
const ATTENTION: Duration = Duration::from_micros(50);
/// Events that one look hands out: it holds the lock, and a scheduler, for a fraction of a millisecond. One
/// that is put aside counts as one more for each of so many bytes, which are copied. A connection that is
/// closed hands out all that is left, so much at a time.
const HANDED_OUT_MAX: usize = 256;
const COPIED_BYTES: usize = 4 << 10;
/// Letters kept to be used again.
const LETTERS_MAX: usize = 1_024;
/// Items that a worker may say by itself before they are taken.
const EVENT_CREDIT: u32 = 1 << 16;

/// Calls that a client may ever have, answers to callbacks included.
const CALLS_MAX: u32 = 1 << 20;
/// Bytes that may wait to be sent.
const UNSENT_BYTES_MAX: usize = 64 << 20;
/// How long is paused before a server that was lost is looked for again.
const RECONNECT: Reconnect =
    Reconnect::Backoff { first: Duration::from_millis(10), most: Duration::from_millis(500) };

/// What a connection is to be like.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionOptions {
    pub(crate) schema: SchemaHash,
    pub(crate) in_flight_max: u32,
    pub(crate) connect_within: Duration,
    pub(crate) is_shared: bool,
    /// Whether a call makes a connection that was lost anew.
    pub(crate) reconnects: bool,
    pub(crate) same_user_only: bool,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        let options = ClientOptions::default();
        Self {
            schema: SCHEMA_HASH,
            in_flight_max: options.in_flight_max,
            connect_within: options.connect_within,
            is_shared: false,
            reconnects: false,
            same_user_only: options.same_user_only,
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// A lock that sleeps at once where its holder was interrupted, and never yields: a thread that yields
    /// loses its turn on the processor, and with it that of all the processes that its scheduler runs.
    state: Mutex<State>,
    /// Watched by the virtual machine until it was told to stop.
    pub(crate) descriptor: RawFd,
    pub(crate) router: Pid,
}

/// What is behind the lock.
#[derive(Debug)]
pub(crate) struct State {
    /// `None` once closed.
    client: Option<Client>,
    /// It is being closed, or was.
    is_closed: bool,
    /// Why it was lost before it was closed.
    lost: Option<Error>,
    /// In an order, so that a walk through them can go on where it stopped.
    waiters: BTreeMap<u64, Waiter>,
    /// The patient ones of each process that has some.
    streams: HashMap<Pid, HashSet<u64>>,
    /// Processes whose end the virtual machine tells of: each that opened a stream, until it ends.
    watched: HashSet<Pid>,
    groups: HashMap<u64, Group>,
    group_count: u64,
    /// Waiters that a router need not hurry for: streams, and what the worker says by itself.
    patient: usize,
    /// Waiters that are there beyond the bound.
    unbounded: usize,
    in_flight_max: u32,
    reconnects: bool,
    /// The router sleeps until the descriptor, or a message, wakes it.
    router_sleeps: bool,
    /// The last look left something to be handed out.
    has_more: bool,
    /// The worker's process, once its keeper asked to hear of its end, and the descriptor that is watched for
    /// that.
    process: Option<PeerProcess>,
    watched_process: Option<OwnedFd>,
    /// The virtual machine was told to watch the descriptor no more, which it closes before long.
    is_left: bool,
    /// Processes that look for their answers right now.
    lookers: u32,
    last: Option<Instant>,
    letters: Vec<Letter>,
    /// The process that is told what a worker says by itself, and has it interrupted.
    keeper: Option<Pid>,
    /// Calls were given up, and the keeper is not told yet, or the worker cannot read all of it yet.
    has_given_up: bool,
    /// The router looks before long whether callers are no more.
    is_tended: bool,
    /// The waiter behind which it goes on looking, amid a round.
    tended_up_to: Option<u64>,
    /// Frames that are read apart.
    shelf: Shelf,
    /// Of the worker's log.
    pub(crate) lines: Lines,
    router: Pid,
    /// Where items of streams are written.
    scratch: Letter,
    /// Where requests are made.
    pub(crate) buffer: Vec<u8>,
}

/// What a router does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouterStep {
    /// Looks again, after other processes had a turn.
    Again,
    /// Sleeps until the descriptor is readable.
    Sleep,
    /// Ends: so did the connection.
    End,
}

impl Connection {
    /// Begins to connect.
    pub(crate) fn begin(endpoint: &Endpoint, wishes: &ConnectionOptions, router: Pid) -> Result<Self, Error> {
        let options = ClientOptions {
            schema: wishes.schema,
            // Which calls are bounded is said below.
            in_flight_max: CALLS_MAX,
            unsent_bytes_max: UNSENT_BYTES_MAX,
            connect_within: wishes.connect_within,
            shared: wishes.is_shared,
            same_user_only: wishes.same_user_only,
            reconnect: if wishes.reconnects { RECONNECT } else { Reconnect::Never },
            ..ClientOptions::default()
        };
        let mut client = Client::begin(endpoint, options)?;
        let descriptor = client.descriptor()?.as_raw_fd();
        let state = State {
            client: Some(client),
            is_closed: false,
            lost: None,
            waiters: BTreeMap::new(),
            streams: HashMap::new(),
            watched: HashSet::new(),
            groups: HashMap::new(),
            group_count: 0,
            patient: 0,
            unbounded: 0,
            in_flight_max: wishes.in_flight_max,
            reconnects: wishes.reconnects,
            router_sleeps: false,
            has_more: false,
            process: None,
            watched_process: None,
            is_left: false,
            lookers: 0,
            last: None,
            letters: Vec::new(),
            keeper: None,
            has_given_up: false,
            is_tended: false,
            tended_up_to: None,
            shelf: Shelf::default(),
            lines: Lines::default(),
            router,
            scratch: Letter::new().ok_or_else(|| Error::new(Fault::System, "out of memory"))?,
            buffer: Vec::new(),
        };
        Ok(Self { state: Mutex::new(state), descriptor, router })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Begins the call whose request lies in the buffer, for a process to be told by a reference.
    pub(crate) fn begin(
        &mut self,
        pid: Pid,
        reference: RawTerm,
        expect: Expect,
        options: CallOptions,
    ) -> Result<CallId, Error> {
        if let Some(why) = &self.lost {
            return Err(why.of_later_call());
        }
        if expect.is_bounded() && self.client.is_some() && self.bound().0 >= self.in_flight_max as usize {
            return Err(Error::new(Fault::Overloaded, ""));
        }
        let Some(client) = &mut self.client else { return Err(Error::new(Fault::Closed, "")) };
        let options = CallOptions { unary: !expect.is_patient(), ..options };
        let call = client.call(&self.buffer, options)?;
        if self.buffer.capacity() > INLINE_BYTES_MAX {
            self.buffer = Vec::new();
        }
        let mut letter = match self.letters.pop() {
            Some(letter) => letter,
            None => Letter::new().ok_or_else(|| Error::new(Fault::System, "out of memory"))?,
        };
        let reference = letter.copy(reference);
        if expect.is_patient() {
            self.patient += 1;
            self.streams.entry(pid).or_default().insert(call.number());
        }
        if let Expect::Part(group, _) = expect {
            self.joins(group, call.number());
        }
        self.unbounded += usize::from(!expect.is_bounded());
        self.waiters.insert(call.number(), Waiter { pid, letter, reference, expect, held: 0 });
        Ok(call)
    }

    /// Begins to hear what a worker says by itself.
    pub(crate) fn attend(&mut self, env: Env, pid: Pid) -> Result<CallId, Error> {
        self.buffer.clear();
        request_frame(&PythonAttend {}, &mut self.buffer);
        let options = CallOptions { credit: Some(EVENT_CREDIT), ..CallOptions::default() };
        self.keeper = Some(pid);
        self.begin(pid, atoms(env).undefined, Expect::Events, options)
    }

    /// Looks at what came, and hands it out. What came of `own` is returned, in `env`.
    pub(crate) fn look(&mut self, env: Env, own: Option<CallId>) -> Option<RawTerm> {
        self.client.as_mut()?.peek();
        self.hand_out(env, own)
    }

    fn hand_out(&mut self, env: Env, own: Option<CallId>) -> Option<RawTerm> {
        let mut found = None;
        let mut filled = Vec::new();
        let mut granted = Vec::new();
        let mut has_forgotten = false;
        let mut read_bytes = 0;
        let mut events = 0;
        loop {
            self.has_more = events >= HANDED_OUT_MAX || read_bytes >= INLINE_BYTES_MAX;
            if self.has_more {
                break;
            }
            events += 1;
            let Some(event) = self.client.as_mut()?.next() else { break };
            let number = event.call.number();
            let Some(waiter) = self.waiters.get_mut(&number) else { continue };
            if Shelf::takes(waiter, &event.kind, event.frame, read_bytes) {
                waiter.held += 1;
                events += event.frame.len() / COPIED_BYTES;
                self.shelf.put(number, waiter.expect, event.kind, event.frame);
                continue;
            }
            read_bytes += event.frame.len();
            let is_item = matches!(event.kind, EventKind::Item);
            let is_last = if own == Some(event.call) {
                let told = waiter::tell(env, waiter.expect, &event.kind, event.frame);
                found = Some(told.term);
                told.is_last
            } else if let Expect::Part(group, at) = waiter.expect {
                if let Some(of) = self.groups.get_mut(&group) {
                    let told = waiter::tell(of.letter.env(), Expect::Outcome, &event.kind, event.frame);
                    of.results[at] = told.term;
                    filled.push(group);
                }
                true
            } else {
                if is_item && waiter.expect == Expect::Events {
                    granted.push(event.call);
                }
                send(env, waiter, (&mut self.scratch, &mut self.lines), &event.kind, event.frame)
            };
            if is_last && is_item {
                // The rest would have no receiver.
                self.forget(CallId::from_number(number));
                has_forgotten = true;
            } else if is_last {
                self.retire(number);
            }
            self.last = None;
        }
        filled.into_iter().for_each(|group| self.filled(env, group));
        granted.into_iter().for_each(|call| self.grant(call, 1));
        if has_forgotten && let Some(client) = &mut self.client {
            // Perhaps no process looks any more, and the peer waits for credit. What goes wrong here shows
            // at the descriptor.
            let _ = client.flush();
        }
        self.have_held_read(env);
        found
    }

    fn retire(&mut self, number: u64) {
        let Some(mut waiter) = self.waiters.remove(&number) else { return };
        if waiter.expect.is_patient() {
            self.patient -= 1;
            self.end_stream(&waiter.pid, number);
        }
        self.unbounded -= usize::from(!waiter.expect.is_bounded());
        if self.letters.len() < LETTERS_MAX {
            waiter.letter.clear();
            self.letters.push(waiter.letter);
        }
    }

    /// Whether something will still come of a call.
    pub(crate) fn awaits(&self, call: CallId) -> bool {
        self.waiters.contains_key(&call.number())
    }

    /// Whether a process will be told of what still comes of a call. It is told, under the lock, before the
    /// call is over.
    pub(crate) fn is_for(&self, call: CallId, pid: Pid) -> bool {
        self.waiters.get(&call.number()).is_some_and(|waiter| waiter.pid == pid)
    }

    /// Lets a stream send so many items more.
    pub(crate) fn grant(&mut self, call: CallId, items: u32) {
        if let Some(client) = &mut self.client {
            client.grant(call, items);
        }
    }

    /// Sends what is queued, and sees to it that a process looks for what comes of it.
    pub(crate) fn leave(&mut self, env: Env) {
        self.look(env, None);
        self.see_to(env);
    }

    /// Where no process looks from here on, the peer is told so: it rings, and the router wakes. What no ring
    /// tells of, it and the keeper are told here.
    fn see_to(&mut self, env: Env) {
        if self.lookers == 0
            && self.router_sleeps
            && let Some(client) = &mut self.client
        {
            // What goes wrong here shows at the descriptor.
            let _ = client.turn(Wait::Poll);
            self.hand_out(env, None);
        }
        if self.has_more || self.has_ended() {
            // No descriptor tells of what was read and not handed out; and the one that finds the end also
            // removes the descriptor that would have said so.
            self.have_router_look(env);
        }
        if self.hurried() > 0 && !std::mem::replace(&mut self.is_tended, true) {
            self.tell_router(env, "tend");
        }
        self.interrupt(env);
    }

    /// Nothing will come of the connection any more.
    fn has_ended(&self) -> bool {
        !self.reconnects && self.client.as_ref().is_some_and(|client| client.failure().is_some())
    }

    /// Has the router look, which may sleep.
    fn have_router_look(&mut self, env: Env) {
        if std::mem::replace(&mut self.router_sleeps, false) {
            self.tell_router(env, "look");
        }
    }

    fn tell_router(&mut self, env: Env, what: &str) {
        let message = self.scratch.env().atom(what);
        self.scratch.send(env, &self.router, message);
    }

    /// Has a worker look whether what it is amid was given up. One that is amid something reads nothing by
    /// itself, so it is asked again until everything found room in its ring.
    fn interrupt(&mut self, env: Env) {
        if !self.has_given_up {
            return;
        }
        self.has_given_up = self.client.as_ref().is_some_and(Client::has_unsent);
        if let Some(keeper) = self.keeper {
            let message = self.scratch.env().atom("interrupt");
            self.scratch.send(env, &keeper, message);
        }
    }

    /// A router's turn.
    pub(crate) fn route(&mut self, env: Env) -> RouterStep {
        self.router_sleeps = false;
        self.look(env, None);
        if self.has_more {
            return RouterStep::Again;
        }
        if self.client.is_none() || self.has_ended() {
            return RouterStep::End;
        }
        if self.waiters.len() > self.patient {
            let now = Instant::now();
            let since = *self.last.get_or_insert(now);
            if now.duration_since(since) < ATTENTION {
                return RouterStep::Again;
            }
        }
        let Some(client) = &mut self.client else { return RouterStep::End };
        let turned = client.turn(Wait::Poll);
        self.hand_out(env, None);
        self.interrupt(env);
        self.last = None;
        if self.has_more {
            return RouterStep::Again;
        }
        self.router_sleeps = true;
        if turned.is_ok() && !self.has_ended() { RouterStep::Sleep } else { RouterStep::End }
    }

    /// Why the connection ended.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.lost.clone().or_else(|| self.client.as_ref()?.failure().cloned())
    }

    /// Whether the descriptor may be watched.
    pub(crate) const fn is_left(&self) -> bool {
        self.is_left
    }

    /// Whether the caller has to have the virtual machine leave the descriptor. It says so once, because
    /// the number may belong to another descriptor afterwards.
    pub(crate) fn leave_descriptor(&mut self) -> bool {
        !std::mem::replace(&mut self.is_left, true)
    }

    /// Lets go of the descriptor, once it is not watched any more.
    pub(crate) fn drop_client(&mut self) {
        self.client = None;
    }
}

/// Sends what came of a call to its waiter. Whether it was the last.
fn send(
    env: Env,
    waiter: &mut Waiter,
    (scratch, lines): (&mut Letter, &mut Lines),
    kind: &EventKind,
    frame: &[u8],
) -> bool {
    match waiter.expect {
        Expect::Nothing | Expect::Notice => !matches!(kind, EventKind::Item),
        Expect::Events => waiter::event(env, waiter, lines, kind, frame),
        expect if matches!(kind, EventKind::Item) => {
            // More will come: the reference stays where it is.
            let reference = scratch.copy(waiter.reference);
            let letter = scratch.env();
            let told = waiter::tell(letter, expect, kind, frame);
            let message = letter.make_tuple(&[atoms(env).thalweg, reference, told.term]);
            scratch.send(env, &waiter.pid, message);
            told.is_last
        }
        expect => {
            let letter = waiter.letter.env();
            let Delivery { term, is_last } = waiter::tell(letter, expect, kind, frame);
            let message = letter.make_tuple(&[atoms(env).thalweg, waiter.reference, term]);
            waiter.letter.send(env, &waiter.pid, message);
            is_last
        }
    }
}
