//! What a loop that is not ours watches of us: one descriptor for all that we wait for.
//!
//! An epoll of a few descriptors and of a moment, which is readable while one of them has something or the
//! moment has come. It is level-triggered. It remembers no descriptor, so the owner of one says what it was
//! watched for before; which of them are ready is said by their numbers.

use crate::epoll::{Epoll, Events, Timeout, Watch};
use crate::event::Alarm;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

/// The token of the moment, which is no descriptor's number.
const MOMENT: u64 = u64::MAX;
/// The most descriptors that one wait tells of; it tells of the others the next time.
const READY_MAX: usize = 64;

/// A descriptor that has something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Which.
    pub number: RawFd,
    /// There is something to read, an error or an end among it; else it can only be written to.
    pub readable: bool,
}

/// The descriptor, and what is in it. Closed when dropped.
///
/// ```
/// use std::time::{Duration, Instant};
/// use thalweg_sys::nested::Nested;
///
/// let mut nested = Nested::new()?;
/// let soon = Instant::now() + Duration::from_millis(1);
/// nested.due(Some(soon))?;
/// assert!(nested.wait(Some(soon), None, &mut Vec::new())?);
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Nested {
    epoll: Epoll,
    alarm: Alarm,
    events: Events,
}

impl Nested {
    /// One that watches nothing.
    ///
    /// # Errors
    /// Out of descriptors or of memory.
    pub fn new() -> io::Result<Self> {
        let (epoll, alarm) = (Epoll::new()?, Alarm::new()?);
        epoll.add(alarm.as_fd(), MOMENT, Watch::READ)?;
        Ok(Self { epoll, alarm, events: Events::with_capacity(READY_MAX) })
    }

    /// Has a descriptor watched for `wanted` that was watched for `before`; `None` is not at all.
    ///
    /// # Errors
    /// Out of memory.
    pub fn watch(
        &self,
        descriptor: BorrowedFd<'_>,
        before: Option<Watch>,
        wanted: Option<Watch>,
    ) -> io::Result<()> {
        let token = descriptor.as_raw_fd() as u64;
        match (before, wanted) {
            (before, wanted) if before == wanted => Ok(()),
            (None, Some(wanted)) => self.epoll.add(descriptor, token, wanted),
            (Some(_), Some(wanted)) => self.epoll.modify(descriptor, token, wanted),
            (_, None) => self.epoll.delete(descriptor),
        }
    }

    /// Is readable from then on, or a moment before.
    ///
    /// # Errors
    /// None in practice.
    pub fn due(&mut self, at: Option<Instant>) -> io::Result<()> {
        self.alarm.due(at)
    }

    /// Waits until there is something, at most so long; `due` is when there is, whatever comes. `false`:
    /// there is not; a signal ends a wait too. Adds the descriptors that have something to `ready`, each
    /// once.
    ///
    /// # Errors
    /// None in practice.
    pub fn wait(
        &mut self,
        due: Option<Instant>,
        left: Option<Duration>,
        ready: &mut Vec<Ready>,
    ) -> io::Result<bool> {
        // A moment that has passed was told of, and would be for ever.
        if self.alarm.has_passed() {
            self.due(due)?;
        }
        // Rounded up, so that what is waited for has come when the wait ends.
        let left_ms = left.map_or(u32::MAX >> 1, |left| {
            u32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX >> 1)
        });
        self.epoll.wait(&mut self.events, READY_MAX, Timeout::Milliseconds(left_ms))?;
        let events = (0..self.events.len()).filter_map(|index| self.events.at(index));
        ready.extend(events.filter_map(|event| {
            // What is no number of a descriptor is the moment.
            let number = RawFd::try_from(event.token).ok()?;
            Some(Ready { number, readable: event.readable || event.hangup || event.error })
        }));
        Ok(!self.events.is_empty())
    }
}

impl AsFd for Nested {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventFd;

    #[test]
    fn it_is_readable_while_something_inside_is_what_it_is_watched_for() {
        let (mut nested, event) = (Nested::new().unwrap(), EventFd::new().unwrap());
        let number = event.as_fd().as_raw_fd();
        let told = |nested: &mut Nested| {
            let mut told = Vec::new();
            let is_ready = nested.wait(None, Some(Duration::ZERO), &mut told).unwrap();
            assert_eq!((told.len(), is_ready), (usize::from(is_ready), !told.is_empty()));
            told.pop()
        };
        let (to_read, to_write) =
            (Some(Ready { number, readable: true }), Some(Ready { number, readable: false }));
        nested.watch(event.as_fd(), None, Some(Watch::READ)).unwrap();
        assert_eq!(told(&mut nested), None);
        nested.watch(event.as_fd(), Some(Watch::READ), Some(Watch::BOTH)).unwrap();
        assert_eq!(told(&mut nested), to_write);
        nested.watch(event.as_fd(), Some(Watch::BOTH), Some(Watch::READ)).unwrap();
        assert_eq!(told(&mut nested), None);
        event.signal().unwrap();
        assert_eq!([told(&mut nested), told(&mut nested)], [to_read; 2], "until it is read");
        nested.watch(event.as_fd(), Some(Watch::READ), None).unwrap();
        assert_eq!(told(&mut nested), None);
    }

    /// Nobody need ask for that, and it is not heard of by writing.
    #[test]
    fn an_end_is_something_to_read() {
        let (mut nested, (input, output)) = (Nested::new().unwrap(), std::io::pipe().unwrap());
        nested.watch(input.as_fd(), None, Some(Watch::WRITE)).unwrap();
        drop(output);
        let mut told = Vec::new();
        assert!(nested.wait(None, Some(Duration::ZERO), &mut told).unwrap());
        assert_eq!(told, [Ready { number: input.as_raw_fd(), readable: true }]);
    }

    #[test]
    fn a_moment_that_has_come_is_something_and_no_descriptor() {
        let (mut nested, mut told) = (Nested::new().unwrap(), Vec::new());
        let soon = Some(Instant::now() + Duration::from_millis(1));
        nested.due(soon).unwrap();
        assert!(nested.wait(soon, Some(Duration::from_secs(60)), &mut told).unwrap() && told.is_empty());
    }

    /// Those that one wait has no room for are told of by the next, and until then the descriptor says so.
    #[test]
    fn more_than_one_wait_tells_of_are_told_of_by_two() {
        let mut nested = Nested::new().unwrap();
        let events: Vec<_> = (0..=READY_MAX).map(|_| EventFd::new().unwrap()).collect();
        for event in &events {
            nested.watch(event.as_fd(), None, Some(Watch::READ)).unwrap();
            event.signal().unwrap();
        }
        let told = |nested: &mut Nested| {
            let mut told = Vec::new();
            assert!(nested.wait(None, Some(Duration::ZERO), &mut told).unwrap());
            told.iter().map(|ready| ready.number).collect::<Vec<_>>()
        };
        // Where none of them is read.
        let (first, second) = (told(&mut nested), told(&mut nested));
        let both: std::collections::BTreeSet<_> = first.iter().chain(&second).collect();
        assert_eq!((first.len(), both.len()), (READY_MAX, events.len()));
        // Where those are that were told of.
        let first = told(&mut nested);
        let is_told = |event: &&EventFd| first.contains(&event.as_fd().as_raw_fd());
        for event in events.iter().filter(is_told) {
            event.clear().unwrap();
        }
        assert!(crate::epoll::wait_readable(nested.as_fd(), 0).unwrap());
        let last = events.iter().find(|event| !is_told(event)).unwrap();
        assert_eq!(told(&mut nested), [last.as_fd().as_raw_fd()]);
    }
}
