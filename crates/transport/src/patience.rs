//! How a thread that has nothing else to do waits for its peer behind shared memory.
//!
//! A wake across processors costs tens of microseconds, so one looks for about as long before one sleeps; but
//! not where both run on one processor, where the peer cannot move while we look.

use crate::shared::SharedEnd;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use thalweg_sys::bell::{self, Heard};
use thalweg_sys::process;

/// About what a wake across processors costs.
const SPIN: Duration = Duration::from_micros(50);
/// Looks between two looks at the clock.
const LOOKS: usize = 64;
/// How often a thread makes way for its peer before it sleeps.
const YIELDS: usize = 2;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// There is something to read, or room to write if that was asked for.
    Ready,
    /// A signal came; whoever waits may look at it and wait on.
    Interrupted,
    /// The time was over.
    TimedOut,
    /// The peer is gone, and everything that it wrote has been read.
    Ended,
}

/// Waits until there is something to read, or with `for_space` half of the ring to write to. Rings first if the
/// peer is owed a bell. `spin` allows to look for about 50 µs before sleeping, where that makes sense.
///
/// # Errors
/// What the kernel says of a broken socket. A peer that is gone is no error.
pub fn wait_for_peer(
    end: &mut SharedEnd,
    socket: BorrowedFd<'_>,
    for_space: bool,
    deadline: Option<Instant>,
    spin: bool,
) -> io::Result<Waited> {
    if end.bell_wanted() {
        // A peer that is gone is found out by listening.
        let _ = bell::ring(socket);
    }
    let ready = |end: &SharedEnd| end.pending() || for_space && end.has_space();
    if look(end, deadline, spin, ready) {
        return Ok(Waited::Ready);
    }
    loop {
        if !end.prepare_to_sleep(for_space) {
            return Ok(Waited::Ready);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slept = bell::listen(socket, left);
        end.wake_up();
        slept?;
        let heard = bell::hush(socket)?;
        if ready(end) {
            return Ok(Waited::Ready);
        }
        match heard {
            Heard::End => return Ok(Waited::Ended),
            // Also of a peer that rings for nothing.
            _ if left == Some(Duration::ZERO) => return Ok(Waited::TimedOut),
            Heard::Nothing if deadline.is_none_or(|deadline| Instant::now() < deadline) => {
                return Ok(Waited::Interrupted);
            }
            Heard::Bells | Heard::Nothing => {}
        }
    }
}

/// Looks for a while without sleeping.
fn look(
    end: &mut SharedEnd,
    deadline: Option<Instant>,
    spin: bool,
    ready: impl Fn(&SharedEnd) -> bool,
) -> bool {
    if ready(end) {
        return true;
    }
    end.runs_here();
    if end.shares_cpu() {
        return (0..YIELDS).any(|_| {
            process::yield_now();
            ready(end)
        });
    }
    if !spin {
        return false;
    }
    // The clock costs as much as several looks, and most answers come before the first look at it.
    let mut until = None;
    loop {
        for _ in 0..LOOKS {
            if ready(end) {
                return true;
            }
            std::hint::spin_loop();
        }
        let now = Instant::now();
        if now
            >= *until.get_or_insert_with(|| deadline.map_or(now + SPIN, |deadline| deadline.min(now + SPIN)))
        {
            return false;
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

    fn wait((end, socket): &mut (SharedEnd, OwnedFd), for_space: bool, most: Duration) -> Waited {
        let deadline = Instant::now().checked_add(most);
        wait_for_peer(end, socket.as_fd(), for_space, deadline, false).unwrap()
    }

    #[test]
    fn a_wait_ends_with_its_time_and_never_before_it() {
        let [mut ours, theirs] = sides();
        for most in [Duration::ZERO, Duration::from_millis(3)] {
            let began = Instant::now();
            assert_eq!(wait(&mut ours, false, most), Waited::TimedOut);
            assert!(began.elapsed() >= most);
        }
        (0..100).for_each(|_| bell::ring(theirs.1.as_fd()).unwrap());
        assert_eq!(wait(&mut ours, false, Duration::from_millis(3)), Waited::TimedOut, "bells for nothing");
    }

    #[test]
    fn a_full_ring_is_waited_for_and_an_empty_one_is_room() {
        let [mut ours, mut theirs] = sides();
        assert_eq!(wait(&mut ours, true, Duration::MAX), Waited::Ready);
        ours.0.write_gathered(&[IoSlice::new(&[1; 5000])]).unwrap();
        assert_eq!(wait(&mut ours, true, Duration::ZERO), Waited::TimedOut);
        assert_eq!(wait(&mut theirs, false, Duration::MAX), Waited::Ready);
    }

    /// What a peer wrote before it died is there to be read, though nobody rang for it.
    #[test]
    fn what_was_written_comes_before_the_end() {
        let [mut ours, mut theirs] = sides();
        theirs.0.write_gathered(&[IoSlice::new(b"last words")]).unwrap();
        drop(theirs);
        assert_eq!(wait(&mut ours, false, Duration::MAX), Waited::Ready);
        let mut heard = Vec::with_capacity(64);
        ours.0.read(&mut heard).unwrap();
        assert_eq!(heard, b"last words");
        assert_eq!(wait(&mut ours, false, Duration::MAX), Waited::Ended);
    }

    #[test]
    fn the_bell_that_a_caller_owes_is_rung_before_it_waits() {
        let [mut ours, mut theirs] = sides();
        assert!(theirs.0.prepare_to_sleep(false));
        ours.0.write_gathered(&[IoSlice::new(b"x")]).unwrap();
        assert_eq!(wait(&mut ours, false, Duration::ZERO), Waited::TimedOut);
        assert_eq!(bell::hush(theirs.1.as_fd()).unwrap(), Heard::Bells);
    }
}
