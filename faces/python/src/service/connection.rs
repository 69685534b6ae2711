//! A client as Python drives it: by turns of an event loop, or waiting.
//!
//! Requests are read where they lie, by the buffer protocol; answers become `bytes` straight from what was
//! received. A wait gives the interpreter's lock away and lets signals through: what is slept in ends with a
//! signal, and its handler runs before the wait goes on.

use super::error::{Raise, exception, fault};
use super::owned::{Owned, Unavailable};
use super::spawned::Program;
use super::{seconds, whole};
use crate::hearing;
use crate::numbers::Number;
use crate::payload::Payload;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::os::fd::AsRawFd;
use thalweg_reactor::Wait;
use thalweg_service::{CallId, CallOptions, Client, ClientOptions, Event, EventKind, Reconnect};
use thalweg_wire::fault::Fault;

/// What comes of a call: an item, the end, or why there is none.
const ITEM: u8 = 0;
const END: u8 = 1;
const FAILED: u8 = 2;

const UNARY: CallOptions = CallOptions { deadline: None, credit: None, unary: true };

/// One connection to a service, and its calls.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Connection {
    client: Owned<Client>,
    /// Calls that were to be forgotten while the client was in use: in the middle of another call of
    /// this thread, or while another thread waits.
    left: Mutex<Vec<CallId>>,
}

impl Connection {
    #[inline]
    fn with<R>(&self, py: Python<'_>, task: impl FnOnce(&mut Client) -> PyResult<R>) -> PyResult<R> {
        self.client.with(py, |client| {
            self.forget_left(client);
            task(client)
        })
    }

    /// What a client says of itself; nothing when it was closed.
    fn say<R: Default>(&self, py: Python<'_>, task: impl FnOnce(&mut Client) -> R) -> R {
        self.client.try_with(py, task).unwrap_or_default()
    }

    #[inline]
    fn forget_left(&self, client: &mut Client) {
        for call in self.left.lock().drain(..) {
            client.forget(call);
        }
    }

    fn let_go(&self, call: CallId, and: impl FnOnce(&mut Client)) {
        let gone = self.client.try_now(|client| {
            client.forget(call);
            and(client);
        });
        if let Err(Unavailable::Busy) = gone {
            self.left.lock().push(call);
        }
    }

    /// A turn that may wait for something to come, of one call if one is named, other threads running
    /// meanwhile; signals are handled.
    fn turn_waiting(&self, py: Python<'_>, of: Option<CallId>) -> PyResult<()> {
        let look = || {
            // What leaves takes a moment too, in which a signal would go unheard.
            let listens = self.with(py, |client| client.flush().raise(py).map(|()| client.listens()))?;
            if !listens {
                return Ok(None);
            }
            let moved = self.client.detached(py, |client| client.listen(of)).ok().transpose().raise(py)?;
            Ok(moved.filter(|moved| *moved > 0))
        };
        let sleep = || {
            let turned = self.client.detached(py, |client| match of {
                Some(call) => client.turn_for(call, Wait::Block),
                None => client.turn(Wait::Block),
            });
            Ok(turned.ok().transpose().raise(py)?.unwrap_or_default())
        };
        hearing::wait(py, look, sleep).map(drop)
    }

    /// What came next of any call, or of one.
    fn event(py: Python<'_>, event: Event<'_>) -> (u64, u8, Py<PyAny>) {
        let (kind, value) = match &event.kind {
            EventKind::Item => (ITEM, PyBytes::new(py, event.frame).into_any().unbind()),
            EventKind::End => (END, PyBytes::new(py, event.frame).into_any().unbind()),
            EventKind::Failed(error) => (FAILED, exception(py, error).into_value(py).into_any()),
        };
        (event.call.number(), kind, value)
    }

    /// Sleeps until something came of one call, handling signals.
    fn await_event(&self, py: Python<'_>, call: CallId) -> PyResult<(u8, Py<PyAny>)> {
        loop {
            let came =
                self.with(py, |client| match client.take(call).map(|event| Self::event(py, event)) {
                    Some((_, kind, value)) => Ok(Some((kind, value))),
                    None if client.knows(call) => Ok(None),
                    None => Err(fault(py, Fault::BadArgument, "no such call is in flight")),
                })?;
            if let Some(came) = came {
                return Ok(came);
            }
            self.turn_waiting(py, Some(call))?;
        }
    }

    fn answer(py: Python<'_>, (kind, value): (u8, Py<PyAny>)) -> PyResult<(bool, Py<PyAny>)> {
        match kind {
            FAILED => Err(PyErr::from_value(value.into_bound(py))),
            kind => Ok((kind == END, value)),
        }
    }

    fn begin_call(
        &self,
        request: &Bound<'_, PyAny>,
        deadline: Option<Number<f64>>,
        options: CallOptions,
    ) -> PyResult<CallId> {
        let py = request.py();
        let deadline = deadline.map(|deadline| seconds(py, "deadline", deadline)).transpose()?;
        let payload = Payload::of(request)?;
        self.with(py, |client| client.call(payload.bytes(), CallOptions { deadline, ..options }).raise(py))
    }
}

#[pymethods]
impl Connection {
    /// Begins to connect: to an endpoint, or to a program that was started here.
    #[new]
    #[pyo3(signature = (
        peer, *, schema=None, connect_within=Number::Fits(5.0), deadline=None,
        in_flight_max=Number::Fits(1024), unsent_bytes_max=Number::Fits(64 << 20),
        frame_bytes_max=Number::Fits(16 << 20), shared=false, ring_bytes=Number::Fits(0), spin=true,
        reconnect=None, plain=false, same_user_only=true
    ))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn new(
        py: Python<'_>,
        peer: &Bound<'_, PyAny>,
        schema: Option<&[u8]>,
        connect_within: Number<f64>,
        deadline: Option<Number<f64>>,
        in_flight_max: Number<u32>,
        unsent_bytes_max: Number<usize>,
        frame_bytes_max: Number<u32>,
        shared: bool,
        ring_bytes: Number<u32>,
        spin: bool,
        reconnect: Option<(Number<f64>, Number<f64>)>,
        plain: bool,
        same_user_only: bool,
    ) -> PyResult<Self> {
        let reconnect = match reconnect {
            None => Reconnect::Never,
            Some((first, most)) => Reconnect::Backoff {
                first: seconds(py, "reconnect", first)?,
                most: seconds(py, "reconnect", most)?,
            },
        };
        let options = ClientOptions {
            schema: super::schema(py, schema)?,
            connect_within: seconds(py, "connect_within", connect_within)?,
            deadline: deadline.map(|deadline| seconds(py, "deadline", deadline)).transpose()?,
            in_flight_max: whole(py, "in_flight_max", in_flight_max)?,
            unsent_bytes_max: whole(py, "unsent_bytes_max", unsent_bytes_max)?,
            frame_bytes_max: whole(py, "frame_bytes_max", frame_bytes_max)?,
            shared,
            ring_bytes: whole(py, "ring_bytes", ring_bytes)?,
            spin,
            reconnect,
            plain,
            same_user_only,
        };
        let client = if let Ok(program) = peer.cast::<Program>() {
            program.get().begin_connecting(py, options)?
        } else {
            let path = peer.extract::<String>()?;
            Client::begin(&super::endpoint(py, &path)?, options).raise(py)?
        };
        Ok(Self { client: Owned::new(client), left: Mutex::default() })
    }

    /// Waits until the connection is there.
    fn await_connected(&self, py: Python<'_>) -> PyResult<()> {
        while !self.with(py, |client| Ok(client.is_connected()))? {
            self.turn_waiting(py, None)?;
        }
        Ok(())
    }

    /// Whether the connection is there. To be asked when the descriptor is readable; raises the reason why
    /// there never will be one.
    fn is_up(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |client| {
            client.turn(Wait::Poll).raise(py)?;
            if let Some(error) = client.failure() {
                return Err(exception(py, error));
            }
            Ok(client.is_connected())
        })
    }

    /// Queues a request that one frame answers, and names its call. It leaves with the next flush, turn or
    /// wait.
    #[pyo3(signature = (request, deadline=None))]
    fn call(&self, request: &Bound<'_, PyAny>, deadline: Option<Number<f64>>) -> PyResult<u64> {
        self.begin_call(request, deadline, UNARY).map(CallId::number)
    }

    /// The same of a request that a stream answers.
    #[pyo3(signature = (request, deadline=None, credit=None))]
    fn stream(
        &self,
        request: &Bound<'_, PyAny>,
        deadline: Option<Number<f64>>,
        credit: Option<Number<u32>>,
    ) -> PyResult<u64> {
        let credit = credit.map(|credit| whole(request.py(), "credit", credit)).transpose()?;
        let options = CallOptions { credit, ..CallOptions::default() };
        self.begin_call(request, deadline, options).map(CallId::number)
    }

    /// Cancels the call, which still ends: the answer is not awaited any more.
    fn cancel(&self, py: Python<'_>, call: Number<u64>) -> PyResult<()> {
        let call = CallId::from_number(whole(py, "call", call)?);
        self.say(py, |client| client.cancel(call));
        Ok(())
    }

    /// Cancels the call and never says anything of it again. Never waits, since finalizers may not: while
    /// another thread has the client it is noted, and done when the client is used next.
    fn forget(&self, call: u64) {
        self.let_go(CallId::from_number(call), |_| ());
    }

    /// Forgets the call in the same way, and the cancellation leaves now, if it can; else with whatever
    /// leaves next. For callers that let go of a call whatever became of the client: nothing happens when
    /// it was closed, nor in a child that has none.
    fn leave(&self, call: u64) {
        self.let_go(CallId::from_number(call), |client| {
            // What went wrong with the connection shows in the calls that there still are.
            let _ = client.flush();
        });
    }

    /// Says that nobody reads the end of the call that a turn brought: what it names may be taken back. It
    /// leaves with the next flush, turn or wait. Nothing happens when the client was closed.
    fn leave_unread(&self, py: Python<'_>, call: u64) {
        self.say(py, |client| client.leave_unread(CallId::from_number(call)));
    }

    /// Lets a stream send so many items more.
    fn grant(&self, py: Python<'_>, call: u64, items: u32) {
        self.say(py, |client| client.grant(CallId::from_number(call), items));
    }

    /// Writes what is queued, as far as it can be now.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |client| client.flush().raise(py))
    }

    /// Writes and reads what can be now, and returns what came: which call, what, and the frame or why there
    /// is none. While it holds back it reads nothing, and the descriptor does not say that something came.
    #[pyo3(signature = (holds_back=false))]
    fn turn<'py>(&self, py: Python<'py>, holds_back: bool) -> PyResult<Bound<'py, PyList>> {
        self.with(py, |client| {
            client.hold_back(holds_back);
            client.turn(Wait::Poll).raise(py)?;
            let events = PyList::empty(py);
            while let Some(event) = client.next() {
                events.append(Self::event(py, event))?;
            }
            Ok(events)
        })
    }

    /// Calls and waits for the answer.
    #[pyo3(signature = (request, deadline=None))]
    fn ask(&self, request: &Bound<'_, PyAny>, deadline: Option<Number<f64>>) -> PyResult<Py<PyAny>> {
        let py = request.py();
        let call = self.begin_call(request, deadline, UNARY)?;
        let event = self.await_event(py, call).inspect_err(|_| self.say(py, |client| client.forget(call)))?;
        Self::answer(py, event).map(|(_, frame)| frame)
    }

    /// Waits for what comes next of a call: whether it is the end, and the frame.
    fn wait(&self, py: Python<'_>, call: Number<u64>) -> PyResult<(bool, Py<PyAny>)> {
        let call = CallId::from_number(whole(py, "call", call)?);
        Self::answer(py, self.await_event(py, call)?)
    }

    /// Whether anything will come, or has come and was not taken, of a call: one whose wait failed may go on.
    fn knows(&self, py: Python<'_>, call: u64) -> bool {
        self.say(py, |client| client.knows(CallId::from_number(call)))
    }

    /// The descriptor for an event loop: readable when a turn has something to do.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.with(py, |client| client.descriptor().map(|descriptor| descriptor.as_raw_fd()).raise(py))
    }

    /// Ends the connection for good, and lets go of everything.
    fn close(&self, py: Python<'_>) {
        self.client.close(py);
    }

    /// Whether it is this process's, and was not closed.
    #[getter]
    fn is_open(&self) -> bool {
        self.client.is_open()
    }

    #[getter]
    fn in_flight(&self, py: Python<'_>) -> usize {
        self.say(py, |client| client.in_flight())
    }

    #[getter]
    fn is_shared(&self, py: Python<'_>) -> bool {
        self.say(py, |client| client.is_shared())
    }

    #[getter]
    fn is_connected(&self, py: Python<'_>) -> bool {
        self.say(py, |client| client.is_connected())
    }

    /// Items that a new stream may send at first; 0 where streams know no credit.
    #[getter]
    fn credit(&self, py: Python<'_>) -> u32 {
        self.say(py, |client| client.credit())
    }
}
