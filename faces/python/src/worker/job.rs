//! A call that did not end at once: what is awaited, or brings one value after the other.
//!
//! Ends once, with a value or with what was raised. Let go of unanswered, the caller is told that it was
//! abandoned.

use super::flow::{self, Changes};
use super::generated::types::PythonGenerateItem;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyIterator;
use std::time::{Duration, Instant};
use thalweg_service::Reply;
use thalweg_wire::messagepack::response_frame;
use thalweg_wire::service::Flow;

/// So long a generator goes on before others have their turn.
const SLICE: Duration = Duration::from_micros(500);

/// The right, and the duty, to end one call.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Job {
    number: u64,
    /// `None` once ended.
    reply: Mutex<Option<Reply>>,
    /// What runs for it was told that it is not awaited any more.
    was_told: Mutex<bool>,
    changes: Changes,
}

impl Job {
    /// A job whose worker is told when it is not awaited any more, unless what runs for it was told before it
    /// became one.
    pub(super) fn new(number: u64, mut reply: Reply, was_told: bool, changes: Changes) -> Self {
        reply.when_cancelled(&changes.waker(number));
        Self { number, reply: Mutex::new(Some(reply)), was_told: Mutex::new(was_told), changes }
    }

    fn send(&self, bytes: Vec<u8>) -> u8 {
        let mut frame = Vec::with_capacity(bytes.len() + 48);
        response_frame(&PythonGenerateItem { value: bytes.into() }, &mut frame);
        match self.reply.lock().as_mut().map_or(Flow::Gone, |reply| reply.item(&frame)) {
            Flow::Go => 0,
            Flow::Wait => 1,
            Flow::Gone => 2,
        }
    }

    fn finish(&self, ok: bool, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let frame = flow::outcome(ok, value)?;
        if let Some(reply) = self.reply.lock().take() {
            reply.end(&frame);
        }
        Ok(())
    }
}

#[pymethods]
impl Job {
    /// Tells the jobs of a worker apart.
    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    /// Ends the call with a value. Nothing happens when it has ended.
    fn end(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.finish(true, value)
    }

    /// Ends the call with an error.
    pub(super) fn fail(&self, reason: &Bound<'_, PyAny>) -> PyResult<()> {
        self.finish(false, reason)
    }

    /// Sends a value: 0 says to go on, 1 to wait for a change first, 2 that no more is wanted.
    fn item(&self, value: &Bound<'_, PyAny>) -> PyResult<u8> {
        let mut bytes = Vec::with_capacity(64);
        super::encode::value(value, &mut bytes)?;
        Ok(self.send(bytes))
    }

    /// Takes what an iterator has and sends it in lists of up to so many values, until others should have a
    /// turn: 0, 1 and 2 as of `item`, 3 that it has no more. An iterator that raises has what came before
    /// sent first.
    fn bring(&self, values: &Bound<'_, PyAny>, most: usize) -> PyResult<u8> {
        let began = Instant::now();
        let mut values = values.try_iter()?;
        loop {
            let (bytes, end) = list(&mut values, most);
            let flow = bytes.map_or(0, |bytes| self.send(bytes));
            if let Some(end) = end {
                return end.map(|()| 3);
            }
            if flow != 0 || began.elapsed() >= SLICE {
                return Ok(flow);
            }
        }
    }

    /// Has the worker say once, by this number, that there is credit again or that it is not awaited any
    /// more.
    fn watch(&self) {
        if let Some(reply) = self.reply.lock().as_mut() {
            reply.changed(&self.changes.waker(self.number));
        }
    }

    /// Whether it is not awaited any more.
    #[getter]
    pub(super) fn is_cancelled(&self) -> bool {
        self.reply.lock().as_ref().is_none_or(Reply::is_cancelled)
    }

    /// Whether it is not awaited any more, and what runs for it is to be told so now: `True` once, so that
    /// what it does because of that comes to its end.
    pub(super) fn give_up(&self) -> bool {
        self.is_cancelled() && !std::mem::replace(&mut *self.was_told.lock(), true)
    }
}

/// So many values of an iterator as a list, if there is one, and how the iterator ended, if it did.
fn list(values: &mut Bound<'_, PyIterator>, most: usize) -> (Option<Vec<u8>>, Option<PyResult<()>>) {
    let mut bytes = vec![0xdd, 0, 0, 0, 0];
    let mut count = 0u32;
    let end = loop {
        if count as usize >= most {
            break None;
        }
        match values.next() {
            Some(Ok(value)) => {
                let end = bytes.len();
                if let Err(raised) = super::encode::value(&value, &mut bytes) {
                    bytes.truncate(end);
                    break Some(Err(raised));
                }
            }
            Some(Err(raised)) => break Some(Err(raised)),
            None => break Some(Ok(())),
        }
        count += 1;
    };
    bytes[1..5].copy_from_slice(&count.to_be_bytes());
    ((count > 0).then_some(bytes), end)
}
