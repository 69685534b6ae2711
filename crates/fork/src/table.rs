//! The table of a supervisor's servers: plain data behind the supervisor's lock.
//!
//! Owns no process. A server is in the table from when it has confirmed that it listens until the kernel has
//! reported its end.

use crate::keeper::Job;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use thalweg_sys::fork::ExitStatus;

#[derive(Default)]
pub(crate) struct Table {
    pub(crate) servers: BTreeMap<u64, Entry>,
    pub(crate) last: u64,
    /// Places that are reserved for servers on their way. Each is filled or given up within the patience of
    /// the supervisor.
    pub(crate) coming: usize,
    /// Control services that there ever were.
    pub(crate) controls: u64,
    /// No server is added any more.
    pub(crate) is_ending: bool,
    /// Copies that nobody has named yet, nor given up, each with the call that it answers.
    pub(crate) unclaimed: BTreeMap<u64, Asked>,
    /// Processes that ended while a server was on its way, and are not in the table: the server may be one of
    /// them.
    pub(crate) unknown: HashSet<u32>,
    /// Copies that are not servers yet, or were given up, and have not ended.
    pub(crate) copies: BTreeSet<u32>,
    /// How the last server that ended did, if it had no order to end and crashed.
    pub(crate) lost: Option<String>,
}

/// A client: two control services of one supervisor may give theirs the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    /// The number of the control service.
    pub(crate) control: u64,
    /// The client's number there.
    pub(crate) client: u64,
}

/// The call that asked for a copy.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) client: Asker,
    /// The client's number for it.
    pub(crate) call: u64,
    /// The client has sent another call since, so it has read the answer, or gives this call up behind it.
    pub(crate) has_gone_on: bool,
}

pub(crate) struct Entry {
    pub(crate) process: u32,
    pub(crate) address: SocketAddr,
    pub(crate) parent: Option<u64>,
    pub(crate) is_emancipated: bool,
    /// It was ordered to outlive this process, and has not answered yet.
    pub(crate) may_be_emancipated: bool,
    pub(crate) jobs: Sender<Job>,
    /// It was ordered to end.
    pub(crate) is_to_end: bool,
    /// Orders of clients that wait in the server's queue.
    pub(crate) waiting: usize,
}

impl Table {
    /// Whether a process is a server.
    pub(crate) fn knows(&self, process: u32) -> bool {
        self.servers.values().any(|entry| entry.process == process)
    }

    /// A client sends a call. It has read the answer of an earlier one with the same number.
    pub(crate) fn hear(&mut self, client: Asker, call: u64) {
        self.unclaimed.retain(|_, asked| (asked.client, asked.call) != (client, call));
        for asked in self.unclaimed.values_mut().filter(|asked| asked.client == client) {
            asked.has_gone_on = true;
        }
    }

    /// A server on its way was added, or given up.
    pub(crate) fn arrive(&mut self) {
        self.coming -= 1;
        if self.coming == 0 {
            // The kernel may reuse their ids from here on, and none of them can be a server any more.
            self.unknown.clear();
        }
    }

    /// A child of this process has ended.
    pub(crate) fn ended(&mut self, process: u32, end: ExitStatus) {
        self.copies.remove(&process);
        let known = self.servers.iter().find(|(_, entry)| entry.process == process).map(|(n, _)| *n);
        match known {
            Some(number) => {
                let is_ordered = self.servers.remove(&number).is_some_and(|entry| entry.is_to_end);
                self.unclaimed.remove(&number);
                let is_well = is_ordered || end == ExitStatus::Code(0);
                self.lost = (!is_well).then(|| format!("server {number}, process {process}, {end}"));
            }
            None if self.coming > 0 => drop(self.unknown.insert(process)),
            None => {}
        }
    }
}
