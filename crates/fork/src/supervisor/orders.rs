//! The control service's commands. All but `Servers` are orders to one server, and are carried out in that
//! server's thread. The thread that receives a call only looks at the table.

use super::{Slot, Supervisor, end_by_force};
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
use thalweg_wire::service::{Command, Responder};

/// Why a copy is not kept that was forked in time.
const NO_CLIENT: &str = "the client that asked for the copy has given up";

/// The most orders that may wait for one server. Some of them hold a descriptor of the supervisor's.
const WAITING_MAX: usize = 64;

impl ForksHandler for Supervisor {
    fn fork(&self, request: ForksFork<'_>, responder: Responder<commands::Fork>) {
        let listening = || request.address.as_deref().map(listen_at).transpose();
        let (slot, listening) = match self.take_slot().and_then(|slot| Ok((slot, listening()?))) {
            Ok(ready) => ready,
            Err(why) => return responder.error(&why),
        };
        self.submit(&request.server, responder, move |this, orders, parent, responder| {
            // At the parent's address when the order's turn comes: an earlier order may have moved it.
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
        self.submit(&request.server, responder, move |this, orders, number, _| {
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
        self.submit(&request.server, responder, |this, orders, number, _| {
            this.shut_down(orders, number)?;
            Ok(ForksShutdownResponse {})
        });
    }

    fn emancipate(&self, request: ForksEmancipate<'_>, responder: Responder<commands::Emancipate>) {
        self.submit(&request.server, responder, |this, orders, number, _| {
            // An overdue answer may be that to an earlier `emancipate`, whose outcome has to be noted first.
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
            // The client learns of every copy.
            table.unclaimed.clear();
            table.servers.iter().map(process).collect()
        };
        responder.ok(&ForksServersResponse { servers });
    }
}

impl Supervisor {
    /// Queues a job for the thread of a server. The thread answers the call with the job's outcome.
    fn submit<C: Command + 'static>(
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
            // A client that names a copy knows of it.
            table.unclaimed.remove(&number);
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
            // The client has given up, and nothing was begun. Dropping the responder answers the call.
            if responder.is_cancelled() {
                return;
            }
            match job(&this, orders, number, &responder) {
                Ok(response) => responder.ok(&response),
                Err(why) => responder.error(&why),
            }
        });
        // If the thread has ended, the job is dropped, and its responder with it, which answers the call.
        let _ = jobs.send(Job { until: self.shared.until(), run });
    }

    /// Opens a listener at a free port of a server's address. Runs in the server's thread.
    fn listen_beside(&self, orders: &mut OrderChannel, number: u64) -> Result<(OwnedFd, SocketAddr), String> {
        // An overdue answer may be that to a `rebind`, which changes the address.
        orders.settle().map_err(|why| format!("not_forked: {why}"))?;
        let address = self.shared.table.lock().servers.get(&number).map(|entry| entry.address);
        let address = address.ok_or_else(|| format!("no_server: server {number} has ended"))?;
        listen_beside(address)
    }

    /// Forks a server. Runs in the server's thread. A failure ends the copy, and leaves the parent as it was.
    fn forked(
        &self,
        slot: Slot,
        parent: &mut OrderChannel,
        number: u64,
        (listener, address): (OwnedFd, SocketAddr),
        responder: &Responder<commands::Fork>,
    ) -> Result<(u64, u32), String> {
        // A copy that appears after the time limit finds its line closed, and ends by itself.
        let failed = |why: &dyn std::fmt::Display| format!("not_forked: {why}");
        let (mut child, process) = parent.fork().map_err(|why| failed(&why))?;
        {
            let mut table = self.shared.table.lock();
            if table.knows(process) {
                return Err(failed(&format!("process {process} is a server already, and no copy")));
            }
            if !table.unknown.contains(&process) {
                if table.is_ending {
                    end_by_force(process);
                    return Err(failed(&"every server is being ended"));
                }
                table.copies.insert(process);
            }
        }
        if let Err(why) = child.listen_at(&listener, drop) {
            self.give_up(process, &why);
            return Err(failed(&why));
        }
        if responder.is_cancelled() {
            // No client would know of the copy. It ends by itself, because its line is closed here.
            return Err(failed(&NO_CLIENT));
        }
        let copy = self.add(slot, child, process, address, Some(number)).map_err(|error| failed(&error))?;
        if responder.is_cancelled() {
            // Perhaps before the table had the copy, so nothing has ended it yet. A client that gives up from
            // here on finds it there.
            self.end_copy(&mut self.shared.table.lock(), copy);
            return Err(failed(&NO_CLIENT));
        }
        Ok((copy, process))
    }

    /// Ends a copy by force if it did not answer in time: it may hang, and never notice that its line is
    /// closed.
    fn give_up(&self, process: u32, why: &OrderError) {
        let table = self.shared.table.lock();
        if matches!(why, OrderError::Late(_)) && table.copies.contains(&process) {
            end_by_force(process);
        }
    }

    /// A callback that notes the outcome of an order in the table, however late the outcome is known. It
    /// holds the supervisor weakly, so that an order that is never answered does not keep it alive.
    fn note(
        &self,
        number: u64,
        note: impl FnOnce(&mut Entry, bool) + Send + 'static,
    ) -> impl FnOnce(bool) + Send + 'static {
        let shared = Arc::downgrade(&self.shared);
        move |is_done| {
            let Some(shared) = shared.upgrade() else { return };
            shared.change(number, |entry| note(entry, is_done));
            // `end` waits until only emancipated servers are left, and this may have been the last other one.
            shared.ring();
        }
    }
}

/// The refusal of an order: its own code if it will not be carried out, and `not_yet` if it may be.
fn undone(code: &str, why: OrderError) -> String {
    match why {
        OrderError::Refused(why) => format!("{code}: {why}"),
        OrderError::Late(why) => format!("not_yet: {why}; the server may still carry out the order"),
    }
}
