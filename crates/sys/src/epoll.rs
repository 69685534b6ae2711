//! The kernel's readiness list: which descriptors can be read or written without blocking.
//!
//! An [`Epoll`] names each descriptor by a 64-bit token of its owner's choosing; [`Epoll::wait`] fills a
//! reusable [`Events`] and allocates nothing.

use crate::socket::wait;
use rustix::event::Timespec;
use rustix::event::epoll as kernel;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// What to report of a descriptor, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// Report when it can be read (data, end of stream, a connection to accept).
    pub readable: bool,
    /// Report when it can be written.
    pub writable: bool,
    /// Report only changes, not the state: a descriptor that stays ready is reported once.
    pub edge: bool,
    /// Of several epolls that watch one descriptor, wake only some (`EPOLLEXCLUSIVE`): for a listener
    /// shared by threads. Such a registration cannot be modified, only deleted and added anew.
    pub exclusive: bool,
}

impl Watch {
    /// For reading alone.
    pub const READ: Self = Self { readable: true, writable: false, edge: false, exclusive: false };
    /// For writing alone.
    pub const WRITE: Self = Self { readable: false, writable: true, edge: false, exclusive: false };
    /// For both.
    pub const BOTH: Self = Self { readable: true, ..Self::WRITE };

    fn flags(self) -> kernel::EventFlags {
        let mut flags = kernel::EventFlags::empty();
        flags.set(kernel::EventFlags::IN, self.readable);
        flags.set(kernel::EventFlags::OUT, self.writable);
        flags.set(kernel::EventFlags::ET, self.edge);
        flags.set(kernel::EventFlags::EXCLUSIVE, self.exclusive);
        flags
    }
}

/// One report. Error and hang-up are reported whether watched for or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token the descriptor was added with.
    pub token: u64,
    /// A read will not block.
    pub readable: bool,
    /// A write will not block.
    pub writable: bool,
    /// Both directions are shut.
    pub hangup: bool,
    /// An error is pending on the descriptor.
    pub error: bool,
}

/// Room for the reports of one wait, reused by the next.
pub struct Events {
    list: Vec<kernel::Event>,
}

// SAFETY: a report is plain data. The kernel's type could carry a pointer, which nobody here stores or
// follows: the token of a watch is always a number.
unsafe impl Send for Events {}
// SAFETY: as above; a shared reference only copies numbers out.
unsafe impl Sync for Events {}

impl Events {
    /// Room for at most `capacity` reports per wait.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { list: Vec::with_capacity(capacity.max(1)) }
    }

    /// How many reports the last wait brought.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the last wait brought none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// The report at `index`, `None` past the end.
    pub fn at(&self, index: usize) -> Option<Event> {
        self.list.get(index).map(|event| {
            // The kernel's struct is packed: copy its fields before looking at them.
            let (flags, data) = (event.flags, event.data);
            Event {
                token: data.u64(),
                readable: flags.contains(kernel::EventFlags::IN),
                writable: flags.contains(kernel::EventFlags::OUT),
                hangup: flags.contains(kernel::EventFlags::HUP),
                error: flags.contains(kernel::EventFlags::ERR),
            }
        })
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries((0..self.len()).filter_map(|index| self.at(index))).finish()
    }
}

/// How long to wait for a first report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Do not wait.
    Now,
    /// At most this many milliseconds.
    Milliseconds(u32),
    /// For as long as it takes.
    Never,
}

/// An epoll instance. Closed when dropped.
#[derive(Debug)]
pub struct Epoll {
    descriptor: OwnedFd,
}

impl Epoll {
    /// A new, empty readiness list, closed on exec.
    ///
    /// # Errors
    /// What the kernel says: out of descriptors or of memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self { descriptor: kernel::create(kernel::CreateFlags::CLOEXEC)? })
    }

    /// Starts to watch a descriptor under a token.
    ///
    /// # Errors
    /// `EEXIST` if it is watched already, `ENOSPC` past the user's limit of watches, `EPERM` for a
    /// regular file.
    pub fn add(&self, descriptor: BorrowedFd<'_>, token: u64, watch: Watch) -> io::Result<()> {
        Ok(kernel::add(&self.descriptor, descriptor, kernel::EventData::new_u64(token), watch.flags())?)
    }

    /// Changes what is watched for.
    ///
    /// # Errors
    /// `ENOENT` if the descriptor is not watched, `EINVAL` for an exclusive watch.
    pub fn modify(&self, descriptor: BorrowedFd<'_>, token: u64, watch: Watch) -> io::Result<()> {
        Ok(kernel::modify(&self.descriptor, descriptor, kernel::EventData::new_u64(token), watch.flags())?)
    }

    /// Stops watching. Closing a descriptor is not enough while a duplicate of it lives elsewhere.
    ///
    /// # Errors
    /// `ENOENT` if the descriptor is not watched.
    pub fn delete(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        Ok(kernel::delete(&self.descriptor, descriptor)?)
    }

    /// Waits for reports, at most as many as `events` has room for and at most `limit`. A signal that
    /// interrupts the wait counts as no report.
    ///
    /// # Errors
    /// Only for a broken instance.
    pub fn wait(&self, events: &mut Events, limit: usize, timeout: Timeout) -> io::Result<()> {
        let timeout = match timeout {
            Timeout::Now => Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
            Timeout::Milliseconds(ms) => {
                Some(Timespec { tv_sec: i64::from(ms / 1_000), tv_nsec: i64::from(ms % 1_000) * 1_000_000 })
            }
            Timeout::Never => None,
        };
        events.list.clear();
        let spare = events.list.spare_capacity_mut();
        let room = spare.len().min(limit.max(1));
        let count = match kernel::wait(&self.descriptor, &mut spare[..room], timeout.as_ref()) {
            Ok((filled, _)) => filled.len(),
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        // SAFETY: the kernel wrote the first `count` of the spare elements, `count` <= `room` <= capacity.
        unsafe { events.list.set_len(count) };
        Ok(())
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Waits until one descriptor can be read, at most `timeout_ms`; whether it can. For threads and tests
/// outside a reactor.
///
/// # Errors
/// What the kernel says of a broken descriptor; an interrupting signal counts as not readable.
pub fn wait_readable(descriptor: BorrowedFd<'_>, timeout_ms: u32) -> io::Result<bool> {
    Ok(wait(descriptor, false, Some(Duration::from_millis(timeout_ms.into())))?.readable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventFd;

    const READ: Watch = Watch { readable: true, writable: false, edge: false, exclusive: false };

    fn reported(epoll: &Epoll, events: &mut Events) -> Vec<u64> {
        epoll.wait(events, 8, Timeout::Now).unwrap();
        (0..events.len()).map(|index| events.at(index).unwrap().token).collect()
    }

    #[test]
    fn a_level_watch_repeats_and_an_edge_watch_does_not() {
        let epoll = Epoll::new().unwrap();
        let (level, edge) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        epoll.add(level.as_fd(), 1, READ).unwrap();
        epoll.add(edge.as_fd(), 2, Watch { edge: true, ..READ }).unwrap();
        let mut events = Events::with_capacity(8);
        assert!(reported(&epoll, &mut events).is_empty());
        level.signal().unwrap();
        edge.signal().unwrap();
        let mut first = reported(&epoll, &mut events);
        first.sort_unstable();
        assert_eq!(first, [1, 2]);
        assert_eq!(reported(&epoll, &mut events), [1]);
        edge.signal().unwrap();
        let mut again = reported(&epoll, &mut events);
        again.sort_unstable();
        assert_eq!(again, [1, 2], "a new signal is a new edge, read or not");
    }

    #[test]
    fn a_deleted_or_emptied_watch_is_silent() {
        let epoll = Epoll::new().unwrap();
        let event = EventFd::new().unwrap();
        event.signal().unwrap();
        epoll.add(event.as_fd(), 7, READ).unwrap();
        let mut events = Events::with_capacity(8);
        assert_eq!(reported(&epoll, &mut events), [7]);
        epoll.modify(event.as_fd(), 7, Watch::default()).unwrap();
        assert!(reported(&epoll, &mut events).is_empty());
        epoll.modify(event.as_fd(), 9, READ).unwrap();
        assert_eq!(reported(&epoll, &mut events), [9]);
        epoll.delete(event.as_fd()).unwrap();
        assert!(reported(&epoll, &mut events).is_empty());
    }

    #[test]
    fn a_wait_brings_no_more_than_its_limit() {
        let epoll = Epoll::new().unwrap();
        let sources: Vec<EventFd> = (0..6).map(|_| EventFd::new().unwrap()).collect();
        for (token, source) in sources.iter().enumerate() {
            source.signal().unwrap();
            epoll.add(source.as_fd(), token as u64, READ).unwrap();
        }
        let mut events = Events::with_capacity(4);
        epoll.wait(&mut events, 3, Timeout::Now).unwrap();
        assert_eq!(events.len(), 3);
        epoll.wait(&mut events, 100, Timeout::Now).unwrap();
        assert_eq!(events.len(), 4);
        assert_eq!(events.at(4), None);
    }
}
