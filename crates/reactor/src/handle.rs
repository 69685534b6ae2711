//! A reactor as other threads see it: a mailbox to post to, and a wish that it stop.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use thalweg_sync::mailbox::Mailbox;
use thalweg_sync::parking::Wake;
use thalweg_sys::event::EventFd;

/// Wakes the reactor's `epoll_wait`.
#[derive(Debug)]
pub(crate) struct Waker {
    event: EventFd,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { event: EventFd::new()? })
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
        // Cannot fail on an open eventfd; and if it did, nobody here could do better than go on.
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
