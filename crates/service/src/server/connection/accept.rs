//! Accepting clients.
//!
//! Over the bound of clients, and while the process has no descriptor left, the server accepts none: new
//! clients wait in the kernel's queue, and are accepted when another client leaves. Only other users are
//! turned away, where this one alone may connect: they are told so at once and take no place.

use crate::server::collector::ServerCore;
use crate::server::connection::slot::{Client, Entry};
use crate::server::engine::Engine;
use std::os::fd::{AsFd, BorrowedFd};
use thalweg_reactor::{Interest, Key};
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
    /// Nothing but shared memory.
    pub(crate) shared_only: bool,
    /// Leads to the listener for as long as it is kept.
    pub(crate) _path: Option<BoundPath>,
}

impl Engine {
    /// Accepts the clients that wait, as far as there is room for them.
    pub(crate) fn accept(&mut self, core: &mut ServerCore, index: usize) {
        let room = u64::from(self.options.clients_max).saturating_sub(self.statistics.clients);
        let limit = ACCEPTS_MAX.min(usize::try_from(room).unwrap_or(ACCEPTS_MAX));
        let Some(source) = self.sources.get_mut(index) else { return };
        if limit == 0 {
            self.crowded = true;
            let _ = core.set_interest(source.key, Interest::NONE);
            return;
        }
        let Some(listener) = core.descriptor(source.key) else { return };
        let mut came = Vec::new();
        let accepted = source.acceptor.accept(listener, limit, |connection| came.push(connection));
        self.statistics.reads += came.len() as u64;
        let (key, shared_only) = (source.key, source.shared_only);
        for connection in came {
            let stranger = self.options.same_user_only
                && !thalweg_transport::same_user(connection.as_fd()).unwrap_or(false);
            if stranger {
                self.turn_stranger_away(connection.as_fd());
                continue;
            }
            let entry = Entry::Client(Client::new(shared_only));
            if core.insert(connection, entry, Interest::READ).is_ok() {
                self.statistics.clients += 1;
            }
        }
        // Any other error of a listener is unlikely to be gone at once either.
        if accepted.is_err() || accepted.is_ok_and(|accepted| accepted.exhausted) {
            let _ = core.set_interest(key, Interest::NONE);
            core.set_timer(key, REST_MS);
        }
    }

    /// Says why, and nothing of the service.
    fn turn_stranger_away(&mut self, connection: BorrowedFd<'_>) {
        let fault = Fault::PermissionDenied as u16;
        let welcome = Welcome { version: VERSION, fault, ring_bytes: 0, credit: 0, schema: [0; 32] };
        self.statistics.writes += 1;
        // Nothing was sent on this socket before, so there is room, unless its client is gone.
        let _ = thalweg_transport::write(connection, &welcome.encode());
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
