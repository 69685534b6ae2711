//! What rings in an event loop when a store moved.
//!
//! Whoever commits rings, and needs no interpreter's lock for it: neither the thread that commits nor the committer
//! ever waits for Python. In a loop of ours it posts to the loop's mailbox, with room reserved when the bell was armed, so
//! that a ring is never refused; for any other loop a descriptor becomes readable.

use crate::error::{self, io};
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::task::{Wake, Waker};
use thalweg_reactor::{Handle, Permit};
use thalweg_sys::event::EventFd;

/// What a commit rings, once after each `Cursor.arm`.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Bell(Ring);

enum Ring {
    Descriptor(Arc<Descriptor>),
    Post(Box<dyn Rearm>),
}

struct Descriptor(EventFd);

impl Wake for Descriptor {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let _ = self.0.signal();
    }
}

/// A waker that has room in a mailbox.
trait Rearm: Send + Sync {
    /// `None`: the mailbox is full.
    fn waker(&self) -> Option<Waker>;
}

struct Post<M, F> {
    handle: Handle<M>,
    message: F,
    /// Room for one message, from being armed to being rung.
    room: Mutex<Option<Permit<M>>>,
}

impl<M: Send + 'static, F: Fn() -> M + Send + Sync + 'static> Wake for Post<M, F> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(room) = self.room.lock().take() {
            room.post((self.message)());
        }
    }
}

impl<M: Send + 'static, F: Fn() -> M + Send + Sync + 'static> Rearm for Arc<Post<M, F>> {
    fn waker(&self) -> Option<Waker> {
        let mut room = self.room.lock();
        if room.is_none() {
            *room = Some(self.handle.reserve()?);
        }
        Some(Waker::from(Arc::clone(self)))
    }
}

impl Bell {
    /// A bell that posts a message.
    pub(crate) fn posting<M: Send + 'static>(
        handle: Handle<M>,
        message: impl Fn() -> M + Send + Sync + 'static,
    ) -> Self {
        Self(Ring::Post(Box::new(Arc::new(Post { handle, message, room: Mutex::new(None) }))))
    }

    /// What rings it next.
    ///
    /// # Errors
    /// The mailbox that it posts to is full.
    pub(crate) fn waker(&self) -> PyResult<Waker> {
        let full = "the event loop does not keep up: its mailbox is full, try again later";
        match &self.0 {
            Ring::Descriptor(ring) => Ok(Waker::from(Arc::clone(ring))),
            Ring::Post(post) => post.waker().ok_or_else(|| error::failure("OVERLOADED", full)),
        }
    }
}

#[pymethods]
impl Bell {
    #[new]
    fn new() -> PyResult<Bell> {
        EventFd::new()
            .map(|event| Bell(Ring::Descriptor(Arc::new(Descriptor(event)))))
            .map_err(|error| io("make an event descriptor", &error))
    }

    /// The descriptor, to be watched for reading; -1 for a bell that posts.
    fn fileno(&self) -> i32 {
        match &self.0 {
            Ring::Descriptor(ring) => ring.0.as_fd().as_raw_fd(),
            Ring::Post(_) => -1,
        }
    }

    /// Makes it silent again.
    fn clear(&self) {
        if let Ring::Descriptor(ring) = &self.0 {
            let _ = ring.0.clear();
        }
    }
}
