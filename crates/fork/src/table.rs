//! What a supervisor knows of its servers: plain words behind its lock.
//!
//! Owns no process. A server is in the table from when it has confirmed that it listens until the kernel has
//! said that it is gone.

use crate::keeper::Job;
use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use thalweg_sys::fork::End;

#[derive(Default)]
pub(crate) struct Table {
    pub(crate) servers: BTreeMap<u64, Entry>,
    pub(crate) last: u64,
    /// Places that are taken by servers to come. Each comes or is given up: whatever it waits for is waited
    /// for within patience.
    pub(crate) coming: usize,
    /// No server is added any more.
    pub(crate) is_ending: bool,
    /// Copies that no client may have heard of yet, each with the client that asked for it.
    pub(crate) unheard: BTreeMap<u64, u64>,
    /// Processes that ended and were no servers, while one is to come: it may be one of them.
    pub(crate) unknown: HashSet<u32>,
    /// How the last server that ended did, if nobody had told it to and it was not well.
    pub(crate) lost: Option<String>,
}

pub(crate) struct Entry {
    pub(crate) process: u32,
    pub(crate) address: SocketAddr,
    pub(crate) parent: Option<u64>,
    pub(crate) is_emancipated: bool,
    /// It was told to outlive this process, and what became of that is not known yet.
    pub(crate) may_be_emancipated: bool,
    pub(crate) jobs: Sender<Job>,
    /// It was told to end.
    pub(crate) is_to_end: bool,
    /// Orders of clients that wait for their turn.
    pub(crate) waiting: usize,
}

impl Table {
    /// Whether a process is a server.
    pub(crate) fn knows(&self, process: u32) -> bool {
        self.servers.values().any(|entry| entry.process == process)
    }

    /// A server came, or will not.
    pub(crate) fn arrive(&mut self) {
        self.coming -= 1;
        if self.coming == 0 {
            // Their numbers may be other processes' from here on.
            self.unknown.clear();
        }
    }

    /// A process has ended, whose parent is this one.
    pub(crate) fn ended(&mut self, process: u32, end: End) {
        let known = self.servers.iter().find(|(_, entry)| entry.process == process).map(|(n, _)| *n);
        match known {
            Some(number) => {
                let is_ordered = self.servers.remove(&number).is_some_and(|entry| entry.is_to_end);
                self.unheard.remove(&number);
                let is_well = is_ordered || end == End::Code(0);
                self.lost = (!is_well).then(|| format!("server {number}, process {process}, {end}"));
            }
            None if self.coming > 0 => drop(self.unknown.insert(process)),
            None => {}
        }
    }
}
