//! A connection that is up: its socket, and the shared memory it may have led to.
//!
//! Ownership: owns both directions and this side's end of the rings. While answers come fast either looks for
//! a moment before it sleeps: a socket link in the read itself ([`thalweg_sys::socket::receive_waiting`]), so
//! that a call costs one write and one read, within a limit too unless that is near; a shared one on the
//! socket, over which nothing but bells comes.
//!
//! *Checked by* the tests below, and of shared memory by those of `thalweg-transport`.

use super::duplex::Duplex;
use crate::error::Error;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use thalweg_sync::patience::{ALONE_NS, Pace, Patience, QUICK_NS, WAKE_NS};
use thalweg_sys::{clock, socket};
use thalweg_transport::{
    Broken, DrainOutcome, PeerWait, ReadOutcome, SharedEnd, WaitOutcome, Wanted, WriteOutcome, drain_bell,
    ring_bell,
};
use thalweg_wire::fault::Fault;

/// How much longer than it was told to a read may wait, and a poll does not: two of the slowest ticks.
const TICKS: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Link {
    duplex: Duplex,
    shared: Option<SharedEnd>,
    /// The peer is gone; what it wrote into shared memory is still to be read.
    ended: bool,
    spin: bool,
    /// How long waits for the socket took.
    pace: Pace,
    /// How long one read of the socket waits.
    patience: Duration,
    /// When a wait began that has looked, and has not slept yet.
    looked_ns: Option<u64>,
}

impl Link {
    /// Over a connected socket alone, or pipes.
    ///
    /// # Errors
    /// None in practice.
    pub(crate) fn over(duplex: Duplex, spin: bool) -> io::Result<Self> {
        if let Some(socket) = duplex.as_socket() {
            socket::block(socket)?;
            socket::set_receive_patience(socket, None)?;
        }
        Ok(Self::of(duplex, None, spin))
    }

    /// Over shared memory that came by this socket.
    pub(crate) fn shared(duplex: Duplex, end: SharedEnd, spin: bool) -> Self {
        Self::of(duplex, Some(end), spin)
    }

    fn of(duplex: Duplex, shared: Option<SharedEnd>, spin: bool) -> Self {
        let (pace, patience) = (Pace::new(QUICK_NS), socket::SLEEP_MAX);
        Self { duplex, shared, ended: false, spin, pace, patience, looked_ns: None }
    }

    pub(crate) fn duplex(&self) -> &Duplex {
        &self.duplex
    }

    pub(crate) const fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether the peer is known to be gone, although what it wrote is still to be read.
    pub(crate) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Bytes that were written, and that a peer that is gone never read. None over a socket, where nobody
    /// knows, and none while the peer may still read them.
    pub(crate) fn unread_bytes(&self) -> u64 {
        self.shared.as_ref().filter(|_| self.ended).map_or(0, SharedEnd::unread_bytes)
    }

    /// Writes what can be written now.
    pub(crate) fn write(&mut self, pieces: &[IoSlice<'_>]) -> Result<WriteOutcome, Error> {
        let Some(end) = &mut self.shared else {
            return self.duplex.write(pieces).map_err(gone);
        };
        let written = end.write_gathered(pieces).map_err(broken)?;
        ring(end, self.duplex.input());
        Ok(written)
    }

    /// Reads what is there.
    pub(crate) fn read(&mut self, into: &mut Vec<u8>) -> Result<ReadOutcome, Error> {
        let Some(end) = &mut self.shared else {
            return self.duplex.read(into).map_err(gone);
        };
        match end.read(into).map_err(broken)? {
            ReadOutcome::WouldBlock if self.ended => Ok(ReadOutcome::End),
            ReadOutcome::WouldBlock => Ok(ReadOutcome::WouldBlock),
            read => {
                ring(end, self.duplex.input());
                Ok(read)
            }
        }
    }

    /// Whether a wait would look before it slept, or make way for its peer.
    pub(crate) fn looks(&self) -> bool {
        self.shared.as_ref().map_or(self.spin && self.pace.is_quick(), |end| end.looks(self.spin))
    }

    /// The first half of a wait, which never sleeps: reads what is there or comes while it looks, if that is
    /// worth it. The wait that follows sleeps at once.
    pub(crate) fn read_looking(
        &mut self,
        into: &mut Vec<u8>,
        wanted: Wanted,
        until: Option<Instant>,
    ) -> Result<ReadOutcome, Error> {
        let Some(end) = &mut self.shared else {
            let Some(socket) = self.duplex.as_socket().filter(|_| self.looks_over_socket(wanted, until))
            else {
                return Ok(ReadOutcome::WouldBlock);
            };
            let began_ns = clock::monotonic_ns();
            let came = look(socket, into).map_err(gone)?;
            match came {
                Some(_) => self.pace.record(clock::monotonic_ns().saturating_sub(began_ns)),
                None => self.looked_ns = Some(began_ns),
            }
            return Ok(read_of(came));
        };
        if !end.pending() {
            let (socket, spin) = (self.duplex.input(), self.spin);
            self.looked_ns = PeerWait { end, socket, wanted, deadline: until, spin }.look();
            if self.looked_ns.is_some() {
                return Ok(ReadOutcome::WouldBlock);
            }
        }
        self.read(into)
    }

    /// Reads what is there or comes until then; also comes back when there is room to write, if that is
    /// wanted, and when a signal came. [`ReadOutcome::WouldBlock`]: nothing was read.
    pub(crate) fn read_waiting(
        &mut self,
        into: &mut Vec<u8>,
        wanted: Wanted,
        until: Option<Instant>,
    ) -> Result<ReadOutcome, Error> {
        let looked_ns = self.looked_ns.take();
        let Some(end) = &mut self.shared else {
            return self.read_socket_waiting(into, wanted, until, looked_ns);
        };
        if !end.pending() {
            let (socket, spin) = (self.duplex.input(), self.spin);
            let mut wait = PeerWait { end, socket, wanted, deadline: until, spin };
            let waited = match looked_ns.or_else(|| wait.look()) {
                None => WaitOutcome::Ready,
                Some(began_ns) => wait.sleep(began_ns).map_err(gone)?,
            };
            match waited {
                WaitOutcome::Ready => {}
                WaitOutcome::TimedOut | WaitOutcome::Interrupted => return Ok(ReadOutcome::WouldBlock),
                WaitOutcome::Ended => self.ended = true,
            }
        }
        self.read(into)
    }

    fn looks_over_socket(&self, wanted: Wanted, until: Option<Instant>) -> bool {
        let lasts = |until: Instant| until > Instant::now() + Duration::from_nanos(WAKE_NS);
        self.spin && self.pace.is_quick() && !wanted.space() && until.is_none_or(lasts)
    }

    fn read_socket_waiting(
        &mut self,
        into: &mut Vec<u8>,
        wanted: Wanted,
        until: Option<Instant>,
        looked_ns: Option<u64>,
    ) -> Result<ReadOutcome, Error> {
        let Some(socket) = self.duplex.as_socket().filter(|_| !wanted.space()) else {
            return self.poll_and_read(into, wanted, until);
        };
        let began_ns = looked_ns.unwrap_or_else(clock::monotonic_ns);
        if looked_ns.is_none() && self.looks_over_socket(wanted, until) {
            let came = look(socket, into).map_err(gone)?;
            if came.is_some() {
                self.pace.record(clock::monotonic_ns().saturating_sub(began_ns));
                return Ok(read_of(came));
            }
        }
        let read = self.read_asleep(into, wanted, until)?;
        let waited_ns = clock::monotonic_ns().saturating_sub(began_ns);
        // A near limit says nothing of how long answers take.
        if read != ReadOutcome::WouldBlock || waited_ns >= QUICK_NS {
            self.pace.record(waited_ns);
        }
        Ok(read)
    }

    /// Sleeps in the read as far as that ends in time, and polls for the rest, which is exact.
    fn read_asleep(
        &mut self,
        into: &mut Vec<u8>,
        wanted: Wanted,
        until: Option<Instant>,
    ) -> Result<ReadOutcome, Error> {
        let began = Instant::now();
        if let Some(patience) = patience_within(until.map(|until| until.saturating_duration_since(began))) {
            if patience != self.patience {
                socket::set_receive_patience(self.duplex.input(), Some(patience)).map_err(gone)?;
                self.patience = patience;
            }
            let came = socket::receive_waiting(self.duplex.input(), into).map_err(gone)?;
            // Nothing, and earlier than that: a signal came.
            if came.is_some() || patience == socket::SLEEP_MAX || began.elapsed() < patience {
                return Ok(read_of(came));
            }
        }
        self.poll_and_read(into, wanted, until)
    }

    fn poll_and_read(
        &mut self,
        into: &mut Vec<u8>,
        wanted: Wanted,
        until: Option<Instant>,
    ) -> Result<ReadOutcome, Error> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.unwrap_or(socket::SLEEP_MAX).min(socket::SLEEP_MAX);
        if self.duplex.wait(wanted, Some(left))? { self.read(into) } else { Ok(ReadOutcome::WouldBlock) }
    }

    /// Marks this side as up after a foreign loop watched it, and drains the bells.
    pub(crate) fn stir(&mut self) -> Result<(), Error> {
        if let Some(end) = &mut self.shared {
            end.wake_up();
            if drain_bell(self.duplex.input()).map_err(gone)? == DrainOutcome::HungUp {
                self.ended = true;
            }
        }
        Ok(())
    }

    /// Marks this side as asleep before a foreign loop watches it. `false`: something came meanwhile.
    pub(crate) fn settle(&mut self, wanted: Wanted) -> bool {
        self.shared.as_mut().is_none_or(|end| self.ended || end.prepare_to_sleep(wanted))
    }
}

/// Looks for a moment whether something comes, which costs less than to sleep and be woken on another
/// processor.
fn look(socket: BorrowedFd<'_>, into: &mut Vec<u8>) -> io::Result<Option<usize>> {
    let mut patience = Patience::for_peer(ALONE_NS);
    loop {
        let room = into.capacity() - into.len();
        let came = socket::receive(socket, into, room)?;
        if came.is_some() || !patience.lasts() {
            return Ok(came);
        }
    }
}

/// How long a read may wait where so much time is left; `None`: it would not end in time. One of few, because
/// a system call sets it.
fn patience_within(left: Option<Duration>) -> Option<Duration> {
    let Some(left) = left else { return Some(socket::SLEEP_MAX) };
    let most = left.checked_sub(TICKS)?;
    if most >= socket::SLEEP_MAX {
        return Some(socket::SLEEP_MAX);
    }
    Some(Duration::from_millis(1 << most.as_millis().checked_ilog2()?))
}

fn ring(end: &mut SharedEnd, socket: BorrowedFd<'_>) {
    if end.bell_wanted() {
        // A peer that is gone is found out by reading.
        let _ = ring_bell(socket);
    }
}

fn read_of(count: Option<usize>) -> ReadOutcome {
    match count {
        None => ReadOutcome::WouldBlock,
        Some(0) => ReadOutcome::End,
        Some(count) => ReadOutcome::Bytes(count),
    }
}

fn gone(error: io::Error) -> Error {
    Error::system(Fault::Disconnected, "", error)
}

fn broken(broken: Broken) -> Error {
    Error::new(Fault::BrokenPeer, broken.to_string())
}

/// Sleeps until then, or for as long as a thread may without looking again.
pub(crate) fn sleep_until(at: Instant, until: Option<Instant>) {
    let at = until.map_or(at, |until| at.min(until));
    std::thread::sleep(at.saturating_duration_since(Instant::now()).min(Duration::from_secs(1)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    /// A link with room to read into, and its peer.
    fn linked(spin: bool) -> (Link, UnixStream, Vec<u8>) {
        let (ours, theirs) = socket::pair().unwrap();
        (Link::over(Duplex::socket(ours), spin).unwrap(), theirs.into(), Vec::with_capacity(64))
    }

    fn after(millis: u64) -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(millis))
    }

    #[test]
    fn what_comes_within_a_limit_is_looked_for_as_without_one() {
        for limit in [None, after(3_600_000)] {
            let (mut link, mut peer, mut into) = linked(true);
            peer.write_all(b"here").unwrap();
            assert_eq!(link.read_looking(&mut into, Wanted::Bytes, limit).unwrap(), ReadOutcome::Bytes(4));
            assert_eq!(link.read_looking(&mut into, Wanted::Bytes, limit).unwrap(), ReadOutcome::WouldBlock);
            peer.write_all(b"more").unwrap();
            assert_eq!(link.read_waiting(&mut into, Wanted::Bytes, limit).unwrap(), ReadOutcome::Bytes(4));
            assert_eq!(into, b"heremore");
        }
    }

    #[test]
    fn slow_waits_end_the_looking_and_near_limits_say_nothing() {
        let (mut link, _peer, mut into) = linked(true);
        for _ in 0..8 {
            let read = link.read_waiting(&mut into, Wanted::Bytes, after(1)).unwrap();
            assert_eq!(read, ReadOutcome::WouldBlock);
        }
        assert!(!link.looks(), "eight waits of a millisecond");
        for _ in 0..100 {
            link.read_waiting(&mut into, Wanted::Bytes, Some(Instant::now())).unwrap();
        }
        assert!(!link.looks(), "nothing came quickly");
    }

    #[test]
    fn a_limited_wait_sleeps_in_the_read_and_ends_no_sooner_than_it_should() {
        let (mut link, mut peer, mut into) = linked(false);
        let until = after(50);
        assert_eq!(link.read_waiting(&mut into, Wanted::Bytes, until).unwrap(), ReadOutcome::WouldBlock);
        assert!(Instant::now() >= until.unwrap());
        assert_eq!(link.patience, Duration::from_millis(16), "it was set, so the read slept");
        for (limit, patience) in [(after(10), 16), (after(3_600_000), 1_000), (None, 1_000)] {
            peer.write_all(b"here").unwrap();
            assert_eq!(link.read_waiting(&mut into, Wanted::Bytes, limit).unwrap(), ReadOutcome::Bytes(4));
            assert_eq!(link.patience, Duration::from_millis(patience), "a poll needs none");
        }
        drop(peer);
        assert_eq!(link.read_waiting(&mut into, Wanted::Bytes, after(50)).unwrap(), ReadOutcome::End);
    }

    #[test]
    fn a_read_waits_no_longer_than_there_is_time() {
        let of = |millis: u64| patience_within(Some(Duration::from_millis(millis)));
        assert_eq!(patience_within(None), Some(socket::SLEEP_MAX));
        assert_eq!([of(0), of(19), of(20)], [None; 3], "a poll is exact");
        let known = [(21, 1), (50, 16), (51, 16), (52, 32), (1_019, 512), (1_020, 1_000), (u64::MAX, 1_000)];
        for (left, patience) in known {
            assert_eq!(of(left), Some(Duration::from_millis(patience)), "{left} ms");
        }
    }
}
