//! What rings in an event loop: a descriptor that becomes readable when a store moved.
//!
//! Whoever commits writes to the descriptor, and needs no interpreter's lock for it: neither the thread that
//! commits nor the committer ever waits for Python.

use crate::error::io;
use pyo3::prelude::*;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::task::{Wake, Waker};
use thalweg_sys::event::EventFd;

/// A descriptor that a commit makes readable, once after each `Cursor.arm`.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Bell(Arc<Ring>);

struct Ring(EventFd);

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let _ = self.0.signal();
    }
}

impl Bell {
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(self.0.clone())
    }
}

#[pymethods]
impl Bell {
    #[new]
    fn new() -> PyResult<Bell> {
        EventFd::new()
            .map(|event| Bell(Arc::new(Ring(event))))
            .map_err(|error| io("make an event descriptor", &error))
    }

    /// The descriptor, to be watched for reading.
    fn fileno(&self) -> i32 {
        self.0.0.as_fd().as_raw_fd()
    }

    /// Makes it silent again.
    fn clear(&self) {
        let _ = self.0.0.clear();
    }
}
