//! Descriptors that only say "look": the eventfd that wakes a sleeping thread, and timers as
//! descriptors for loops that are not ours.

use crate::clock::monotonic_ns;
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// A counter in the kernel; readable when it is not zero. Signalling costs one system call.
#[derive(Debug)]
pub struct EventFd {
    descriptor: OwnedFd,
}

impl EventFd {
    /// A new one at zero, non-blocking, closed on exec.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self { descriptor: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Adds one to the counter.
    ///
    /// # Errors
    /// None in practice: a counter at its limit (2^64 - 2) stays readable and counts as signalled.
    pub fn signal(&self) -> io::Result<()> {
        match rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes()) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the counter back to zero; what it was.
    ///
    /// # Errors
    /// None in practice; a counter at zero is not an error.
    pub fn clear(&self) -> io::Result<u64> {
        let mut count = [0_u8; 8];
        match rustix::io::read(&self.descriptor, &mut count) {
            Ok(_) => Ok(u64::from_ne_bytes(count)),
            Err(rustix::io::Errno::AGAIN) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl From<EventFd> for OwnedFd {
    fn from(event: EventFd) -> Self {
        event.descriptor
    }
}

/// A timer that is readable once it came due.
#[derive(Debug)]
pub struct TimerFd {
    descriptor: OwnedFd,
}

impl TimerFd {
    /// A disarmed timer on the monotonic clock.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { descriptor: timerfd_create(TimerfdClockId::Monotonic, flags)? })
    }

    /// Comes due at `due_ns` on the monotonic clock (see [`crate::clock::monotonic_ns`]), once; `None`
    /// disarms. An instant already past is due at once.
    ///
    /// # Errors
    /// None in practice.
    pub fn set(&self, due_ns: Option<u64>) -> io::Result<()> {
        // Zero would disarm: the smallest instant stands in for it.
        let due_ns = due_ns.map_or(0, |due_ns| due_ns.max(1));
        let value = Timespec {
            tv_sec: i64::try_from(due_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (due_ns % 1_000_000_000) as _,
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A timer for an owner that has one deadline and moves it often. Readable from that moment on. It may be set
/// for an earlier moment: its owner then looks, finds nothing due, and sets it again, which happens less
/// often than setting the timer with each move would.
///
/// ```
/// use std::os::fd::AsFd;
/// use std::time::{Duration, Instant};
/// use thalweg_sys::epoll::wait_readable;
/// use thalweg_sys::event::Alarm;
///
/// let mut alarm = Alarm::new()?;
/// alarm.due(Some(Instant::now() + Duration::from_millis(5)))?;
/// assert!(wait_readable(alarm.as_fd(), 5_000)? && alarm.has_passed());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Alarm {
    timer: TimerFd,
    /// When the timer is due, if it is set.
    set: Option<Instant>,
}

impl Alarm {
    /// One that is not due.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self { timer: TimerFd::new()?, set: None })
    }

    /// Whether the moment that it is set for has passed, so that it is readable.
    pub fn has_passed(&self) -> bool {
        self.set.is_some_and(|set| set <= Instant::now())
    }

    /// Is readable from then on. Set for earlier it is left alone while that lies ahead.
    ///
    /// # Errors
    /// None in practice.
    pub fn due(&mut self, at: Option<Instant>) -> io::Result<()> {
        let now = Instant::now();
        let is_ahead = self.set.is_some_and(|set| set > now && at.is_none_or(|at| set <= at));
        if is_ahead || self.set == at {
            return Ok(());
        }
        let left_ns =
            at.map(|at| u64::try_from(at.saturating_duration_since(now).as_nanos()).unwrap_or(u64::MAX));
        self.timer.set(left_ns.map(|left_ns| monotonic_ns().saturating_add(left_ns)))?;
        self.set = at;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::wait_readable;
    use std::time::Duration;

    #[test]
    fn an_eventfd_counts_and_clears() {
        let event = EventFd::new().unwrap();
        assert!(!wait_readable(event.as_fd(), 0).unwrap());
        event.signal().unwrap();
        event.signal().unwrap();
        assert!(wait_readable(event.as_fd(), 0).unwrap());
        assert_eq!(event.clear().unwrap(), 2);
        assert_eq!(event.clear().unwrap(), 0);
        assert!(!wait_readable(event.as_fd(), 0).unwrap());
    }

    #[test]
    fn a_timer_comes_due_never_early_and_can_be_disarmed() {
        let timer = TimerFd::new().unwrap();
        let due_ns = monotonic_ns() + 20_000_000;
        timer.set(Some(due_ns)).unwrap();
        assert!(!wait_readable(timer.as_fd(), 0).unwrap());
        assert!(wait_readable(timer.as_fd(), 5_000).unwrap());
        assert!(monotonic_ns() >= due_ns);
        timer.set(Some(0)).unwrap();
        assert!(wait_readable(timer.as_fd(), 1_000).unwrap(), "an instant long past is due at once");
        timer.set(None).unwrap();
        assert!(!wait_readable(timer.as_fd(), 0).unwrap());
    }

    #[test]
    fn an_alarm_is_early_at_most_and_set_anew_once_it_has_passed() {
        let mut alarm = Alarm::new().unwrap();
        let readable = |alarm: &Alarm, ms| wait_readable(alarm.as_fd(), ms).unwrap();
        let soon = Instant::now() + Duration::from_millis(20);
        alarm.due(Some(soon)).unwrap();
        alarm.due(Some(soon + Duration::from_secs(3_600))).unwrap();
        alarm.due(None).unwrap();
        assert!(!readable(&alarm, 0) && !alarm.has_passed());
        assert!(readable(&alarm, 60_000) && alarm.has_passed(), "what lay ahead was left alone");
        alarm.due(Some(soon + Duration::from_secs(3_600))).unwrap();
        assert!(!readable(&alarm, 0) && !alarm.has_passed());
        alarm.due(Some(Instant::now())).unwrap();
        assert!(readable(&alarm, 60_000), "an earlier moment counts at once");
        alarm.due(None).unwrap();
        assert!(!readable(&alarm, 0));
    }
}
