//! How a thread that has nothing else to do waits for its peer behind shared memory.
//!
//! A wake across processors costs tens of microseconds, so one looks for about as long before one sleeps; but
//! not where both run on one processor, where the peer cannot move while we look, and not while waits are long.

use crate::shared::SharedEnd;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use thalweg_sync::patience::{ALONE_NS, Patience};
use thalweg_sys::bell::{self, Heard};
use thalweg_sys::socket::SLEEP_MAX;
use thalweg_sys::{clock, process};

/// Looks between two looks at the clock.
const LOOKS: usize = 64;
/// How often a thread makes way for its peer before it sleeps.
const YIELDS: usize = 2;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// There is something to read, or room to write if that was asked for.
    Ready,
    /// A signal came, or one that came may have gone unnoticed; whoever waits may look at it and wait on.
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
    match look_for_peer(end, socket, for_space, deadline, spin) {
        None => Ok(Waited::Ready),
        Some(began_ns) => sleep_for_peer(end, socket, for_space, deadline, began_ns),
    }
}

/// The first half of a wait, which never sleeps: for whoever has something to hear before it does. `None`: there is what is
/// waited for; otherwise when the wait began, for [`sleep_for_peer`].
pub fn look_for_peer(
    end: &mut SharedEnd,
    socket: BorrowedFd<'_>,
    for_space: bool,
    deadline: Option<Instant>,
    spin: bool,
) -> Option<u64> {
    if end.bell_wanted() {
        // A peer that is gone is found out by listening.
        let _ = bell::ring(socket);
    }
    let ready = |end: &SharedEnd| end.pending() || for_space && end.has_space();
    if ready(end) {
        return None;
    }
    // To ask where one is, or what time it is, costs as much as several looks, and most answers come before that.
    let spins = spin && end.pace.is_quick();
    let was_apart = end.is_apart;
    if spins && was_apart && looks_briefly(end, ready) {
        end.pace.record(0);
        return None;
    }
    end.runs_here();
    let shares = end.shares_cpu();
    end.is_apart = !shares;
    if spins && !was_apart && !shares && looks_briefly(end, ready) {
        end.pace.record(0);
        return None;
    }
    let began_ns = clock::monotonic_ns();
    let came = match (shares, spins) {
        (true, _) => makes_way(end, ready),
        (false, true) => looks(end, deadline, ready),
        (false, false) => false,
    };
    if came {
        end.pace.record(clock::monotonic_ns().saturating_sub(began_ns));
        return None;
    }
    Some(began_ns)
}

/// The second half of a wait: sleeps at once.
///
/// # Errors
/// As of [`wait_for_peer`].
pub fn sleep_for_peer(
    end: &mut SharedEnd,
    socket: BorrowedFd<'_>,
    for_space: bool,
    deadline: Option<Instant>,
    began_ns: u64,
) -> io::Result<Waited> {
    let ready = |end: &SharedEnd| end.pending() || for_space && end.has_space();
    let waited = sleep(end, socket, for_space, deadline, ready);
    end.pace.record(clock::monotonic_ns().saturating_sub(began_ns));
    waited
}

fn looks_briefly(end: &SharedEnd, ready: impl Fn(&SharedEnd) -> bool) -> bool {
    (0..LOOKS).any(|_| {
        std::hint::spin_loop();
        end.anticipate();
        ready(end)
    })
}

/// The peer is behind this thread in the same queue.
fn makes_way(end: &SharedEnd, ready: impl Fn(&SharedEnd) -> bool) -> bool {
    (0..YIELDS).any(|_| {
        process::yield_now();
        ready(end)
    })
}

fn looks(end: &SharedEnd, deadline: Option<Instant>, ready: impl Fn(&SharedEnd) -> bool) -> bool {
    let mut patience = Patience::new(ALONE_NS);
    while patience.lasts() && deadline.is_none_or(|deadline| Instant::now() < deadline) {
        if looks_briefly(end, &ready) {
            return true;
        }
    }
    ready(end)
}

/// Sleeps until a bell rings for what is waited for.
fn sleep(
    end: &mut SharedEnd,
    socket: BorrowedFd<'_>,
    for_space: bool,
    deadline: Option<Instant>,
    ready: impl Fn(&SharedEnd) -> bool,
) -> io::Result<Waited> {
    let began = Instant::now();
    loop {
        if !end.prepare_to_sleep(for_space) {
            return Ok(Waited::Ready);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slept = bell::listen(socket, Some(left.unwrap_or(SLEEP_MAX).min(SLEEP_MAX)));
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
            // A peer that rings for nothing keeps no signal from being noticed.
            Heard::Bells if began.elapsed() >= SLEEP_MAX => return Ok(Waited::Interrupted),
            Heard::Bells | Heard::Nothing => {}
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
    fn a_peer_that_rings_without_end_keeps_no_signal_from_being_noticed() {
        let [mut ours, theirs] = sides();
        let (over, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // Ends with the connection.
            while bell::ring(theirs.1.as_fd()).is_ok() {}
        });
        std::thread::spawn(move || {
            let waited = wait_for_peer(&mut ours.0, ours.1.as_fd(), false, None, false);
            let _ = over.send(waited.unwrap());
        });
        assert_eq!(told.recv_timeout(20 * SLEEP_MAX), Ok(Waited::Interrupted));
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
