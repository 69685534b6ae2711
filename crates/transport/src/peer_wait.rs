//! How a thread that has nothing else to do waits for its peer behind shared memory.
//!
//! A wake across processors costs tens of microseconds, so one looks for about as long before one sleeps; but
//! not where both run on one processor, where the peer cannot move while we look, and not while waits are
//! long.

use crate::shared::SharedEnd;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use thalweg_sync::patience::{ALONE_NS, Patience};
use thalweg_sync::ring::Wanted;
use thalweg_sys::bell::{self, DrainOutcome};
use thalweg_sys::socket::SLEEP_MAX;
use thalweg_sys::{clock, process};

/// Looks between two looks at the clock.
const LOOKS: usize = 64;
/// How often a thread makes way for its peer before it sleeps.
const YIELDS: usize = 2;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// There is what was wanted.
    Ready,
    /// A signal came, or one that came may have gone unnoticed; the caller may look at it and wait on.
    Interrupted,
    /// The time was over.
    TimedOut,
    /// The peer is gone, and everything that it wrote has been read.
    Ended,
}

/// A wait for the peer at the other end of a pair of rings.
///
/// It has two halves, for a caller that has something to check before it sleeps: [`PeerWait::look`], which
/// never sleeps, and [`PeerWait::sleep`]. Other callers wait for both.
#[derive(Debug)]
pub struct PeerWait<'a> {
    /// Our end of the rings.
    pub end: &'a mut SharedEnd,
    /// Where bells ring.
    pub socket: BorrowedFd<'a>,
    /// What ends the wait.
    pub wanted: Wanted,
    /// When it is over at the latest.
    pub deadline: Option<Instant>,
    /// Allows to look for about 50 µs before sleeping, where that makes sense.
    pub spin: bool,
}

impl PeerWait<'_> {
    /// Both halves.
    ///
    /// # Errors
    /// What the kernel says of a broken socket. A peer that is gone is no error.
    pub fn wait(mut self) -> io::Result<WaitOutcome> {
        match self.look() {
            None => Ok(WaitOutcome::Ready),
            Some(began_ns) => self.sleep(began_ns),
        }
    }

    /// Rings first if the peer is owed a bell. `None`: there is what is wanted; otherwise when the wait
    /// began, for [`PeerWait::sleep`].
    pub fn look(&mut self) -> Option<u64> {
        if self.end.bell_wanted() {
            // A peer that is gone is found out by listening.
            let _ = bell::ring(self.socket);
        }
        if self.is_over() {
            return None;
        }
        // To ask where one is, or what time it is, costs as much as several looks, and most answers come
        // before that.
        let spins = self.spin && self.end.pace.is_quick();
        let was_apart = self.end.is_apart;
        if spins && was_apart && self.looks_briefly() {
            self.end.pace.record(0);
            return None;
        }
        self.end.runs_here();
        let shares = self.end.shares_cpu();
        self.end.is_apart = !shares;
        if spins && !was_apart && !shares && self.looks_briefly() {
            self.end.pace.record(0);
            return None;
        }
        let began_ns = clock::monotonic_ns();
        let came = match (shares, spins) {
            (true, _) => self.makes_way(),
            (false, true) => self.looks(),
            (false, false) => false,
        };
        if came {
            self.end.pace.record(clock::monotonic_ns().saturating_sub(began_ns));
            return None;
        }
        Some(began_ns)
    }

    /// Sleeps at once.
    ///
    /// # Errors
    /// As of [`PeerWait::wait`].
    pub fn sleep(&mut self, began_ns: u64) -> io::Result<WaitOutcome> {
        let waited = self.sleeps();
        self.end.pace.record(clock::monotonic_ns().saturating_sub(began_ns));
        waited
    }

    fn is_over(&self) -> bool {
        self.end.has(self.wanted)
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn looks_briefly(&self) -> bool {
        (0..LOOKS).any(|_| {
            std::hint::spin_loop();
            self.end.anticipate();
            self.is_over()
        })
    }

    /// The peer is behind this thread in the same queue.
    fn makes_way(&self) -> bool {
        (0..YIELDS).any(|_| {
            process::yield_now();
            self.is_over()
        })
    }

    fn looks(&self) -> bool {
        let mut patience = Patience::new(ALONE_NS);
        while patience.lasts() && !self.is_late() {
            if self.looks_briefly() {
                return true;
            }
        }
        self.is_over()
    }

    /// Sleeps until a bell rings for what is wanted.
    fn sleeps(&mut self) -> io::Result<WaitOutcome> {
        let began = Instant::now();
        loop {
            if !self.end.prepare_to_sleep(self.wanted) {
                return Ok(WaitOutcome::Ready);
            }
            let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let slept = bell::listen(self.socket, Some(left.unwrap_or(SLEEP_MAX).min(SLEEP_MAX)));
            self.end.wake_up();
            slept?;
            let heard = bell::drain(self.socket)?;
            if self.is_over() {
                return Ok(WaitOutcome::Ready);
            }
            match heard {
                DrainOutcome::HungUp => return Ok(WaitOutcome::Ended),
                // Also of a peer that rings for nothing.
                _ if left == Some(Duration::ZERO) => return Ok(WaitOutcome::TimedOut),
                DrainOutcome::Empty if !self.is_late() => return Ok(WaitOutcome::Interrupted),
                // A peer that rings for nothing keeps no signal from being noticed.
                DrainOutcome::Rung if began.elapsed() >= SLEEP_MAX => return Ok(WaitOutcome::Interrupted),
                DrainOutcome::Rung | DrainOutcome::Empty => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;
    use std::os::fd::{AsFd, OwnedFd};
    use thalweg_sys::socket;

    fn sides() -> [(SharedEnd, OwnedFd); 2] {
        let (ours, memory) = SharedEnd::create(4096).unwrap();
        let theirs = SharedEnd::adopt(memory).unwrap();
        let (here, there) = socket::pair().unwrap();
        [(ours, here), (theirs, there)]
    }

    fn wait((end, socket): &mut (SharedEnd, OwnedFd), wanted: Wanted, most: Duration) -> WaitOutcome {
        let deadline = Instant::now().checked_add(most);
        PeerWait { end, socket: socket.as_fd(), wanted, deadline, spin: false }.wait().unwrap()
    }

    #[test]
    fn a_wait_ends_with_its_time_and_never_before_it() {
        let [mut ours, theirs] = sides();
        for most in [Duration::ZERO, Duration::from_millis(3)] {
            let began = Instant::now();
            assert_eq!(wait(&mut ours, Wanted::Bytes, most), WaitOutcome::TimedOut);
            assert!(began.elapsed() >= most);
        }
        (0..100).for_each(|_| bell::ring(theirs.1.as_fd()).unwrap());
        assert_eq!(
            wait(&mut ours, Wanted::Bytes, Duration::from_millis(3)),
            WaitOutcome::TimedOut,
            "bells for nothing"
        );
    }

    #[test]
    fn a_peer_that_rings_without_end_keeps_no_signal_from_being_noticed() {
        let [mut ours, theirs] = sides();
        let (over, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // Ends with the connection.
            while bell::ring(theirs.1.as_fd()).is_ok() {}
        });
        std::thread::spawn(move || {
            let (end, socket) = (&mut ours.0, ours.1.as_fd());
            let wait = PeerWait { end, socket, wanted: Wanted::Bytes, deadline: None, spin: false };
            let _ = over.send(wait.wait().unwrap());
        });
        assert_eq!(told.recv_timeout(60 * SLEEP_MAX), Ok(WaitOutcome::Interrupted));
    }

    #[test]
    fn a_full_ring_is_waited_for_and_an_empty_one_is_room() {
        let [mut ours, mut theirs] = sides();
        assert_eq!(wait(&mut ours, Wanted::BytesOrSpace, Duration::MAX), WaitOutcome::Ready);
        ours.0.write_gathered(&[IoSlice::new(&[1; 5000])]).unwrap();
        assert_eq!(wait(&mut ours, Wanted::BytesOrSpace, Duration::ZERO), WaitOutcome::TimedOut);
        assert_eq!(wait(&mut theirs, Wanted::Bytes, Duration::MAX), WaitOutcome::Ready);
    }

    /// What a peer wrote before it died is there to be read, though nobody rang for it.
    #[test]
    fn what_was_written_comes_before_the_end() {
        let [mut ours, mut theirs] = sides();
        theirs.0.write_gathered(&[IoSlice::new(b"last words")]).unwrap();
        drop(theirs);
        assert_eq!(wait(&mut ours, Wanted::Bytes, Duration::MAX), WaitOutcome::Ready);
        let mut heard = Vec::with_capacity(64);
        ours.0.read(&mut heard).unwrap();
        assert_eq!(heard, b"last words");
        assert_eq!(wait(&mut ours, Wanted::Bytes, Duration::MAX), WaitOutcome::Ended);
    }

    #[test]
    fn the_bell_that_a_caller_owes_is_rung_before_it_waits() {
        let [mut ours, mut theirs] = sides();
        assert!(theirs.0.prepare_to_sleep(Wanted::Bytes));
        ours.0.write_gathered(&[IoSlice::new(b"x")]).unwrap();
        assert_eq!(wait(&mut ours, Wanted::Bytes, Duration::ZERO), WaitOutcome::TimedOut);
        assert_eq!(bell::drain(theirs.1.as_fd()).unwrap(), DrainOutcome::Rung);
    }
}
