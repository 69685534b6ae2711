//! A server's listening socket: connections are taken a batch per turn, in one native call.
//!
//! Purpose: between the kernel's queue and the protocol's factory stands no task and no Python of ours but
//! what makes the socket object. The listening socket is Python's and closes the descriptor. Invariants:
//! the callback of a connection owns its descriptor; each connection has a copy of the context in which
//! serving began; a listener that was closed by what a connection did accepts no more. Checked by
//! `tests/test_loop_sockets.py` and CPython's own tests of asyncio.

use super::address::Addresses;
use super::core::Loop;
use super::foreign::{self, call_one, call_two};
use super::io::{Side, Target};
use super::os_error;
use super::turn::report_raised;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use thalweg_sys::socket;

/// Takes connections in and hands them over.
#[pyclass(module = "thalweg._native", frozen)]
pub(crate) struct Acceptor {
    descriptor: RawFd,
    pub(crate) socket: Py<PyAny>,
    /// Called as `connected(descriptor, address)`.
    connected: Py<PyAny>,
    /// Called with what the system said when it gave none.
    refused: Py<PyAny>,
    turn_connections_max: usize,
    context: Py<PyAny>,
    addresses: Addresses,
}

impl Acceptor {
    /// Has a listening, non-blocking socket watched.
    pub(crate) fn start(
        owner: &Bound<'_, Loop>,
        socket: &Bound<'_, PyAny>,
        connected: Py<PyAny>,
        refused: Py<PyAny>,
        turn_connections_max: usize,
    ) -> PyResult<()> {
        let py = owner.py();
        let descriptor: RawFd = socket.call_method0(intern!(py, "fileno"))?.extract()?;
        let acceptor = Self {
            descriptor,
            socket: socket.clone().unbind(),
            connected,
            refused,
            turn_connections_max,
            context: foreign::current_context(py)?,
            addresses: Addresses::default(),
        };
        let target = Target::Listener(Py::new(py, acceptor)?);
        owner.get().watch(py, descriptor, Side::Read, target)
    }

    /// Connections wait, or did.
    pub(crate) fn ready(&self, owner: &Bound<'_, Loop>) -> PyResult<()> {
        let py = owner.py();
        for _ in 0..self.turn_connections_max {
            let number: RawFd = self.socket.bind(py).call_method0(intern!(py, "fileno"))?.extract()?;
            if number != self.descriptor {
                return Ok(());
            }
            // SAFETY: the socket object that owns the descriptor is kept, and said just now that it is not
            // closed.
            let listener = unsafe { BorrowedFd::borrow_raw(self.descriptor) };
            let context = foreign::copy_context(self.context.bind(py))?;
            let (told, goes_on) = match socket::accept_from(listener) {
                Ok(None) => return Ok(()),
                Ok(Some((connection, peer))) => {
                    let address = self.addresses.of_peer(py, peer)?;
                    let number = connection.into_raw_fd().into_pyobject(py)?;
                    let call = || call_two(self.connected.bind(py), &number, &address);
                    (foreign::in_context(&context, call), true)
                }
                Err(error) => {
                    let raised = os_error(&error).into_value(py).into_bound(py).into_any();
                    (foreign::in_context(&context, || call_one(self.refused.bind(py), &raised)), false)
                }
            };
            if let Err(raised) = told {
                report_raised(owner, raised, "Exception while accepting a connection")?;
            }
            if !goes_on {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[pymethods]
impl Acceptor {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for object in [&self.socket, &self.connected, &self.refused, &self.context] {
            visit.call(object)?;
        }
        self.addresses.traverse(&visit)
    }
}
