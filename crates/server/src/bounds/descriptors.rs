//! How many connections the limit of descriptors leaves room for, when everything else that the server opens
//! has its own.
//!
//! Each reactor, listener, service here and elsewhere, and file of the store is counted before any is opened.
//! Of what is left, a part stays free for what comes while the server runs: segments as the log grows, those
//! that are gone while somebody is still being sent some of them, webhooks, clients of services on this
//! machine, and overflow connections, which are told that there is no room. The rest is for connections, so
//! that the number that is said is one that can be had.

use crate::command_line::{Durability, ServeOptions, Switch};
use crate::layers::rpc::ServiceSpec;
use std::fs;
use std::path::Path;
use thalweg_http::OVERFLOW_CONNECTIONS_MAX;

/// Descriptors that stay free, where there are enough to choose.
pub(crate) const BESIDE: u64 = 512;
/// Of what is left when there are not, one in so many stays free.
const BESIDE_PARTS: u64 = 4;
/// A reactor's epoll, what wakes it, what ends its drain, and its ring.
const EACH_REACTOR: u64 = 4;
/// A listener, and what is kept in reserve for it.
const EACH_LISTENER: u64 = 2;
/// A reactor's connection to a service elsewhere: its socket, what watches it, a timer, and the duplicate
/// that the reactor watches.
const EACH_ELSEWHERE: u64 = 4;
/// The services on this machine: reactors, listeners, and the paths these lie under.
const SERVICES: u64 = 16;
/// Signals, the store's lock and marks, webhooks' reactor, and files that are read for a moment.
const OWN: u64 = 16;

/// What is opened whatever happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Open already.
    pub(crate) open: u64,
    pub(crate) reactors: u64,
    /// Listeners in all, over all reactors.
    pub(crate) listeners: u64,
    pub(crate) services: bool,
    /// Connections to services elsewhere, over all reactors.
    pub(crate) elsewhere: u64,
    /// Files of the store.
    pub(crate) files: u64,
}

/// How many connections there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// On all reactors together.
    pub(crate) connections: usize,
    /// On each reactor.
    pub(crate) overflow_connections: usize,
}

/// There is not room for a single connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooFew {
    pub(crate) limit: u64,
    /// The least that serving takes.
    pub(crate) needed: u64,
}

impl Needs {
    /// What a server with these options opens, with so many reactors that each listen at so many `places`,
    /// and one more that serves JSON-RPC if it has places of its own.
    pub(crate) fn of(options: &ServeOptions, reactors: usize, places: usize) -> Self {
        let (reactors, places) = (reactors as u64, places as u64);
        let rpc_places = options.rpc_listen.len() as u64;
        let elsewhere =
            options.rpc.iter().filter(|wish| matches!(wish, ServiceSpec::Elsewhere { .. })).count() as u64;
        // With a listener of their own they are called by its reactor alone.
        let callers = if rpc_places > 0 { 1 } else { reactors };
        let on_disk = options.durability != Durability::Memory;
        Self {
            open: entries(Path::new("/proc/self/fd")),
            reactors: reactors + u64::from(rpc_places > 0),
            listeners: reactors * places + rpc_places,
            services: on_disk && options.services == Switch::On,
            elsewhere: elsewhere * callers,
            files: if on_disk { entries(&options.data) } else { 0 },
        }
    }

    /// Descriptors that it comes to, one overflow connection of each reactor included.
    fn sum(&self) -> u64 {
        let services = if self.services { SERVICES } else { 0 };
        let reactors = self.reactors * (EACH_REACTOR + 1) + self.listeners * EACH_LISTENER;
        self.open + OWN + self.files + services + self.elsewhere * EACH_ELSEWHERE + reactors
    }

    /// What there is room for where `limit` descriptors may be open and `wanted` connections are wanted in
    /// all.
    ///
    /// # Errors
    /// Not even for one.
    pub(crate) fn capacity(&self, limit: u64, wanted: u64) -> Result<Capacity, TooFew> {
        let left = limit.saturating_sub(self.sum());
        let beside = (left / BESIDE_PARTS).min(BESIDE);
        let connections = (left - beside).min(wanted);
        if connections == 0 {
            return Err(TooFew { limit, needed: self.sum() + 1 });
        }
        let overflow = (beside / BESIDE_PARTS / self.reactors).clamp(1, OVERFLOW_CONNECTIONS_MAX as u64);
        let count = |number| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Capacity { connections: count(connections), overflow_connections: count(overflow) })
    }
}

/// Entries of a directory; none where there is none.
fn entries(directory: &Path) -> u64 {
    fs::read_dir(directory).map_or(0, |entries| entries.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs = Needs { open: 4, reactors: 2, listeners: 2, services: true, elsewhere: 0, files: 6 };
    /// 4 and 6, 16 for itself and 16 for services, 10 for reactors and 4 for listeners.
    const SUM: u64 = 56;

    #[test]
    fn everything_that_is_opened_is_counted() {
        assert_eq!(NEEDS.sum(), SUM);
        assert_eq!(Needs { services: false, ..NEEDS }.sum(), SUM - 16);
        assert_eq!(Needs { files: 1_000, ..NEEDS }.sum(), SUM + 994);
        assert_eq!(Needs { elsewhere: 16 * 14, ..NEEDS }.sum(), SUM + 896);
    }

    #[test]
    fn connections_get_what_is_left_and_never_more() {
        let capacity = |limit, wanted| NEEDS.capacity(limit, wanted).unwrap();
        assert_eq!(capacity(1_000_000, 65_536), Capacity { connections: 65_536, overflow_connections: 64 });
        assert_eq!(capacity(1_000_000, 1), Capacity { connections: 1, overflow_connections: 64 });
        assert_eq!(
            capacity(SUM + 512 + 20_000, 65_536),
            Capacity { connections: 20_000, overflow_connections: 64 }
        );
        for limit in SUM + 1..5_000 {
            let Capacity { connections, overflow_connections } = capacity(limit, 65_536);
            assert!((1..=64).contains(&overflow_connections));
            // One overflow connection of each reactor is counted with what is needed.
            let taken = SUM + (connections + 2 * (overflow_connections - 1)) as u64;
            assert!(taken <= limit, "{limit}: {connections} and {overflow_connections} take {taken}");
        }
    }

    #[test]
    fn where_there_is_room_for_nobody_it_is_said_how_many_it_takes() {
        for limit in [0, 20, SUM] {
            let too_few = NEEDS.capacity(limit, 100).unwrap_err();
            assert_eq!(too_few.limit, limit);
            assert!(NEEDS.capacity(too_few.needed, 100).is_ok());
        }
    }

    #[test]
    fn what_is_open_is_seen() {
        let before = entries(Path::new("/proc/self/fd"));
        let _held = fs::File::open("/proc/self/status").unwrap();
        assert!(before > 0 && entries(Path::new("/proc/self/fd")) > 0);
        assert_eq!(entries(Path::new("/nowhere")), 0);
    }
}
