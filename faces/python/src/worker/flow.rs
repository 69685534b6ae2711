//! What a worker's calls have in common: how they end, and how changes to them are heard of.

use super::encode;
use super::generated::types::{PythonAnswerResponse, PythonInvokeResponse};
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Wake, Waker};
use thalweg_wire::messagepack::response_frame;

/// The frame that ends a call.
pub(super) fn outcome(ok: bool, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let mut bytes = Vec::with_capacity(64);
    encode::value(value, &mut bytes)?;
    let mut frame = Vec::with_capacity(bytes.len() + 48);
    response_frame(&PythonInvokeResponse { ok, value: Cow::Borrowed(&bytes) }, &mut frame);
    Ok(frame)
}

/// The frame that says that a callback's answer came.
pub(super) fn answered() -> Vec<u8> {
    let mut frame = Vec::new();
    response_frame(&PythonAnswerResponse {}, &mut frame);
    frame
}

/// The numbers of jobs for which something changed.
#[derive(Clone, Default)]
pub(super) struct Changes(Arc<Mutex<Vec<u64>>>);

impl Changes {
    /// A waker runs where no Python may: it only notes the number.
    pub(super) fn waker(&self, number: u64) -> Waker {
        Waker::from(Arc::new(Note { number, changes: self.clone() }))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub(super) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.lock())
    }
}

struct Note {
    number: u64,
    changes: Changes,
}

impl Wake for Note {
    fn wake(self: Arc<Self>) {
        self.changes.0.lock().push(self.number);
    }
}
