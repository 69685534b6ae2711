//! Notes what a turn of the reactor brought, for the server to act on, and which rings are polled.
//!
//! The reactor calls a handler that lives as long as it does; a server's handler is borrowed for one run. So
//! the reactor's part only notes, and the server acts between turns ([`turn`](super::turn)).

use crate::server::connection::slot::{Client, Entry};
use std::convert::Infallible;
use thalweg_reactor::{BusyPoll, Core, Handler, Key, Readiness};

/// What a turn brought.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    pub(crate) ready: Vec<(Key, Readiness)>,
    pub(crate) timers: Vec<Key>,
    /// There are answers, or a notification for the handler.
    pub(crate) answers: bool,
    /// Other threads are at work on answers.
    pub(crate) working: bool,
    /// Rings whose peers make no system call, so that they have to be looked at.
    pub(crate) polled: Vec<Key>,
}

pub(crate) type ServerCore = Core<Collector>;

/// The client behind a key.
#[inline]
pub(crate) fn client(core: &mut ServerCore, key: Key) -> Option<&mut Client> {
    match core.entry(key)? {
        Entry::Client(client) => Some(client),
        _ => None,
    }
}

impl Collector {
    /// The client's rings are looked at from here on.
    pub(crate) fn poll_ring(&mut self, key: Key, client: &mut Client, turn: u64) {
        if let Some(ring) = &mut client.ring
            && !ring.polled
        {
            ring.polled = true;
            ring.active = turn;
            ring.end.wake_up();
            self.polled.push(key);
        }
    }
}

impl Handler for Collector {
    type Entry = Entry;
    type Topic = ();
    /// Other threads leave their answers in a shared queue and nudge.
    type Message = Infallible;

    fn ready(&mut self, _: &mut Core<Self>, key: Key, readiness: Readiness) {
        self.ready.push((key, readiness));
    }

    fn message(&mut self, _: &mut Core<Self>, message: Infallible) {
        match message {}
    }

    fn nudged(&mut self, _: &mut Core<Self>) {
        self.answers = true;
    }

    fn timer(&mut self, _: &mut Core<Self>, key: Key) {
        self.timers.push(key);
    }

    fn busy_poll(&mut self, core: &mut Core<Self>) -> BusyPoll {
        if self.polled.is_empty() {
            return BusyPoll::Asleep;
        }
        let mut sharing = false;
        for key in &self.polled {
            let Some(ring) = client(core, *key).and_then(|client| client.ring.as_mut()) else { continue };
            if ring.is_ready() {
                return BusyPoll::Ready;
            }
            ring.end.runs_here();
            sharing |= ring.end.shares_cpu();
        }
        match (sharing, self.working) {
            (_, true) => BusyPoll::Working,
            (true, false) => BusyPoll::Sharing,
            (false, false) => BusyPoll::Quiet,
        }
    }

    fn prepare_to_sleep(&mut self, core: &mut Core<Self>) -> bool {
        self.polled.retain(|key| {
            let ring = client(core, *key).and_then(|client| client.ring.as_mut());
            ring.is_some_and(|ring| {
                ring.polled = !ring.prepare_to_sleep();
                ring.polled
            })
        });
        self.polled.is_empty()
    }
}
