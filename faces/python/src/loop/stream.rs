//! A connection as asyncio sees it: the transport of a stream socket, TCP or Unix.
//!
//! Purpose: bytes go from the socket to the protocol and back without a Python frame of ours. The socket
//! object is Python's and closes the descriptor; the loop watches the number. A write is tried at once, or
//! with others' at the end of a turn in which many connections are ready, and queued only when the peer does
//! not take it; a read goes through one buffer that all connections of a loop share.
//!
//! Invariants: `connection_lost` is called once, after everything else; between the end of writing
//! (`closing`) and it nothing is read. Checked by CPython's own tests of asyncio, run on this loop.

use super::core::Loop;
use super::endpoint::{Endpoint, Life, immutable};
use super::flow::mark;
use super::gil_cells::{GilCell, GilRefCell};
use super::io::{Side, Target};
use super::os_error;
use super::outgoing::Outgoing;
use super::turn::ends_program;
use pyo3::exceptions::{PyConnectionError, PyOSError, PyRuntimeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::os::fd::RawFd;
use thalweg_sys::socket;

/// How a protocol wants to be given bytes.
pub(crate) enum Receiver {
    /// `data_received`.
    Data(Py<PyAny>),
    /// `get_buffer` and `buffer_updated`.
    Buffer(Py<PyAny>, Py<PyAny>),
}

/// The native half of a stream's transport.
#[pyclass(module = "thalweg._native", frozen, subclass, weakref)]
pub(crate) struct StreamTransport {
    endpoint: Endpoint,
    pub(crate) receiver: GilRefCell<Option<Receiver>>,
    /// Called at the very end: tells the server, if it came from one, that it is gone.
    leave: GilCell<Option<Py<PyAny>>>,
    /// A future that waits until everything is sent.
    drained: GilCell<Option<Py<PyAny>>>,
    outgoing: GilRefCell<Outgoing>,
}

impl std::ops::Deref for StreamTransport {
    type Target = Endpoint;

    #[inline]
    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl StreamTransport {
    fn watch(slf: &Bound<'_, Self>, side: Side) -> PyResult<()> {
        let owner = slf.get().owner(slf.py())?;
        owner.get().watch(slf.py(), slf.get().descriptor, side, Target::Stream(slf.clone().unbind()))
    }

    /// Has the loop say when the peer takes more, from any thread: a part may be sent already.
    fn watch_writing(slf: &Bound<'_, Self>) -> PyResult<()> {
        let method = intern!(slf.py(), "_start_writing");
        let handed = slf.get().hands_over(slf, method, PyTuple::empty(slf.py()))?;
        if handed { Ok(()) } else { Self::watch(slf, Side::Write) }
    }

    /// Another is told of the descriptor now. Where the socket was closed behind its back the number is that
    /// one's, and nothing may be sent to it any more.
    pub(crate) fn replaced(slf: &Bound<'_, Self>, side: Side) -> PyResult<()> {
        slf.get().robbed(slf.py(), side)?.map_or(Ok(()), |error| Self::_force_close(slf, error))
    }

    /// The descriptor is ready: what the loop calls.
    #[inline]
    pub(crate) fn ready(&self, slf: &Bound<'_, Self>, side: Side) -> PyResult<()> {
        if self.life.get(slf.py()).lost > 0 {
            return Ok(());
        }
        self.in_context(slf.py(), || match side {
            Side::Read => self.read_ready(slf),
            Side::Write => self.write_ready(slf),
        })
    }

    /// The peer takes more.
    fn write_ready(&self, slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let sent = self.outgoing.with(py, |outgoing| outgoing.send(py, self.borrowed()))?;
        if self.settle(slf, sent)? { self.all_sent(slf) } else { Ok(()) }
    }

    /// Nothing is left to send: it is not watched for room any more, and ends if it was closed.
    fn all_sent(&self, slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        self.unwatch(py, Side::Write)?;
        match self.life.get(py) {
            Life { closing: true, lost: 0, .. } => self.schedule_lost(slf, py.None().into_bound(py)),
            _ => Ok(()),
        }
    }

    /// At the end of a turn: sends what was written in it.
    pub(crate) fn send_queue(&self, slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        if self.life.get(py).lost > 0 {
            // What waited was dropped then.
            return Ok(());
        }
        let sent = self.outgoing.with(py, |outgoing| outgoing.send(py, self.borrowed()))?;
        self.in_context(py, || self.turn_ended(slf, sent))
    }

    /// At the end of a turn: all that was written in it, if that is one piece, for [`taken`](Self::taken).
    pub(crate) fn only_piece(&self, py: Python<'_>) -> PyResult<Option<Py<PyBytes>>> {
        if self.life.get(py).lost > 0 {
            return Ok(None);
        }
        self.outgoing.with(py, |outgoing| outgoing.only(py))
    }

    /// At the end of a turn: the peer took so much of the only piece.
    pub(crate) fn taken(&self, slf: &Bound<'_, Self>, taken: std::io::Result<Option<usize>>) -> PyResult<()> {
        let py = slf.py();
        if self.life.get(py).lost > 0 {
            // Aborted by a callback of another connection.
            return Ok(());
        }
        let sent = match taken {
            Ok(count) => Ok(self.outgoing.with(py, |outgoing| outgoing.took(py, count.unwrap_or(0)))?),
            Err(error) => Err(error),
        };
        self.in_context(py, || self.turn_ended(slf, sent))
    }

    fn turn_ended(&self, slf: &Bound<'_, Self>, sent: std::io::Result<Vec<Py<PyBytes>>>) -> PyResult<()> {
        let py = slf.py();
        let done = match self.settle(slf, sent) {
            Ok(done) => done,
            Err(raised) => {
                // What ends the program does not lose what is left to do here: the loop may run again.
                if self.life.get(py).lost == 0 {
                    Self::watch(slf, Side::Write)?;
                }
                return Err(raised);
            }
        };
        match self.life.get(py) {
            // It failed, or the callback ended it.
            Life { lost: 1.., .. } => Ok(()),
            _ if !done => Self::watch(slf, Side::Write),
            // What was sent now was written by a callback that had been told of room.
            _ => self.all_sent(slf),
        }
    }

    /// What comes of having sent: waiters for room, or for the end, are told. Whether nothing is left to
    /// send.
    fn settle(&self, slf: &Bound<'_, Self>, sent: std::io::Result<Vec<Py<PyBytes>>>) -> PyResult<bool> {
        let py = slf.py();
        match sent {
            Ok(gone) => drop(gone),
            Err(error) => {
                let raised = os_error(&error);
                self.unwatch(py, Side::Write)?;
                drop(self.outgoing.with(py, Outgoing::clear)?);
                self.tell_drained(py, "set_exception", raised.value(py))?;
                Self::fatal(slf, raised, "Fatal write error on socket transport")?;
                return Ok(false);
            }
        }
        let bytes = self.outgoing.with(py, |outgoing| outgoing.bytes())?;
        self.maybe_resume(slf, bytes)?;
        if self.outgoing.with(py, |outgoing| outgoing.bytes())? > 0 {
            return Ok(false);
        }
        self.tell_drained(py, "set_result", py.None().bind(py))?;
        let life = self.life.get(py);
        if life.ended
            && !life.closing
            && let Err(raised) = self.shut_writing()
        {
            // The peer was gone by then.
            Self::fatal(slf, raised, "Fatal error at the end of writing on socket transport")?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Tells the waiter for everything to be sent, if it still waits.
    fn tell_drained(&self, py: Python<'_>, how: &str, what: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.drained.share(py) {
            Some(drained) if !drained.bind(py).call_method0("done")?.is_truthy()? => {
                drained.bind(py).call_method1(how, (what,)).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// The server, if it came from one, that it is gone.
    fn tell_left(&self, py: Python<'_>) -> PyResult<()> {
        match self.leave.take(py) {
            Some(leave) => leave.bind(py).call0().map(drop),
            None => Ok(()),
        }
    }

    /// Whether so many bytes in the queue have the protocol pause.
    pub(crate) fn is_too_much(&self, py: Python<'_>, bytes: usize) -> bool {
        bytes > self.flow.limits(py).1
    }

    fn shut_writing(&self) -> PyResult<()> {
        socket::shutdown_write(self.borrowed()).map_err(|error| os_error(&error))
    }

    /// Something ended the connection. What is meant to end the program goes on to do so.
    #[cold]
    pub(crate) fn fatal(slf: &Bound<'_, Self>, raised: PyErr, message: &str) -> PyResult<()> {
        if ends_program(slf.py(), &raised) {
            return Err(raised);
        }
        Self::_fatal_error(slf, raised.into_value(slf.py()).into_bound(slf.py()).into_any(), message)
    }

    /// What `write` and `writelines` begin with: refuses where writing has ended, or a file is being sent.
    fn ensure_may_write(&self, py: Python<'_>, method: &str) -> PyResult<()> {
        if self.life.get(py).ended {
            return Err(PyRuntimeError::new_err(format!("Cannot call {method}() after write_eof()")));
        }
        if self.drained.is_some(py) {
            return Err(PyRuntimeError::new_err(format!("unable to {method}; sendfile is in progress")));
        }
        Ok(())
    }

    fn write_bytes(slf: &Bound<'_, Self>, bytes: &Bound<'_, PyBytes>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if bytes.as_bytes().is_empty() || this.refuses_writes(py)? {
            return Ok(());
        }
        // In a turn in which few are ready, what was written before the close has left, and this is lost.
        if this.life.get(py).closing && this.is_batched(py)? {
            return Ok(());
        }
        this.send(slf, bytes)
    }

    /// Whether all that it has to send leaves with others' at the end of this turn. In a child after a fork
    /// it is its parent's to send; and who waits for room has been refused it.
    fn is_batched(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(owner) = self.owner.share(py) else { return Ok(false) };
        if !owner.get().write_batch.is_open(py) {
            return Ok(false);
        }
        owner.get().io.with(py, |io| io.is_ours() && !io.tells_endpoint(self, Side::Write))
    }

    /// The connection ends now: what was to leave with others' at the end of the turn leaves before it, as it
    /// would have in a turn in which few are ready. What the peer does not take is lost.
    fn send_batched(&self, py: Python<'_>) -> PyResult<()> {
        let mut left = self.outgoing.with(py, |outgoing| outgoing.bytes())?;
        if left == 0 || !self.is_batched(py)? {
            return Ok(());
        }
        while left > 0 {
            let Ok(sent) = self.outgoing.with(py, |outgoing| outgoing.send(py, self.borrowed()))? else {
                break;
            };
            drop(sent);
            let before = std::mem::replace(&mut left, self.outgoing.with(py, |outgoing| outgoing.bytes())?);
            if left == before {
                break;
            }
        }
        Ok(())
    }

    /// Sends what it can at once, or at the end of the turn, and queues the rest.
    fn send(&self, slf: &Bound<'_, Self>, data: &Bound<'_, PyBytes>) -> PyResult<()> {
        let py = slf.py();
        let mut sent = 0;
        let waits = self.outgoing.with(py, |outgoing| outgoing.bytes())? > 0;
        let later = !waits && self.owner(py)?.get().write_batch.takes(slf, data.as_bytes().len())?;
        if !waits && !later {
            match socket::send(self.borrowed(), data.as_bytes()) {
                Ok(Some(count)) if count == data.as_bytes().len() => return Ok(()),
                Ok(count) => sent = count.unwrap_or(0),
                Err(error) => {
                    return Self::fatal(slf, os_error(&error), "Fatal write error on socket transport");
                }
            }
            Self::watch_writing(slf)?;
        }
        let bytes = self.outgoing.with(py, |outgoing| {
            outgoing.push(data, sent);
            outgoing.bytes()
        })?;
        self.maybe_pause(slf, bytes)
    }
}

#[pymethods]
impl StreamTransport {
    #[new]
    fn new(owner: &Bound<'_, Loop>, sock: &Bound<'_, PyAny>, extra: Bound<'_, PyDict>) -> PyResult<Self> {
        Ok(Self {
            endpoint: Endpoint::new(owner, sock, extra)?,
            receiver: GilRefCell::new(None),
            leave: GilCell::new(None),
            drained: GilCell::new(None),
            outgoing: GilRefCell::new(Outgoing::default()),
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.endpoint.traverse(&visit)?;
        self.receiver.traverse(|receiver| match receiver {
            Some(Receiver::Data(call)) => visit.call(call),
            Some(Receiver::Buffer(get, updated)) => visit.call(get).and_then(|()| visit.call(updated)),
            None => Ok(()),
        })?;
        self.leave.traverse(&visit)?;
        self.drained.traverse(&visit)?;
        self.outgoing.traverse(|outgoing| outgoing.traverse(&visit))
    }

    fn __clear__(&self, py: Python<'_>) -> PyResult<()> {
        self.endpoint.let_go(py);
        drop((self.leave.take(py), self.drained.take(py)));
        drop(self.receiver.with(py, Option::take)?);
        self.outgoing.with(py, Outgoing::clear).map(drop)
    }

    /// Nothing refers to it any more, and it was not closed.
    fn _abandon(&self, py: Python<'_>) -> PyResult<()> {
        let abandoned = self.endpoint.abandon(py);
        abandoned.and(self.tell_left(py))
    }

    /// Schedules what a connection begins with: `connection_made`, then reading, then the waiter for both.
    fn _begin(slf: &Bound<'_, Self>, waiter: &Bound<'_, PyAny>) -> PyResult<()> {
        slf.get().begin(slf, waiter)
    }

    /// Sets what is called at the very end.
    fn _leave(&self, py: Python<'_>, callback: Py<PyAny>) {
        self.leave.set(py, Some(callback));
    }

    fn _start_reading(slf: &Bound<'_, Self>) -> PyResult<()> {
        if slf.get().is_reading(slf.py()) { Self::watch(slf, Side::Read) } else { Ok(()) }
    }

    fn _start_writing(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let waits = this.outgoing.with(py, |outgoing| outgoing.bytes())? > 0;
        if waits && this.life.get(py).lost == 0 { Self::watch(slf, Side::Write) } else { Ok(()) }
    }

    /// What is known of the connection: `socket`, `sockname`, `peername` and what else its maker said.
    #[pyo3(signature = (name, default = None))]
    fn get_extra_info(
        &self,
        name: &Bound<'_, PyAny>,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        self.extra_info(name, default)
    }

    fn set_protocol(&self, protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = protocol.py();
        let buffered = py.import("asyncio.protocols")?.getattr("BufferedProtocol")?;
        let receiver = if protocol.is_instance(&buffered)? {
            let (get, updated) = (protocol.getattr("get_buffer")?, protocol.getattr("buffer_updated")?);
            Some(Receiver::Buffer(get.unbind(), updated.unbind()))
        } else {
            protocol.getattr("data_received").ok().map(|call| Receiver::Data(call.unbind()))
        };
        self.protocol.set(py, Some(protocol.clone().unbind()));
        drop(self.receiver.with(py, |place| std::mem::replace(place, receiver))?);
        Ok(())
    }

    fn get_protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.protocol.share(py)
    }

    fn is_closing(&self, py: Python<'_>) -> bool {
        self.life.get(py).closing
    }

    #[pyo3(name = "is_reading")]
    fn reading(&self, py: Python<'_>) -> bool {
        self.endpoint.is_reading(py)
    }

    #[pyo3(name = "pause_reading")]
    fn pause(&self, py: Python<'_>) -> PyResult<()> {
        self.endpoint.pause_reading(py)
    }

    #[pyo3(name = "resume_reading")]
    fn resume(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get().endpoint.resume_reading(slf.py(), || Self::watch(slf, Side::Read))
    }

    /// Sends what is queued, then ends the connection.
    pub(crate) fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let waits = slf.get().outgoing.with(slf.py(), |outgoing| outgoing.bytes())? > 0;
        slf.get().endpoint.close(slf, waits)
    }

    /// Ends the connection at once; what is queued is lost.
    fn abort(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::_force_close(slf, slf.py().None().into_bound(slf.py()))
    }

    fn _force_close(slf: &Bound<'_, Self>, exc: Bound<'_, PyAny>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if this.life.get(py).lost > 0
            || this.hands_over(slf, intern!(py, "_force_close"), (&exc,).into_pyobject(py)?)?
        {
            return Ok(());
        }
        this.send_batched(py)?;
        drop(this.outgoing.with(py, Outgoing::clear)?);
        this.end(slf, exc)
    }

    fn _fatal_error(slf: &Bound<'_, Self>, exc: Bound<'_, PyAny>, message: &str) -> PyResult<()> {
        let (py, owner) = (slf.py(), slf.get().owner(slf.py())?);
        if !exc.is_instance_of::<PyOSError>() {
            slf.get().report(slf, PyErr::from_value(exc.clone()), message)?;
        } else if owner.get().debug.get(py) {
            let words = PyDict::new(py);
            words.set_item("exc_info", &exc)?;
            let logger = py.import("asyncio.log")?.getattr("logger")?;
            logger.call_method("debug", ("%r: %s", slf, message), Some(&words))?;
        }
        Self::_force_close(slf, exc)
    }

    /// The last thing that is called of a connection.
    fn _call_connection_lost(slf: &Bound<'_, Self>, exc: Bound<'_, PyAny>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let told = this.lose(exc);
        drop(this.receiver.with(py, Option::take)?);
        let gone = || PyConnectionError::new_err("Connection is closed by peer").into_value(py);
        if this.drained.is_some(py) {
            this.tell_drained(py, "set_exception", gone().into_bound(py).as_any())?;
        }
        let left = this.tell_left(py);
        this.owner.set(py, None);
        told.and(left)
    }

    /// Sends bytes, or queues what the peer does not take yet.
    fn write(slf: &Bound<'_, Self>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = immutable(data)?;
        slf.get().ensure_may_write(slf.py(), "write")?;
        Self::write_bytes(slf, &bytes)
    }

    /// Sends several pieces as one.
    fn writelines(slf: &Bound<'_, Self>, list_of_data: &Bound<'_, PyAny>) -> PyResult<()> {
        slf.get().ensure_may_write(slf.py(), "writelines")?;
        let joined = PyBytes::new(slf.py(), b"").call_method1(intern!(slf.py(), "join"), (list_of_data,))?;
        Self::write_bytes(slf, joined.cast()?)
    }

    /// Says, once everything is sent, that nothing more will come.
    fn write_eof(&self, py: Python<'_>) -> PyResult<()> {
        let life = self.life.get(py);
        if life.closing || life.ended {
            return Ok(());
        }
        self.change(py, |life| life.ended = true);
        if self.outgoing.with(py, |outgoing| outgoing.bytes())? == 0 { self.shut_writing() } else { Ok(()) }
    }

    fn can_write_eof(&self) -> bool {
        true
    }

    fn get_write_buffer_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.outgoing.with(py, |outgoing| outgoing.bytes())
    }

    /// The marks of the write buffer: `(low, high)`.
    fn get_write_buffer_limits(&self, py: Python<'_>) -> (usize, usize) {
        self.flow.limits(py)
    }

    #[pyo3(signature = (high = None, low = None))]
    fn set_write_buffer_limits(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = mark)] high: Option<isize>,
        #[pyo3(from_py_with = mark)] low: Option<isize>,
    ) -> PyResult<()> {
        slf.get().flow.set_limits(slf.py(), high, low)?;
        let bytes = slf.get().outgoing.with(slf.py(), |outgoing| outgoing.bytes())?;
        slf.get().maybe_pause(slf, bytes)
    }

    fn _make_empty_waiter(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if self.drained.share(py).is_some() {
            return Err(PyRuntimeError::new_err("Empty waiter is already set"));
        }
        let waiter = self.owner(py)?.bind(py).call_method0("create_future")?;
        if self.outgoing.with(py, |outgoing| outgoing.bytes())? == 0 {
            waiter.call_method1("set_result", (py.None(),))?;
        }
        self.drained.set(py, Some(waiter.clone().unbind()));
        Ok(waiter.unbind())
    }

    fn _reset_empty_waiter(&self, py: Python<'_>) {
        self.drained.set(py, None);
    }

    #[getter]
    fn _loop(&self, py: Python<'_>) -> Option<Py<Loop>> {
        self.owner.share(py)
    }

    #[getter]
    fn _sock(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.socket.share(py)
    }

    #[getter]
    fn _sock_fd(&self) -> RawFd {
        self.descriptor
    }

    #[getter]
    fn _extra(&self, py: Python<'_>) -> Py<PyDict> {
        self.extra.clone_ref(py)
    }

    #[getter]
    fn _protocol_paused(&self, py: Python<'_>) -> bool {
        self.flow.is_paused(py)
    }

    #[getter]
    fn _protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.protocol.share(py)
    }
}
