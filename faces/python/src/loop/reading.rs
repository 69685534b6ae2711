//! The reading half of a connection: bytes to the protocol, in whichever way it wants them. All of it runs in
//! the transport's context, which the caller of [`read_ready`](StreamTransport::read_ready) has entered.

use super::endpoint::would_block;
use super::foreign::call_one;
use super::io::Side;
use super::os_error;
use super::stream::{Receiver, StreamTransport};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use thalweg_sys::socket;

/// How much one read takes at most.
const READ_BYTES_MAX: usize = 256 * 1024;

impl StreamTransport {
    pub(crate) fn read_ready(&self, slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let receiver = self.receiver.with(py, |receiver| match receiver {
            Some(Receiver::Data(call)) => (call.clone_ref(py), None),
            Some(Receiver::Buffer(get, updated)) => (get.clone_ref(py), Some(updated.clone_ref(py))),
            None => (py.None(), None),
        })?;
        match receiver {
            (call, None) => self.read_data(slf, call.bind(py)),
            (get, Some(updated)) => self.read_into(slf, get.bind(py), updated.bind(py)),
        }
    }

    #[inline]
    fn read_data(&self, slf: &Bound<'_, Self>, data_received: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, owner) = (slf.py(), self.owner(slf.py())?);
        let received = owner.get().scratch.with(py, |scratch| {
            scratch.clear();
            scratch.reserve(READ_BYTES_MAX);
            let count = socket::receive(self.borrowed(), scratch, READ_BYTES_MAX)?;
            Ok::<_, std::io::Error>(count.map(|_| PyBytes::new(py, scratch)))
        })?;
        match received {
            Ok(None) => Ok(()),
            Ok(Some(data)) if data.as_bytes().is_empty() => self.peer_ended(slf),
            Ok(Some(data)) => {
                let told = call_one(data_received, &data).map(drop);
                told.or_else(|raised| {
                    Self::fatal(slf, raised, "Fatal error: protocol.data_received() call failed.")
                })
            }
            Err(error) => Self::fatal(slf, os_error(&error), "Fatal read error on socket transport"),
        }
    }

    fn read_into(
        &self,
        slf: &Bound<'_, Self>,
        get_buffer: &Bound<'_, PyAny>,
        buffer_updated: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = slf.py();
        let lent = get_buffer.call1((-1,)).and_then(|buffer| match buffer.len()? {
            0 => Err(PyRuntimeError::new_err("get_buffer() returned an empty buffer")),
            _ => Ok(buffer),
        });
        let buffer = match lent {
            Ok(buffer) => buffer,
            Err(raised) => {
                return Self::fatal(slf, raised, "Fatal error: protocol.get_buffer() call failed.");
            }
        };
        let Some(socket) = self.socket.share(py) else { return Ok(()) };
        // Python's own call knows every kind of buffer, and when it may not be written to.
        let count = match socket.bind(py).call_method1(intern!(py, "recv_into"), (buffer,)) {
            Ok(count) => count,
            Err(raised) if would_block(py, &raised) => return Ok(()),
            Err(raised) => return Self::fatal(slf, raised, "Fatal read error on socket transport"),
        };
        if !count.is_truthy()? {
            return self.peer_ended(slf);
        }
        call_one(buffer_updated, &count)
            .map(drop)
            .or_else(|raised| Self::fatal(slf, raised, "Fatal error: protocol.buffer_updated() call failed."))
    }

    /// The peer sends nothing more.
    fn peer_ended(&self, slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let Some(protocol) = self.protocol.share(py) else { return Ok(()) };
        let said = protocol.bind(py).call_method0(intern!(py, "eof_received"));
        match said.and_then(|goes_on| goes_on.is_truthy()) {
            // The protocol goes on writing.
            Ok(true) => self.unwatch(py, Side::Read),
            Ok(false) => Self::close(slf),
            Err(raised) => Self::fatal(slf, raised, "Fatal error: protocol.eof_received() call failed."),
        }
    }
}
