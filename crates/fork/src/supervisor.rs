//! The supervisor: which servers there are, and what becomes of them.
//!
//! It starts one program; every other server is a fork of an existing one. It adopts orphans (it is their
//! subreaper), so it learns of the end of each process, also of one that a copy forked. The control service
//! answers from the processes' threads; only a look at the table is done where a call came in.
//!
//! The table says what a process has confirmed. One that does not answer in time is a refusal `not_yet` where
//! it may still do as it was told, and the table follows when it has.

use crate::control::Control;
use crate::generated::server::ForksHandler;
use crate::generated::types::{
    ForksEmancipate, ForksEmancipateResponse, ForksFork, ForksForkResponse, ForksRebind, ForksRebindResponse,
    ForksServers, ForksServersResponse, ForksShutdown, ForksShutdownResponse, Process, commands,
};
use crate::keeper::{Job, Told, Undone, keep};
use crate::listener::{listen, listen_at, listen_beside, taken};
use crate::started::Started;
use crate::table::{Entry, Table};
use parking_lot::{Condvar, Mutex};
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Stdio};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use thalweg_sys::epoll::wait_readable;
use thalweg_sys::event::EventFd;
use thalweg_sys::fork;
use thalweg_wire::service::{Command, Responder};

/// Orders that may wait for a server's turn: some of them hold a descriptor of the supervisor's.
const WAITING_MAX: usize = 64;

/// What is started, and how long it may take.
#[derive(Debug)]
pub struct Options {
    /// The program, and its arguments.
    pub program: Vec<OsString>,
    /// Where it listens first.
    pub first: First,
    /// Servers at once, each a process.
    pub servers_max: usize,
    /// How long a process may take to do what it is told, ending included, before it is given up.
    pub patience: Duration,
}

/// Where a program listens first.
#[derive(Debug)]
pub enum First {
    /// At an address; port 0 for any.
    At(SocketAddr),
    /// At a listening TCP socket that another process made. Only the program may keep it from then on: in a
    /// duplicate, connections would wait to be accepted for ever once the program has moved.
    On(OwnedFd),
}

impl Options {
    /// For a program that listens first there.
    pub fn new(program: Vec<OsString>, first: First) -> Self {
        Self { program, first, servers_max: 1_024, patience: Duration::from_secs(10) }
    }
}

/// Looks after a program and its forks. Clones share one supervisor. A handler of `schemas/forks.jsonc`. When
/// the last clone is dropped, servers that are not emancipated notice it as they would the end of this
/// process, and end by themselves; [`Supervisor::end`] waits for that, and kills those that do not.
#[derive(Clone)]
pub struct Supervisor {
    shared: Arc<Shared>,
    /// The client of the control endpoint that calls, where it is known: see [`Control`].
    asker: Option<u64>,
}

struct Shared {
    servers_max: usize,
    patience: Duration,
    table: Mutex<Table>,
    /// Rung when a process has ended, or will not come.
    bell: EventFd,
    /// The same, for threads.
    gone: Condvar,
}

impl Shared {
    fn ring(&self) {
        self.gone.notify_all();
        // Fails only where the counter is full: then the descriptor is readable already.
        let _ = self.bell.signal();
    }

    /// Until when what is ordered now may take.
    fn until(&self) -> Instant {
        Instant::now() + self.patience
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.table.lock().servers.get_mut(&number) {
            change(entry);
        }
    }
}

/// A place for a server to come, given back unless it is filled.
struct Place(Option<Arc<Shared>>);

impl Place {
    fn fill(mut self, table: &mut Table) {
        self.0 = None;
        table.arrive();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.table.lock().arrive();
            // It may have been all that there was to wait for.
            shared.ring();
        }
    }
}

impl Supervisor {
    /// Starts the program and waits until it listens. From here on every child of this process, and every
    /// orphan of theirs, is waited for by it. Its first server is called `1`.
    ///
    /// # Errors
    /// There is no such program, or it did not come to listen; the system gives no process or descriptor.
    pub fn start(options: Options) -> io::Result<Self> {
        fork::adopt_orphans().map_err(at("adopt orphans"))?;
        fork::hear_children();
        let Options { program, first, servers_max, patience } = options;
        let Some((program, arguments)) = program.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no program to start"));
        };
        let (listener, address) = match first {
            First::At(address) => listen(address).map_err(at(&format!("listen at {address}")))?,
            First::On(listener) => taken(listener)?,
        };
        let (mut told, theirs) =
            Told::pair(Instant::now() + patience).map_err(at("make a pair of sockets"))?;
        // In a group of its own: a terminal's signal would end servers that are to be ended in good order.
        let started = process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::from(theirs))
            // They were this process's.
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDS")
            .process_group(0)
            .spawn()
            .map_err(at(&format!("start {}", Path::new(program).display())))?;
        let started = Started::new(started);
        if let Err(why) = told.listen_at(&listener, drop) {
            let program = Path::new(program).display();
            return Err(io::Error::other(format!(
                "{program} does not take orders as docs/forks.md has them: {why}"
            )));
        }
        // From here on it is the program's alone.
        drop(listener);
        let shared = Shared {
            servers_max,
            patience,
            table: Mutex::default(),
            bell: EventFd::new()?,
            gone: Condvar::new(),
        };
        let this = Self { shared: Arc::new(shared), asker: None };
        let place = this.take_place().map_err(io::Error::other)?;
        this.add(place, told, started.process(), address, None)?;
        SUPERVISORS.lock().push(Arc::downgrade(&this.shared));
        // Where it does not come, this one is let go of, and with it its place among them.
        std::thread::Builder::new().name("reaper".to_owned()).spawn(reap)?;
        started.hand_over();
        Ok(this)
    }

    /// What serves this supervisor at a control endpoint.
    pub fn control(&self) -> Control {
        Control(self.clone())
    }

    /// The same, as one client of the control endpoint has it.
    pub(crate) fn asked_by(&self, client: u64) -> Self {
        Self { shared: Arc::clone(&self.shared), asker: Some(client) }
    }

    /// A client says something: it is there, and takes its answers.
    pub(crate) fn heard_from(&self, client: u64) {
        self.shared.table.lock().unheard.retain(|_, asker| *asker != client);
    }

    /// A client is gone that has not read its answers: ends the copies that it asked for and never heard of.
    pub(crate) fn end_unheard(&self, client: u64) {
        let is_its = |(_, asker): &(&u64, &u64)| **asker == client;
        let copies: Vec<u64> =
            self.shared.table.lock().unheard.iter().filter(is_its).map(|(copy, _)| *copy).collect();
        copies.into_iter().for_each(|copy| self.end_copy(copy));
    }

    /// Ends a copy that nobody has heard of, in its thread.
    fn end_copy(&self, number: u64) {
        let this = self.clone();
        if let Some(entry) = self.shared.table.lock().servers.get(&number) {
            // One whose thread is gone has ended.
            let run = Box::new(move |told: &mut Told| drop(this.shut_down(told, number)));
            let _ = entry.jobs.send(Job { until: self.shared.until(), run });
        }
    }

    /// Where a server listens.
    pub fn address(&self, server: &str) -> Option<SocketAddr> {
        let number: u64 = server.parse().ok()?;
        self.shared.table.lock().servers.get(&number).map(|entry| entry.address)
    }

    /// Whether no server is left but emancipated ones, and none is to come.
    pub fn is_over(&self) -> bool {
        let table = self.shared.table.lock();
        table.coming == 0 && table.servers.values().all(|entry| entry.is_emancipated)
    }

    /// How the last server that ended did, if nobody had told it to and it did not end well: by a signal, or
    /// with another code than 0.
    pub fn lost(&self) -> Option<String> {
        self.shared.table.lock().lost.clone()
    }

    /// Readable when a process has ended or will not come since [`Supervisor::is_over`] was last asked for
    /// after [`Supervisor::heard`].
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    /// Has the descriptor wait for the next end.
    pub fn heard(&self) {
        // Nobody rang, then.
        let _ = self.shared.bell.clear();
    }

    /// Ends every server that was not emancipated: in good order, and by force what has not ended in time.
    /// One that was told to outlive this process and has not answered yet is left to do so.
    pub fn end(&self) {
        let until = self.shared.until();
        {
            let mut table = self.shared.table.lock();
            // A copy that comes now would be told by nobody to end.
            table.is_ending = true;
            for (number, entry) in table.servers.iter_mut().filter(|(_, entry)| !entry.is_emancipated) {
                entry.is_to_end = true;
                let (this, number) = (self.clone(), *number);
                // One whose thread is gone has ended.
                let run = Box::new(move |told: &mut Told| this.end_one(told, number));
                let _ = entry.jobs.send(Job { until, run });
            }
        }
        while !self.is_over() && Instant::now() < until {
            self.heard();
            if !self.is_over() {
                let left = until.saturating_duration_since(Instant::now());
                // A wait that fails is one that was short.
                let _ = wait_readable(self.descriptor(), u32::try_from(left.as_millis()).unwrap_or(u32::MAX));
            }
        }
        for entry in self.shared.table.lock().servers.values() {
            if !entry.is_emancipated && !entry.may_be_emancipated {
                // It may have ended just now.
                let _ = fork::kill(entry.process);
            }
        }
    }

    /// Ends a server in good order, in its thread, unless it turns out to be emancipated.
    fn end_one(&self, told: &mut Told, number: u64) {
        let is_settled = told.settle().is_ok();
        let is_held = |entry: &Entry| !entry.is_emancipated;
        let is_held = self.shared.table.lock().servers.get(&number).is_some_and(is_held);
        if is_settled && is_held {
            // What does not end now is ended by force.
            let _ = told.shutdown();
        }
    }

    /// Takes a server in, and says its number.
    fn add(
        &self,
        place: Place,
        told: Told,
        process: u32,
        address: SocketAddr,
        parent: Option<u64>,
    ) -> io::Result<u64> {
        let jobs = keep(told)?;
        let mut table = self.shared.table.lock();
        if table.unknown.remove(&process) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the process ended"));
        }
        if table.is_ending {
            return Err(io::Error::other("every server is being ended"));
        }
        place.fill(&mut table);
        table.last += 1;
        let number = table.last;
        let is_emancipated = false;
        let (may_be_emancipated, is_to_end, waiting) = (false, false, 0);
        let entry =
            Entry { process, address, parent, is_emancipated, may_be_emancipated, jobs, is_to_end, waiting };
        table.servers.insert(number, entry);
        table.unheard.extend(self.asker.map(|asker| (number, asker)));
        Ok(number)
    }

    /// Has the thread of a server do something, and answer with what comes of it.
    fn tell<C: Command + 'static>(
        &self,
        server: &str,
        responder: Responder<C>,
        job: impl FnOnce(&Self, &mut Told, u64, &Responder<C>) -> Result<C::Response<'static>, String>
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
        let run = Box::new(move |told: &mut Told| {
            this.shared.change(number, |entry| entry.waiting -= 1);
            // Nothing was begun, and nobody would hear of it: the responder says so by being dropped.
            if responder.is_cancelled() {
                return;
            }
            match job(&this, told, number, &responder) {
                Ok(response) => responder.ok(&response),
                Err(why) => responder.error(&why),
            }
        });
        // Where nobody takes it any more, the responder says so by being dropped.
        let _ = jobs.send(Job { until: self.shared.until(), run });
    }

    /// Listens at a free port beside a server, in its thread.
    fn listen_beside(&self, told: &mut Told, number: u64) -> Result<(OwnedFd, SocketAddr), String> {
        // What is late may be that it has moved.
        told.settle().map_err(|why| format!("not_forked: {why}"))?;
        let address = self.shared.table.lock().servers.get(&number).map(|entry| entry.address);
        let address = address.ok_or_else(|| format!("no_server: server {number} has ended"))?;
        listen_beside(address)
    }

    /// A place for one more server.
    fn take_place(&self) -> Result<Place, String> {
        let most = self.shared.servers_max;
        let mut table = self.shared.table.lock();
        if table.servers.len() + table.coming >= most {
            return Err(format!("servers_full: {most} servers run, and there may be no more"));
        }
        table.coming += 1;
        Ok(Place(Some(Arc::clone(&self.shared))))
    }

    /// Forks a server, in its thread. What goes wrong ends the copy, and nothing else.
    fn forked(
        &self,
        place: Place,
        parent: &mut Told,
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
        let copy = self.add(place, child, process, address, Some(number)).map_err(|error| failed(&error))?;
        if responder.is_cancelled() {
            // Who asked may have gone before there was anything to end.
            self.end_copy(copy);
            return Err(failed(&"nobody waits for the copy any more"));
        }
        Ok((copy, process))
    }

    /// Ends a copy by force that does not answer: whether it hears that nobody is at the other end of its
    /// line is not known.
    fn give_up(&self, process: u32, why: &Undone) {
        let table = self.shared.table.lock();
        if matches!(why, Undone::Late(_)) && !table.unknown.contains(&process) {
            // It may have ended just now.
            let _ = fork::kill(process);
        }
    }

    /// Ends a server: in good order, or by force if it does not obey, or closes its line and goes on. By
    /// force, calls that it had begun are lost.
    fn shut_down(&self, told: &mut Told, number: u64) -> Result<(), String> {
        self.shared.change(number, |entry| entry.is_to_end = true);
        if told.shutdown().is_err() || !self.is_gone_by(number, told.until()) {
            self.shared.change(number, |entry| drop(fork::kill(entry.process)));
        }
        if self.is_gone_by(number, self.shared.until()) {
            return Ok(());
        }
        Err("not_gone: the process does not end".to_owned())
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

    /// Waits until the kernel has said that a process is gone; whether it has in time.
    fn is_gone_by(&self, number: u64, until: Instant) -> bool {
        let mut table = self.shared.table.lock();
        while table.servers.contains_key(&number) {
            if self.shared.gone.wait_until(&mut table, until).timed_out() {
                return !table.servers.contains_key(&number);
            }
        }
        true
    }
}

/// The supervisors of this process. A wait for any child may return a child of another supervisor.
static SUPERVISORS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Reaps every child, whether or not a supervisor is left to be told.
fn reap() {
    while let Ok(Some((process, end))) = fork::await_any_child() {
        let mut supervisors = SUPERVISORS.lock();
        supervisors.retain(|shared| shared.strong_count() > 0);
        let living: Vec<_> = supervisors.iter().filter_map(Weak::upgrade).collect();
        drop(supervisors);
        let mut tables: Vec<_> = living.iter().map(|shared| shared.table.lock()).collect();
        tables.iter_mut().for_each(|table| table.ended(process, end));
        // From here on the kernel may reuse its process id, so the tables are locked and have lost it.
        fork::release(process);
        drop(tables);
        living.iter().for_each(|shared| shared.ring());
    }
}

/// The refusal of an order: by its own word where nothing was changed.
fn undone(word: &str, why: Undone) -> String {
    match why {
        Undone::Refused(why) => format!("{word}: {why}"),
        Undone::Late(why) => format!("not_yet: {why}; it may do as it was told when it comes to it"),
    }
}

/// Names what could not be done.
fn at(what: &str) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}

impl ForksHandler for Supervisor {
    fn fork(&self, request: ForksFork<'_>, responder: Responder<commands::Fork>) {
        let listening = || request.address.as_deref().map(listen_at).transpose();
        let (place, listening) = match self.take_place().and_then(|place| Ok((place, listening()?))) {
            Ok(ready) => ready,
            Err(why) => return responder.error(&why),
        };
        self.tell(&request.server, responder, move |this, told, parent, responder| {
            // Beside it as it is by now: orders that came before may have moved it.
            let listening = listening.map_or_else(|| this.listen_beside(told, parent), Ok)?;
            let address = listening.1;
            let (number, process) = this.forked(place, told, parent, listening, responder)?;
            let (server, address) = (number.to_string().into(), address.to_string().into());
            Ok(ForksForkResponse { server, address, process })
        });
    }

    fn rebind(&self, request: ForksRebind<'_>, responder: Responder<commands::Rebind>) {
        let (listener, address) = match listen_at(&request.address) {
            Ok(listening) => listening,
            Err(why) => return responder.error(&why),
        };
        self.tell(&request.server, responder, move |this, told, number, _| {
            let outcome = this.note(number, move |entry, has_moved| {
                if has_moved {
                    entry.address = address;
                }
            });
            told.listen_at(&listener, outcome).map_err(|why| undone("not_moved", why))?;
            Ok(ForksRebindResponse { address: address.to_string().into() })
        });
    }

    fn shutdown(&self, request: ForksShutdown<'_>, responder: Responder<commands::Shutdown>) {
        self.tell(&request.server, responder, |this, told, number, _| {
            this.shut_down(told, number)?;
            Ok(ForksShutdownResponse {})
        });
    }

    fn emancipate(&self, request: ForksEmancipate<'_>, responder: Responder<commands::Emancipate>) {
        self.tell(&request.server, responder, |this, told, number, _| {
            // The answer that is late may be to this same order, asked before.
            told.settle().map_err(|why| undone("not_emancipated", why))?;
            this.shared.change(number, |entry| entry.may_be_emancipated = true);
            let outcome = this.note(number, |entry, is_done| {
                entry.is_emancipated |= is_done;
                entry.may_be_emancipated = false;
            });
            told.emancipate(outcome).map_err(|why| undone("not_emancipated", why))?;
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

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let servers = self.shared.table.lock().servers.len();
        out.debug_struct("Supervisor").field("servers", &servers).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_sys::fork::End;

    #[test]
    fn ends_of_strangers_are_kept_only_while_one_may_be_a_server_to_come() {
        let mut table = Table::default();
        table.ended(7, End::Code(0));
        assert!(table.unknown.is_empty(), "its number may be a server's one day");
        table.coming = 2;
        table.ended(7, End::Code(0));
        assert!(table.unknown.contains(&7));
        table.arrive();
        assert!(table.unknown.contains(&7), "another is still to come");
        table.arrive();
        assert!(table.unknown.is_empty());
    }
}
