//! What rings in an event loop when a store moved.
//!
//! The thread that commits rings it, without the interpreter's lock: neither that thread nor the
//! committer ever waits for Python. In a loop of ours it posts to the loop's mailbox, with room reserved when
//! the bell was armed, so that a ring is never refused; for any other loop a descriptor becomes readable.

use super::following;
use super::shared::Shared;
use crate::error::{self, io};
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use thalweg_reactor::{Handle, Permit};
use thalweg_sys::event::EventFd;

/// What a commit rings, once after each `Cursor.arm`.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Bell {
    ring: Ring,
    /// What a store rings. One for good: a store knows it by where it lies and how it is woken, and of two
    /// that are made of the same ring the second need not be the same.
    waker: Waker,
    /// Stores that may ring it: they forget it once nothing refers to it.
    stores: Mutex<Vec<Weak<Shared>>>,
}

enum Ring {
    Descriptor(Arc<Descriptor>),
    Post(Box<dyn Room>),
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

/// Room in a mailbox.
trait Room: Send + Sync {
    /// Has room for one more ring. `false`: the mailbox is full.
    fn reserve(&self) -> bool;
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

impl<M: Send + 'static, F: Fn() -> M + Send + Sync + 'static> Room for Arc<Post<M, F>> {
    fn reserve(&self) -> bool {
        let mut room = self.room.lock();
        if room.is_none() {
            *room = self.handle.reserve();
        }
        room.is_some()
    }
}

impl Bell {
    /// A bell that posts a message.
    pub(crate) fn posting<M: Send + 'static>(
        handle: Handle<M>,
        message: impl Fn() -> M + Send + Sync + 'static,
    ) -> Self {
        let post = Arc::new(Post { handle, message, room: Mutex::new(None) });
        Self::of(Waker::from(Arc::clone(&post)), Ring::Post(Box::new(post)))
    }

    fn of(waker: Waker, ring: Ring) -> Self {
        Self { ring, waker, stores: Mutex::default() }
    }

    /// What rings it next, for a store that has it.
    ///
    /// # Errors
    /// The mailbox that it posts to is full.
    pub(crate) fn waker_for(&self, store: &Arc<Shared>) -> PyResult<&Waker> {
        if let Ring::Post(room) = &self.ring
            && !room.reserve()
        {
            let full = "the event loop's mailbox is full, of messages or of the room that every armed bell keeps there: \
                let go of bells, or try again later";
            return Err(error::failure("OVERLOADED", full));
        }
        let mut stores = self.stores.lock();
        if !stores.iter().any(|known| known.as_ptr() == Arc::as_ptr(store)) {
            stores.push(Arc::downgrade(store));
        }
        Ok(&self.waker)
    }
}

impl Drop for Bell {
    /// It may be armed, and what is armed has a descriptor, or room in a mailbox.
    fn drop(&mut self) {
        for store in self.stores.get_mut().drain(..).filter_map(|store| store.upgrade()) {
            // One that is closed has forgotten all, and one of a parent's is not this process's.
            if let Ok(maps) = store.with(|open| open.maps.clone()) {
                maps.forget(&self.waker);
            }
        }
    }
}

#[pymethods]
impl Bell {
    #[new]
    fn new() -> PyResult<Bell> {
        EventFd::new()
            .map(|event| {
                let ring = Arc::new(Descriptor(event));
                Bell::of(Waker::from(Arc::clone(&ring)), Ring::Descriptor(ring))
            })
            .map_err(|error| io("make an event descriptor", &error))
    }

    /// The descriptor, to be watched for reading; -1 for a bell that posts.
    fn fileno(&self) -> i32 {
        match &self.ring {
            Ring::Descriptor(ring) => ring.0.as_fd().as_raw_fd(),
            Ring::Post(_) => -1,
        }
    }

    /// Which of these cursors and listeners for new logs, by their places, have something to be told now, by
    /// the next call of their `next`. For all others it rings with the next commit to their stores, whichever
    /// log that is of.
    fn which(&self, py: Python<'_>, sources: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<usize>> {
        following::which(py, self, &sources)
    }

    /// Makes it silent again.
    fn clear(&self) {
        if let Ring::Descriptor(ring) = &self.ring {
            let _ = ring.0.clear();
        }
    }
}
