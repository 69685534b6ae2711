//! A reactor as other threads see it: a mailbox to post to, and a wish that it stop.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use thalweg_sync::mailbox::Mailbox;
use thalweg_sync::meter::Meter;
use thalweg_sync::parking::Wake;
use thalweg_sys::event::EventFd;

/// Wakes the reactor's `epoll_wait`.
#[derive(Debug)]
pub(crate) struct Waker {
    event: EventFd,
    /// Here because holders of a handle read it, and threads that wake the reactor write to it.
    pub(crate) meter: Meter<COUNTERS>,
}

const COUNTERS: usize = 5;
pub(crate) const TURNS: usize = 0;
pub(crate) const WAITS: usize = 1;
pub(crate) const MESSAGES: usize = 2;
pub(crate) const DEPTH_MAX: usize = 3;
const WAKES: usize = 4;

/// What a reactor did since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Turns.
    pub turns: u64,
    /// Times the kernel was asked what is ready.
    pub waits: u64,
    /// Messages from other threads, and nudges that were heard.
    pub messages: u64,
    /// The most messages that one turn found.
    pub messages_at_once: u64,
    /// Times another thread had to wake it: every other message came while it was up, or behind one that woke
    /// it.
    pub wakes: u64,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { event: EventFd::new()?, meter: Meter::new() })
    }

    /// How many wakes there were since the last look.
    #[cfg(test)]
    pub(crate) fn wakes(&self) -> u64 {
        self.event.clear().unwrap()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Wake for Waker {
    fn wake(&self) {
        self.meter.add_shared(WAKES, 1);
        // Cannot fail on an open eventfd; and if it did, there would be nothing better to do than to go on.
        let _ = self.event.signal();
    }
}

pub(crate) type Shared<M> = Arc<Mailbox<M, Waker>>;

/// The mailbox was full; the message comes back.
pub use thalweg_sync::mailbox::Full;

/// Posts to one reactor, from any thread. Cheap to clone; outlives the reactor harmlessly.
pub struct Handle<M> {
    pub(crate) mailbox: Shared<M>,
}

impl<M> Clone for Handle<M> {
    fn clone(&self) -> Self {
        Self { mailbox: Arc::clone(&self.mailbox) }
    }
}

impl<M> fmt::Debug for Handle<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl<M> Handle<M> {
    /// Posts a message: one short lock, and one system call if the reactor sleeps and this is the first
    /// message it has not seen.
    ///
    /// # Errors
    /// [`Full`] with the message.
    pub fn post(&self, message: M) -> Result<(), Full<M>> {
        self.mailbox.post(message)
    }

    /// Reserves room for one message; `None` when the mailbox is at its bound.
    pub fn reserve(&self) -> Option<Permit<M>> {
        self.mailbox.reserve().map(|permit| Permit { permit })
    }

    /// What the reactor did so far. From any thread, without disturbing it.
    pub fn activity(&self) -> Activity {
        let meter = &self.mailbox.waker().meter;
        Activity {
            turns: meter.read(TURNS),
            waits: meter.read(WAITS),
            messages: meter.read(MESSAGES),
            messages_at_once: meter.read(DEPTH_MAX),
            wakes: meter.read(WAKES),
        }
    }

    /// Wakes the reactor without a message: [`crate::Handler::nudged`] hears of it in its next turn, once,
    /// however often that was asked. Never refused: it takes no room in the mailbox.
    pub fn nudge(&self) {
        self.mailbox.nudge();
    }

    /// Asks the reactor to stop after the turn it is in.
    pub fn stop(&self) {
        self.mailbox.stop();
    }
}

/// Room for one message in a reactor's mailbox; given back when dropped.
pub struct Permit<M> {
    permit: thalweg_sync::mailbox::Permit<M, Waker>,
}

impl<M> fmt::Debug for Permit<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Permit").finish_non_exhaustive()
    }
}

impl<M> Permit<M> {
    /// Posts. Never fails.
    pub fn post(self, message: M) {
        self.permit.post(message);
    }
}
