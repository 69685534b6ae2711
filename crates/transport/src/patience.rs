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
            Heard::Nothing if left == Some(Duration::ZERO) => return Ok(Waited::TimedOut),
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
    let began = Instant::now();
    let until = deadline.map_or(began + SPIN, |deadline| deadline.min(began + SPIN));
    loop {
        for _ in 0..LOOKS {
            if ready(end) {
                return true;
            }
            std::hint::spin_loop();
        }
        if Instant::now() >= until {
            return false;
        }
    }
}
