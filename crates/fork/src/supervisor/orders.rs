//! The control service's commands: each is an order to one server, carried out in that server's thread. Only
//! the table is looked at where a call comes in.

use super::{Slot, Supervisor};
use crate::generated::server::ForksHandler;
use crate::generated::types::{
    ForksEmancipate, ForksEmancipateResponse, ForksFork, ForksForkResponse, ForksRebind, ForksRebindResponse,
    ForksServers, ForksServersResponse, ForksShutdown, ForksShutdownResponse, Process, commands,
};
use crate::keeper::{Job, OrderChannel, OrderError};
use crate::listener::{listen_at, listen_beside};
use crate::table::Entry;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use thalweg_sys::fork;
use thalweg_wire::service::{Command, Responder};

/// Orders that may wait for a server's turn: some of them hold a descriptor of the supervisor's.
const WAITING_MAX: usize = 64;

impl ForksHandler for Supervisor {
    fn fork(&self, request: ForksFork<'_>, responder: Responder<commands::Fork>) {
        let listening = || request.address.as_deref().map(listen_at).transpose();
        let (slot, listening) = match self.take_slot().and_then(|slot| Ok((slot, listening()?))) {
            Ok(ready) => ready,
            Err(why) => return responder.error(&why),
        };
        self.tell(&request.server, responder, move |this, orders, parent, responder| {
            // Beside it as it is by now: orders that came before may have moved it.
            let listening = listening.map_or_else(|| this.listen_beside(orders, parent), Ok)?;
            let address = listening.1;
            let (number, process) = this.forked(slot, orders, parent, listening, responder)?;
            let (server, address) = (number.to_string().into(), address.to_string().into());
            Ok(ForksForkResponse { server, address, process })
        });
    }

    fn rebind(&self, request: ForksRebind<'_>, responder: Responder<commands::Rebind>) {
        let (listener, address) = match listen_at(&request.address) {
            Ok(listening) => listening,
            Err(why) => return responder.error(&why),
        };
        self.tell(&request.server, responder, move |this, orders, number, _| {
            let outcome = this.note(number, move |entry, has_moved| {
                if has_moved {
                    entry.address = address;
                }
            });
            orders.listen_at(&listener, outcome).map_err(|why| undone("not_moved", why))?;
            Ok(ForksRebindResponse { address: address.to_string().into() })
        });
    }

    fn shutdown(&self, request: ForksShutdown<'_>, responder: Responder<commands::Shutdown>) {
        self.tell(&request.server, responder, |this, orders, number, _| {
            this.shut_down(orders, number)?;
            Ok(ForksShutdownResponse {})
        });
    }

    fn emancipate(&self, request: ForksEmancipate<'_>, responder: Responder<commands::Emancipate>) {
        self.tell(&request.server, responder, |this, orders, number, _| {
            // The answer that is late may be to this same order, asked before.
            orders.settle().map_err(|why| undone("not_emancipated", why))?;
            this.shared.change(number, |entry| entry.may_be_emancipated = true);
            let outcome = this.note(number, |entry, is_done| {
                entry.is_emancipated |= is_done;
                entry.may_be_emancipated = false;
            });
            orders.emancipate(outcome).map_err(|why| undone("not_emancipated", why))?;
            Ok(ForksEmancipateResponse {})
        });
    }

    fn servers(&self, _: ForksServers, responder: Responder<commands::Servers>) {
        let process = |(number, entry): (&u64, &Entry)| Process {
            server: number.to_string().into(),
            address: entry.address.to_string().into(),
            process: entry.process,
            parent: entry.parent.map(|parent| parent.to_string().into()),
            emancipated: entry.is_emancipated,
        };
        let servers = {
            let mut table = self.shared.table.lock();
            // From here on somebody has heard of every one.
            table.unheard.clear();
            table.servers.iter().map(process).collect()
        };
        responder.ok(&ForksServersResponse { servers });
    }
}

impl Supervisor {
    /// Has the thread of a server do something, and answer with what comes of it.
    fn tell<C: Command + 'static>(
        &self,
        server: &str,
        responder: Responder<C>,
        job: impl FnOnce(&Self, &mut OrderChannel, u64, &Responder<C>) -> Result<C::Response<'static>, String>
        + Send
        + 'static,
    ) where
        Responder<C>: Send,
    {
        let named = |number: u64| {
            let mut table = self.shared.table.lock();
            // A client that names the copy has heard of it.
            table.unheard.remove(&number);
            let entry = table.servers.get_mut(&number)?;
            let has_room = entry.waiting < WAITING_MAX;
            entry.waiting += usize::from(has_room);
            Some((number, has_room.then(|| entry.jobs.clone())))
        };
        let (number, jobs) = match server.parse::<u64>().ok().and_then(named) {
            Some((number, Some(jobs))) => (number, jobs),
            Some((_, None)) => {
                return responder.error(&format!(
                    "orders_full: {WAITING_MAX} orders to server {server:?} wait, and there may be no more"
                ));
            }
            None => {
                return responder
                    .error(&format!("no_server: there is no server {server:?}: it ended, or never was"));
            }
        };
        let this = self.clone();
        let run = Box::new(move |orders: &mut OrderChannel| {
            this.shared.change(number, |entry| entry.waiting -= 1);
            // Nothing was begun, and nobody would hear of it: the responder says so by being dropped.
            if responder.is_cancelled() {
                return;
            }
            match job(&this, orders, number, &responder) {
                Ok(response) => responder.ok(&response),
                Err(why) => responder.error(&why),
            }
        });
        // Where nobody takes it any more, the responder says so by being dropped.
        let _ = jobs.send(Job { until: self.shared.until(), run });
    }

    /// Listens at a free port beside a server, in its thread.
    fn listen_beside(&self, orders: &mut OrderChannel, number: u64) -> Result<(OwnedFd, SocketAddr), String> {
        // What is late may be that it has moved.
        orders.settle().map_err(|why| format!("not_forked: {why}"))?;
        let address = self.shared.table.lock().servers.get(&number).map(|entry| entry.address);
        let address = address.ok_or_else(|| format!("no_server: server {number} has ended"))?;
        listen_beside(address)
    }

    /// Forks a server, in its thread. What goes wrong ends the copy, and nothing else.
    fn forked(
        &self,
        slot: Slot,
        parent: &mut OrderChannel,
        number: u64,
        (listener, address): (OwnedFd, SocketAddr),
        responder: &Responder<commands::Fork>,
    ) -> Result<(u64, u32), String> {
        // One that comes late is none: nobody is at the other end of its line.
        let failed = |why: &dyn std::fmt::Display| format!("not_forked: {why}");
        let (mut child, process) = parent.fork().map_err(|why| failed(&why))?;
        if self.shared.table.lock().knows(process) {
            return Err(failed(&format!("process {process} is a server already, and no copy")));
        }
        if let Err(why) = child.listen_at(&listener, drop) {
            self.give_up(process, &why);
            return Err(failed(&why));
        }
        if responder.is_cancelled() {
            // Nobody would know of it. It ends by itself: nobody is at the other end of its line.
            return Err(failed(&"nobody waits for the copy any more"));
        }
        let copy = self.add(slot, child, process, address, Some(number)).map_err(|error| failed(&error))?;
        if responder.is_cancelled() {
            // Who asked may have gone before there was anything to end.
            self.end_copy(copy);
            return Err(failed(&"nobody waits for the copy any more"));
        }
        Ok((copy, process))
    }

    /// Ends a copy by force that does not answer: whether it hears that nobody is at the other end of its
    /// line is not known.
    fn give_up(&self, process: u32, why: &OrderError) {
        let table = self.shared.table.lock();
        if matches!(why, OrderError::Late(_)) && !table.unknown.contains(&process) {
            // It may have ended just now.
            let _ = fork::kill(process);
        }
    }

    /// Notes the outcome of an order, which may be late. The note holds the supervisor weakly, so an order
    /// that is never answered does not keep it alive.
    fn note(
        &self,
        number: u64,
        note: impl FnOnce(&mut Entry, bool) + Send + 'static,
    ) -> impl FnOnce(bool) + Send + 'static {
        let shared = Arc::downgrade(&self.shared);
        move |is_done| {
            let Some(shared) = shared.upgrade() else { return };
            shared.change(number, |entry| note(entry, is_done));
            // The caller that waits until only emancipated servers are left may have waited for this.
            shared.ring();
        }
    }
}

/// The refusal of an order: by its own word where nothing was changed.
fn undone(word: &str, why: OrderError) -> String {
    match why {
        OrderError::Refused(why) => format!("{word}: {why}"),
        OrderError::Late(why) => format!("not_yet: {why}; it may do as it was told when it comes to it"),
    }
}
