//! A datagram endpoint as asyncio sees it: UDP, or a Unix socket for messages.
//!
//! Purpose: datagrams go from the socket to the protocol and back without a Python frame of ours, a batch per
//! turn. What the socket does not take at once waits whole and in order. The socket object is Python's and
//! closes the descriptor; names are looked up by Python's own call.
//!
//! Invariants: an error of one datagram is told to the protocol and ends nothing; `connection_lost` is called
//! once, after everything else. Checked by CPython's own tests of asyncio, run on this loop, and by
//! `tests/test_loop_datagram.py`.

use super::address::Addresses;
use super::core::Loop;
use super::endpoint::{Endpoint, immutable, would_block};
use super::flow::mark;
use super::foreign::call_two;
use super::gil_cells::{GilCell, GilRefCell};
use super::io::{Side, Target};
use super::os_error;
use super::turn::ends_program;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::collections::VecDeque;
use std::os::fd::RawFd;
use thalweg_sys::{datagram, socket};

/// The longest datagram that is taken whole.
const DATAGRAM_BYTES_MAX: usize = 256 * 1024;
/// Datagrams that are handed over before others have their turn.
const TURN_DATAGRAMS: usize = 64;
/// What a datagram that waits counts beside its bytes: an empty one takes room too.
const HEADER_BYTES: usize = 8;
struct QueuedDatagram {
    data: Py<PyBytes>,
    to: Option<Py<PyAny>>,
}

/// What became of a datagram.
enum SendOutcome {
    Taken,
    /// The socket takes nothing now.
    Later,
}

/// The native half of a datagram endpoint's transport.
#[pyclass(module = "thalweg._native", frozen, subclass, weakref)]
pub(crate) struct DatagramTransport {
    endpoint: Endpoint,
    received: GilCell<Option<Py<PyAny>>>,
    /// The only one it sends to, if it was made for one.
    peer: Option<Py<PyAny>>,
    connected: bool,
    waiting: GilRefCell<VecDeque<QueuedDatagram>>,
    waiting_bytes: GilCell<usize>,
    addresses: Addresses,
}

impl std::ops::Deref for DatagramTransport {
    type Target = Endpoint;

    #[inline]
    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl DatagramTransport {
    fn watch(slf: &Bound<'_, Self>, side: Side) -> PyResult<()> {
        let owner = slf.get().owner(slf.py())?;
        owner.get().watch(slf.py(), slf.get().descriptor, side, Target::Datagrams(slf.clone().unbind()))
    }

    /// Has the loop say when the socket takes more, from any thread.
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
    pub(crate) fn ready(slf: &Bound<'_, Self>, side: Side) -> PyResult<()> {
        slf.get().in_context(slf.py(), || match side {
            Side::Read => Self::read_ready(slf),
            Side::Write => Self::write_ready(slf),
        })
    }

    fn read_ready(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        for _ in 0..TURN_DATAGRAMS {
            if !this.is_reading(py) || this.life.get(py).lost > 0 {
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
            if let Err(raised) = call_two(received.bind(py), &data, &address) {
                this.report(slf, raised, "Exception in callback protocol.datagram_received()")?;
            }
        }
        Ok(())
    }

    fn write_ready(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        while let Some(next) = this.waiting.with(py, VecDeque::pop_front)? {
            let outcome = this.try_send(next.data.bind(py), next.to.as_ref().map(|to| to.bind(py)));
            if let Ok(SendOutcome::Later) = outcome {
                this.waiting.with(py, |waiting| waiting.push_front(next))?;
                break;
            }
            let bytes = next.data.as_bytes(py).len() + HEADER_BYTES;
            this.waiting_bytes.set(py, this.waiting_bytes.get(py).saturating_sub(bytes));
            if let Err(raised) = outcome {
                Self::refused(slf, raised)?;
            }
        }
        this.maybe_resume(slf, this.waiting_bytes.get(py))?;
        if this.waiting.with(py, |waiting| waiting.is_empty())? {
            this.unwatch(py, Side::Write)?;
            if this.life.get(py).closing && this.life.get(py).lost == 0 {
                return this.schedule_lost(slf, py.None().into_bound(py));
            }
        }
        Ok(())
    }

    fn try_send(&self, data: &Bound<'_, PyBytes>, to: Option<&Bound<'_, PyAny>>) -> PyResult<SendOutcome> {
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
            Ok(true) => Ok(SendOutcome::Taken),
            Ok(false) => Ok(SendOutcome::Later),
            Err(error) => Err(os_error(&error)),
        }
    }

    /// What is no address in numbers is Python's to understand.
    fn send_by_name(&self, data: &Bound<'_, PyBytes>, to: &Bound<'_, PyAny>) -> PyResult<SendOutcome> {
        let py = data.py();
        let Some(socket) = self.socket.share(py) else { return Ok(SendOutcome::Taken) };
        match socket.bind(py).call_method1(intern!(py, "sendto"), (data, to)) {
            Ok(_) => Ok(SendOutcome::Taken),
            Err(raised) if would_block(py, &raised) => Ok(SendOutcome::Later),
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
        slf.get().report(slf, raised, "Fatal write error on datagram transport")?;
        Self::_force_close(slf, exc)
    }

    fn tell_error(slf: &Bound<'_, Self>, raised: PyErr) -> PyResult<()> {
        let py = slf.py();
        let Some(protocol) = slf.get().protocol.share(py) else { return Ok(()) };
        let told = protocol.bind(py).call_method1(intern!(py, "error_received"), (raised.into_value(py),));
        told.map(drop).or_else(|raised| {
            slf.get().report(slf, raised, "Exception in callback protocol.error_received()")
        })
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
        let waiting = QueuedDatagram { data: data.unbind(), to: to.map(Bound::unbind) };
        this.waiting.with(py, |queue| queue.push_back(waiting))?;
        this.maybe_pause(slf, bytes)
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
        // A peer without a name is one too.
        let connected = extra.get_item("peername")?.is_some_and(|peer| !peer.is_none());
        Ok(Self {
            endpoint: Endpoint::new(owner, sock, extra)?,
            received: GilCell::new(None),
            peer: address.filter(|address| address.bind(owner.py()).is_truthy().unwrap_or(false)),
            connected,
            waiting: GilRefCell::new(VecDeque::new()),
            waiting_bytes: GilCell::new(0),
            addresses: Addresses::default(),
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.endpoint.traverse(&visit)?;
        self.received.traverse(&visit)?;
        visit.call(&self.peer)?;
        self.waiting.traverse(|waiting| {
            waiting.iter().try_for_each(|next| visit.call(&next.data).and_then(|()| visit.call(&next.to)))
        })?;
        self.addresses.traverse(&visit)
    }

    fn __clear__(&self, py: Python<'_>) -> PyResult<()> {
        self.endpoint.let_go(py);
        drop(self.received.take(py));
        self.waiting.with(py, std::mem::take).map(drop)
    }

    /// Nothing refers to it any more, and it was not closed.
    fn _abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.endpoint.abandon(py)
    }

    /// Schedules what an endpoint begins with: `connection_made`, then reading, then the waiter for both.
    fn _begin(slf: &Bound<'_, Self>, waiter: &Bound<'_, PyAny>) -> PyResult<()> {
        slf.get().begin(slf, waiter)
    }

    fn _start_reading(slf: &Bound<'_, Self>) -> PyResult<()> {
        if slf.get().is_reading(slf.py()) { Self::watch(slf, Side::Read) } else { Ok(()) }
    }

    fn _start_writing(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let waits = !this.waiting.with(py, |waiting| waiting.is_empty())?;
        if waits && this.life.get(py).lost == 0 { Self::watch(slf, Side::Write) } else { Ok(()) }
    }

    /// What is known of the endpoint: `socket`, `sockname`, `peername`.
    #[pyo3(signature = (name, default = None))]
    fn get_extra_info(
        &self,
        name: &Bound<'_, PyAny>,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        self.extra_info(name, default)
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

    #[pyo3(name = "is_reading")]
    fn reading(&self, py: Python<'_>) -> bool {
        self.endpoint.is_reading(py)
    }

    /// Takes no datagrams until it is to go on: the system keeps what it has room for, and drops the rest.
    #[pyo3(name = "pause_reading")]
    fn pause(&self, py: Python<'_>) -> PyResult<()> {
        self.endpoint.pause_reading(py)
    }

    #[pyo3(name = "resume_reading")]
    fn resume(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get().endpoint.resume_reading(slf.py(), || Self::watch(slf, Side::Read))
    }

    /// Sends a datagram, or queues what the socket does not take yet.
    #[pyo3(signature = (data, addr = None))]
    fn sendto<'py>(
        slf: &Bound<'py, Self>,
        data: &Bound<'py, PyAny>,
        addr: Option<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let data = immutable(data)?;
        let to = this.target(addr, py)?;
        if this.refuses_writes(py)? {
            return Ok(());
        }
        if this.waiting.with(py, |waiting| waiting.is_empty())? {
            match this.try_send(&data, to.as_ref()) {
                Ok(SendOutcome::Taken) => return Ok(()),
                Ok(SendOutcome::Later) => Self::watch_writing(slf)?,
                Err(raised) => return Self::refused(slf, raised),
            }
        }
        Self::queue(slf, data, to)
    }

    /// Sends what is queued, then ends.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let waits = !slf.get().waiting.with(slf.py(), |waiting| waiting.is_empty())?;
        slf.get().endpoint.close(slf, waits)
    }

    /// Ends at once; what is queued is lost.
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
        drop(this.waiting.with(py, std::mem::take)?);
        this.waiting_bytes.set(py, 0);
        this.end(slf, exc)
    }

    /// The last thing that is called of an endpoint.
    fn _call_connection_lost(slf: &Bound<'_, Self>, exc: Bound<'_, PyAny>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let told = this.lose(exc);
        drop(this.received.take(py));
        this.owner.set(py, None);
        told
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
        #[pyo3(from_py_with = mark)] high: Option<isize>,
        #[pyo3(from_py_with = mark)] low: Option<isize>,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        this.flow.set_limits(py, high, low)?;
        this.maybe_pause(slf, this.waiting_bytes.get(py))
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
