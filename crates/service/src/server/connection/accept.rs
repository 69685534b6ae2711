//! Accepting clients.
//!
//! Over the bound of clients the server accepts none: new clients wait in the kernel's queue, and are
//! accepted when another client leaves. Those are turned away that come while the process has no descriptor
//! left, and other users where this one alone may connect: they are told why at once, and take no place.
//!
//! A client that connected and says nothing keeps its place only as long as nobody else needs it, once
//! [`hello_within`](crate::ServerOptions::hello_within) is over: it may be a plain one without a request yet.

use crate::server::collector::{Collector, ServerCore};
use crate::server::connection::slot::{Client, Entry};
use crate::server::engine::Engine;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use thalweg_reactor::{Interest, Key};
use thalweg_sys::socket;
use thalweg_transport::{Acceptor, BoundPath};
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{VERSION, Welcome};

/// Connections accepted from one listener in one turn.
const ACCEPTS_MAX: usize = 64;
/// How long a listener rests when there is no descriptor left.
const REST_MS: u32 = 50;

/// A listener.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) key: Key,
    pub(crate) acceptor: Acceptor,
    /// Its clients have to use shared memory.
    pub(crate) shared_only: bool,
    /// The path of the listener, which is removed when this is dropped.
    pub(crate) _path: Option<BoundPath>,
}

impl Engine {
    /// Accepts the clients that wait, as far as there is room for them.
    pub(crate) fn accept(&mut self, core: &mut ServerCore, collector: &mut Collector, index: usize) {
        if self.room() == 0 {
            self.dismiss_overdue(core, collector);
        }
        let limit = ACCEPTS_MAX.min(usize::try_from(self.room()).unwrap_or(ACCEPTS_MAX));
        let Some(source) = self.sources.get_mut(index) else { return };
        if limit == 0 {
            self.crowded = true;
            let _ = core.set_interest(source.key, Interest::NONE);
            return;
        }
        let Some(listener) = core.descriptor(source.key) else { return };
        let (key, shared_only, same_user_only) =
            (source.key, source.shared_only, self.options.same_user_only);
        let is_stranger = |connection: BorrowedFd<'_>| {
            same_user_only && !thalweg_transport::same_user(connection).unwrap_or(false)
        };
        let (mut came, mut shed) = (Vec::new(), 0);
        let admit = |connection| came.push(connection);
        let accepted = source.acceptor.accept_or(listener, limit, admit, &mut |connection| {
            shed += 1;
            let is_stranger = is_stranger(connection);
            turn_away(connection, if is_stranger { Fault::PermissionDenied } else { Fault::Overloaded });
        });
        self.statistics.reads += came.len() as u64 + shed;
        self.statistics.writes += shed;
        for connection in came {
            if is_stranger(connection.as_fd()) {
                self.statistics.writes += 1;
                turn_away(connection.as_fd(), Fault::PermissionDenied);
                continue;
            }
            let entry = Entry::Client(Client::new(shared_only));
            if let Ok(client) = core.insert(connection, entry, Interest::READ) {
                self.statistics.clients += 1;
                self.await_hello(core, client);
            }
        }
        let (lacks_descriptors, is_stuck) = match accepted {
            Ok(accepted) => (shed > 0 || accepted.exhausted, accepted.exhausted),
            // Any other error of a listener is unlikely to be gone at once either.
            Err(_) => (false, true),
        };
        let is_eased = lacks_descriptors && self.dismiss_overdue(core, collector);
        if is_stuck && !is_eased {
            let _ = core.set_interest(key, Interest::NONE);
            core.set_timer(key, REST_MS);
        }
    }

    /// How many clients more there may be.
    fn room(&self) -> u64 {
        u64::from(self.options.clients_max).saturating_sub(self.statistics.clients)
    }

    /// The client has a while from now on to say what it speaks.
    pub(crate) fn await_hello(&self, core: &mut ServerCore, key: Key) {
        // A time that no timer can be set to never passes.
        if let Ok(within_ms) = u32::try_from(self.options.hello_within.as_millis()) {
            core.set_timer(key, within_ms);
        }
    }

    /// The client's time to say what it speaks is over.
    pub(crate) fn miss_hello(&mut self, core: &mut ServerCore, collector: &mut Collector, key: Key) {
        if has_spoken(core, key) {
            return self.await_hello(core, key);
        }
        let Some(Entry::Client(client)) = core.entry(key) else { return };
        // Only one that said something has a box.
        if self.crowded || client.busy.is_some() {
            return self.lose(core, collector, key);
        }
        client.overdue = true;
        self.overdue.insert(key);
    }

    /// Another client needs a place: one that said nothing in time loses its own. Whether there was one.
    fn dismiss_overdue(&mut self, core: &mut ServerCore, collector: &mut Collector) -> bool {
        let silent = self.overdue.iter().copied().find(|key| !has_spoken(core, *key));
        silent.inspect(|key| self.lose(core, collector, *key)).is_some()
    }

    /// Accepts from a listener again.
    pub(crate) fn listen(&self, core: &mut ServerCore, index: usize) {
        if let Some(source) = self.sources.get(index) {
            let _ = core.set_interest(source.key, Interest::READ);
        }
    }

    /// A client left: others may come.
    pub(crate) fn let_in_again(&mut self, core: &mut ServerCore) {
        if std::mem::take(&mut self.crowded) {
            (0..self.sources.len()).for_each(|index| self.listen(core, index));
        }
    }
}

/// Tells a client why it is not taken, whatever it speaks, and nothing about the service.
fn turn_away(connection: BorrowedFd<'_>, fault: Fault) {
    let welcome =
        Welcome { version: VERSION, fault: fault as u16, ring_bytes: 0, credit: 0, schema: [0; 32] };
    // Nothing was sent on this socket before, so there is room, unless its client is gone.
    let _ = thalweg_transport::write(connection, &welcome.encode());
}

/// Whether something came of a client that was not read yet.
fn has_spoken(core: &ServerCore, key: Key) -> bool {
    let socket = core.descriptor(key);
    socket.is_some_and(|socket| socket::wait(socket, false, Some(Duration::ZERO)).is_ok_and(|is| is.readable))
}
