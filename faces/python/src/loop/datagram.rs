//! A datagram endpoint as asyncio sees it: UDP, or a Unix socket for messages.
//!
//! Purpose: datagrams go from the socket to the protocol and back without a Python frame of ours, a batch per turn. What
//! the socket does not take at once waits whole and in order. The socket object is Python's and closes the descriptor; names
//! are looked up by Python's own call.
//!
//! Invariants: an error of one datagram is told to the protocol and ends nothing; `connection_lost` is called once, after
//! everything else. Checked by CPython's own tests of asyncio, run on this loop, and by `tests/test_loop_datagram.py`.

use super::address::Addresses;
use super::core::Loop;
use super::flow::Flow;
use super::foreign::{self, call_two};
use super::handle::Handle;
use super::held::{Held, Kept};
use super::io::{Side, Target};
use super::os_error;
use super::stream::immutable;
use super::turn::ends_program;
use pyo3::exceptions::{PyBlockingIOError, PyInterruptedError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, RawFd};
use thalweg_sys::{datagram, socket};

/// The longest datagram that is taken whole.
const DATAGRAM_BYTES_MAX: usize = 256 * 1024;
/// Datagrams that are handed over before others have their turn.
const TURN_DATAGRAMS: usize = 64;
/// What a datagram that waits counts beside its bytes: an empty one takes room too.
const HEADER_BYTES: usize = 8;
/// Writes to a lost endpoint after which the log says so.
const LOST_WRITES_LOGGED: u32 = 5;

#[derive(Clone, Copy, Default)]
struct Life {
    closing: bool,
    /// Zero until `connection_lost` is scheduled; writes since are counted.
    lost: u32,
}

struct Waiting {
    data: Py<PyBytes>,
    to: Option<Py<PyAny>>,
}

/// What became of a datagram.
enum Sent {
    Taken,
    /// The socket takes nothing now.
    Later,
}

/// The native half of a datagram endpoint's transport.
#[pyclass(module = "thalweg._native", frozen, subclass, weakref)]
pub(crate) struct DatagramTransport {
    owner: Kept<Option<Py<Loop>>>,
    descriptor: RawFd,
    socket: Kept<Option<Py<PyAny>>>,
    extra: Py<PyDict>,
    context: Py<PyAny>,
    protocol: Kept<Option<Py<PyAny>>>,
    received: Kept<Option<Py<PyAny>>>,
    /// The only one it sends to, if it was made for one.
    peer: Option<Py<PyAny>>,
    connected: bool,
    life: Kept<Life>,
    waiting: Held<VecDeque<Waiting>>,
    waiting_bytes: Kept<usize>,
    flow: Flow,
    addresses: Addresses,
}

impl DatagramTransport {
    fn borrowed(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket object that owns the descriptor is kept until `connection_lost`, and every caller has
        // seen that this is not over; a number closed behind our back makes the calls fail, nothing worse.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }

    fn owner(&self, py: Python<'_>) -> PyResult<Py<Loop>> {
        self.owner.share(py).ok_or_else(|| PyRuntimeError::new_err("the endpoint is closed"))
    }

    fn change(&self, py: Python<'_>, change: impl FnOnce(&mut Life)) {
        let mut life = self.life.get(py);
        change(&mut life);
        self.life.set(py, life);
    }

    fn soon(
        slf: &Bound<'_, Self>,
        callback: Bound<'_, PyAny>,
        arguments: Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        let (py, owner) = (slf.py(), slf.get().owner(slf.py())?);
        let context = slf.get().context.bind(py).clone();
        owner.get().open(py)?;
        owner.get().queue(py, Handle::new(py, callback, arguments, Some(context))?.into_object(py)?)
    }

    fn watch(slf: &Bound<'_, Self>, side: Side) -> PyResult<()> {
        let owner = slf.get().owner(slf.py())?;
        owner.get().watch(slf.py(), slf.get().descriptor, side, Target::Datagrams(slf.clone().unbind()))
    }

    fn unwatch(&self, py: Python<'_>, side: Side) -> PyResult<()> {
        match self.owner.share(py) {
            Some(owner) => owner.get().unwatch(py, self.descriptor, side).map(drop),
            None => Ok(()),
        }
    }

    /// The descriptor is ready: what the loop calls.
    pub(crate) fn ready(slf: &Bound<'_, Self>, side: Side) -> PyResult<()> {
        match side {
            Side::Read => Self::read_ready(slf),
            Side::Write => Self::write_ready(slf),
        }
    }

    fn read_ready(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        for _ in 0..TURN_DATAGRAMS {
            let life = this.life.get(py);
            if life.closing || life.lost > 0 {
                return Ok(());
            }
            let came = this.owner(py)?.get().scratch.with(py, |scratch| {
                scratch.clear();
                scratch.reserve(DATAGRAM_BYTES_MAX);
                let sender = datagram::receive_from(this.borrowed(), scratch, DATAGRAM_BYTES_MAX)?;
                Ok::<_, std::io::Error>(sender.map(|sender| (PyBytes::new(py, scratch), sender)))
            })?;
            let (data, sender) = match came {
                Ok(None) => return Ok(()),
                Ok(Some(came)) => came,
                Err(error) => return Self::tell_error(slf, os_error(&error)),
            };
            let address = this.addresses.of_sender(py, sender)?;
            let Some(received) = this.received.share(py) else { return Ok(()) };
            let call = || call_two(received.bind(py), &data, &address);
            if let Err(raised) = foreign::in_context(this.context.bind(py), call) {
                Self::report(slf, raised, "Exception in callback protocol.datagram_received()")?;
            }
        }
        Ok(())
    }

    fn write_ready(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        while let Some(next) = this.waiting.with(py, VecDeque::pop_front)? {
            let outcome = this.try_send(next.data.bind(py), next.to.as_ref().map(|to| to.bind(py)));
            if let Ok(Sent::Later) = outcome {
                this.waiting.with(py, |waiting| waiting.push_front(next))?;
                break;
            }
            let bytes = next.data.as_bytes(py).len() + HEADER_BYTES;
            this.waiting_bytes.set(py, this.waiting_bytes.get(py).saturating_sub(bytes));
            if let Err(raised) = outcome {
                Self::refused(slf, raised)?;
            }
        }
        if this.flow.resumes(py, this.waiting_bytes.get(py)) {
            Self::tell_flow(slf, "resume_writing")?;
        }
        if this.waiting.with(py, |waiting| waiting.is_empty())? {
            this.unwatch(py, Side::Write)?;
            if this.life.get(py).closing && this.life.get(py).lost == 0 {
                return Self::_call_connection_lost(slf, py.None().into_bound(py));
            }
        }
        Ok(())
    }

    fn try_send(&self, data: &Bound<'_, PyBytes>, to: Option<&Bound<'_, PyAny>>) -> PyResult<Sent> {
        let py = data.py();
        let taken = if self.connected {
            socket::send(self.borrowed(), data.as_bytes()).map(|count| count.is_some())
        } else {
            let none = py.None().into_bound(py);
            let to = to.unwrap_or(&none);
            match self.addresses.in_numbers(to)? {
                Some(address) => datagram::send_to(self.borrowed(), data.as_bytes(), address),
                None => return self.send_by_name(data, to),
            }
        };
        match taken {
            Ok(true) => Ok(Sent::Taken),
            Ok(false) => Ok(Sent::Later),
            Err(error) => Err(os_error(&error)),
        }
    }

    /// What is no address in numbers is Python's to understand.
    fn send_by_name(&self, data: &Bound<'_, PyBytes>, to: &Bound<'_, PyAny>) -> PyResult<Sent> {
        let py = data.py();
        let Some(socket) = self.socket.share(py) else { return Ok(Sent::Taken) };
        match socket.bind(py).call_method1(intern!(py, "sendto"), (data, to)) {
            Ok(_) => Ok(Sent::Taken),
            Err(raised)
                if raised.is_instance_of::<PyBlockingIOError>(py)
                    || raised.is_instance_of::<PyInterruptedError>(py) =>
            {
                Ok(Sent::Later)
            }
            Err(raised) => Err(raised),
        }
    }

    /// A datagram was refused: the protocol hears of what the system said; anything else ends the endpoint.
    fn refused(slf: &Bound<'_, Self>, raised: PyErr) -> PyResult<()> {
        if raised.is_instance_of::<PyOSError>(slf.py()) {
            return Self::tell_error(slf, raised);
        }
        if ends_program(slf.py(), &raised) {
            return Err(raised);
        }
        let exc = raised.clone_ref(slf.py()).into_value(slf.py()).into_bound(slf.py()).into_any();
        Self::report(slf, raised, "Fatal write error on datagram transport")?;
        Self::_force_close(slf, exc)
    }

    fn tell_error(slf: &Bound<'_, Self>, raised: PyErr) -> PyResult<()> {
        let py = slf.py();
        let Some(protocol) = slf.get().protocol.share(py) else { return Ok(()) };
        let told = protocol.bind(py).call_method1(intern!(py, "error_received"), (raised.into_value(py),));
        told.map(drop)
            .or_else(|raised| Self::report(slf, raised, "Exception in callback protocol.error_received()"))
    }

    fn tell_flow(slf: &Bound<'_, Self>, name: &str) -> PyResult<()> {
        let Some(protocol) = slf.get().protocol.share(slf.py()) else { return Ok(()) };
        let told = protocol.bind(slf.py()).call_method0(name).map(drop);
        told.or_else(|raised| Self::report(slf, raised, &format!("protocol.{name}() failed")))
    }

    #[cold]
    fn report(slf: &Bound<'_, Self>, raised: PyErr, message: &str) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if ends_program(py, &raised) {
            return Err(raised);
        }
        let context = PyDict::new(py);
        context.set_item("message", message)?;
        context.set_item("exception", raised.into_value(py))?;
        context.set_item("transport", slf)?;
        context.set_item("protocol", this.protocol.share(py))?;
        let owner = this.owner(py)?;
        owner.bind(py).call_method1(intern!(py, "call_exception_handler"), (context,)).map(drop)
    }

    /// Whom a datagram is for.
    fn target<'py>(
        &self,
        to: Option<Bound<'py, PyAny>>,
        py: Python<'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let to = to.filter(|to| !to.is_none());
        let Some(peer) = &self.peer else { return Ok(to) };
        match to {
            Some(to) if !to.eq(peer)? => {
                Err(PyValueError::new_err(format!("Invalid address: must be None or {}", peer.bind(py))))
            }
            _ => Ok(Some(peer.bind(py).clone())),
        }
    }

    fn queue(slf: &Bound<'_, Self>, data: Bound<'_, PyBytes>, to: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let bytes = this.waiting_bytes.get(py) + data.as_bytes().len() + HEADER_BYTES;
        this.waiting_bytes.set(py, bytes);
        let waiting = Waiting { data: data.unbind(), to: to.map(Bound::unbind) };
        this.waiting.with(py, |queue| queue.push_back(waiting))?;
        if this.flow.pauses(py, bytes) { Self::tell_flow(slf, "pause_writing") } else { Ok(()) }
    }
}

#[pymethods]
impl DatagramTransport {
    #[new]
    fn new(
        owner: &Bound<'_, Loop>,
        sock: &Bound<'_, PyAny>,
        extra: Bound<'_, PyDict>,
        address: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let py = owner.py();
        // A peer without a name is one too.
        let connected = extra.get_item("peername")?.is_some_and(|peer| !peer.is_none());
        Ok(Self {
            owner: Kept::new(Some(owner.clone().unbind())),
            descriptor: sock.call_method0("fileno")?.extract()?,
            socket: Kept::new(Some(sock.clone().unbind())),
            extra: extra.unbind(),
            context: foreign::current_context(py)?,
            protocol: Kept::new(None),
            received: Kept::new(None),
            peer: address.filter(|address| address.bind(py).is_truthy().unwrap_or(false)),
            connected,
            life: Kept::new(Life::default()),
            waiting: Held::new(VecDeque::new()),
            waiting_bytes: Kept::new(0),
            flow: Flow::default(),
            addresses: Addresses::default(),
        })
    }

    /// Schedules what an endpoint begins with: `connection_made`, then reading, then whoever waits for both.
    fn _begin(slf: &Bound<'_, Self>, waiter: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if let Some(protocol) = this.protocol.share(py) {
            let made = protocol.bind(py).getattr(intern!(py, "connection_made"))?;
            Self::soon(slf, made, PyTuple::new(py, [slf])?)?;
        }
        Self::soon(slf, slf.getattr(intern!(py, "_start_reading"))?, PyTuple::empty(py))?;
        if !waiter.is_none() {
            let resolve = py.import("asyncio.futures")?.getattr("_set_result_unless_cancelled")?;
            Self::soon(slf, resolve, (waiter, py.None()).into_pyobject(py)?)?;
        }
        Ok(())
    }

    fn _start_reading(slf: &Bound<'_, Self>) -> PyResult<()> {
        if slf.get().life.get(slf.py()).closing { Ok(()) } else { Self::watch(slf, Side::Read) }
    }

    /// What is known of the endpoint: `socket`, `sockname`, `peername`.
    #[pyo3(signature = (name, default = None))]
    fn get_extra_info(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        Ok(self.extra.bind(py).get_item(name)?.map(Bound::unbind).or(default))
    }

    fn set_protocol(&self, protocol: &Bound<'_, PyAny>) {
        let py = protocol.py();
        self.protocol.set(py, Some(protocol.clone().unbind()));
        self.received.set(py, protocol.getattr("datagram_received").ok().map(Bound::unbind));
    }

    fn get_protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.protocol.share(py)
    }

    fn is_closing(&self, py: Python<'_>) -> bool {
        self.life.get(py).closing
    }

    /// Sends a datagram, or queues what the socket does not take yet.
    #[pyo3(signature = (data, addr = None))]
    fn sendto<'py>(
        slf: &Bound<'py, Self>,
        data: &Bound<'py, PyAny>,
        addr: Option<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let data = match data.cast::<PyBytes>() {
            Ok(data) => data.clone(),
            Err(_) => immutable(data)?,
        };
        let to = this.target(addr, py)?;
        let life = this.life.get(py);
        if life.lost > 0 {
            if life.lost >= LOST_WRITES_LOGGED {
                let logger = py.import("asyncio.log")?.getattr("logger")?;
                logger.call_method1("warning", ("socket.send() raised exception.",))?;
            }
            this.change(py, |life| life.lost += 1);
            return Ok(());
        }
        if this.waiting.with(py, |waiting| waiting.is_empty())? {
            match this.try_send(&data, to.as_ref()) {
                Ok(Sent::Taken) => return Ok(()),
                Ok(Sent::Later) => Self::watch(slf, Side::Write)?,
                Err(raised) => return Self::refused(slf, raised),
            }
        }
        Self::queue(slf, data, to)
    }

    /// Sends what is queued, then ends.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if this.life.get(py).closing {
            return Ok(());
        }
        this.change(py, |life| life.closing = true);
        this.unwatch(py, Side::Read)?;
        if !this.waiting.with(py, |waiting| waiting.is_empty())? {
            return Ok(());
        }
        this.change(py, |life| life.lost += 1);
        Self::soon(slf, slf.getattr("_call_connection_lost")?, PyTuple::new(py, [py.None()])?)
    }

    /// Ends at once; what is queued is lost.
    fn abort(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::_force_close(slf, slf.py().None().into_bound(slf.py()))
    }

    fn _force_close(slf: &Bound<'_, Self>, exc: Bound<'_, PyAny>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if this.life.get(py).lost > 0 {
            return Ok(());
        }
        let queued = this.waiting.with(py, std::mem::take)?;
        this.waiting_bytes.set(py, 0);
        if !queued.is_empty() {
            this.unwatch(py, Side::Write)?;
        }
        if !this.life.get(py).closing {
            this.change(py, |life| life.closing = true);
            this.unwatch(py, Side::Read)?;
        }
        this.change(py, |life| life.lost += 1);
        Self::soon(slf, slf.getattr("_call_connection_lost")?, PyTuple::new(py, [exc])?)
    }

    /// The last thing that is called of an endpoint.
    fn _call_connection_lost(slf: &Bound<'_, Self>, exc: Bound<'_, PyAny>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        this.change(py, |life| life.lost = life.lost.max(1));
        let told = match this.protocol.share(py) {
            Some(protocol) => {
                protocol.bind(py).call_method1(intern!(py, "connection_lost"), (exc,)).map(drop)
            }
            None => Ok(()),
        };
        let closed = match this.socket.take(py) {
            Some(socket) => socket.bind(py).call_method0(intern!(py, "close")).map(drop),
            None => Ok(()),
        };
        drop((this.protocol.take(py), this.received.take(py)));
        this.owner.set(py, None);
        told.and(closed)
    }

    fn get_write_buffer_size(&self, py: Python<'_>) -> usize {
        self.waiting_bytes.get(py)
    }

    /// The marks of the write buffer: `(low, high)`.
    fn get_write_buffer_limits(&self, py: Python<'_>) -> (usize, usize) {
        self.flow.limits(py)
    }

    #[pyo3(signature = (high = None, low = None))]
    fn set_write_buffer_limits(
        slf: &Bound<'_, Self>,
        high: Option<isize>,
        low: Option<isize>,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        this.flow.set_limits(py, high, low)?;
        let pauses = this.flow.pauses(py, this.waiting_bytes.get(py));
        if pauses { Self::tell_flow(slf, "pause_writing") } else { Ok(()) }
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
}
