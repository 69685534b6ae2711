//! The handler itself: what it keeps per reactor, and which part answers which event.

use crate::accept::{Admitted, ListenSocket, Listeners};
use crate::append_latency::{AppendLatency, succeeded};
use crate::bodies::Bodies;
use crate::cold::ColdReads;
use crate::config::{Config, OVERFLOW_CONNECTIONS_MAX};
use crate::connection::{Active, Connection, Flags, Reply, Role};
use crate::later::Later;
use crate::live::FanOut;
use crate::load::{Load, Resting};
use crate::meters::{Calls, Meters};
use crate::send::Staged;
use crate::send_batch::SendBatch;
use crate::tls::{Identity, Secure};
use crate::warnings::Warnings;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use thalweg_queue::ByTicket;
use thalweg_reactor::{Core, Handler, Interest, Key, Pool, Readiness, Sequence};
use thalweg_sync::places::Places;
use thalweg_transport::Acceptor;
use thalweg_wire::exchange::{Now, Service};
use thalweg_wire::host::Hosts;
use thalweg_wire::http1::{Date, Heads};

/// Active parts kept for the next connection that needs one.
const SPARE_MAX: usize = 1024;

/// What other threads, and the handler itself, tell a reactor.
#[derive(Clone, Debug)]
pub enum Message {
    /// Every ticket up to this one is complete: the answers that waited for them may leave.
    Complete {
        /// The highest complete ticket.
        up_to: u64,
    },
    /// The store failed: what waits will never complete.
    Failed,
    /// A topic that is watched here moved.
    Advanced {
        /// The topic.
        topic_id: u64,
    },
    /// Stop accepting, end what can be ended in good order, and stop the reactor within the grace.
    Drain {
        /// Milliseconds until whatever is left is cut.
        grace_ms: u32,
    },
    /// Go by these bounds and patience from now on; how many connections there may be stays as it was.
    Configure(Arc<Config>),
    /// Count the connections, and send the count there.
    Count(Sender<ConnectionCounts>),
    /// What a connection needs next is in memory now.
    Warmed {
        /// The connection.
        key: Key,
    },
    /// What the handler reminds itself of: the service has something to look at. From elsewhere that is a
    /// nudge.
    Look,
    /// What the handler reminds itself of: a topic with more subscribers than one turn's share.
    Walk {
        /// The topic.
        topic_id: u64,
    },
    /// What the handler reminds itself of: a connection that had more to send than one turn's share.
    Resume {
        /// The connection.
        key: Key,
    },
}

/// How many connections there are, and in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Connections in all.
    pub connections: usize,
    /// Those that own nothing but their entry.
    pub quiet: usize,
    /// Those that follow a topic.
    pub subscribed: usize,
    /// Answers that wait for the store, or for the service to bring them.
    pub waiting: usize,
    /// Reads that wait for the disk.
    pub cold: usize,
    /// How often large reads had to rest so far.
    pub rests: u64,
    /// System calls made so far for connections that were accepted.
    pub calls: Calls,
}

/// An answer that waits for its ticket.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) key: Key,
    pub(crate) sequence: Sequence,
    pub(crate) reply: Reply,
    /// When the turn that read the request whole began.
    pub(crate) read_us: u64,
}

/// How a connection ends, on its way up to `with_active`, which ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// Close the socket now.
    Close,
    /// Say that nothing more comes, and read until the peer has understood.
    Linger,
}

/// A listening socket, for one reactor to accept from.
#[derive(Debug)]
pub struct ListenerSettings {
    /// The socket.
    pub descriptor: OwnedFd,
    /// Other reactors watch the very same socket.
    pub shared: bool,
    /// Another process goes on listening when this one closes it: connections in its queue are left to that
    /// process.
    pub handed_over: bool,
    /// TLS is spoken there, in this name.
    pub identity: Option<Identity>,
    /// Peers of another user than this process's, but for the superuser, are turned away. Only of Unix
    /// sockets.
    pub same_user_only: bool,
    /// A request whose `Host` names something else than this server is refused: see [`Http::with_hosts`].
    pub known_hosts_only: bool,
}

/// HTTP/1.1 for one service on one reactor.
#[derive(Debug)]
pub struct Http<S: Service> {
    pub(crate) service: S,
    pub(crate) config: Config,
    pub(crate) heads: Heads,
    pub(crate) listeners: Listeners,
    pub(crate) secure: Secure,
    pub(crate) warnings: Warnings,
    /// Carries the timer that ends a drain.
    pub(crate) control: Key,
    pub(crate) admitted: Admitted,
    pub(crate) bodies: Bodies,
    pub(crate) load: Load,
    pub(crate) resting: Resting,
    pub(crate) cold: ColdReads,
    pub(crate) meters: Arc<Meters>,
    pub(crate) append_latency: AppendLatency,
    pub(crate) draining: bool,
    /// Answers that wait for the store.
    pub(crate) waiting: ByTicket<Waiting>,
    pub(crate) date: Date,
    pub(crate) staged: Staged,
    pub(crate) batch: SendBatch,
    pub(crate) fan_out: FanOut,
    pub(crate) later: Later,
    /// A list's memory, for the connections that are served one after the other.
    pub(crate) keys: Vec<Key>,
    /// Active parts' memory, for the connections that need one next.
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is kept: entries hold them")]
    pub(crate) spare: Vec<Box<Active<S::Topic>>>,
}

pub(crate) type HttpCore<S> = Core<Http<S>>;

impl<S: Service> Http<S> {
    /// Registers the listeners with the reactor. To be called while the reactor is built.
    ///
    /// # Errors
    /// Out of descriptors, or more than 256 listeners.
    pub fn new(
        core: &mut Core<Self>,
        service: S,
        config: Config,
        listeners: Vec<ListenerSettings>,
    ) -> io::Result<Self> {
        // Made now, so that a drain is not refused it.
        let control = core.insert_timer(Connection::new(Role::Control))?;
        let mut sockets = Vec::with_capacity(listeners.len());
        for (index, listening) in listeners.into_iter().enumerate() {
            let ListenerSettings {
                descriptor,
                shared,
                handed_over,
                identity,
                same_user_only,
                known_hosts_only,
            } = listening;
            let mut entry = Connection::new(Role::Listener);
            entry.flavour = u8::try_from(index).map_err(|_| io::Error::other("more than 256 listeners"))?;
            let interest = if shared { Interest::SHARED_LISTENER } else { Interest::READ };
            insert(core, descriptor, entry, interest)?;
            let acceptor = Acceptor::new()?;
            sockets.push(ListenSocket {
                acceptor,
                interest,
                identity,
                handed_over,
                same_user_only,
                known_hosts_only,
            });
        }
        Ok(Self {
            service,
            config,
            heads: Heads::new(config.head_limits),
            listeners: Listeners::new(sockets),
            secure: Secure::default(),
            warnings: Warnings::default(),
            control,
            admitted: Admitted::new(Arc::new(Places::new(config.connections_max))),
            bodies: Bodies::default(),
            load: Load::default(),
            resting: Resting::default(),
            cold: ColdReads::default(),
            meters: Arc::default(),
            append_latency: AppendLatency::default(),
            draining: false,
            waiting: ByTicket::new(),
            date: Date::at(core.wall_us()),
            staged: Staged::default(),
            batch: SendBatch::new(config.batched_sends),
            fan_out: FanOut::default(),
            later: Later::default(),
            keys: Vec::new(),
            spare: Vec::new(),
        })
    }

    /// Has cold reads done by `pool`; without one they are done in place.
    #[must_use]
    pub fn with_pool(mut self, pool: Pool) -> Self {
        self.cold.pool = Some(pool);
        self
    }

    /// Goes by these names, beside addresses and `localhost`, where a listener is for
    /// [known hosts only](ListenerSettings::known_hosts_only).
    #[must_use]
    pub fn with_hosts(mut self, hosts: Arc<[String]>) -> Self {
        self.listeners.hosts = Hosts::new(hosts);
        self
    }

    /// Counts where others read it.
    #[must_use]
    pub fn with_meters(self, meters: Arc<Meters>) -> Self {
        Self { meters, ..self }
    }

    /// Has as many connections as there are places, which other reactors take, too;
    /// [`Config::connections_max`] says how many there are in all.
    #[must_use]
    pub fn with_places(mut self, places: Arc<Places>) -> Self {
        self.admitted.places = places;
        self
    }

    /// The service.
    pub fn service(&mut self) -> &mut S {
        &mut self.service
    }

    /// Slab entries that are not connections: what the reactor's `entries_max` has to leave room for,
    /// beside [`Config::connections_max`], with some for peers that come when there is no room.
    pub fn entries_beside(listeners: usize) -> usize {
        4 + listeners + OVERFLOW_CONNECTIONS_MAX
    }
}

pub(crate) fn insert<S: Service>(
    core: &mut HttpCore<S>,
    descriptor: OwnedFd,
    entry: Connection<S::Topic>,
    interest: Interest,
) -> io::Result<Key> {
    core.insert(descriptor, entry, interest)
        .map_err(|_| io::Error::other("the reactor takes no more descriptors"))
}

impl<S: Service> Http<S> {
    pub(crate) fn now(core: &mut HttpCore<S>) -> Now {
        Now { time_us: core.wall_us(), entropy: core.entropy() }
    }

    /// Removes a connection, whatever state it is in.
    pub(crate) fn remove(&mut self, core: &mut HttpCore<S>, key: Key) {
        self.settle_batch(core, key);
        self.goodbye(core, key);
        let Some(removed) = core.remove(key) else { return };
        if removed.entry.secure {
            self.forget_secure(key);
        }
        if let Some(topic) = removed.last_topic {
            self.service.unwatch(&topic);
        }
        if let Some(active) = removed.entry.active {
            self.keep_spare(core, active);
        }
        self.load.leave(removed.entry.role);
        if removed.entry.role.is_connection() {
            self.admitted.leave(removed.entry.flags.has(Flags::OVERFLOW));
            self.meters.close();
            if self.draining && self.admitted.connections == 0 {
                core.stop();
            }
        }
    }

    /// Keeps what a connection owned for the next one.
    pub(crate) fn keep_spare(&mut self, core: &mut HttpCore<S>, mut active: Box<Active<S::Topic>>) {
        self.forget_later(&mut active);
        self.bodies.release(&mut active);
        self.load.unsent(active.output.bytes(), 0);
        self.load.stash(0, &mut active);
        let input = active.reset();
        if input.capacity() > 0 {
            core.give_buffer(input);
        }
        if self.spare.len() < SPARE_MAX {
            self.spare.push(active);
        }
    }

    /// Hands out the answers whose tickets are complete, then sends: one write per connection.
    fn complete(&mut self, core: &mut HttpCore<S>, up_to: u64) {
        let done = self.waiting.complete(up_to);
        let now_us = if done.len() > 0 { self.append_latency.moment_us(core) } else { 0 };
        let meters = &self.meters;
        let released = done.map(|waiting| {
            if succeeded(&waiting.reply) {
                meters.appends(1, now_us.saturating_sub(waiting.read_us));
            }
            (waiting.key, waiting.sequence, waiting.reply, None)
        });
        let keys = hand_out(core, released, std::mem::take(&mut self.keys));
        self.drive_each(core, keys);
    }

    /// The store failed: every answer that waits is replaced, and so are those that would from now on (see
    /// `place`).
    fn fail(&mut self, core: &mut HttpCore<S>) {
        let now = Self::now(core);
        let service = &mut self.service;
        let failed = self.waiting.fail().map(|waiting| {
            let Reply { response, manner } = &waiting.reply;
            let reply = Reply { response: service.failed_instead_of(response, now), manner: *manner };
            (waiting.key, waiting.sequence, reply, None)
        });
        let keys = hand_out(core, failed, std::mem::take(&mut self.keys));
        self.drive_each(core, keys);
    }

    /// Lets each of the connections go on, and keeps the list's memory.
    pub(crate) fn drive_each(&mut self, core: &mut HttpCore<S>, mut keys: Vec<Key>) {
        self.batch.begin(keys.len());
        for key in keys.drain(..) {
            self.with_active(core, key, Self::drive);
        }
        self.end_batch(core);
        self.keys = keys;
    }

    fn count(&self, core: &mut HttpCore<S>) -> ConnectionCounts {
        let keys: Vec<Key> = core.keys().collect();
        let mut counts = ConnectionCounts {
            waiting: self.waiting.len() + self.later.awaited.len(),
            cold: self.load.cold_reads(),
            rests: self.meters.rests(),
            calls: self.meters.calls(),
            ..ConnectionCounts::default()
        };
        for key in keys {
            counts.subscribed += usize::from(core.topic_of(key).is_some());
            let Some(entry) = core.entry(key) else { continue };
            if entry.role.is_connection() {
                counts.connections += 1;
                counts.quiet += usize::from(entry.is_quiet());
            }
        }
        counts
    }
}

/// Gives replies to the connections they belong to; the keys of those, each once per run of its replies.
pub(crate) fn hand_out<S: Service>(
    core: &mut HttpCore<S>,
    replies: impl Iterator<Item = (Key, Sequence, Reply, Option<u64>)>,
    mut keys: Vec<Key>,
) -> Vec<Key> {
    for (key, sequence, reply, later) in replies {
        let Some(active) = core.entry(key).and_then(|entry| entry.active.as_mut()) else { continue };
        active.awaited -= u32::from(reply.manner.writes);
        if let Some(later) = later {
            active.later.retain(|name| *name != later);
        }
        active.ready(sequence, reply);
        if keys.last() != Some(&key) {
            keys.push(key);
        }
    }
    keys
}

impl<S: Service> Handler for Http<S> {
    type Entry = Connection<S::Topic>;
    type Topic = S::Topic;
    type Message = Message;

    fn ready(&mut self, core: &mut Core<Self>, key: Key, readiness: Readiness) {
        self.append_latency.acted();
        self.batch.begin_turn(core.ready_left() + 1);
        let Some(role) = core.entry(key).map(|entry| entry.role) else { return };
        match role {
            Role::Control | Role::RestTimer | Role::Cold => {}
            Role::Attached => self.look(core),
            Role::Listener => {
                self.accept(core, key);
            }
            Role::Lingering => self.linger(core, key),
            Role::Request | Role::LongPoll | Role::Sse => {
                if (readiness.hangup() || readiness.error()) && !readiness.readable() {
                    return self.remove(core, key);
                }
                if readiness.writable() {
                    self.with_active(core, key, Self::resume_output);
                }
                if readiness.readable() {
                    self.with_active(core, key, Self::receive);
                }
            }
        }
    }

    fn glance(&mut self, core: &mut Core<Self>, key: Key) -> bool {
        let found = self.glance_at(core, key);
        if found {
            self.append_latency.acted();
        }
        found
    }

    fn message(&mut self, core: &mut Core<Self>, message: Message) {
        self.end_turn_batch(core);
        match message {
            Message::Complete { up_to } => self.complete(core, up_to),
            Message::Failed => self.fail(core),
            Message::Advanced { topic_id } => self.fan_out(core, topic_id),
            Message::Walk { topic_id } => self.resume_walk(core, topic_id),
            Message::Drain { grace_ms } => self.drain(core, grace_ms),
            Message::Configure(config) => {
                let Config { connections_max, overflow_connections_max, head_limits, .. } = self.config;
                self.config = Config { connections_max, overflow_connections_max, head_limits, ..*config };
            }
            // The thread that asked may have gone.
            Message::Count(sender) => drop(sender.send(self.count(core))),
            Message::Warmed { key } => self.warmed(core, key),
            Message::Look => self.look(core),
            Message::Resume { key } => self.resume(core, key),
        }
        self.append_latency.acted();
    }

    /// The service has something to look at.
    fn nudged(&mut self, core: &mut Core<Self>) {
        self.message(core, Message::Look);
    }

    fn turn_ended(&mut self, core: &mut Core<Self>) {
        // Answers leave first: no client waits for what the service does now.
        self.end_turn_batch(core);
        if self.later.owes_look {
            self.look(core);
        }
        self.service.turn_ended();
        self.account(core);
        self.secure.turn_ended();
        self.append_latency.turn_ended(core, &self.meters);
    }

    fn timer(&mut self, core: &mut Core<Self>, key: Key) {
        self.end_turn_batch(core);
        let Some(role) = core.entry(key).map(|entry| entry.role) else { return };
        match role {
            Role::Control => self.cut(core),
            Role::Attached => self.look(core),
            Role::RestTimer => self.end_rest(core),
            Role::Cold => self.ask_pool_again(core),
            Role::Listener => self.accept_again(core, key),
            Role::Lingering => self.remove(core, key),
            Role::Request => self.request_timer(core, key),
            Role::LongPoll | Role::Sse => self.live_timer(core, key),
        }
    }
}
