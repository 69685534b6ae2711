//! The supervisor: starts a program, keeps the table of servers, and ends them.
//!
//! It starts one program; every other server is a fork of an existing one. It is the subreaper of its
//! descendants, so it learns of the end of each process, also of one that a copy forked. Each server leads a
//! process group of its own, so that what it has started is ended with it by force, and no other server is;
//! one that the system does not let lead a group is ended alone. Each has a thread that carries out its
//! orders and answers the control service's calls (`orders`).
//!
//! The table has what each process has confirmed. If a process does not answer in time and may still carry
//! out the order, the call is refused with `not_yet`, and the table changes once the answer comes.

mod child_guard;
mod orders;
mod reaper;

use self::child_guard::ChildGuard;
use crate::control::Control;
use crate::keeper::{Job, OrderChannel, keep};
use crate::listener::{listen, taken};
use crate::table::{Asked, Asker, Entry, Table};
use parking_lot::{Condvar, Mutex};
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_sys::epoll::wait_readable;
use thalweg_sys::event::EventFd;
use thalweg_sys::fork;

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
    /// Gives the start up once it is readable, such as a descriptor of signals: the program is ended by
    /// force. Without effect once the program listens.
    pub cancel: Option<OwnedFd>,
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
        Self { program, first, servers_max: 1_024, patience: Duration::from_secs(10), cancel: None }
    }
}

/// Looks after a program and its forks. Clones share one supervisor. A handler of `schemas/forks.jsonc`. When
/// the last clone is dropped, servers that are not emancipated notice it as they would the end of this
/// process, and end by themselves; [`Supervisor::end`] waits for that, and kills those that do not.
#[derive(Clone)]
pub struct Supervisor {
    shared: Arc<Shared>,
    /// The client of a control endpoint that calls, and its number for the call, if one does: see
    /// [`Control`].
    call: Option<(Asker, u64)>,
}

struct Shared {
    servers_max: usize,
    patience: Duration,
    table: Mutex<Table>,
    /// Signalled when a process has ended, and when a copy that was expected will not come.
    bell: EventFd,
    /// The same, for the threads of this process.
    gone: Condvar,
}

impl Shared {
    fn ring(&self) {
        self.gone.notify_all();
        // Fails only where the counter is full: then the descriptor is readable already.
        let _ = self.bell.signal();
    }

    /// The time limit of an order that comes in now.
    fn until(&self) -> Instant {
        Instant::now() + self.patience
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.table.lock().servers.get_mut(&number) {
            change(entry);
        }
    }
}

/// A place in the table that is reserved for a server on its way. Dropping it gives the place back.
struct Slot(Option<Arc<Shared>>);

impl Slot {
    fn fill(mut self, table: &mut Table) {
        self.0 = None;
        table.arrive();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.table.lock().arrive();
            // `end` may have waited for this server only.
            shared.ring();
        }
    }
}

impl Supervisor {
    /// Starts the program and waits until it listens. From here on every child of this process, and every
    /// orphan of theirs, is waited for by it. Its first server is called `1`.
    ///
    /// # Errors
    /// There is no such program, or it did not come to listen; `Interrupted`: [`Options::cancel`] gave the
    /// start up; the system gives no process or descriptor. Then the program is ended by force, with every
    /// process of its group.
    pub fn start(options: Options) -> io::Result<Self> {
        fork::adopt_orphans().map_err(at("adopt orphans"))?;
        fork::stop_ignoring_sigchld();
        let Options { program, first, servers_max, patience, cancel } = options;
        let Some((program, arguments)) = program.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no program to start"));
        };
        let (listener, address) = match first {
            First::At(address) => listen(address).map_err(at(&format!("listen at {address}")))?,
            First::On(listener) => taken(listener)?,
        };
        let shared = Shared {
            servers_max,
            patience,
            table: Mutex::default(),
            bell: EventFd::new()?,
            gone: Condvar::new(),
        };
        let this = Self { shared: Arc::new(shared), call: None };
        let slot = this.take_slot().map_err(io::Error::other)?;
        let (mut orders, theirs) =
            OrderChannel::pair(Instant::now() + patience).map_err(at("make a pair of sockets"))?;
        // In a group of its own: a terminal's signal would end servers that are to be ended in good order.
        let mut command = process::Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::from(theirs))
            // They name descriptors of this process.
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_FDNAMES")
            .process_group(0);
        let started = reaper::watch(&this.shared, || command.spawn())
            .map_err(at(&format!("start {}", Path::new(program).display())))?;
        // Holds the program's end of the line.
        drop(command);
        let started = ChildGuard::new(started);
        orders.cancel_by(cancel);
        if let Err(why) = orders.listen_at(&listener, drop) {
            // Then it is not the program that is to blame.
            if orders.is_cancelled()? {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "the start was cancelled"));
            }
            let program = Path::new(program).display();
            return Err(io::Error::other(format!(
                "{program} does not take orders as docs/forks.md has them: {why}"
            )));
        }
        orders.cancel_by(None);
        // From here on it is the program's alone.
        drop(listener);
        this.add(slot, orders, started.process(), address, None)?;
        reaper::run()?;
        started.hand_over();
        Ok(this)
    }

    /// The handler that serves this supervisor at a control endpoint. A supervisor may have several.
    pub fn control(&self) -> Control {
        let mut table = self.shared.table.lock();
        table.controls += 1;
        Control { supervisor: self.clone(), number: table.controls }
    }

    /// The same supervisor, for a call of a client of the control endpoint.
    pub(crate) fn for_call(&self, client: Asker, call: u64) -> Self {
        self.shared.table.lock().hear(client, call);
        Self { shared: Arc::clone(&self.shared), call: Some((client, call)) }
    }

    /// Ends the unclaimed copies that were asked for so.
    pub(crate) fn end_unclaimed(&self, is_unknown: impl Fn(&Asked) -> bool) {
        let mut table = self.shared.table.lock();
        let unclaimed = table.unclaimed.iter().filter(|(_, asked)| is_unknown(asked));
        let copies: Vec<u64> = unclaimed.map(|(copy, _)| *copy).collect();
        copies.into_iter().for_each(|copy| self.end_copy(&mut table, copy));
    }

    /// Ends a copy that no client knows of. Its thread does the work.
    fn end_copy(&self, table: &mut Table, number: u64) {
        // However often its client gives it up while it ends, it is told once.
        table.unclaimed.remove(&number);
        let this = self.clone();
        if let Some(entry) = table.servers.get(&number) {
            // A server whose thread has ended is gone.
            let run = Box::new(move |orders: &mut OrderChannel| drop(this.shut_down(orders, number)));
            let _ = entry.jobs.send(Job { until: self.shared.until(), run });
        }
    }

    /// Where a server listens.
    pub fn address(&self, server: &str) -> Option<SocketAddr> {
        let number: u64 = server.parse().ok()?;
        self.shared.table.lock().servers.get(&number).map(|entry| entry.address)
    }

    /// Whether only emancipated servers are left, and no copy is on its way.
    pub fn is_over(&self) -> bool {
        let table = self.shared.table.lock();
        table.coming == 0 && table.servers.values().all(|entry| entry.is_emancipated)
    }

    /// How the last server that ended did, if it had no order to end and ended by a signal or with another
    /// code than 0.
    pub fn lost(&self) -> Option<String> {
        self.shared.table.lock().lost.clone()
    }

    /// Readable when a process has ended, or a copy that was expected will not come, since the last
    /// [`Supervisor::heard`]. Call [`Supervisor::is_over`] after that.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    /// Makes the descriptor unreadable until the next such event.
    pub fn heard(&self) {
        // An error means that there was nothing to clear.
        let _ = self.shared.bell.clear();
    }

    /// Ends every server that was not emancipated: in good order, and by force those that have not ended in
    /// time ([`Supervisor::end_by_force`]).
    pub fn end(&self) {
        let until = self.order_end();
        while !self.is_over() && Instant::now() < until {
            self.heard();
            if !self.is_over() {
                let left = until.saturating_duration_since(Instant::now());
                // A wait that fails counts as a short one.
                let _ = wait_readable(self.descriptor(), u32::try_from(left.as_millis()).unwrap_or(u32::MAX));
            }
        }
        self.end_by_force();
    }

    /// Orders every server to end that was not emancipated, and returns when their time is over. Does not
    /// wait for them: see [`Supervisor::descriptor`]. From here on no copy becomes a server.
    pub fn order_end(&self) -> Instant {
        let until = self.shared.until();
        let mut table = self.shared.table.lock();
        // No order to end would reach a copy that is added from here on.
        table.is_ending = true;
        for (number, entry) in table.servers.iter_mut().filter(|(_, entry)| !entry.is_emancipated) {
            entry.is_to_end = true;
            let (this, number) = (self.clone(), *number);
            // A server whose thread has ended is gone.
            let run = Box::new(move |orders: &mut OrderChannel| this.end_one(orders, number));
            let _ = entry.jobs.send(Job { until, run });
        }
        until
    }

    /// Ends by force every server that was not emancipated, each with its process group, and copies that are
    /// no servers. A server that was ordered to outlive this process and has not answered yet is not ended.
    pub fn end_by_force(&self) {
        let mut table = self.shared.table.lock();
        table.is_ending = true;
        let is_held = |entry: &&mut Entry| !entry.is_emancipated && !entry.may_be_emancipated;
        for entry in table.servers.values_mut().filter(is_held) {
            entry.is_to_end = true;
            end_by_force(entry.process);
        }
        table.copies.iter().copied().for_each(end_by_force);
    }

    /// Ends a server in good order, in its thread, unless it turns out to be emancipated.
    fn end_one(&self, orders: &mut OrderChannel, number: u64) {
        let is_settled = orders.settle().is_ok();
        let is_held = |entry: &Entry| !entry.is_emancipated;
        let is_held = self.shared.table.lock().servers.get(&number).is_some_and(is_held);
        if is_settled && is_held {
            // If it does not end, `end` kills it.
            let _ = orders.shutdown();
        }
    }

    /// Adds a server to the table, and returns its number.
    fn add(
        &self,
        slot: Slot,
        orders: OrderChannel,
        process: u32,
        address: SocketAddr,
        parent: Option<u64>,
    ) -> io::Result<u64> {
        let jobs = keep(orders)?;
        let mut table = self.shared.table.lock();
        if table.unknown.remove(&process) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the process ended"));
        }
        if table.is_ending {
            return Err(io::Error::other("every server is being ended"));
        }
        slot.fill(&mut table);
        table.copies.remove(&process);
        table.last += 1;
        let number = table.last;
        let is_emancipated = false;
        let (may_be_emancipated, is_to_end, waiting) = (false, false, 0);
        let entry =
            Entry { process, address, parent, is_emancipated, may_be_emancipated, jobs, is_to_end, waiting };
        table.servers.insert(number, entry);
        let asked = self.call.map(|(client, call)| Asked { client, call, has_gone_on: false });
        table.unclaimed.extend(asked.map(|asked| (number, asked)));
        Ok(number)
    }

    /// Reserves a place for one more server.
    fn take_slot(&self) -> Result<Slot, String> {
        let most = self.shared.servers_max;
        let mut table = self.shared.table.lock();
        if table.servers.len() + table.coming >= most {
            return Err(format!("servers_full: {most} servers run, and there may be no more"));
        }
        table.coming += 1;
        Ok(Slot(Some(Arc::clone(&self.shared))))
    }

    /// Ends a server: in good order, or by force if it refuses, or still runs when its time is over. If it is
    /// ended by force, the calls that it had begun are lost.
    fn shut_down(&self, orders: &mut OrderChannel, number: u64) -> Result<(), String> {
        self.shared.change(number, |entry| entry.is_to_end = true);
        if orders.shutdown().is_err() || !self.is_gone_by(number, orders.until()) {
            self.shared.change(number, |entry| end_by_force(entry.process));
        }
        if self.is_gone_by(number, self.shared.until()) {
            return Ok(());
        }
        Err("not_gone: the process does not end".to_owned())
    }

    /// Waits until the kernel has reported the end of a server; whether it has by then.
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

/// Ends a server by force, with every process of the group that it leads. The table is locked, and has it: so
/// its number is its own.
fn end_by_force(process: u32) {
    // An error means that it leads no group any more, or that all of the group has ended.
    let _ = fork::kill_group(process);
    // It may have left the group that it led.
    let _ = fork::kill(process);
}

/// Adds what could not be done to an error.
fn at(what: &str) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("cannot {what}: {error}"))
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
    use thalweg_sys::fork::ExitStatus;

    /// The servers have no threads here: what is sent to them stays where it can be counted.
    #[test]
    fn a_copy_that_ends_slowly_is_told_once_however_often_it_is_given_up() {
        let shared = Shared {
            servers_max: 2,
            patience: Duration::from_secs(60),
            table: Mutex::default(),
            bell: EventFd::new().unwrap(),
            gone: Condvar::new(),
        };
        let supervisor = Supervisor { shared: Arc::new(shared), call: None };
        let (sender, jobs) = std::sync::mpsc::channel();
        let client = Asker { control: 1, client: 7 };
        for number in [2, 3] {
            let entry = Entry {
                process: 0,
                address: "127.0.0.1:0".parse().unwrap(),
                parent: None,
                is_emancipated: false,
                may_be_emancipated: false,
                jobs: sender.clone(),
                is_to_end: false,
                waiting: 0,
            };
            let mut table = supervisor.shared.table.lock();
            table.servers.insert(number, entry);
            table.unclaimed.insert(number, Asked { client, call: number, has_gone_on: false });
        }
        let give_up = |call| {
            supervisor.end_unclaimed(|asked| (asked.client, asked.call) == (client, call));
            jobs.try_iter().count()
        };
        assert_eq!([give_up(2), give_up(2), give_up(2)], [1, 0, 0]);
        // As its own thread does where it sees that the call was given up.
        supervisor.end_copy(&mut supervisor.shared.table.lock(), 3);
        assert_eq!((jobs.try_iter().count(), give_up(3)), (1, 0));
    }

    #[test]
    fn ends_of_strangers_are_kept_only_while_one_may_be_a_server_to_come() {
        let mut table = Table::default();
        table.ended(7, ExitStatus::Code(0));
        assert!(table.unknown.is_empty(), "its number may be a server's one day");
        table.coming = 2;
        table.ended(7, ExitStatus::Code(0));
        assert!(table.unknown.contains(&7));
        table.arrive();
        assert!(table.unknown.contains(&7), "another is still to come");
        table.arrive();
        assert!(table.unknown.is_empty());
    }
}
