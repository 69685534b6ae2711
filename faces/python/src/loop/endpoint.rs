//! What every transport of a socket is: whose it is, what it watches, and how it ends.
//!
//! Purpose: what a connection and an endpoint of datagrams have in common, once. The socket object is
//! Python's and closes the descriptor; the loop watches the number. Invariants: `connection_lost` is called
//! once, after everything else; the socket is kept until then, or until nothing refers to the transport;
//! what a turn tells the protocol, it tells in the transport's context; what another thread asks for while
//! the loop sleeps is refused before it changes anything, or done by the loop. Checked by CPython's own
//! tests of asyncio, run on this loop, `tests/test_loop_collected.py` and `tests/test_loop_threads.py`.

use super::core::Loop;
use super::flow::Flow;
use super::foreign;
use super::gil_cells::GilCell;
use super::handle::Handle;
use super::io::Side;
use super::turn::{ends_program, tell_handler};
use pyo3::exceptions::{PyBlockingIOError, PyInterruptedError, PyRuntimeError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyMemoryView, PyString, PyTuple};
use std::os::fd::{BorrowedFd, RawFd};

/// Writes to a lost connection after which the log says so.
const LOST_WRITES_LOGGED: u32 = 5;

/// What has become of a transport.
#[derive(Clone, Copy, Default)]
pub(crate) struct Life {
    /// `close` or `abort` was called, or the peer is gone.
    pub(crate) closing: bool,
    /// Reading is paused.
    pub(crate) paused: bool,
    /// `write_eof` was called.
    pub(crate) ended: bool,
    /// Zero until `connection_lost` is scheduled; writes since are counted.
    pub(crate) lost: u32,
}

/// The common half of transports. Where one asks for the transport, it is the object that Python knows.
pub(crate) struct Endpoint {
    pub(crate) owner: GilCell<Option<Py<Loop>>>,
    pub(crate) descriptor: RawFd,
    pub(crate) socket: GilCell<Option<Py<PyAny>>>,
    pub(crate) extra: Py<PyDict>,
    pub(crate) context: Py<PyAny>,
    pub(crate) protocol: GilCell<Option<Py<PyAny>>>,
    pub(crate) life: GilCell<Life>,
    pub(crate) flow: Flow,
}

impl Endpoint {
    pub(crate) fn new(
        owner: &Bound<'_, Loop>,
        socket: &Bound<'_, PyAny>,
        extra: Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let descriptor = socket.call_method0(intern!(owner.py(), "fileno"))?.extract()?;
        owner.get().ensure_no_number(owner.py(), descriptor)?;
        Ok(Self {
            owner: GilCell::new(Some(owner.clone().unbind())),
            descriptor,
            socket: GilCell::new(Some(socket.clone().unbind())),
            extra: extra.unbind(),
            context: foreign::current_context(owner.py())?,
            protocol: GilCell::new(None),
            life: GilCell::new(Life::default()),
            flow: Flow::default(),
        })
    }

    pub(crate) fn borrowed(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket object that owns the descriptor is kept until `connection_lost` or `abandon`,
        // and every caller has seen that this is not over; a number closed behind our back makes the calls
        // fail, nothing worse.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }

    pub(crate) fn owner(&self, py: Python<'_>) -> PyResult<Py<Loop>> {
        self.owner.share(py).ok_or_else(|| PyRuntimeError::new_err("the transport is closed"))
    }

    /// Does what the loop found to be done, in the transport's context.
    #[inline]
    pub(crate) fn in_context<R>(&self, py: Python<'_>, work: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
        foreign::in_context(self.context.bind(py), work)
    }

    pub(crate) fn change(&self, py: Python<'_>, change: impl FnOnce(&mut Life)) {
        let mut life = self.life.get(py);
        change(&mut life);
        self.life.set(py, life);
    }

    pub(crate) fn is_reading(&self, py: Python<'_>) -> bool {
        let life = self.life.get(py);
        !life.closing && !life.paused
    }

    /// Reads nothing until it is to go on.
    pub(crate) fn pause_reading(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_reading(py) {
            return Ok(());
        }
        // First, for it may be refused.
        self.unwatch(py, Side::Read)?;
        self.change(py, |life| life.paused = true);
        Ok(())
    }

    /// Goes on reading: `watch` has the loop tell of what comes.
    pub(crate) fn resume_reading(
        &self,
        py: Python<'_>,
        watch: impl FnOnce() -> PyResult<()>,
    ) -> PyResult<()> {
        let life = self.life.get(py);
        if life.closing || !life.paused {
            return Ok(());
        }
        watch()?;
        self.change(py, |life| life.paused = false);
        Ok(())
    }

    pub(crate) fn extra_info(
        &self,
        name: &Bound<'_, PyAny>,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        Ok(self.extra.bind(name.py()).get_item(name)?.map(Bound::unbind).or(default))
    }

    /// Has the loop call something in its next turn, in the transport's context.
    pub(crate) fn soon(&self, callback: Bound<'_, PyAny>, arguments: Bound<'_, PyTuple>) -> PyResult<()> {
        let py = callback.py();
        let (owner, context) = (self.owner(py)?, self.context.bind(py).clone());
        owner.get().open(py)?;
        let handle = owner.get().traced(py, Handle::new(py, callback, arguments, Some(context))?)?;
        owner.get().queue(py, handle.into_object(py)?)
    }

    /// While the loop sleeps in another thread, has it call a method of the transport in its next turn, and
    /// wakes it: whether it does. For what a finalizer may ask for, which runs in whatever thread the
    /// collector does, and for what is half done.
    pub(crate) fn hands_over<'py>(
        &self,
        transport: &Bound<'py, PyAny>,
        method: &Bound<'py, PyString>,
        arguments: Bound<'py, PyTuple>,
    ) -> PyResult<bool> {
        let py = transport.py();
        match self.owner.share(py) {
            Some(owner) if owner.get().is_away(py) => {
                self.soon(transport.getattr(method)?, arguments)?;
                owner.get().wake(py);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Schedules what a transport begins with: `connection_made`, then reading, then the waiter for both.
    pub(crate) fn begin(&self, transport: &Bound<'_, PyAny>, waiter: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = transport.py();
        if let Some(protocol) = self.protocol.share(py) {
            let made = protocol.bind(py).getattr(intern!(py, "connection_made"))?;
            self.soon(made, PyTuple::new(py, [transport])?)?;
        }
        self.soon(transport.getattr(intern!(py, "_start_reading"))?, PyTuple::empty(py))?;
        if !waiter.is_none() {
            let resolve = py.import("asyncio.futures")?.getattr("_set_result_unless_cancelled")?;
            self.soon(resolve, (waiter, py.None()).into_pyobject(py)?)?;
        }
        Ok(())
    }

    /// The loop tells it no more of one side. A socket that was closed behind its back may have left its
    /// number to another, whose watch stays.
    pub(crate) fn unwatch(&self, py: Python<'_>, side: Side) -> PyResult<()> {
        let Some(owner) = self.owner.share(py) else { return Ok(()) };
        if owner.get().io.with(py, |io| io.tells_endpoint(self, side))? {
            owner.get().unwatch(py, self.descriptor, side)?;
        }
        Ok(())
    }

    /// The loop tells another of one side: what is wrong with its socket, if it was closed behind its back.
    #[cold]
    pub(crate) fn robbed<'py>(&self, py: Python<'py>, side: Side) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (Some(owner), Some(socket)) = (self.owner.share(py), self.socket.share(py)) else {
            return Ok(None);
        };
        if owner.get().io.with(py, |io| io.tells_endpoint(self, side))? {
            return Ok(None);
        }
        let asked = socket.bind(py).call_method0(intern!(py, "getsockname"));
        Ok(asked.err().map(|raised| raised.into_value(py).into_bound(py).into_any()))
    }

    /// Asks the protocol to pause, if so many bytes are too many.
    #[inline]
    pub(crate) fn maybe_pause(&self, transport: &Bound<'_, PyAny>, bytes: usize) -> PyResult<()> {
        let pauses = self.flow.pauses(transport.py(), bytes);
        if pauses { self.tell_flow(transport, "pause_writing") } else { Ok(()) }
    }

    /// Asks the protocol to go on, if it was paused and so many bytes are few enough.
    #[inline]
    pub(crate) fn maybe_resume(&self, transport: &Bound<'_, PyAny>, bytes: usize) -> PyResult<()> {
        let resumes = self.flow.resumes(transport.py(), bytes);
        if resumes { self.tell_flow(transport, "resume_writing") } else { Ok(()) }
    }

    fn tell_flow(&self, transport: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
        let Some(protocol) = self.protocol.share(transport.py()) else { return Ok(()) };
        let told = protocol.bind(transport.py()).call_method0(name).map(drop);
        told.or_else(|raised| self.report(transport, raised, &format!("protocol.{name}() failed")))
    }

    /// Tells the loop's exception handler what went wrong; what is meant to end the program does.
    #[cold]
    pub(crate) fn report(&self, transport: &Bound<'_, PyAny>, raised: PyErr, message: &str) -> PyResult<()> {
        let py = transport.py();
        if ends_program(py, &raised) {
            return Err(raised);
        }
        let context = PyDict::new(py);
        context.set_item("message", message)?;
        context.set_item("transport", transport)?;
        context.set_item("protocol", self.protocol.share(py))?;
        tell_handler(self.owner(py)?.bind(py), raised, &context)
    }

    /// Whether writing is over; the log says so when a writer goes on all the same.
    #[inline]
    pub(crate) fn refuses_writes(&self, py: Python<'_>) -> PyResult<bool> {
        let lost = self.life.get(py).lost;
        if lost == 0 && self.socket.is_some(py) {
            return Ok(false);
        }
        if lost >= LOST_WRITES_LOGGED {
            let logger = py.import("asyncio.log")?.getattr("logger")?;
            logger.call_method1("warning", ("socket.send() raised exception.",))?;
        }
        self.change(py, |life| life.lost += 1);
        Ok(true)
    }

    /// Ends it once what waits is sent: at once if nothing does.
    pub(crate) fn close(&self, transport: &Bound<'_, PyAny>, waits: bool) -> PyResult<()> {
        let py = transport.py();
        if self.life.get(py).closing
            || self.hands_over(transport, intern!(py, "close"), PyTuple::empty(py))?
        {
            return Ok(());
        }
        self.change(py, |life| life.closing = true);
        self.unwatch(py, Side::Read)?;
        if waits {
            return Ok(());
        }
        self.unwatch(py, Side::Write)?;
        self.schedule_lost(transport, py.None().into_bound(py))
    }

    /// Ends it now: what waited is dropped by the caller.
    pub(crate) fn end(&self, transport: &Bound<'_, PyAny>, exc: Bound<'_, PyAny>) -> PyResult<()> {
        let py = transport.py();
        self.unwatch(py, Side::Write)?;
        if !self.life.get(py).closing {
            self.change(py, |life| life.closing = true);
            self.unwatch(py, Side::Read)?;
        }
        self.schedule_lost(transport, exc)
    }

    /// Has the protocol told in the next turn that it is over.
    pub(crate) fn schedule_lost(&self, transport: &Bound<'_, PyAny>, exc: Bound<'_, PyAny>) -> PyResult<()> {
        let py = transport.py();
        self.change(py, |life| life.lost += 1);
        self.soon(transport.getattr(intern!(py, "_call_connection_lost"))?, PyTuple::new(py, [exc])?)
    }

    /// Tells the protocol that it is over, and closes the socket, whatever the protocol says.
    pub(crate) fn lose(&self, exc: Bound<'_, PyAny>) -> PyResult<()> {
        let py = exc.py();
        self.change(py, |life| life.lost = life.lost.max(1));
        let told = match self.protocol.share(py) {
            Some(protocol) => {
                protocol.bind(py).call_method1(intern!(py, "connection_lost"), (exc,)).map(drop)
            }
            None => Ok(()),
        };
        let closed = match self.socket.take(py) {
            Some(socket) => socket.bind(py).call_method0(intern!(py, "close")).map(drop),
            None => Ok(()),
        };
        drop(self.protocol.take(py));
        told.and(closed)
    }

    /// Nothing refers to the transport any more: closes the socket. An object that is collected with it and
    /// still writes or closes leaves the descriptor's number alone, which may be another's by then.
    pub(crate) fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, |life| life.closing = true);
        // A loop that waits in another thread does not watch what nothing refers to.
        let _ = self.unwatch(py, Side::Read);
        let _ = self.unwatch(py, Side::Write);
        match self.socket.take(py) {
            Some(socket) => socket.bind(py).call_method0(intern!(py, "close")).map(drop),
            None => Ok(()),
        }
    }

    /// Shows the garbage collector what is held.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.owner.traverse(visit)?;
        self.socket.traverse(visit)?;
        visit.call(&self.extra)?;
        visit.call(&self.context)?;
        self.protocol.traverse(visit)
    }

    /// Holds nothing any more that could be part of a cycle.
    pub(crate) fn let_go(&self, py: Python<'_>) {
        self.change(py, |life| (life.closing, life.lost) = (true, life.lost.max(1)));
        drop((self.owner.take(py), self.socket.take(py), self.protocol.take(py)));
    }
}

/// Bytes that do not change any more.
pub(crate) fn immutable<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(bytes.clone());
    }
    if data.is_instance_of::<PyByteArray>() || data.is_instance_of::<PyMemoryView>() {
        let class = data.py().get_type::<PyBytes>();
        return Ok(class.call1((data,))?.cast_into()?);
    }
    let name = data.get_type().name()?;
    Err(PyTypeError::new_err(format!("data argument must be a bytes-like object, not '{}'", name.to_cow()?)))
}

/// Whether a call of Python's own on a socket only says that it would have to wait.
pub(crate) fn would_block(py: Python<'_>, raised: &PyErr) -> bool {
    raised.is_instance_of::<PyBlockingIOError>(py) || raised.is_instance_of::<PyInterruptedError>(py)
}
