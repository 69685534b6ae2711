//! What is awaited of a bare socket: `sock_recv` and its kin.
//!
//! Purpose: an operation is tried at once; if it would block it watches the socket. What writes is tried
//! again by every readiness until it is done. What reads is only told of readiness, and tried again by the
//! task that awaits it, once that goes on: a task that is cancelled in between leaves everything in the
//! socket. Most operations are a method of the socket object, which knows every family of addresses and kind
//! of buffer. Invariants: an operation watches its socket exactly while it is awaited and no other has taken
//! its place; nothing is taken from the socket unless the caller gets it. Checked by
//! `tests/test_loop_sockets.py` and CPython's own `test_sock_lowlevel`.

use super::core::Loop;
use super::endpoint::would_block;
use super::gil_cells::GilCell;
use super::io::{Side, Target};
use super::os_error;
use super::turn::ends_program;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBlockingIOError, PyOSError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::io::{Error, ErrorKind};
use std::os::fd::{BorrowedFd, RawFd};
use thalweg_sys::socket;

/// What is to be done.
enum Work {
    /// A method of the socket, called until it does not block.
    Call(Py<PyString>, Py<PyTuple>),
    /// A connection to be taken, and made non-blocking.
    Accept,
    /// All of these bytes are to be sent, so many of which are.
    Send(PyBuffer<u8>, GilCell<usize>),
    /// A connection to be made to an address, and whether that has begun.
    Connect(Py<PyAny>, GilCell<bool>),
}

/// One operation on a socket.
#[pyclass(module = "thalweg._native", frozen)]
pub(crate) struct Operation {
    pub(crate) socket: Py<PyAny>,
    work: Work,
    side: Side,
    /// The descriptor that is watched.
    watched: GilCell<Option<RawFd>>,
    waiter: GilCell<Option<Py<PyAny>>>,
    result: GilCell<Option<Py<PyAny>>>,
}

impl Operation {
    fn new(socket: Bound<'_, PyAny>, side: Side, work: Work) -> Self {
        Self {
            socket: socket.unbind(),
            work,
            side,
            watched: GilCell::new(None),
            waiter: GilCell::new(None),
            result: GilCell::new(None),
        }
    }

    /// Another operation is told of the socket now, or none.
    pub(crate) fn let_go(&self, py: Python<'_>) {
        self.watched.set(py, None);
    }

    /// The socket is ready: what the loop calls.
    pub(crate) fn ready(&self, owner: &Bound<'_, Loop>) -> PyResult<()> {
        let py = owner.py();
        let Some(waiter) = self.waiter.share(py).map(|waiter| waiter.into_bound(py)) else { return Ok(()) };
        // Cancelled in this turn, and not told yet.
        if waiter.call_method0(intern!(py, "done"))?.is_truthy()? {
            return self.unwatch(owner);
        }
        let outcome = match self.side {
            Side::Read => Ok(()),
            Side::Write => match self.attempt(py) {
                Ok(None) => return Ok(()),
                Ok(result) => {
                    self.result.set(py, result);
                    Ok(())
                }
                Err(raised) if ends_program(py, &raised) => return Err(raised),
                Err(raised) => Err(raised),
            },
        };
        self.unwatch(owner)?;
        self.waiter.set(py, None);
        match outcome {
            Ok(()) => waiter.call_method1(intern!(py, "set_result"), (py.None(),)),
            Err(raised) => waiter.call_method1(intern!(py, "set_exception"), (raised.into_value(py),)),
        }
        .map(drop)
    }

    fn unwatch(&self, owner: &Bound<'_, Loop>) -> PyResult<()> {
        let py = owner.py();
        match self.watched.take(py) {
            Some(descriptor) => owner.get().unwatch(py, descriptor, self.side).map(drop),
            None => Ok(()),
        }
    }

    /// Tries it once; `None`: it would block.
    fn attempt(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let socket = self.socket.bind(py);
        let outcome = match &self.work {
            Work::Call(name, arguments) => socket.call_method1(name, arguments.bind(py)),
            Work::Accept => socket.call_method0(intern!(py, "accept")).and_then(|accepted| {
                accepted.get_item(0)?.call_method1(intern!(py, "setblocking"), (false,))?;
                Ok(accepted)
            }),
            Work::Send(bytes, sent) => return self.send(py, bytes, sent),
            Work::Connect(address, begun) if begun.replace(py, true) => {
                return self.connected(py, address.bind(py)).map(Some);
            }
            Work::Connect(address, _) => socket.call_method1(intern!(py, "connect"), (address,)),
        };
        match outcome {
            Ok(result) => Ok(Some(result.unbind())),
            // The listener's queue is full: nothing has begun, and nothing would say when there is room.
            Err(raised) if matches!(self.work, Work::Connect(..)) && says_again(py, &raised)? => Err(raised),
            Err(raised) if would_block(py, &raised) => Ok(None),
            Err(raised) => Err(raised),
        }
    }

    /// Its number now: what was closed since has none, and says so.
    fn descriptor(&self, py: Python<'_>) -> PyResult<RawFd> {
        let number: RawFd = self.socket.bind(py).call_method0(intern!(py, "fileno"))?.extract()?;
        if number >= 0 { Ok(number) } else { Err(closed(py)) }
    }

    fn send(
        &self,
        py: Python<'_>,
        bytes: &PyBuffer<u8>,
        sent: &GilCell<usize>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let (left, descriptor) = (bytes.len_bytes() - sent.get(py), self.descriptor(py)?);
        if left == 0 {
            return Ok(Some(py.None()));
        }
        // SAFETY: the object lent `len_bytes` bytes there until the buffer is dropped, `sent` never exceeds
        // them, and nothing changes them meanwhile without the interpreter's lock, which is held.
        let slice =
            unsafe { std::slice::from_raw_parts(bytes.buf_ptr().cast::<u8>().add(sent.get(py)), left) };
        // SAFETY: the socket object owns the number and is kept; it said just now that it is not closed.
        let to = unsafe { BorrowedFd::borrow_raw(descriptor) };
        match socket::send(to, slice).map_err(|error| os_error(&error))? {
            Some(count) if count == left => Ok(Some(py.None())),
            count => {
                sent.set(py, sent.get(py) + count.unwrap_or(0));
                Ok(None)
            }
        }
    }

    /// How connecting ended.
    fn connected(&self, py: Python<'_>, address: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        // SAFETY: as in `send`.
        let socket = unsafe { BorrowedFd::borrow_raw(self.descriptor(py)?) };
        match socket::take_error(socket) {
            Ok(()) => Ok(py.None()),
            Err(error) => {
                let number = error.raw_os_error().unwrap_or(0);
                Err(PyOSError::new_err((number, format!("Connect call failed {}", address.str()?))))
            }
        }
    }
}

/// What the system would say of a descriptor that is closed.
#[cold]
fn closed(py: Python<'_>) -> PyErr {
    let number = py.import("errno").and_then(|errno| errno.getattr("EBADF")).map(Bound::unbind);
    number.map_or_else(|raised| raised, |number| PyOSError::new_err((number, "Bad file descriptor")))
}

/// Whether a connection is not even being made.
fn says_again(py: Python<'_>, raised: &PyErr) -> PyResult<bool> {
    if !raised.is_instance_of::<PyBlockingIOError>(py) {
        return Ok(false);
    }
    let number: i32 = raised.value(py).getattr(intern!(py, "errno"))?.extract()?;
    Ok(Error::from_raw_os_error(number).kind() == ErrorKind::WouldBlock)
}

#[pymethods]
impl Operation {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.socket)?;
        match &self.work {
            Work::Call(_, arguments) => visit.call(arguments)?,
            Work::Connect(address, _) => visit.call(address)?,
            Work::Accept | Work::Send(..) => {}
        }
        self.waiter.traverse(&visit)?;
        self.result.traverse(&visit)
    }

    fn __clear__(&self, py: Python<'_>) {
        drop((self.waiter.take(py), self.result.take(py)));
    }

    /// A method of the socket that reads.
    #[staticmethod]
    #[pyo3(signature = (sock, name, *args))]
    fn reading(sock: Bound<'_, PyAny>, name: Bound<'_, PyString>, args: Bound<'_, PyTuple>) -> Self {
        Self::new(sock, Side::Read, Work::Call(name.unbind(), args.unbind()))
    }

    /// A method of the socket that writes.
    #[staticmethod]
    #[pyo3(signature = (sock, name, *args))]
    fn writing(sock: Bound<'_, PyAny>, name: Bound<'_, PyString>, args: Bound<'_, PyTuple>) -> Self {
        Self::new(sock, Side::Write, Work::Call(name.unbind(), args.unbind()))
    }

    /// A connection taken from a listener, with its address.
    #[staticmethod]
    fn accepting(sock: Bound<'_, PyAny>) -> Self {
        Self::new(sock, Side::Read, Work::Accept)
    }

    /// All bytes of a buffer.
    #[staticmethod]
    fn sending(sock: Bound<'_, PyAny>, data: PyBuffer<u8>) -> Self {
        Self::new(sock, Side::Write, Work::Send(data, GilCell::new(0)))
    }

    /// A connection to an address in numbers.
    #[staticmethod]
    fn connecting(sock: Bound<'_, PyAny>, address: Py<PyAny>) -> Self {
        Self::new(sock, Side::Write, Work::Connect(address, GilCell::new(false)))
    }

    /// Tries it, unless it is done, and watches the socket if it would block: a future then, behind which it
    /// is to be called again; `None` if there is a result.
    fn advance<'py>(slf: &Bound<'py, Self>, owner: &Bound<'py, Loop>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, this) = (slf.py(), slf.get());
        if this.result.is_some(py) {
            return Ok(None);
        }
        if let Some(result) = this.attempt(py)? {
            this.result.set(py, Some(result));
            return Ok(None);
        }
        let descriptor = this.descriptor(py)?;
        owner.call_method1(intern!(py, "_ensure_fd_no_transport"), (descriptor,))?;
        let waiter = owner.call_method0(intern!(py, "create_future"))?;
        owner.get().watch(py, descriptor, this.side, Target::Operation(slf.clone().unbind()))?;
        this.watched.set(py, Some(descriptor));
        this.waiter.set(py, Some(waiter.clone().unbind()));
        Ok(Some(waiter))
    }

    /// Nothing waits for the socket any more.
    fn end(&self, owner: &Bound<'_, Loop>) -> PyResult<()> {
        self.waiter.set(owner.py(), None);
        self.unwatch(owner)
    }

    /// What it brought, once.
    fn result(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.result.take(py)
    }
}
